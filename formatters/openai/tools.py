"""The tools of a chat request, and which of them may or must be called.

    {"tools", "tool_choice"} or the deprecated {"functions", "function_call"} --read_tools--> Tools

The deprecated fields are turned into tools, and the answer is in their kind (`Tools.legacy`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ...model.errors import ParameterError, PayloadError, UnsupportedError
from ...model.options import Settings
from ..base import JsonSchema, Payload
from ..common.fields import handle_unknown_field
from ..common.kinds import Boolean, Object, Text, Tree
from ..common.schemas import FILLED, STRING, array, objects, one_of

__all__ = ["TOOLS", "TOOLS_SCHEMA", "TOOL_CHOICES", "Tools", "list_of_tools", "read_function", "read_tools"]


TOOLS = 1024
"""Tools in one request. OpenAI's limit is 128."""
TOOL_CHOICES = ("none", "auto", "required")
FUNCTION_CHOICES = ("none", "auto")


@dataclass(frozen=True, slots=True)
class Tools:
    """What may be called."""

    tools: tuple[dict[str, Any], ...] = ()
    choice: str | None = None
    """auto or required; None without tools, and where none may be called."""
    function: str | None = None
    """The name of the one that must be called."""
    legacy: bool = False
    """Whether they were given as functions."""


def read_tools(payload: Payload, settings: Settings) -> Tools:
    """The tools that a conversation carries; raises RequestError, naming the place."""
    legacy = [name for name in ("functions", "function_call") if payload.get(name) is not None]
    modern = [name for name in ("tools", "tool_choice") if payload.get(name) is not None]
    if legacy and modern:
        raise ParameterError(f"{legacy[0]}: cannot be combined with {modern[0]}", legacy[0])
    list_name, choice_name = ("functions", "function_call") if legacy else ("tools", "tool_choice")
    given = list_of_tools(payload, list_name)
    read = read_function if legacy else _tool
    tools = tuple(read(one, f"{list_name}[{index}]", settings) for index, one in enumerate(given))
    names = [tool["function"]["name"] for tool in tools]
    choice, function = _choice(payload.get(choice_name), choice_name, names)
    if choice == "none" or not tools:
        return Tools(legacy=bool(legacy))
    return Tools(tools, choice, function, bool(legacy))


def list_of_tools(payload: Payload, name: str = "tools") -> list[Any]:
    """The field `name`, a list of at most TOOLS, whose entries are not read yet; raises RequestError."""
    given = payload.get(name)
    if given is None:
        return []
    if not isinstance(given, list):
        raise PayloadError.of(name, given, f"a list of {name}")
    if len(given) > TOOLS:
        raise ParameterError(f"{name}: expected at most {TOOLS}, got {len(given)}", name)
    return given


def _choice(given: Any, place: str, names: Collection[str]) -> tuple[str, str | None]:
    """none, auto or required, and the name that is forced."""
    words = FUNCTION_CHOICES if place == "function_call" else TOOL_CHOICES
    expected = "one of " + ", ".join(words) + ", or an object with a function's name"
    if given is None:
        return "auto", None
    if isinstance(given, str):
        if given not in words:
            raise ParameterError.of(place, given, expected)
        if given == "required" and not names:
            raise ParameterError(f"{place}: 'required' requires tools, and there are none", place)
        return given, None
    if not isinstance(given, dict):
        raise PayloadError.of(place, given, expected)
    choice: dict[str, Any] = given
    if place == "tool_choice":
        kind = choice.get("type")
        if kind != "function":
            raise UnsupportedError.of(f"{place}.type", kind, "'function'")
        place += ".function"
        choice = Object().read(place, choice.get("function"))
    name = Text().read(f"{place}.name", choice.get("name"))
    if name not in names:
        raise ParameterError.of(f"{place}.name", name, "the name of one of the functions that are given")
    return "required", name


FUNCTION_FIELDS: Mapping[str, JsonSchema] = {
    "name": FILLED,
    "description": STRING,
    "parameters": {"type": "object"},
    "strict": {"type": "boolean"},
}
FUNCTION = objects(["name"], **FUNCTION_FIELDS)
TOOL_FIELDS: Mapping[str, JsonSchema] = {"type": {"const": "function"}, "function": FUNCTION, "cache_control": {}}
NAMED = objects(["name"], name=FILLED)
NAMED_TOOL = objects(["type"], type={"const": "function"}, function=NAMED)

TOOLS_SCHEMA: Mapping[str, JsonSchema] = {
    "tools": array(objects(["type", "function"], **TOOL_FIELDS), le=TOOLS),
    "tool_choice": one_of({"enum": [*TOOL_CHOICES]}, NAMED_TOOL),
    "functions": array(FUNCTION, le=TOOLS),
    "function_call": one_of({"enum": [*FUNCTION_CHOICES]}, NAMED),
}
"""Of the fields of a request that are read here."""


def _tool(given: Any, place: str, settings: Settings) -> dict[str, Any]:
    tool = Object().read(place, given)
    kind = tool.get("type")
    if kind != "function":
        refused = UnsupportedError if isinstance(kind, str) else PayloadError
        raise refused.of(f"{place}.type", kind, "'function'")
    for name in tool:
        if name not in TOOL_FIELDS:
            handle_unknown_field(name, TOOL_FIELDS, settings, "tools[].")
    return read_function(tool.get("function"), f"{place}.function", settings)


def read_function(given: Any, place: str, settings: Settings, unknown: str = "tools[].function.") -> dict[str, Any]:
    """The tool that a function is, in the form that templates take; raises RequestError.

    unknown: how the names of unknown fields begin.
    """
    function = Object().read(place, given)
    name = Text().read(f"{place}.name", function.get("name"))
    if not name:
        raise ParameterError.of(f"{place}.name", name, "a non-empty string")
    read: dict[str, Any] = {"name": name}
    if function.get("description") is not None:
        read["description"] = Text().read(f"{place}.description", function["description"])
    if function.get("parameters") is not None:
        read["parameters"] = Tree().read(f"{place}.parameters", function["parameters"])
    if function.get("strict") is not None:
        read["strict"] = Boolean().read(f"{place}.strict", function["strict"])
    for key in function:
        if key not in FUNCTION_FIELDS:
            handle_unknown_field(key, FUNCTION_FIELDS, settings, unknown)
    return {"type": "function", "function": read}
