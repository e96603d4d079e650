"""Every tool parser that the installed vLLM offers: whether option.tool_call_parser takes it, and that text is text."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from lmi.model.events import Token
from lmi.model.generation import Conversation

from .openai_answers import SETTINGS

pytestmark = pytest.mark.engine

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
ANSWER = "It is 5 degrees in Paris, and sunny."


class AnyTokens(dict[str, int]):
    """A vocabulary with whatever special token a family of models has."""

    def __contains__(self, token: object) -> bool:
        return True

    def __missing__(self, token: str) -> int:
        self[token] = 1_000_000 + len(self)
        return self[token]

    def get(self, token: str, default: Any = None) -> int:
        return self[token]


class AnyTokenizer:
    """The demo model's tokenizer with that vocabulary."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = AnyTokens(tokenizer.get_vocab())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def get_vocab(self) -> AnyTokens:
        return self._vocabulary

    @property
    def vocab(self) -> AnyTokens:
        return self._vocabulary

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        return self._vocabulary[tokens] if isinstance(tokens, str) else [self._vocabulary[token] for token in tokens]


@pytest.fixture(scope="module")
def tokenizer(demo_model: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(demo_model)


@pytest.fixture(scope="module")
def model_config(demo_model: Path) -> Any:
    from vllm import EngineArgs

    return EngineArgs(model=str(demo_model), enforce_eager=True).create_model_config()


def side(tokenizer: Any, model_config: Any, **options: Any) -> Any:
    """What an engine with these options has of conversations."""
    from lmi.model.vllm_chat import ChatSide

    llm: Any = SimpleNamespace(get_tokenizer=lambda: tokenizer, model_config=model_config)
    return ChatSide(llm, msgspec.structs.replace(SETTINGS, **options))


def asking() -> Conversation:
    return Conversation(
        messages=({"role": "user", "content": "How is the weather?"},), tools=(WEATHER,), tool_choice="auto"
    )


def plain_answer(tokenizer: Any, model_config: Any, name: str) -> str:
    """The text that a parser leaves of an answer without a call."""
    chat = side(tokenizer, model_config, tool_call_parser=name)
    request = chat.request(asking())
    splitter = chat.splitter(asking(), request, [1, 2, 3])
    ids: list[int] = tokenizer.encode(ANSWER, add_special_tokens=False)
    pieces = [tokenizer.decode([token_id]) for token_id in ids]
    assert "".join(pieces) == ANSWER
    part = splitter.feed([Token(*pair) for pair in zip(ids, pieces, strict=True)], ended=True)
    assert part.calls == []
    return str(part.text)


def outcome(tokenizer: Any, model_config: Any, name: str) -> str:
    """What becomes of ANSWER, or why there is no such parser."""
    try:
        return plain_answer(tokenizer, model_config, name)
    except Exception as error:  # noqa: BLE001 - told by the test
        return f"{type(error).__name__}: {error}"


def test_all(tokenizer: Any, model_config: Any) -> None:
    from vllm.tool_parsers import ToolParserManager

    names = ToolParserManager.list_registered()
    outcomes = {name: outcome(AnyTokenizer(tokenizer), model_config, name) for name in names}
    assert {name: text for name, text in outcomes.items() if text != ANSWER} == {}
