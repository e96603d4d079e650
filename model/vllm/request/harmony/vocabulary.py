"""The vocabulary that openai_harmony writes prompts with, from the tokenizer of the model.

    tokenizer --ranks--> o200k_base.tiktoken, in a folder for the moment --get_encoding--> vLLM's HarmonyEncoding

By itself openai_harmony 0.0.8 downloads the file, which a host without a network cannot; 0.0.11 brings it along. The
tokenizer of gpt-oss has the same tokens, so that the file can be made of it, byte for byte.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ....errors import Fault, OptionError, shown
from ...library.parts import part

__all__ = ["load_encoding", "ranks"]

FOLDER = "TIKTOKEN_ENCODINGS_BASE"
"""The variable by which openai_harmony finds the file's folder."""
FILE = "o200k_base.tiktoken"
SIZE = 199_998
"""Tokens of the file; those from here on are special."""
CHECKSUM = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
"""SHA-256 of the file, as openai_harmony expects it (tiktoken_ext/public_encodings.rs)."""
PRINTED = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
"""Bytes that a vocabulary of bytes writes as the character of the same number (GPT-2's bytes_to_unicode)."""


def load_encoding(tokenizer: Any) -> Any:
    """The HarmonyEncoding, which vLLM keeps; raises OptionError where there is no vocabulary for it."""
    get_encoding = part("vllm.entrypoints.openai.parser.harmony_utils:get_encoding")
    failure: type[Exception] = part("openai_harmony:HarmonyError")
    if given := os.environ.get(FOLDER):
        try:
            return get_encoding()
        except failure as error:
            fault = Fault("model_id", str(error), f"a folder with {FILE}", shown(given), source=FOLDER)
            raise OptionError.of_all([fault]) from error
    made = ranks(tokenizer.get_vocab())
    if hashlib.sha256(made).hexdigest() != CHECKSUM:
        raise OptionError.of(
            "model_id",
            "the tokenizer of this model of type gpt_oss has not gpt-oss's tokens (o200k_harmony), in "
            "which its prompts are written: put gpt-oss's tokenizer.json into the model's folder, or set the variable "
            f"{FOLDER} to a folder with {FILE}",
        )
    with TemporaryDirectory() as folder:
        Path(folder, FILE).write_bytes(made)
        os.environ[FOLDER] = folder
        try:
            return get_encoding()
        finally:
            del os.environ[FOLDER]


def ranks(vocabulary: Mapping[str, int]) -> bytes:
    """The first SIZE tokens in tiktoken's form: a line for each, its bytes in Base64 and its number.

    Empty where one of them is not written as bytes are.
    """
    written = {chr(byte): byte for byte in PRINTED}
    others = (byte for byte in range(256) if byte not in PRINTED)
    written |= {chr(256 + count): byte for count, byte in enumerate(others)}
    tokens = sorted((number, token) for token, number in vocabulary.items() if number < SIZE)
    try:
        return b"".join(
            b"%b %d\n" % (base64.b64encode(bytes(written[one] for one in token)), number) for number, token in tokens
        )
    except KeyError:
        return b""
