"""Messages and tools of OpenAI chat requests: what templates are given, and how a fault is named by its place."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lmi.formatters.openai import parse

from ...kit.api.errors import LmiError, ParameterError, PayloadError, UnsupportedError
from ...kit.api.options import typed_settings
from ...kit.api.types import Conversation, Request, said

SETTINGS = typed_settings(unknown_parameters="error")
USER: dict[str, Any] = {"role": "user", "content": "hi"}
WEATHER: dict[str, Any] = {
    "name": "get_weather",
    "description": "The weather of a place",
    "parameters": {"type": "object", "properties": {"location": {"type": "string"}}},
}
TOOL: dict[str, Any] = {"type": "function", "function": WEATHER}
CALL: dict[str, Any] = {"id": "call_abc123", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}


def conversation(*messages: Any, **given: Any) -> Conversation:
    (made,) = parse({"messages": list(messages), **given}, Request(b""), SETTINGS).generations
    assert isinstance(made.prompt, Conversation)
    return made.prompt


SAME: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "developer", "content": "Be brief.", "name": "dev"},
    {"role": "user", "content": ""},
    {"role": "user", "content": "hi", "name": "Ann"},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    {
        "role": "user",
        "content": [
            {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "original"}},
        ],
    },
    {"role": "assistant", "content": "hello"},
    {"role": "assistant", "content": "hello", "reasoning_content": "Hm."},
    {"role": "assistant", "tool_calls": [CALL]},
    {"role": "tool", "content": "sunny", "tool_call_id": "call_abc123"},
    {"role": "tool", "content": [{"type": "text", "text": "sunny"}], "tool_call_id": "call_abc123"},
]


@pytest.mark.parametrize("message", SAME)
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
        {"role": "assistant", "tool_calls": [CALL]},
    ),
    ({"role": "assistant", "content": None}, {"role": "assistant", "content": ""}),
    ({"role": "assistant"}, {"role": "assistant", "content": ""}),
    ({"role": "assistant", "content": None, "refusal": "No."}, {"role": "assistant", "content": "No."}),
    (
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"role": "assistant", "content": [{"type": "text", "text": "No."}]},
    ),
    (
        {"role": "user", "content": [{"type": "image_url", "image_url": "data:image/png;base64,AAAA"}]},
        {
            "role": "user",
            "content": [
                {
                    "type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"},
                },
            ],
        },
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
            "tool_calls": [{"id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
    ),
]  # fmt: skip


@pytest.mark.parametrize(("message", "read"), REWRITTEN)
def test_a_message_is_rewritten(message: dict[str, Any], read: dict[str, Any]) -> None:
    assert conversation(message).messages == (read,)


def test_function_calls_of_the_past_become_tool_calls() -> None:
    function = {"name": "f", "arguments": '{"a": 1}'}
    made = conversation(
        USER,
        {"role": "assistant", "content": None, "function_call": function, "tool_calls": []},
        {"role": "function", "name": "f", "content": "42"},
    )
    assert made.messages == (
        USER,
        {"role": "assistant", "tool_calls": [{"id": "call_function_1", "type": "function", "function": function}]},
        {"role": "tool", "name": "f", "content": "42", "tool_call_id": "call_function_1"},
    )


def _parts(*parts: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": list(parts)}


def _called(**fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{**CALL, **fields}]}


FAULTS: list[tuple[Any, type[LmiError], str]] = [
    ("hi", PayloadError, "messages[1]: expected a message, an object, got 'hi'"),
    (
        {},
        PayloadError,
        "messages[1].role: expected one of system, developer, user, assistant, tool, function, got None",
    ),
    ({"role": "bot"}, ParameterError, "messages[1].role: expected one of system, developer, user, assistant, "),
    ({"role": "user"}, PayloadError, "messages[1].content: expected a string or a list of parts, got None"),
    ({"role": "user", "content": 5}, PayloadError, "messages[1].content: expected a string or a list of parts, got 5"),
    ({"role": "user", "content": "a", "name": 5}, PayloadError, "messages[1].name: expected a string, got 5"),
    ({**USER, "odd": 1}, UnsupportedError, "messages[].odd: unknown field"),
    (_parts("a"), PayloadError, "messages[1].content[0]: expected an object, got 'a'"),
    (_parts({}), PayloadError, "messages[1].content[0].type: expected a string, got None"),
    *(
        (
            _parts({"type": kind, kind: {}}),
            UnsupportedError,
            f"messages[1].content[0].type: expected 'text' or 'image_url' from the role 'user', got '{kind}'",
        )
        for kind in ("video_url", "audio_url", "input_audio", "image_embeds", "audio_embeds", "prompt_embeds")
    ),
    (
        _parts({"type": "image_url"}, role="system"),
        UnsupportedError,
        "messages[1].content[0].type: expected 'text' from the role 'system', got 'image_url'",
    ),
    (_parts({"type": "text"}), PayloadError, "messages[1].content[0].text: expected a string, got None"),
    (_parts({"type": "image_url"}), PayloadError, "messages[1].content[0].image_url: expected an object, got None"),
    (
        _parts({"type": "image_url", "image_url": {}}),
        PayloadError,
        "messages[1].content[0].image_url.url: expected a URL of an image: data:image/...;base64,..., https://",
    ),
    (
        _parts({"type": "image_url", "image_url": {"url": "x", "detail": "best"}}),
        ParameterError,
        "messages[1].content[0].image_url.detail: expected one of auto, low, high, original, got 'best'",
    ),
    ({"role": "tool", "content": "a"}, PayloadError, "messages[1].tool_call_id: expected a non-empty string, got None"),
    ({"role": "function", "content": "a"}, PayloadError, "messages[1].name: expected a non-empty string, got None"),
    ({"role": "assistant", "tool_calls": 5}, PayloadError, "messages[1].tool_calls: expected a list of tool calls, "),
    (_called(id=None), PayloadError, "messages[1].tool_calls[0].id: expected a non-empty string, got None"),
    (_called(type="x"), UnsupportedError, "messages[1].tool_calls[0].type: expected 'function' or 'custom', got 'x'"),
    (_called(function=None), PayloadError, "messages[1].tool_calls[0].function: expected an object, got None"),
    (
        _called(function={"name": "f", "arguments": {}}),
        PayloadError,
        "messages[1].tool_calls[0].function.arguments: expected a string, got {}",
    ),
    ({"role": "assistant", "function_call": {}}, PayloadError, "messages[1].function_call.name: expected a non-empty "),
]


@pytest.mark.parametrize(("message", "kind", "expected"), FAULTS)
def test_a_fault_is_named_by_its_place(message: Any, kind: type[LmiError], expected: str) -> None:
    with pytest.raises(LmiError) as caught:
        conversation(USER, message)
    assert type(caught.value) is kind
    assert caught.value.message.startswith(expected)
    assert caught.value.param == expected.partition(":")[0]


def test_no_messages() -> None:
    with pytest.raises(ParameterError, match="messages: expected at least one message"):
        conversation()


# --- Tools ---

NAMED: dict[str, Any] = {"type": "function", "function": {"name": "get_weather"}}


CUSTOM: dict[str, Any] = {"type": "custom", "custom": {"name": "patch", "description": "Changes files"}}
PATCH: dict[str, Any] = {
    "name": "patch",
    "description": "Changes files",
    "parameters": {
        "type": "object",
        "properties": {"input": {"type": "string"}},
        "required": ["input"],
        "additionalProperties": False,
    },
}


def allowed(mode: str, *tools: dict[str, Any]) -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [*tools]}}


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, ("auto", None, ["get_weather", "patch"])),
        ({"type": "required"}, ("required", None, ["get_weather", "patch"])),
        ({"type": "none"}, (None, None, [])),
        ({"type": "custom", "custom": {"name": "patch"}}, ("required", "patch", ["get_weather", "patch"])),
        (allowed("auto", NAMED), ("auto", None, ["get_weather"])),
        (allowed("required", {"type": "custom", "custom": {"name": "patch"}}), ("required", None, ["patch"])),
        (allowed("auto", TOOL, CUSTOM), ("auto", None, ["get_weather", "patch"])),
    ],
)
def test_what_may_be_chosen(choice: Any, expected: Any) -> None:
    """The forms of OpenAI's client (types/chat), and a word as an object."""
    made = conversation(USER, tools=[TOOL, CUSTOM], tool_choice=choice)
    assert (made.tool_choice, made.function, [tool["function"]["name"] for tool in made.tools]) == expected


