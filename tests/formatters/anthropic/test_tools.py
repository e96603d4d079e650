"""Anthropic's tools: OpenAI's form of them, which may or must be called, and what is refused where."""

from __future__ import annotations

from typing import Any

import pytest

from lmi.formatters.anthropic.tools import read_tools

from ...kit.answers.anthropic import SETTINGS, STRICT, TOOL
from ...kit.api.dialects import MAX_TOOLS
from ...kit.api.errors import ParameterError, PayloadError, RequestError, UnsupportedError


def read(tools: Any = None, tool_choice: Any = None) -> Any:
    return read_tools({"tools": tools, "tool_choice": tool_choice}, SETTINGS)


def test_a_tool() -> None:
    schema = {"properties": {"at": {"type": "string"}}, "required": ["at"]}
    given = {
        "type": "custom", "name": "look", "description": "Looks", "input_schema": schema, "strict": True,
        "cache_control": {"type": "ephemeral"}, "eager_input_streaming": None, "input_examples": [{"at": "a"}],
    }  # fmt: skip
    (tool,) = read([given]).tools.tools
    function = {"name": "look", "description": "Looks", "strict": True, "parameters": {"type": "object", **schema}}
    assert tool == {"type": "function", "function": function}


@pytest.mark.parametrize(
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
    made = read([TOOL], given)
    assert (made.tools.choice, made.tools.function, made.parallel) == (choice, function, parallel)
    assert len(made.tools.tools) == 1


@pytest.mark.parametrize("choice", [None, {"type": "auto"}, {"type": "none"}])
def test_none(choice: Any) -> None:
    nothing: tuple[Any, ...] = ([], None)
    for tools in nothing:
        assert read(tools, choice).tools.tools == ()
    if choice == {"type": "none"}:
        assert read([TOOL], choice).tools.tools == ()


@pytest.mark.parametrize(
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
        ([{**TOOL, "type": "bash_20250124"}], None, UnsupportedError, "tools[0].type"),
        ([{**TOOL, "type": 5}], None, PayloadError, "tools[0].type"),
        ([{**TOOL, "function": {}}], None, UnsupportedError, "tools[].function"),
        ([TOOL], "auto", PayloadError, "tool_choice"),
        ([TOOL], {}, PayloadError, "tool_choice.type"),
        ([TOOL], {"type": "required"}, ParameterError, "tool_choice.type"),
        ([TOOL], {"type": "tool"}, PayloadError, "tool_choice.name"),
        ([TOOL], {"type": "tool", "name": "leap"}, ParameterError, "tool_choice.name"),
        ([TOOL], {"type": "any", "disable_parallel_tool_use": 1}, PayloadError,
         "tool_choice.disable_parallel_tool_use"),
        ([TOOL], {"type": "auto", "mode": "a"}, UnsupportedError, "tool_choice.mode"),
        (None, {"type": "any"}, ParameterError, "tool_choice"),
        ([], {"type": "tool", "name": "look"}, ParameterError, "tool_choice"),
    ],
)  # fmt: skip
def test_what_is_refused(tools: Any, choice: Any, kind: type[RequestError], place: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_tools({"tools": tools, "tool_choice": choice}, STRICT)
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
    ours = read(tools, choice).tools
    (tool,) = theirs["tools"]
    (mine,) = ours.tools
    assert {name: tool["function"][name] for name in mine["function"]} == mine["function"]
    forced = {"type": "function", "function": {"name": ours.function}} if ours.function else ours.choice
    assert theirs["tool_choice"] == forced
