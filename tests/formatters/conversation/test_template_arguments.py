"""Effort and thinking as variables of the chat template, by one rule in every dialect."""

from __future__ import annotations

from typing import Any

from ...kit.answers.forms import CONVERSATIONS, FORMS
from ...kit.api.errors import UnsupportedError
from ...kit.api.options import typed_settings
from ...kit.api.types import Conversation, Response, Settings
from ...kit.rows import each_row

SILENT = typed_settings()
THINKING = typed_settings(reasoning_parser="qwen3")
ON = {"enable_thinking": True, "thinking": True}
OFF = {"enable_thinking": False, "thinking": False}


def efforts(dialect: str, effort: str) -> dict[str, Any]:
    """How a dialect says it."""
    if dialect == "responses":
        return {"reasoning": {"effort": effort}}
    return {"output_config": {"effort": effort}} if dialect == "anthropic" else {"reasoning_effort": effort}


def variables(dialect: str, settings: Settings, **fields: Any) -> dict[str, Any]:
    (generation,) = FORMS[dialect].asked(settings, **fields).generations
    assert isinstance(generation.prompt, Conversation)
    return generation.prompt.template_arguments


@each_row("dialect", CONVERSATIONS)
@each_row("effort", ["none", "minimal", "low", "medium", "high"])
def test_an_effort(dialect: str, effort: str) -> None:
    said = {"reasoning_effort": effort}
    asked = efforts(dialect, effort)
    thinks = OFF if effort == "none" else ON
    assert variables(dialect, THINKING, **asked) == said | thinks
    # Without a reasoning parser the model is not told to think: it would be in the text.
    assert variables(dialect, SILENT, **asked) == said | (OFF if effort == "none" else {})


@each_row("dialect", CONVERSATIONS)
@each_row("settings", [SILENT, THINKING], ids=["silent", "thinking"])
def test_nothing_is_the_models_own(dialect: str, settings: Settings) -> None:
    assert variables(dialect, settings) == {}


@each_row("dialect", CONVERSATIONS)
@each_row("name", ["enable_thinking", "thinking", "reasoning_effort"])
def test_what_the_client_says_itself_stays(dialect: str, name: str) -> None:
    made = variables(dialect, THINKING, chat_template_kwargs={name: "own", "b": 1}, **efforts(dialect, "none"))
    thinks = {} if name in OFF else OFF
    assert made == {"reasoning_effort": "none", **thinks, name: "own", "b": 1}


@each_row("dialect", CONVERSATIONS)
@each_row("name", ["chat_template", "tokenize", "padding", "max_length", "messages"])
def test_what_is_none_of_the_templates(dialect: str, name: str) -> None:
    answer = FORMS[dialect].answer(SILENT, chat_template_kwargs={name: 1})
    assert isinstance(answer, Response)
    assert isinstance(answer.failure, UnsupportedError)
    assert answer.failure.param == f"chat_template_kwargs.{name}"
