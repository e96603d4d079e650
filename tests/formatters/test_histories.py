"""What clients send back of a conversation, in every dialect alike: empty contents, arguments that are no JSON, results
of several calls, images in them, reasoning.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from ..kit.api.conversation import carried
from ..kit.api.dialects import CONVERSING, parse
from ..kit.api.engine import media_parts
from ..kit.api.errors import PayloadError
from ..kit.api.options import typed_settings
from ..kit.api.types import Conversation, ParsedRequest, said
from ..kit.rows import each_row

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


def test_every_dialect_is_there() -> None:
    assert set(CHATS) == {known.name for known in CONVERSING}


def asked(dialect: str, *history: Any) -> ParsedRequest:
    field = "input" if dialect == "responses" else "messages"
    body: dict[str, Any] = {field: [*history], "model": "served"}
    if dialect == "anthropic":
        body["max_tokens"] = 5
    return parse(dialect, body, SETTINGS)


def messages(dialect: str, *history: Any) -> list[dict[str, Any]]:
    """What the template gets of a history, after which the user says more."""
    (generation,) = asked(dialect, *history, turn("user", "go on")).generations
    return said(generation.prompt)


# --- Empty contents ---


@each_row("dialect", CALLS)
@each_row("form", EMPTY)
def test_a_result_may_be_empty(dialect: str, form: str) -> None:
    result = messages(dialect, *CALLS[dialect]("{}" if dialect != "anthropic" else {}, EMPTY[form], ""))[1]
    assert (result["role"], result["content"]) == ("tool", "")


@each_row("dialect", CALLS)
@each_row("form", EMPTY)
def test_nothing_may_be_said_beside_a_call(dialect: str, form: str) -> None:
    said = messages(dialect, *CALLS[dialect]("{}" if dialect != "anthropic" else {}, "5", EMPTY[form]))
    assert [message["role"] for message in said] == ["assistant", "tool", "user"]
    assert said[0].get("content") in (None, "")
    assert len(said[0]["tool_calls"]) == 1


@each_row("dialect", CHATS)
@each_row("form", EMPTY)
def test_the_assistant_may_have_said_nothing(dialect: str, form: str) -> None:
    said = messages(dialect, turn("user", "hi"), turn("assistant", EMPTY[form]))
    assert [(message["role"], message["content"]) for message in said[1:2]] == [("assistant", "")]


@each_row("dialect", CHATS)
@each_row("form", ["text", "list"])
def test_the_user_may_say_nothing(dialect: str, form: str) -> None:
    """As in vLLM's server; OpenAI takes the text alone."""
    said = messages(dialect, turn("user", EMPTY[form]), turn("assistant", "so"))
    assert [(message["role"], message["content"]) for message in said[:2]] == [("user", ""), ("assistant", "so")]


@each_row("dialect", CHATS)
@each_row("form", ["text", "list"])
def test_a_system_prompt_may_be_empty(dialect: str, form: str) -> None:
    """Anthropic's is joined of all that there are, so that nothing is left of it."""
    said = messages(dialect, turn("system", EMPTY[form]), turn("user", "hi"), turn("assistant", "so"))
    assert [message["content"] for message in said if message["role"] == "system"] == [""] * (dialect != "anthropic")


@each_row("dialect", CHATS)
@each_row("role", ["user", "system"])
@each_row("form", ["null", "absent"])
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
    # As Ollama's clients send them, and Anthropic's.
    ({"city": "Påris", "days": [1, None]}, {"city": "Påris", "days": [1, None]}),
    ({}, {}),
]  # fmt: skip
"""What a call has, which may have been cut off or be no JSON, and what the template gets."""


@each_row("dialect", CALLS)
@each_row(("given", "expected"), ARGUMENTS, ids=lambda value: str(value)[:20])
def test_arguments_of_the_past(dialect: str, given: Any, expected: Any) -> None:
    said = messages(dialect, *CALLS[dialect](given, "5", ""))[0]
    assert json.loads(said["tool_calls"][0]["function"]["arguments"]) == expected


@each_row("dialect", CALLS)
@each_row("given", [5, [1], True])
def test_arguments_that_are_refused(dialect: str, given: Any) -> None:
    with pytest.raises(PayloadError) as caught:
        messages(dialect, turn("user", "hi"), *CALLS[dialect](given, "5", ABSENT))
    param = caught.value.param or ""
    assert param == {"anthropic": "messages[1].content[0].input", "responses": "input[2].arguments"}.get(
        dialect, "messages[1].tool_calls[0].function.arguments"
    )


@each_row(("given", "expected"), ARGUMENTS, ids=lambda value: str(value)[:20])
def test_arguments_of_a_deprecated_call(given: Any, expected: Any) -> None:
    call = {"name": "f", "arguments": given}
    said = messages("openai", {"role": "assistant", "content": None, "function_call": call})[0]
    assert json.loads(said["tool_calls"][0]["function"]["arguments"]) == expected


@pytest.mark.engine
@pytest.mark.parametrize("given", [given for given, _ in ARGUMENTS], ids=lambda value: str(value)[:20])
def test_vllm_reads_the_arguments(given: Any) -> None:
    """Its own server is given what ours gives it, and makes an object of it for the template."""
    try:
        from vllm.renderers.chat_utils import _postprocess_messages
    except ImportError:
        from vllm.entrypoints.chat_utils import _postprocess_messages
    said: Any = messages("openai", *openai_history(given, "5", ""))
    _postprocess_messages(said)
    assert isinstance(said[0]["tool_calls"][0]["function"]["arguments"], dict)


# --- Results ---

URL = "https://example.com/a.png"
OTHER = "https://example.com/b.png"


