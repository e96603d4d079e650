"""The vocabulary of openai_harmony: that of the model's tokenizer, in a process that can fetch none."""

from __future__ import annotations

import hashlib
import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lmi.model.vllm.request.harmony.vocabulary import load_encoding, ranks

from .....kit.api.errors import OptionError
from .....kit.engines.gpt_oss import front
from .....kit.models.vocabularies import vocabulary
from .....kit.paths import ROOT

pytestmark = pytest.mark.engine

FILE = "o200k_base.tiktoken"
SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
"""Of OpenAI's file, as tiktoken knows it (tiktoken_ext/openai_public.py)."""


def test_the_file_is_openais() -> None:
    openai: Any = importlib.import_module("tiktoken_ext.openai_public")
    made = ranks(front().get_tokenizer().get_vocab())
    assert hashlib.sha256(made).hexdigest() == SHA256
    assert SHA256 in openai.o200k_base.__code__.co_consts


def test_another_vocabulary_has_no_such_file() -> None:
    assert ranks({"a": 0, "Ġb": 1}) == b"YQ== 0\nIGI= 1\n"
    assert ranks({"a b": 0}) == b""


SCRIPT = """
import os, sys
from types import SimpleNamespace
from tokenizers import Tokenizer
from lmi.model.errors import OptionError
from lmi.model.vllm.library.parts import part
from lmi.model.vllm.request.harmony.vocabulary import load_encoding
raw = Tokenizer.from_file(sys.argv[1])
known = raw.get_vocab()
part("vllm.entrypoints.openai.parser.harmony_utils:get_encoding")
for vocabulary, folder in (("own", ""), ("other", sys.argv[2]), ("own", sys.argv[3])):
    if os.fork():
        os.wait()
        continue
    if folder:
        os.environ["TIKTOKEN_ENCODINGS_BASE"] = folder
    try:
        encoding = load_encoding(SimpleNamespace(get_vocab=lambda: known if vocabulary == "own" else {}))
        assert encoding.encode("Hi 👩 日本") == raw.encode("Hi 👩 日本").ids
        told = "loaded"
    except OptionError as error:
        told = error
    print("told", told, flush=True)
    os._exit(0)
"""


def test_it_is_made_of_the_tokenizer_or_taken_from_a_folder(tmp_path: Path) -> None:
    """In processes that reach no other host, and have not loaded it before."""
    whole, empty = tmp_path / "whole", tmp_path / "empty"
    whole.mkdir()
    empty.mkdir()
    (whole / FILE).write_bytes(ranks(front().get_tokenizer().get_vocab()))
    unreachable = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9")
    command = [sys.executable, "-c", SCRIPT, str(vocabulary("gptoss") / "tokenizer.json"), str(whole), str(empty)]
    environment = {**os.environ, **unreachable}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=True)
    made, taken, refused = (line[5:] for line in done.stdout.splitlines() if line.startswith("told "))
    assert (made, taken) == ("loaded", "loaded")
    assert refused.startswith(f"TIKTOKEN_ENCODINGS_BASE: expected a folder with {FILE}, got '{empty}': ")


def test_another_tokenizer() -> None:
    with pytest.raises(OptionError, match=r"put gpt-oss's tokenizer\.json into the model's folder, or set "):
        load_encoding(SimpleNamespace(get_vocab=lambda: {"a": 0}))
