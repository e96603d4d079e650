"""Items of an input and the messages that they become; what is refused is named by its place."""

from __future__ import annotations

from typing import Any

import pytest

from ...kit.answers.responses import asked, conversation
from ...kit.api.dialects import MAX_MESSAGES
from ...kit.api.engine import media_parts
from ...kit.api.errors import ParameterError, PayloadError, RequestError, UnsupportedError
from ...kit.api.types import Conversation, said
from ...kit.rows import each_row

PIXEL = "data:image/png;base64,iVBORw0KGgo="
CALL = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": '{"a": 1}', "id": "fc_1"}
CALLED = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "5"}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
THINKING = {"reasoning": "hm", "reasoning_content": "hm"}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "so", "annotations": []}]}
SO = "so"


def messages(*items: Any, **fields: Any) -> list[Any]:
    return said(conversation([*items], **fields))


def test_a_text_is_the_users() -> None:
    assert said(conversation("Hello")) == [{"content": "Hello", "role": "user"}]


def test_instructions_come_first() -> None:
    assert [one["role"] for one in messages({"role": "user", "content": "a"}, instructions="Be brief.")] == [
        "system",
        "user",
    ]


@each_row("role", ["user", "system", "developer"])
@each_row("full", [False, True])
def test_messages(role: str, full: bool) -> None:
    kind = {"type": "message", "status": "completed", "id": "msg_1"} if full else {}
    (text,) = messages({"role": role, "content": "a", **kind})
    (parts,) = messages({"role": role, "content": [{"type": "input_text", "text": "a"}], **kind})
    assert (text["role"], text["content"]) == (role, "a")
    assert (parts["role"], parts["content"]) == (role, "a")


def test_an_image() -> None:
    part = {"type": "input_image", "image_url": PIXEL, "detail": "low", "file_id": None}
    (message,) = messages({"role": "user", "content": [{"type": "input_text", "text": "a"}, part]})
    assert message["content"][1] == {
        "type": "image_url",
        "image_url": {"url": PIXEL},
    }


def test_what_the_assistant_said() -> None:
    refusal = {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}
    assert [one["content"] for one in messages(SAID, refusal, {"role": "assistant", "content": "yes"})] == [
        SO,
        "no",
        "yes",
    ]


@each_row(
    ("items", "expected"),
    [
        ([THOUGHT, SAID], [{"content": SO, "role": "assistant", **THINKING}]),
        ([THOUGHT, CALL], [{"content": None, "role": "assistant", **THINKING, "tool_calls": [CALLED]}]),
        ([THOUGHT, SAID, CALL], [{"content": SO, "role": "assistant", **THINKING, "tool_calls": [CALLED]}]),
        ([CALL, CALL], [{"content": None, "role": "assistant", "tool_calls": [CALLED, CALLED]}]),
        ([SAID, THOUGHT], [{"content": SO, "role": "assistant"}, {"content": "", "role": "assistant", **THINKING}]),
        ([SAID, SAID], [{"content": SO, "role": "assistant"}] * 2),
        (
            [CALL, OUTPUT, SAID],
            [
                {"content": None, "role": "assistant", "tool_calls": [CALLED]},
                {"role": "tool", "tool_call_id": "call_1", "content": "5"},
                {"content": SO, "role": "assistant"},
            ],
        ),
    ],
)
def test_what_is_one_turn_is_one_message(items: list[Any], expected: list[Any]) -> None:
    found = messages(*items)
    for message in found:
        if "tool_calls" in message:
            message.setdefault("content", "")
    assert found == expected


def test_a_reasoning_that_others_made() -> None:
    summed = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "so"}], "content": None}
    assert messages(summed)[0]["reasoning"] == "so"
    encrypted = {"type": "reasoning", "summary": [], "encrypted_content": "x"}
    assert messages(encrypted, SAID) == [{"content": SO, "role": "assistant"}]