def text(dialect: str, text: str) -> dict[str, Any]:
    return {"type": "input_text" if dialect == "responses" else "text", "text": text}


def image(dialect: str, url: str = URL) -> dict[str, Any]:
    if dialect == "responses":
        return {"type": "input_image", "image_url": url}
    if dialect == "anthropic":
        return {"type": "image", "source": {"type": "url", "url": url}}
    return {"type": "image_url", "image_url": {"url": url}}


def exchange(dialect: str, calls: list[str], *results: tuple[str, Any]) -> list[Any]:
    """Several calls of one answer, and their results, by the calls' ids."""
    if dialect == "responses":
        called = [{"type": "function_call", "call_id": one, "name": "f", "arguments": "{}"} for one in calls]
        return [*called, *({"type": "function_call_output", "call_id": one, "output": said} for one, said in results)]
    if dialect == "anthropic":
        uses = [{"type": "tool_use", "id": one, "name": "f", "input": {}} for one in calls]
        outputs = [{"type": "tool_result", "tool_use_id": one, "content": said} for one, said in results]
        return [turn("assistant", uses), turn("user", outputs)]
    functions = [{"id": one, "type": "function", "function": {"name": "f", "arguments": "{}"}} for one in calls]
    return [
        turn("assistant", None, tool_calls=functions),
        *(turn("tool", said, tool_call_id=one) for one, said in results),
    ]


def result(call_id: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def shown(url: str = URL) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


GO_ON = {"type": "text", "text": "go on"}


@each_row("dialect", CALLS)
def test_the_texts_of_a_result_are_lines(dialect: str) -> None:
    parts = [text(dialect, "a"), text(dialect, "b")]
    assert messages(dialect, *exchange(dialect, ["1"], ("1", parts)))[1:] == [
        result("1", "a\nb"),
        turn("user", "go on"),
    ]
    (first,) = messages(dialect, *exchange(dialect, ["1"], ("1", parts[:1])))[1:-1]
    assert first == result("1", "a")


@each_row("dialect", CALLS)
def test_results_come_in_the_order_of_their_calls(dialect: str) -> None:
    history = exchange(dialect, ["1", "2", "3"], ("3", "c"), ("1", "a"), ("2", "b"))
    called, *results = messages(dialect, *history)
    assert [call["id"] for call in called["tool_calls"]] == ["1", "2", "3"]
    assert results == [result("1", "a"), result("2", "b"), result("3", "c"), turn("user", "go on")]


@each_row("dialect", CALLS)
def test_images_in_results_follow_them(dialect: str) -> None:
    """In a message of the user's: few templates know images in results."""
    parts = [text(dialect, "a"), image(dialect), text(dialect, "b")]
    both = exchange(dialect, ["1", "2"], ("1", parts), ("2", [image(dialect, OTHER)]))
    results = [result("1", "a\nb"), result("2", "")]
    assert messages(dialect, *both)[1:] == [*results, turn("user", [shown(), shown(OTHER), GO_ON])]
    # Where the user says nothing, and where the assistant goes on at once.
    (generation,) = asked(dialect, *both).generations
    assert said(generation.prompt)[1:] == [*results, turn("user", [shown(), shown(OTHER)])]
    seen = messages(dialect, *both, turn("assistant", "so"))
    assert seen[1:] == [
        *results, turn("user", [shown(), shown(OTHER)]), turn("assistant", "so"), turn("user", "go on")
    ]  # fmt: skip


PLACES = {
    "openai": ("messages[1].content[1]", "image_url.url"),
    "azure": ("messages[1].content[1]", "image_url.url"),
    "responses": ("input[1].output[1]", "image_url"),
    "anthropic": ("messages[1].content[0].content[1]", "source.url"),
}


@each_row("dialect", CALLS)
def test_an_image_in_a_result_is_named_by_the_clients_place(dialect: str) -> None:
    made = asked(dialect, *exchange(dialect, ["1"], ("1", [text(dialect, "a"), image(dialect)])))
    prompt = made.generations[0].prompt
    assert isinstance(prompt, Conversation)
    (part,) = media_parts(prompt)
    place, url = PLACES[dialect]
    assert [made.fields.name(path) for path in (part.place, part.field)] == [place, f"{place}.{url}"]


# --- Reasoning ---

SO = {"type": "text", "text": "so"}
THOUGHTS: dict[str, list[Any]] = {
    "openai": [turn("assistant", "so", reasoning="hm")],
    "azure": [turn("assistant", "so", reasoning_content="hm")],
    "minimal": [turn("assistant", "so", reasoning_content="hm")],
    "anthropic": [turn("assistant", [{"type": "thinking", "thinking": "hm"}, SO])],
    "responses": [
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}], "summary": []},
        turn("assistant", "so"),
    ],
}


CARRIED: dict[str, list[Any]] = {
    "anthropic": [turn("assistant", [{"type": "thinking", "thinking": "", "signature": carried("hm")}, SO])],
    "responses": [{"type": "reasoning", "summary": [], "encrypted_content": carried("hm")}, turn("assistant", "so")],
}
"""The dialects whose clients carry reasoning that they do not show."""


@each_row("dialect", CARRIED)
def test_reasoning_that_is_carried_comes_back(dialect: str) -> None:
    assert messages(dialect, *CARRIED[dialect]) == messages(dialect, *THOUGHTS[dialect])


@each_row("dialect", CHATS)
def test_reasoning_has_both_names_that_templates_know(dialect: str) -> None:
    assert messages(dialect, turn("user", "hi"), *THOUGHTS[dialect])[1] == {
        "role": "assistant", "content": "so", "reasoning": "hm", "reasoning_content": "hm"
    }  # fmt: skip
