"""Tools in their flat form, and what may be chosen of them."""

from __future__ import annotations

from typing import Any

import pytest

from ...kit.answers.events import end
from ...kit.answers.responses import TOOL, asked, conversation, reply, whole
from ...kit.api.errors import ParameterError, PayloadError, RequestError, UnsupportedError
from ...kit.api.types import Delta
from ...kit.rows import each_row

OTHER = {"type": "function", "name": "other"}
NAMED = {"type": "function", "name": "other"}
NESTED = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather",
        "parameters": TOOL["parameters"],
        "strict": True,
    },
}


def test_a_tool_in_the_form_that_templates_know() -> None:
    read = conversation(tools=[TOOL])
    assert read.tools == (NESTED,)
    assert (read.tool_choice, read.function, read.parallel_tool_calls) == ("auto", None, True)


@each_row(
    ("choice", "expected"),
    [
        ("auto", ("auto", None, ["get_weather", "other"])),
        ("required", ("required", None, ["get_weather", "other"])),
        ("none", ("none", None, ["get_weather", "other"])),
        (NAMED, ("required", "other", ["get_weather", "other"])),
        ({"type": "auto"}, ("auto", None, ["get_weather", "other"])),
        ({"type": "required"}, ("required", None, ["get_weather", "other"])),
        ({"type": "none"}, ("none", None, ["get_weather", "other"])),
        ({"type": "allowed_tools", "mode": "auto", "tools": [NAMED]}, ("auto", None, ["other"])),
        ({"type": "allowed_tools", "mode": "required", "tools": [NAMED]}, ("required", None, ["other"])),
    ],
)
def test_what_may_be_chosen(choice: Any, expected: Any) -> None:
    read = conversation(tools=[TOOL, OTHER], tool_choice=choice, parallel_tool_calls=False)
    assert (read.tool_choice, read.function, [tool["function"]["name"] for tool in read.tools]) == expected
    assert read.parallel_tool_calls is False


def test_the_response_repeats_what_is_known_of_a_choice() -> None:
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{**NAMED, "odd": 1}], "odd": 1}
    body = whole(reply(tools=[OTHER], tool_choice=allowed), Delta(0, "a", finish=end()))
    assert body["tool_choice"] == {"type": "allowed_tools", "mode": "auto", "tools": [NAMED]}


def test_the_response_repeats_them() -> None:
    body = whole(reply(tools=[TOOL, OTHER], tool_choice=NAMED), Delta(0, "a", finish=end()))
    nothing = {"description": None, "parameters": None, "strict": None}
    assert body["tools"] == [TOOL, {**OTHER, **nothing}]
    assert body["tool_choice"] == NAMED


@each_row(
    ("fields", "kind", "param"),
    [
        ({"tools": {}}, PayloadError, "tools"),
        ({"tools": [5]}, PayloadError, "tools[0]"),
        ({"tools": [{"name": "f"}]}, PayloadError, "tools[0].type"),
        ({"tools": [NESTED]}, PayloadError, "tools[0].name"),
        ({"tools": [{**TOOL, "parameters": 5}]}, PayloadError, "tools[0].parameters"),
        ({"tools": [{**TOOL, "strict": 1}]}, PayloadError, "tools[0].strict"),
        ({"tools": [TOOL] * 1025}, ParameterError, "tools"),
        ({"tool_choice": "required"}, ParameterError, "tool_choice"),
        ({"tool_choice": "any"}, ParameterError, "tool_choice"),
        ({"tool_choice": 5}, PayloadError, "tool_choice"),
        ({"tool_choice": NAMED}, ParameterError, "tool_choice.name"),
        ({"tool_choice": {"type": "web_search"}}, UnsupportedError, "tool_choice.type"),
        ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools"}}, PayloadError, "tool_choice.mode"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [NAMED]}},
            ParameterError,
            "tool_choice.tools[0].name",
        ),
    ],
)
def test_faults_are_named_by_their_place(fields: dict[str, Any], kind: type[RequestError], param: str) -> None:
    with pytest.raises(kind) as caught:
        asked(**fields)
    assert type(caught.value) is kind
    assert caught.value.param == param
