"""The tools of a chat request, and which of them may or must be called.

    {"tools", "tool_choice"} or the deprecated {"functions", "function_call"} --read_tools--> Tools

The deprecated fields are turned into tools, and the answer is in their kind (`Tools.legacy`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...model.errors import ParameterError, PayloadError, UnsupportedError
from ...model.options import Settings
from ..base import JsonSchema, Payload
from ..client_fields import Paths
from ..common.custom_tools import CUSTOM, as_function
from ..common.fields import handle_unknown_field
from ..common.kinds import Boolean, Object, Text, Tree
from ..common.schemas import FILLED, STRING, array, objects, one_of

__all__ = ["TOOLS", "TOOLS_SCHEMA", "TOOL_CHOICES", "Tools", "list_of_tools", "read_function", "read_tools"]


TOOLS = 1024
"""Tools in one request. OpenAI's limit is 128."""
TOOL_CHOICES = ("none", "auto", "required")
FUNCTION_CHOICES = ("none", "auto")
TOOL_KINDS = ("function", "custom")
MODES = ("auto", "required")
"""Of what is allowed."""
LEGACY: Paths = {"prompt.tools": "functions", "prompt.tools[]": "functions[]", "prompt.tool_choice": "function_call"}
"""What the deprecated fields are called."""


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
    custom: frozenset[str] = frozenset()
    """The names of those that were given as custom tools."""
    own: dict[str, str] = field(default_factory=dict[str, str])
    """Where the client has them, other than its dialect usually has (client_fields.py)."""


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
    choice, function, allowed = _choice(payload.get(choice_name), choice_name, names)
    used = tuple(tool for tool in tools if tool["function"]["name"] in allowed)
    if choice == "none" or not used:
        return Tools(legacy=bool(legacy))
    custom = frozenset(name for name, one in zip(names, given, strict=True) if one.get("type") == "custom")
    own = dict(LEGACY if legacy else {})
    places = [index for index, name in enumerate(names) if name in allowed]
    for index, place in enumerate(places):
        if names[place] in custom:
            own[f"prompt.tools[{index}]"] = own[f"prompt.tools[{index}].parameters"] = f"tools[{place}].custom"
        elif index != place:
            own[f"prompt.tools[{index}]"] = f"tools[{place}].function"
    return Tools(used, choice, function, bool(legacy), frozenset() if legacy else custom, own)


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


def _choice(given: Any, place: str, names: Collection[str]) -> tuple[str, str | None, Collection[str]]:
    """none, auto or required; the name that is forced; the names that may be called."""
    words = FUNCTION_CHOICES if place == "function_call" else TOOL_CHOICES
    expected = "one of " + ", ".join(words) + ", or an object with a function's name"
    if given is None:
        return "auto", None, names
    if place == "tool_choice" and isinstance(given, dict) and given.get("type") in words:
        # As Anthropic's API has it.
        given = given["type"]
    if isinstance(given, str):
        if given not in words:
            raise ParameterError.of(place, given, expected)
        if given == "required" and not names:
            raise ParameterError(f"{place}: 'required' requires tools, and there are none", place)
        return given, None, names
    if not isinstance(given, dict):
        raise PayloadError.of(place, given, expected)
    if place == "function_call":
        return "required", _known(given, place, names), names
    kind = Text().read(f"{place}.type", given.get("type"))
    if kind == "allowed_tools":
        return _allowed(given.get(kind), f"{place}.{kind}", names)
    if kind not in TOOL_KINDS:
        expected = ", ".join(map(repr, (*TOOL_KINDS, "allowed_tools", *words[:-1]))) + f" or {words[-1]!r}"
        raise UnsupportedError.of(f"{place}.type", kind, expected)
    return "required", _known(given.get(kind), f"{place}.{kind}", names), names


def _known(given: Any, place: str, names: Collection[str]) -> str:
    """The name in an object, that of a tool."""
    name = Text().read(f"{place}.name", Object().read(place, given).get("name"))
    if name not in names:
        raise ParameterError.of(f"{place}.name", name, "the name of one of the tools that are given")
    return name


def _allowed(given: Any, place: str, names: Collection[str]) -> tuple[str, None, Collection[str]]:
    allowed = Object().read(place, given)
    mode = Text(MODES).read(f"{place}.mode", allowed.get("mode"))
    tools = allowed.get("tools")
    if not isinstance(tools, list) or not tools:
        raise PayloadError.of(f"{place}.tools", tools, "a list of tools, at least one")
    found: list[str] = []
    for index, one in enumerate(tools):
        where = f"{place}.tools[{index}]"
        kind = Text(TOOL_KINDS).read(f"{where}.type", Object().read(where, one).get("type"))
        found.append(_known(one.get(kind), f"{where}.{kind}", names))
    return mode, None, found


FUNCTION_FIELDS: Mapping[str, JsonSchema] = {
    "name": FILLED,
    "description": STRING,
    "parameters": {"type": "object"},
    "strict": {"type": "boolean"},
}
FUNCTION = objects(["name"], **FUNCTION_FIELDS)
TOOL_FIELDS: Mapping[str, JsonSchema] = {"type": {"const": "function"}, "function": FUNCTION, "cache_control": {}}
NAMED = objects(["name"], name=FILLED)
NAMED_TOOL = one_of(*(objects(["type", kind], type={"const": kind}, **{kind: NAMED}) for kind in TOOL_KINDS))
ALLOWED = objects(
    ["type", "allowed_tools"],
    type={"const": "allowed_tools"},
    allowed_tools=objects(["mode", "tools"], mode={"enum": [*MODES]}, tools=array(NAMED_TOOL, 1)),
)
CUSTOM_TOOL = objects(["type", "custom"], type={"const": "custom"}, custom=CUSTOM)

TOOLS_SCHEMA: Mapping[str, JsonSchema] = {
    "tools": array(one_of(objects(["type", "function"], **TOOL_FIELDS), CUSTOM_TOOL), le=TOOLS),
    "tool_choice": one_of(
        {"enum": [*TOOL_CHOICES]}, objects(["type"], type={"enum": [*TOOL_CHOICES]}), NAMED_TOOL, ALLOWED
    ),
    "functions": array(FUNCTION, le=TOOLS),
    "function_call": one_of({"enum": [*FUNCTION_CHOICES]}, NAMED),
}
"""Of the fields of a request that are read here."""


def _tool(given: Any, place: str, settings: Settings) -> dict[str, Any]:
    tool = Object().read(place, given)
    kind = tool.get("type")
    if kind == "custom":
        return as_function(tool.get("custom"), f"{place}.custom", settings)
    if kind != "function":
        refused = UnsupportedError if isinstance(kind, str) else PayloadError
        raise refused.of(f"{place}.type", kind, "'function' or 'custom'")
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
