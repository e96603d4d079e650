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
import sys
from types import SimpleNamespace
from tokenizers import Tokenizer
from lmi.model.errors import OptionError
from lmi.model.vllm.request.harmony.vocabulary import load_encoding
raw = Tokenizer.from_file(sys.argv[1])
vocabulary = {} if len(sys.argv) > 2 else raw.get_vocab()
try:
    encoding = load_encoding(SimpleNamespace(get_vocab=lambda: vocabulary))
    assert encoding.encode("Hi 👩 日本") == raw.encode("Hi 👩 日本").ids
    print("loaded")
except OptionError as error:
    print(error)
"""


def start(*arguments: str, **variables: str) -> str:
    """What a process says that loads it, and that reaches no other host."""
    from .....kit.models.vocabularies import vocabulary

    file = str(vocabulary("gptoss") / "tokenizer.json")
    unreachable = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9")
    environment = {**os.environ, **unreachable, **variables}
    command = [sys.executable, "-c", SCRIPT, file, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=True)
    return done.stdout.strip().splitlines()[-1]


def test_it_is_made_of_the_tokenizer() -> None:
    assert start() == "loaded"


def test_a_folder_is_taken_instead(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(ranks(front().get_tokenizer().get_vocab()))
    assert start("other", TIKTOKEN_ENCODINGS_BASE=str(tmp_path)) == "loaded"


def test_a_folder_without_the_file(tmp_path: Path) -> None:
    told = start(TIKTOKEN_ENCODINGS_BASE=str(tmp_path))
    assert told.startswith(f"TIKTOKEN_ENCODINGS_BASE: expected a folder with {FILE}, got '{tmp_path}': ")


def test_another_tokenizer() -> None:
    with pytest.raises(OptionError, match=r"put gpt-oss's tokenizer\.json into the model's folder, or set "):
        load_encoding(SimpleNamespace(get_vocab=lambda: {"a": 0}))