@pytest.mark.parametrize(
    ("form", "description"),
    [
        (None, "Changes files"),
        ({"type": "text"}, "Changes files"),
        (
            {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: WORD"}},
            "Changes files\n\nThe input conforms to this grammar (lark):\nstart: WORD",
        ),
    ],
)
def test_a_custom_tool_is_a_function_with_one_string(form: Any, description: str) -> None:
    made = conversation(USER, tools=[{"type": "custom", "custom": {**CUSTOM["custom"], "format": form}}])
    assert made.tools == ({"type": "function", "function": {**PATCH, "description": description}},)


def test_a_call_of_a_custom_tool_comes_back() -> None:
    call = {"id": "call_1", "type": "custom", "custom": {"name": "patch", "input": 'a "b"\n'}}
    made = conversation(USER, {"role": "assistant", "content": None, "tool_calls": [call]}, tools=[CUSTOM])
    function = {"name": "patch", "arguments": '{"input":"a \\"b\\"\\n"}'}
    assert said(made)[1]["tool_calls"] == [{"id": "call_1", "type": "function", "function": function}]


@pytest.mark.parametrize(
    ("given", "choice", "function"),
    [
        ({"tools": [TOOL]}, "auto", None),
        ({"tools": [TOOL], "tool_choice": None}, "auto", None),
        ({"tools": [TOOL], "tool_choice": "auto"}, "auto", None),
        ({"tools": [TOOL], "tool_choice": "required"}, "required", None),
        ({"tools": [TOOL], "tool_choice": NAMED}, "required", "get_weather"),
        ({"functions": [WEATHER]}, "auto", None),
        ({"functions": [WEATHER], "function_call": "auto"}, "auto", None),
        ({"functions": [WEATHER], "function_call": {"name": "get_weather"}}, "required", "get_weather"),
    ],
)
def test_tools(given: dict[str, Any], choice: str, function: str | None) -> None:
    made = conversation(USER, **given)
    assert made.tools == (TOOL,)
    assert (made.tool_choice, made.function) == (choice, function)
    # A function_call is one.
    assert made.parallel_tool_calls is ("functions" not in given)


@pytest.mark.parametrize(
    "given",
    [
        {"tools": []},
        {"tools": None, "tool_choice": "none"},
        {"tool_choice": "auto"},
        {"tools": [TOOL], "tool_choice": "none"},
        {"functions": []},
        {"functions": [WEATHER], "function_call": "none"},
    ],
)
def test_no_tools(given: dict[str, Any]) -> None:
    made = conversation(USER, **given)
    assert (made.tools, made.tool_choice, made.function) == ((), None, None)


def test_what_a_tool_may_leave_out() -> None:
    bare = {"type": "function", "function": {"name": "f", "description": None, "parameters": None, "strict": None}}
    assert conversation(USER, tools=[bare]).tools == ({"type": "function", "function": {"name": "f"}},)


TOOL_FAULTS: list[tuple[dict[str, Any], type[LmiError], str]] = [
    ({"tools": ["f"]}, PayloadError, "tools[0]: expected an object, got 'f'"),
    ({"tools": [{}]}, PayloadError, "tools[0].type: expected 'function' or 'custom', got None"),
    ({"tools": [TOOL, {"type": "web_search"}]}, UnsupportedError, "tools[1].type: expected 'function' or 'custom', "),
    ({"tools": [{"type": "function"}]}, PayloadError, "tools[0].function: expected an object, got None"),
    (
        {"tools": [{"type": "function", "function": {"name": ""}}]},
        ParameterError,
        "tools[0].function.name: expected a non-empty string, got ''",
    ),
    (
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": "{}"}}]},
        PayloadError,
        "tools[0].function.parameters: expected an object, got '{}'",
    ),
    (
        {"tools": [{"type": "function", "function": {"name": "f", "strict": 1}}]},
        PayloadError,
        "tools[0].function.strict: expected true or false, got 1",
    ),
    ({"tools": [TOOL], "tool_choice": "any"}, ParameterError, "tool_choice: expected one of none, auto, required, or"),
    ({"tools": [TOOL], "tool_choice": 5}, PayloadError, "tool_choice: expected one of none, auto, required, or an"),
    ({"tools": [TOOL], "tool_choice": {}}, PayloadError, "tool_choice.type: expected a string, got None"),
    (
        {"tools": [TOOL], "tool_choice": {"type": "any"}},
        UnsupportedError,
        "tool_choice.type: expected 'function', 'custom', 'allowed_tools', 'none', 'auto' or 'required', got 'any'",
    ),
    ({"tool_choice": {"type": "required"}}, ParameterError, "tool_choice: 'required' requires tools, and there are "),
    (
        {"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [NAMED]}},
        PayloadError,
        "tool_choice.allowed_tools: expected an object, got None",
    ),
    (
        {"tools": [TOOL], "tool_choice": allowed("any", NAMED)},
        ParameterError,
        "tool_choice.allowed_tools.mode: expected one of auto, required, got 'any'",
    ),
    (
        {"tools": [TOOL], "tool_choice": allowed("auto")},
        PayloadError,
        "tool_choice.allowed_tools.tools: expected a list of tools, at least one, got []",
    ),
    (
        {"tools": [TOOL], "tool_choice": allowed("auto", CUSTOM)},
        ParameterError,
        "tool_choice.allowed_tools.tools[0].custom.name: expected the name of one of the tools that are given, got ",
    ),
    ({"tools": [{"type": "custom"}]}, PayloadError, "tools[0].custom: expected an object, got None"),
    (
        {"tools": [{"type": "custom", "custom": {"name": ""}}]},
        ParameterError,
        "tools[0].custom.name: expected a non-empty string, got ''",
    ),
    (
        {"tools": [{"type": "custom", "custom": {"name": "a", "format": {"type": "json"}}}]},
        ParameterError,
        "tools[0].custom.format.type: expected one of text, grammar, got 'json'",
    ),
    (
        {"tools": [{"type": "custom", "custom": {"name": "a", "format": {"type": "grammar", "grammar": {}}}}]},
        PayloadError,
        "tools[0].custom.format.grammar.syntax: expected one of lark, regex, got None",
    ),
    (
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}},
        ParameterError,
        "tool_choice.function.name: expected the name of one of the tools that are given, got 'g'",
    ),
    ({"tool_choice": "required"}, ParameterError, "tool_choice: 'required' requires tools, and there are none"),
    ({"tool_choice": NAMED}, ParameterError, "tool_choice.function.name: expected the name of one of the tools that "),
    ({"functions": [WEATHER], "tools": [TOOL]}, ParameterError, "functions: cannot be combined with tools"),
    ({"functions": [{}]}, PayloadError, "functions[0].name: expected a string, got None"),
    ({"functions": [WEATHER], "function_call": "required"}, ParameterError, "function_call: expected one of none, aut"),
    ({"functions": [WEATHER], "function_call": {}}, PayloadError, "function_call.name: expected a string, got None"),
]


@pytest.mark.parametrize(("given", "kind", "expected"), TOOL_FAULTS)
def test_a_fault_of_tools(given: dict[str, Any], kind: type[LmiError], expected: str) -> None:
    with pytest.raises(LmiError) as caught:
        conversation(USER, **given)
    assert type(caught.value) is kind
    assert caught.value.message.startswith(expected)
    assert caught.value.param == expected.partition(":")[0]


def test_a_conversation_crosses_processes() -> None:
    made = conversation(*SAME, tools=[TOOL], tool_choice=NAMED)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(made), type=Conversation) == made
