"""The tools of a request, which of them may or must be called, and what the response repeats of them.

    {"tools": [{"type": "function", "name", "parameters" ...}], "tool_choice"} --read_tools--> ToolUse

Functions are the only tools: what a server runs by itself (web search, files, MCP ...) is refused by name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...model.errors import ParameterError, PayloadError, UnsupportedError
from ...model.options import Settings
from ..base import JsonSchema, Payload
from ..common.kinds import Object, Text
from ..common.schemas import FILLED, STRING, array, objects, one_of
from ..openai.tools import TOOL_CHOICES, TOOLS, Tools, list_of_tools, read_function

__all__ = ["TOOLS_SCHEMA", "ToolUse", "read_tools"]

BESIDE = ("type", "allowed_callers", "defer_loading", "output_schema")
"""Fields of a tool that say nothing to the model; null is the same as leaving them out."""
MODES = ("auto", "required")


@dataclass(frozen=True, slots=True)
class ToolUse:
    """What may be called, and how the response says it."""

    read: Tools
    shown: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """`tools` of the response."""
    choice: str | dict[str, Any] = "auto"
    """Its `tool_choice`."""


def read_tools(payload: Payload, settings: Settings) -> ToolUse:
    """The tools; raises RequestError, naming the place."""
    given = list_of_tools(payload)
    tools = [_tool(one, f"tools[{index}]", settings) for index, one in enumerate(given)]
    names = [tool["function"]["name"] for tool in tools]
    asked = payload.get("tool_choice")
    word, allowed, function = _choice(asked, names)
    if isinstance(asked, dict) and asked["type"] in TOOL_CHOICES:
        asked = word
    if isinstance(asked, dict):
        asked = {"type": asked["type"], **_chosen(asked)}
    shown = [_shown(tool["function"], one) for tool, one in zip(tools, given, strict=True)]
    choice: str | dict[str, Any] = "auto" if asked is None else asked
    used = tuple(tool for tool in tools if tool["function"]["name"] in allowed)
    if word == "none" or not used:
        return ToolUse(Tools(), shown, choice)
    return ToolUse(Tools(used, word, function), shown, choice)


def _chosen(given: dict[str, Any]) -> dict[str, Any]:
    """What the response says of a choice that is an object, which has been read."""
    if given["type"] == "function":
        return {"name": given["name"]}
    return {"mode": given["mode"], "tools": [{"type": "function", "name": one["name"]} for one in given["tools"]]}


def _tool(given: Any, place: str, settings: Settings) -> dict[str, Any]:
    tool = Object().read(place, given)
    kind = tool.get("type")
    if kind != "function":
        refused = UnsupportedError if isinstance(kind, str) else PayloadError
        raise refused.of(f"{place}.type", kind, "'function', the only kind of tool here")
    function = {name: value for name, value in tool.items() if name not in BESIDE}
    return read_function(function, place, settings, "tools[].")


def _shown(function: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "function",
        "name": function["name"],
        "description": function.get("description"),
        "parameters": function.get("parameters"),
        "strict": given.get("strict"),
    }


def _choice(given: Any, names: Collection[str]) -> tuple[str, Collection[str], str | None]:
    """none, auto or required; the names that may be called; the one that is forced."""
    expected = f"one of {', '.join(TOOL_CHOICES)}, or an object with a function's name"
    if given is None:
        return "auto", names, None
    if isinstance(given, dict) and given.get("type") in TOOL_CHOICES:
        given = given["type"]
    if isinstance(given, str):
        if given not in TOOL_CHOICES:
            raise ParameterError.of("tool_choice", given, expected)
        if given == "required" and not names:
            raise ParameterError("tool_choice: 'required' requires tools, and there are none", "tool_choice")
        return given, names, None
    if not isinstance(given, dict):
        raise PayloadError.of("tool_choice", given, expected)
    kind = given.get("type")
    if kind == "function":
        name = _known(given.get("name"), "tool_choice.name", names)
        return "required", names, name
    if kind == "allowed_tools":
        return _allowed(given, names)
    raise UnsupportedError.of("tool_choice.type", kind, "'function' or 'allowed_tools'")


def _allowed(given: dict[str, Any], names: Collection[str]) -> tuple[str, Collection[str], None]:
    mode = Text(MODES).read("tool_choice.mode", given.get("mode"))
    tools = given.get("tools")
    if not isinstance(tools, list) or not tools:
        raise PayloadError.of("tool_choice.tools", tools, "a list of functions, at least one")
    allowed: list[str] = []
    for index, one in enumerate(tools):
        place = f"tool_choice.tools[{index}]"
        tool = Object().read(place, one)
        if tool.get("type") != "function":
            raise UnsupportedError.of(f"{place}.type", tool.get("type"), "'function'")
        allowed.append(_known(tool.get("name"), f"{place}.name", names))
    return mode, allowed, None


def _known(given: Any, place: str, names: Collection[str]) -> str:
    name = Text().read(place, given)
    if name not in names:
        raise ParameterError.of(place, name, "the name of one of the functions that are given")
    return name


NAMED = objects(["type", "name"], type={"const": "function"}, name=FILLED)
TOOL = objects(
    ["type", "name"],
    type={"const": "function"},
    name=FILLED,
    description=STRING,
    parameters={"type": "object"},
    strict={"type": "boolean"},
)
ALLOWED = objects(
    ["type", "mode", "tools"], type={"const": "allowed_tools"}, mode={"enum": [*MODES]}, tools=array(NAMED, 1)
)
TOOLS_SCHEMA: Mapping[str, JsonSchema] = {
    "tools": array(TOOL, le=TOOLS),
    "tool_choice": one_of({"enum": [*TOOL_CHOICES]}, NAMED, ALLOWED),
}
"""Of the fields of a request that are read here."""
