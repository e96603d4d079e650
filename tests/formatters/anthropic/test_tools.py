"""Anthropic's tools: OpenAI's form of them, which may or must be called, and what is refused where."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lmi.formatters.anthropic.tools import read_offers, read_tools

from ...kit.answers.anthropic import SETTINGS, STRICT, TOOL, USER, fields_of
from ...kit.api.dialects import MAX_TOOLS, forget_logged_names
from ...kit.api.errors import ParameterError, PayloadError, RequestError, UnsupportedError
from ...kit.api.types import Settings
from ...kit.rows import each_row


def tools_of(fields: dict[str, Any], settings: Settings) -> Any:
    """The tools of a body with these fields, and whether there may be several calls."""
    values = fields_of({"messages": [USER], **fields}, settings)
    return read_tools(values["tool_choice"], read_offers(values["tools"], settings), ())


def read(tools: Any = None, tool_choice: Any = None) -> Any:
    """The tools, and whether there may be several calls."""
    return tools_of({"tools": tools, "tool_choice": tool_choice}, SETTINGS)


def test_a_tool() -> None:
    schema = {"properties": {"at": {"type": "string"}}, "required": ["at"]}
    given = {
        "type": "custom", "name": "look", "description": "Looks", "input_schema": schema, "strict": True,
        "cache_control": {"type": "ephemeral"}, "eager_input_streaming": None, "input_examples": [{"at": "a"}],
    }  # fmt: skip
    (tool,) = read([given])[0].tools
    function = {"name": "look", "description": "Looks", "strict": True, "parameters": {"type": "object", **schema}}
    assert tool == {"type": "function", "function": function}


@each_row(
    ("given", "choice", "function", "parallel"),
    [
        (None, "auto", None, True),
        ({"type": "auto"}, "auto", None, True),
        ({"type": "auto", "disable_parallel_tool_use": True}, "auto", None, False),
        ({"type": "any", "disable_parallel_tool_use": False}, "required", None, True),
        ({"type": "any", "disable_parallel_tool_use": True}, "required", None, False),
        ({"type": "tool", "name": "look"}, "required", "look", True),
    ],
)
def test_which_may_be_called(given: Any, choice: str, function: str | None, parallel: bool) -> None:
    made, several = read([TOOL], given)
    assert (made.choice, made.function, several) == (choice, function, parallel)
    assert len(made.tools) == 1


@each_row("choice", [None, {"type": "auto"}, {"type": "none"}])
def test_none(choice: Any) -> None:
    nothing: tuple[Any, ...] = ([], None)
    for tools in nothing:
        assert read(tools, choice)[0].tools == ()
    if choice == {"type": "none"}:
        made = read([TOOL], choice)[0]
        assert (made.choice, len(made.tools)) == ("none", 1)


SERVERS: list[dict[str, Any]] = [
    {"type": "web_search_20250305", "name": "web_search", "max_uses": 5},
    {"type": "bash_20250124", "name": "bash"},
    {**TOOL, "type": "computer_20250124"},
]


@pytest.mark.parametrize("tool", SERVERS, ids=lambda tool: tool["type"])
def test_what_only_anthropic_runs_is_left_out(
    tool: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_logged_names(monkeypatch)
    other = {**TOOL, "name": "find"}
    made, _ = read([tool, other])
    assert [one["function"]["name"] for one in made.tools] == ["find"]
    # Where the client has it, by which an engine's errors are named.
    assert made.own == {"prompt.tools[0]": "tools[1]", "prompt.tools[0].parameters": "tools[1].input_schema"}
    assert read([tool])[0].tools == ()
    assert [tool["type"] in line for line in caplog.messages] == [True]


@each_row("tool", SERVERS, ids=lambda tool: tool["type"])
def test_an_option_refuses_it(tool: Any) -> None:
    settings = msgspec.structs.replace(SETTINGS, server_tools="error")
    message = rf"^tools\[1\].type: expected 'custom' \(option.server_tools=error.*, got '{tool['type']}'"
    with pytest.raises(UnsupportedError, match=message) as caught:
        tools_of({"tools": [TOOL, tool]}, settings)
    assert caught.value.param == "tools[1].type"


@each_row("tools", [None, [], [SERVERS[0]]])
def test_a_call_needs_a_tool(tools: Any) -> None:
    with pytest.raises(ParameterError) as caught:
        read(tools, {"type": "any"})
    assert caught.value.message == "tool_choice: a call is required, and there are no tools to call"
    assert caught.value.param == "tool_choice"


@each_row(
    ("tools", "choice", "kind", "place"),
    [
        ({}, None, PayloadError, "tools"),
        ([TOOL] * (MAX_TOOLS + 1), None, ParameterError, "tools"),
        ([5], None, PayloadError, "tools[0]"),
        ([{}], None, PayloadError, "tools[0].name"),
        ([{**TOOL, "name": ""}], None, ParameterError, "tools[0].name"),
        ([{**TOOL, "description": 5}], None, PayloadError, "tools[0].description"),
        ([TOOL, {"name": "a"}], None, PayloadError, "tools[1].input_schema"),
        ([{**TOOL, "strict": "yes"}], None, PayloadError, "tools[0].strict"),
        ([{**TOOL, "type": 5}], None, PayloadError, "tools[0].type"),
        ([{**TOOL, "function": {}}], None, UnsupportedError, "tools[].function"),
        ([TOOL], "auto", PayloadError, "tool_choice"),
        ([TOOL], {}, PayloadError, "tool_choice.type"),
        ([TOOL], {"type": "required"}, UnsupportedError, "tool_choice.type"),
        ([TOOL], {"type": "tool"}, PayloadError, "tool_choice.name"),
        ([TOOL], {"type": "tool", "name": "leap"}, ParameterError, "tool_choice.name"),
        ([TOOL], {"type": "any", "disable_parallel_tool_use": 1}, PayloadError,
         "tool_choice.disable_parallel_tool_use"),
        ([TOOL], {"type": "auto", "mode": "a"}, UnsupportedError, "tool_choice.mode"),
        ([], {"type": "tool", "name": "look"}, ParameterError, "tool_choice.name"),
    ],
)  # fmt: skip
def test_what_is_refused(tools: Any, choice: Any, kind: type[RequestError], place: str) -> None:
    with pytest.raises(RequestError) as caught:
        tools_of({"tools": tools, "tool_choice": choice}, STRICT)
    error = caught.value
    assert (type(error), error.param) == (kind, place)
    assert error.message.startswith(f"{place}: ")


@pytest.mark.engine
@pytest.mark.once
@pytest.mark.parametrize("choice", [{"type": "auto"}, {"type": "any"}, {"type": "tool", "name": "look"}])
def test_it_is_what_vllms_server_makes_of_it(choice: Any) -> None:
    from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest
    from vllm.entrypoints.anthropic.serving import AnthropicServingMessages

    tools: list[Any] = [{"name": "look", "description": "Looks", "input_schema": {"properties": {}}}]
    body = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "a"}], "tools": tools}
    request = AnthropicMessagesRequest.model_validate({**body, "tool_choice": choice})
    theirs = AnthropicServingMessages._convert_anthropic_to_openai_request(request).model_dump()
    ours, _ = read(tools, choice)
    (tool,) = theirs["tools"]
    (mine,) = ours.tools
    assert {name: tool["function"][name] for name in mine["function"]} == mine["function"]
    forced = {"type": "function", "function": {"name": ours.function}} if ours.function else ours.choice
    assert theirs["tool_choice"] == forced
