"""Messages of OpenAI chat requests: what templates are given, and how a fault is named by its place."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lmi.formatters.openai import parse

from ...kit.api.errors import LmiError, ParameterError, PayloadError, UnsupportedError
from ...kit.api.options import typed_settings
from ...kit.api.types import Conversation, Request, said
from ...kit.rows import each_row

SETTINGS = typed_settings(unknown_parameters="error")
USER: dict[str, Any] = {"role": "user", "content": "hi"}
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f"}}
CALL: dict[str, Any] = {"id": "call_abc123", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}


def conversation(*messages: Any, **given: Any) -> Conversation:
    (made,) = parse({"messages": list(messages), **given}, Request(b""), SETTINGS).generations
    assert isinstance(made.prompt, Conversation)
    return made.prompt


SEEN = "'text' or 'image_url' or 'audio_url' or 'input_audio' or 'video_url' or 'image_embeds'"
SAME: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "developer", "content": "Be brief.", "name": "dev"},
    {"role": "user", "content": ""},
    {"role": "user", "content": "hi", "name": "Ann"},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    {
        "role": "user",
        "content": [
            {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            {"type": "audio_url", "audio_url": {"url": "data:audio/wav;base64,AAAA"}},
            {"type": "video_url", "video_url": {"url": "https://example.com/a.mp4"}},
            {"type": "image_embeds", "image_embeds": "AAAA"},
        ],
    },
    {"role": "assistant", "content": "hello"},
    {"role": "assistant", "content": "hello", "reasoning": "Hm.", "reasoning_content": "Hm."},
    {"role": "assistant", "content": "hello", "name": "Bob"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": "sunny", "tool_call_id": "call_abc123"},
    {"role": "tool", "content": "sunny", "tool_call_id": "call_abc123", "name": "get_weather"},
    # Whom else a model's template knows, as in vLLM's server.
    {"role": "critic", "content": "No."},
    {"role": "critic", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "name": "Ann"},
]


@each_row("message", SAME)
def test_a_message_is_kept(message: dict[str, Any]) -> None:
    assert said(conversation(message)) == [message]


REWRITTEN: list[tuple[dict[str, Any], dict[str, Any]]] = [
    # What clients send back of an answer, nulls and all (the message of the completions document's example).
    (
        {
            "role": "assistant", "content": "hi", "refusal": None, "annotations": None, "audio": None,
            "function_call": None, "tool_calls": [],
        },
        {"role": "assistant", "content": "hi"},
    ),
    (
        {"role": "assistant", "content": None, "function_call": None, "tool_calls": [CALL]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
    ),
    ({"role": "assistant", "tool_calls": [CALL]}, {"role": "assistant", "content": None, "tool_calls": [CALL]}),
    *(
        ({"role": role, "content": [{"type": "text", "text": "a"}]}, {"role": role, "content": "a"})
        for role in ("system", "developer", "user", "assistant", "critic")
    ),
    ({"role": "assistant", "content": None, "refusal": "No."}, {"role": "assistant", "content": "No."}),
    (
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"role": "assistant", "content": "No."},
    ),
    # vLLM's form without a type; its uuid would name another client's image in the cache.
    (
        {"role": "user", "content": [{"image_url": {"url": "data:image/png;base64,AAAA"}, "uuid": "x"}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]},
    ),
    (
        {"role": "assistant", "tool_calls": [{"id": "x", "function": {"name": "f", "arguments": ""}}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
    ),
]  # fmt: skip


@each_row(("message", "read"), REWRITTEN)
def test_a_message_is_rewritten(message: dict[str, Any], read: dict[str, Any]) -> None:
    assert said(conversation(message)) == [read]


def test_function_calls_of_the_past_become_tool_calls() -> None:
    function = {"name": "f", "arguments": '{"a": 1}'}
    made = conversation(
        USER,
        {"role": "assistant", "content": None, "function_call": function, "tool_calls": []},
        {"role": "function", "name": "f", "content": "42"},
    )
    call = {"id": "call_function_1", "type": "function", "function": function}
    assert said(made) == [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "name": "f", "content": "42", "tool_call_id": "call_function_1"},
    ]


def _parts(*parts: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": list(parts)}


def _called(**fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{**CALL, **fields}]}


ROLES = "'system' or 'developer' or 'user' or 'assistant' or 'tool' or 'function'"
FAULTS: list[tuple[Any, type[LmiError], str]] = [
    ("hi", PayloadError, "messages[1]: expected an object, got 'hi'"),
    *(
        (
            {"role": role, "content": "a"},
            PayloadError,
            f"messages[1].role: expected {ROLES}, got {role}",
        )
        for role in (None, 5)
    ),
    ({"role": "critic"}, PayloadError, "messages[1].content: expected a string or a list of parts, got None"),
    (
        _parts({"type": "refusal", "refusal": "a"}, role="critic"),
        UnsupportedError,
        f"messages[1].content[0].type: expected {SEEN} from the role 'other', got 'refusal'",
    ),
    ({"role": "user"}, PayloadError, "messages[1].content: expected a string or a list of parts, got None"),
    ({"role": "user", "content": 5}, PayloadError, "messages[1].content: expected a string or a list of parts, got 5"),
    ({"role": "user", "content": "a", "name": 5}, PayloadError, "messages[1].name: expected a string, got 5"),
    ({**USER, "odd": 1}, UnsupportedError, "messages[].odd: unknown field"),
    *(
        (
            _parts({"type": kind, kind: {}}),
            UnsupportedError,
            f"messages[1].content[0].type: expected {SEEN} from the role 'user', got '{kind}'",
        )
        for kind in ("audio_embeds", "prompt_embeds")
    ),
    *(
        (
            _parts({"type": "image_embeds", "image_embeds": given}),
            PayloadError,
            f"messages[1].content[0].image_embeds{told}",
        )
        for given, told in (
            ({}, ": expected a tensor in base64, or an object of such, got {}"),
            (None, ": expected"),
            ({"a": 5}, ".a: expected a non-empty string, got 5"),
        )
    ),
    (
        _parts({"type": "audio_url", "audio_url": None, "uuid": "x"}),
        PayloadError,
        "messages[1].content[0].audio_url: expected a URL, or an object with it; no audio is known by its uuid",
    ),
    (
        _parts({"type": "video_url", "video_url": {"url": "ftp://a/b.mp4"}}),
        ParameterError,
        "messages[1].content[0].video_url.url: expected a URL of a video: data:video/...;base64,..., https://... or ",
    ),
    (
        _parts({"type": "input_audio", "input_audio": {"format": "wav"}}),
        PayloadError,
        "messages[1].content[0].input_audio.data: expected a non-empty string, got None",
    ),
    (
        _parts({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav;x,"}}),
        PayloadError,
        "messages[1].content[0].input_audio.format: expected the name of a format, as wav or mp3, got 'wav;x,'",
    ),
    (
        _parts({"type": "image_url"}, role="system"),
        UnsupportedError,
        "messages[1].content[0].type: expected 'text' from the role 'system', got 'image_url'",
    ),
    # vLLM's server takes an image that it has seen by its name.
    (
        _parts({"type": "image_url", "uuid": "x"}),
        PayloadError,
        "messages[1].content[0].image_url: expected a URL, or an object with it; no image is known by its uuid",
    ),
    ({"role": "tool", "content": "a"}, PayloadError, "messages[1].tool_call_id: expected a string, got None"),
    ({"role": "function", "content": "a"}, PayloadError, "messages[1].name: expected a non-empty string, got None"),
    ({"role": "assistant", "tool_calls": 5}, PayloadError, "messages[1].tool_calls: expected a list of tool calls, "),
    (_called(id=None), PayloadError, "messages[1].tool_calls[0].id: expected a string, got None"),
    (_called(type="x"), UnsupportedError, "messages[1].tool_calls[0].type: expected 'function' or 'custom', got 'x'"),
    (_called(function=None), PayloadError, "messages[1].tool_calls[0].function: expected an object, got None"),
    (
        _called(function={"name": "f", "arguments": 5}),
        PayloadError,
        "messages[1].tool_calls[0].function.arguments: expected a JSON object, or one as text, got 5",
    ),
    (
        {"role": "assistant", "function_call": {"name": 5}},
        PayloadError,
        "messages[1].function_call.name: expected a non",
    ),
]


@each_row(("message", "kind", "expected"), FAULTS)
def test_a_fault_is_named_by_its_place(message: Any, kind: type[LmiError], expected: str) -> None:
    with pytest.raises(LmiError) as caught:
        conversation(USER, message)
    assert type(caught.value) is kind
    assert caught.value.message.startswith(expected)
    assert caught.value.param == expected.partition(":")[0]


def test_no_messages() -> None:
    with pytest.raises(ParameterError, match="messages: expected a list of messages, at least 1, got"):
        conversation()


CUSTOM: dict[str, Any] = {"type": "custom", "custom": {"name": "patch", "description": "Changes files"}}


def test_a_call_of_a_custom_tool_comes_back() -> None:
    call = {"id": "call_1", "type": "custom", "custom": {"name": "patch", "input": 'a "b"\n'}}
    made = conversation(USER, {"role": "assistant", "content": None, "tool_calls": [call]}, tools=[CUSTOM])
    function = {"name": "patch", "arguments": '{"input":"a \\"b\\"\\n"}'}
    assert said(made)[1]["tool_calls"] == [{"id": "call_1", "type": "function", "function": function}]


def test_a_conversation_crosses_processes() -> None:
    made = conversation(*SAME, tools=[TOOL], tool_choice={"type": "function", "function": {"name": "f"}})
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(made), type=Conversation) == made
