"""Tools of OpenAI chat requests: what templates are given, what must be called; a fault is named by its place."""

from __future__ import annotations

from typing import Any

import pytest

from lmi.formatters.openai import parse

from ...kit.api.errors import LmiError, ParameterError, PayloadError, UnsupportedError
from ...kit.api.options import typed_settings
from ...kit.api.types import Conversation, Request
from ...kit.rows import each_row

SETTINGS = typed_settings(unknown_parameters="error")
USER: dict[str, Any] = {"role": "user", "content": "hi"}
WEATHER: dict[str, Any] = {
    "name": "get_weather",
    "description": "The weather of a place",
    "parameters": {"type": "object", "properties": {"location": {"type": "string"}}},
}
TOOL: dict[str, Any] = {"type": "function", "function": WEATHER}
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


def conversation(*messages: Any, **given: Any) -> Conversation:
    (made,) = parse({"messages": list(messages), **given}, Request(b""), SETTINGS).generations
    assert isinstance(made.prompt, Conversation)
    return made.prompt


def allowed(mode: str, *tools: dict[str, Any]) -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [*tools]}}


@each_row(
    ("choice", "expected"),
    [
        ({"type": "auto"}, ("auto", None, ["get_weather", "patch"])),
        ({"type": "required"}, ("required", None, ["get_weather", "patch"])),
        ({"type": "none"}, ("none", None, ["get_weather", "patch"])),
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


@each_row(
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


@each_row(
    ("given", "choice", "function"),
    [
        ({"tools": [TOOL]}, "auto", None),
        ({"tools": [TOOL], "tool_choice": None}, "auto", None),
        ({"tools": [TOOL], "tool_choice": "auto"}, "auto", None),
        ({"tools": [TOOL], "tool_choice": "required"}, "required", None),
        ({"tools": [TOOL], "tool_choice": NAMED}, "required", "get_weather"),
        ({"tools": [TOOL], "tool_choice": "none"}, "none", None),
        ({"functions": [WEATHER]}, "auto", None),
        ({"functions": [WEATHER], "function_call": "none"}, "none", None),
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


@each_row(
    "given",
    [
        {"tools": []},
        {"tools": None, "tool_choice": "none"},
        {"tool_choice": "auto"},
        {"functions": []},
    ],
)
def test_no_tools(given: dict[str, Any]) -> None:
    made = conversation(USER, **given)
    assert (made.tools, made.tool_choice, made.function) == ((), None, None)


def test_what_a_tool_may_leave_out() -> None:
    bare = {"type": "function", "function": {"name": "f", "description": None, "parameters": None, "strict": None}}
    assert conversation(USER, tools=[bare]).tools == ({"type": "function", "function": {"name": "f"}},)


CHOICES = "'function' or 'custom' or 'allowed_tools' or 'none' or 'auto' or 'required'"
NO_TOOLS: tuple[Any, ...] = (None, [])
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
    ({"tools": [TOOL], "tool_choice": "any"}, ParameterError, "tool_choice: expected one of none, auto, required, got"),
    ({"tools": [TOOL], "tool_choice": 5}, PayloadError, "tool_choice: expected one of none, auto, required, or an"),
    ({"tools": [TOOL], "tool_choice": {}}, PayloadError, f"tool_choice.type: expected {CHOICES}, got None"),
    (
        {"tools": [TOOL], "tool_choice": {"type": "any"}},
        UnsupportedError,
        f"tool_choice.type: expected {CHOICES}, got 'any'",
    ),
    (
        {"tool_choice": {"type": "required"}},
        ParameterError,
        "tool_choice: a call is required, and there are no tools to call",
    ),
    (
        {"tools": [TOOL], "tool_choice": {"type": "allowed_tools"}},
        PayloadError,
        "tool_choice.allowed_tools: expected an object, got None",
    ),
    # The form of Responses.
    (
        {"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [NAMED]}},
        UnsupportedError,
        "tool_choice.mode: unknown field",
    ),
    (
        {"tools": [TOOL], "tool_choice": allowed("any", NAMED)},
        ParameterError,
        "tool_choice.allowed_tools.mode: expected one of auto, required, got 'any'",
    ),
    (
        {"tools": [TOOL], "tool_choice": allowed("auto")},
        ParameterError,
        "tool_choice.allowed_tools.tools: expected a list of tools, at least 1, got []",
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
        UnsupportedError,
        "tools[0].custom.format.type: expected 'text' or 'grammar', got 'json'",
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
    *(
        (
            {"tools": tools, "tool_choice": "required"},
            ParameterError,
            "tool_choice: a call is required, and there are no tools to call",
        )
        for tools in NO_TOOLS
    ),
    ({"tool_choice": NAMED}, ParameterError, "tool_choice.function.name: expected the name of one of the tools that "),
    ({"functions": [WEATHER], "tools": [TOOL]}, ParameterError, "functions: cannot be combined with tools"),
    ({"functions": [{}]}, PayloadError, "functions[0].name: expected a non-empty string, got None"),
    ({"functions": [WEATHER], "function_call": "required"}, ParameterError, "function_call: expected one of none, aut"),
    ({"functions": [WEATHER], "function_call": {}}, PayloadError, "function_call.name: expected a non-empty string, "),
]


@each_row(("given", "kind", "expected"), TOOL_FAULTS)
def test_a_fault_of_tools(given: dict[str, Any], kind: type[LmiError], expected: str) -> None:
    with pytest.raises(LmiError) as caught:
        conversation(USER, **given)
    assert type(caught.value) is kind
    assert caught.value.message.startswith(expected)
    assert caught.value.param == expected.partition(":")[0]
