"""What clients send back of a conversation, in every dialect alike: empty contents, arguments that are no JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from ..kit.api.dialects import parse
from ..kit.api.errors import PayloadError
from ..kit.api.options import typed_settings
from ..kit.api.types import said

SETTINGS = typed_settings(model_name="served")
ABSENT = object()
"""The field is not there."""
EMPTY = {"text": "", "list": [], "null": None, "absent": ABSENT}


def turn(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, **({} if content is ABSENT else {"content": content}), **more}


def openai_history(arguments: Any, result: Any, beside: Any) -> list[Any]:
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return [turn("assistant", beside, tool_calls=[call]), turn("tool", result, tool_call_id="call_1")]


def anthropic_history(arguments: Any, result: Any, beside: Any) -> list[Any]:
    """Calls are parts of a content: there is nothing beside them."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": arguments}
    output: dict[str, Any] = {"type": "tool_result", "tool_use_id": "toolu_1"}
    if result is not ABSENT:
        output["content"] = result
    return [turn("assistant", [call]), turn("user", [output])]


def responses_history(arguments: Any, result: Any, beside: Any) -> list[Any]:
    output: dict[str, Any] = {"type": "function_call_output", "call_id": "call_1"}
    if result is not ABSENT:
        output["output"] = result
    call = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": arguments}
    return [turn("assistant", beside), call, output]


CALLS: dict[str, Callable[[Any, Any, Any], list[Any]]] = {
    "openai": openai_history,
    "azure": openai_history,
    "responses": responses_history,
    "anthropic": anthropic_history,
}
"""The dialects that have calls: how a call and its result are sent back."""
CHATS = (*CALLS, "minimal")


def messages(dialect: str, *history: Any) -> list[dict[str, Any]]:
    """What the template gets of a history, after which the user says more."""
    field = "input" if dialect == "responses" else "messages"
    body: dict[str, Any] = {field: [*history, turn("user", "go on")], "model": "served"}
    if dialect == "anthropic":
        body["max_tokens"] = 5
    (generation,) = parse(dialect, body, SETTINGS).generations
    return said(generation.prompt)


# --- Empty contents ---


@pytest.mark.parametrize("dialect", CALLS)
@pytest.mark.parametrize("form", EMPTY)
def test_a_result_may_be_empty(dialect: str, form: str) -> None:
    result = messages(dialect, *CALLS[dialect]("{}" if dialect != "anthropic" else {}, EMPTY[form], ""))[1]
    assert (result["role"], result["content"]) == ("tool", "")


@pytest.mark.parametrize("dialect", CALLS)
@pytest.mark.parametrize("form", EMPTY)
def test_nothing_may_be_said_beside_a_call(dialect: str, form: str) -> None:
    said = messages(dialect, *CALLS[dialect]("{}" if dialect != "anthropic" else {}, "5", EMPTY[form]))
    assert [message["role"] for message in said] == ["assistant", "tool", "user"]
    assert said[0].get("content", "") == ""
    assert len(said[0]["tool_calls"]) == 1


@pytest.mark.parametrize("dialect", CHATS)
@pytest.mark.parametrize("form", EMPTY)
def test_the_assistant_may_have_said_nothing(dialect: str, form: str) -> None:
    said = messages(dialect, turn("user", "hi"), turn("assistant", EMPTY[form]))
    assert [(message["role"], message["content"]) for message in said[1:2]] == [("assistant", "")]


@pytest.mark.parametrize("dialect", CHATS)
@pytest.mark.parametrize("form", ["text", "list"])
def test_the_user_may_say_nothing(dialect: str, form: str) -> None:
    """As in vLLM's server; OpenAI takes the text alone."""
    said = messages(dialect, turn("user", EMPTY[form]), turn("assistant", "so"))
    assert [(message["role"], message["content"]) for message in said[:2]] == [("user", ""), ("assistant", "so")]


@pytest.mark.parametrize("dialect", CHATS)
@pytest.mark.parametrize("form", ["text", "list"])
def test_a_system_prompt_may_be_empty(dialect: str, form: str) -> None:
    """Anthropic's is joined of all that there are, so that nothing is left of it."""
    said = messages(dialect, turn("system", EMPTY[form]), turn("user", "hi"), turn("assistant", "so"))
    assert [message["content"] for message in said if message["role"] == "system"] == [""] * (dialect != "anthropic")


@pytest.mark.parametrize("dialect", CHATS)
@pytest.mark.parametrize("role", ["user", "system"])
@pytest.mark.parametrize("form", ["null", "absent"])
def test_what_users_and_systems_say_must_be_there(dialect: str, role: str, form: str) -> None:
    """As at OpenAI's and Anthropic's: such a message is a client's mistake."""
    with pytest.raises(PayloadError) as caught:
        messages(dialect, turn(role, EMPTY[form]))
    assert caught.value.param == ("input" if dialect == "responses" else "messages") + "[0].content"


# --- Arguments ---

ARGUMENTS: list[tuple[Any, Any]] = [
    ('{"city": "Paris"}', {"city": "Paris"}),
    ("", {}),
    (" \n", {}),
    ("null", {}),
    *(
        (text, {"raw_arguments": text})
        for text in (
            '{"city": "Par', "{", '{"city": "Paris"} so', "Paris", "[1]", "5", '"Paris"', "NaN", '{"a": NaN}',
            "[" * 100_000,
        )
    ),
]  # fmt: skip
"""What a call has, which may have been cut off or be no JSON, and what the template gets."""


@pytest.mark.parametrize("dialect", CALLS)
@pytest.mark.parametrize(("given", "expected"), ARGUMENTS, ids=lambda value: str(value)[:20])
def test_arguments_of_the_past(dialect: str, given: str, expected: Any) -> None:
    said = messages(dialect, *CALLS[dialect](given, "5", ""))[0]
    assert json.loads(said["tool_calls"][0]["function"]["arguments"]) == expected


def test_arguments_of_a_deprecated_call() -> None:
    call = {"name": "f", "arguments": '{"city": "Par'}
    said = messages("openai", {"role": "assistant", "content": None, "function_call": call})[0]
    assert json.loads(said["tool_calls"][0]["function"]["arguments"]) == {"raw_arguments": '{"city": "Par'}


@pytest.mark.engine
@pytest.mark.parametrize("given", [given for given, _ in ARGUMENTS], ids=lambda value: str(value)[:20])
def test_vllm_reads_the_arguments(given: str) -> None:
    """Its own server is given what ours gives it, and makes an object of it for the template."""
    try:
        from vllm.renderers.chat_utils import _postprocess_messages
    except ImportError:
        from vllm.entrypoints.chat_utils import _postprocess_messages
    said: Any = messages("openai", *openai_history(given, "5", ""))
    _postprocess_messages(said)
    assert isinstance(said[0]["tool_calls"][0]["function"]["arguments"], dict)