@pytest.mark.parametrize(
    ("beside", "expected"),
    [
        ({"name": "goal"}, {"tool_call_id": "", "name": "goal"}),
        ({"name": "goal", "namespace": "agent"}, {"tool_call_id": "", "name": "agent__goal"}),
        # That of a call needs no name.
        ({"call_id": "call_1", "name": "goal", "caller": {"type": "direct"}}, {"tool_call_id": "call_1"}),
    ],
)
def test_an_output_of_no_call_has_a_name(
    beside: dict[str, Any], expected: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    given = {"type": "function_call_output", "output": "5", **beside}
    assert messages(CALL, OUTPUT, given)[2] == {"role": "tool", "content": "5", **expected}
    assert not caplog.records


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "content": [*parts]}


@each_row(
    ("given", "kind", "param"),
    [
        (5, PayloadError, "input"),
        (None, PayloadError, "input"),
        ([], ParameterError, "input"),
        (["a"], PayloadError, "input[0]"),
        ([{}], PayloadError, "input[0].type"),
        ([{"type": {}}], PayloadError, "input[0].type"),
        ([{"type": "web_search_call", "id": "x"}], UnsupportedError, "input[0].type"),
        ([{"type": "item_reference", "id": "msg_1"}], UnsupportedError, "input[0].type"),
        ([{"role": "king", "content": "a"}], UnsupportedError, "input[0].role"),
        ([{"role": "user"}], PayloadError, "input[0].content"),
        ([user({"type": "input_file", "file_id": "f"})], UnsupportedError, "input[0].content[0].type"),
        ([user({"type": "output_text", "text": "a"})], UnsupportedError, "input[0].content[0].type"),
        ([user({"text": "a"})], PayloadError, "input[0].content[0].type"),
        ([user({"type": "input_image", "file_id": "f"})], UnsupportedError, "input[0].content[0].file_id"),
        ([user({"type": "input_image"})], PayloadError, "input[0].content[0].image_url"),
        ([user({"type": "input_image", "image_url": "x"})], ParameterError, "input[0].content[0].image_url"),
        ([{**CALL, "arguments": 5}], PayloadError, "input[0].arguments"),
        ([{**CALL, "call_id": ""}], ParameterError, "input[0].call_id"),
        ([{**CALL, "name": None}], PayloadError, "input[0].name"),
        ([{**OUTPUT, "output": 5}], PayloadError, "input[0].output"),
        ([{**OUTPUT, "call_id": 5}], PayloadError, "input[0].call_id"),
        ([{**OUTPUT, "call_id": None}], PayloadError, "input[0].call_id"),
        ([{**OUTPUT, "call_id": None, "name": ""}], PayloadError, "input[0].call_id"),
        ([SAID, {"type": "reasoning", "content": "a"}], PayloadError, "input[1].content"),
        # Whether or not it is what the reasoning is taken from.
        ([{**THOUGHT, "summary": "a"}], PayloadError, "input[0].summary"),
        ([{**THOUGHT, "summary": [{"type": "odd"}]}], UnsupportedError, "input[0].summary[0].type"),
        ([{**THOUGHT, "encrypted_content": 5}], PayloadError, "input[0].encrypted_content"),
        ([{"type": "reasoning", "content": [{"type": "text"}]}], UnsupportedError, "input[0].content[0].type"),
        ([{"role": "user", "content": "a"}] * (MAX_MESSAGES + 1), ParameterError, "input"),
        ([user(*[{"type": "input_text", "text": "a"}] * (MAX_MESSAGES + 1))], ParameterError, "input[0].content"),
        # With the message itself.
        ([user(*[{"type": "input_text", "text": "a"}] * MAX_MESSAGES)], ParameterError, "input"),
    ],
)
def test_faults_are_named_by_their_place(given: Any, kind: type[RequestError], param: str) -> None:
    with pytest.raises(kind) as caught:
        asked(given)
    assert type(caught.value) is kind
    assert caught.value.param == param
    assert len(caught.value.message) < 400


def test_a_refused_image_is_named_by_the_clients_place() -> None:
    """Its message is another one of the template's: instructions come before it."""
    parts = [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": PIXEL}]
    made = asked([{"role": "user", "content": parts}], instructions="Be brief.")
    prompt = made.generations[0].prompt
    assert isinstance(prompt, Conversation)
    (part,) = media_parts(prompt)
    named = [made.fields.name(path) for path in (part.place, part.field)]
    assert named == ["input[0].content[1]", "input[0].content[1].image_url"]
