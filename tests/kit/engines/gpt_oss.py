"""gpt-oss without weights: vLLM's front of a tiny one with the real vocabulary, and our renderer on it."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import msgspec

from lmi.model.vllm.request.harmony.vocabulary import load_encoding

from ..answers.openai import SETTINGS
from ..api.engine import ChatRenderer, GuideBackends, renderer_of
from ..api.types import Token
from ..models.vocabularies import vocabulary

__all__ = ["front", "gpt_oss", "guide_backends", "tokens", "with_options"]

FIRST_SPECIAL = 199_998


@cache
def front() -> Any:
    """What a Core has of a model before it is started."""
    from vllm import EngineArgs

    config = EngineArgs(
        model=str(vocabulary("gptoss")), enforce_eager=True, load_format="dummy", max_model_len=4096
    ).create_engine_config()
    made = renderer_of(config)
    return SimpleNamespace(
        get_tokenizer=made.get_tokenizer,
        model_config=config.model_config,
        renderer=made,
        images=None,
        end_ids=frozenset[int],
    )


@cache
def gpt_oss() -> ChatRenderer:
    """The chat side of an engine without options."""
    return with_options()


def with_options(**options: Any) -> ChatRenderer:
    """That of an engine with these options."""
    folder = str(vocabulary("gptoss"))
    settings = msgspec.structs.replace(SETTINGS, model_dir=folder, model_id=folder, **options)
    with patch("lmi.model.vllm.request.harmony.harmony.load_encoding", _encoding):
        return ChatRenderer(front(), settings)


_encoding = cache(load_encoding)
"""Made once: of 200,000 tokens."""


@cache
def guide_backends(name: str) -> GuideBackends:
    """Those of conversations, where the options name this one."""
    config = SimpleNamespace(structured_outputs_config=SimpleNamespace(backend=name), model_config=front().model_config)
    return GuideBackends(config, front().get_tokenizer(), by_request=True).of_xgrammar()


def tokens(text: str) -> list[Token]:
    """The tokens of an answer, marks and all, as an engine brings them: marks have no text."""
    from tokenizers.decoders import DecodeStream

    tokenizer = front().get_tokenizer()
    raw = tokenizer.backend_tokenizer
    stream = DecodeStream(skip_special_tokens=True)
    return [
        Token(token_id, stream.step(raw, token_id) or "", special=token_id >= FIRST_SPECIAL)
        for token_id in tokenizer.encode(text, add_special_tokens=False)
    ]
