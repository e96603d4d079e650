"""Anthropic's tools, and which of them may or must be called.

{"tools": [{"name", "input_schema", ...}], "tool_choice": {"type", ...}} --read_tools--> Tools, in OpenAI's form
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from ...model.errors import ParameterError, PayloadError, UnsupportedError
from ...model.options import Settings
from ..base import JsonSchema, Payload
from ..common.fields import handle_unknown_field
from ..common.kinds import Boolean, Object, Text, Tree
from ..common.schemas import FILLED, STRING, array, objects
from ..openai.tools import TOOLS, Tools, list_of_tools

__all__ = ["TOOLS_SCHEMA", "Choice", "read_tools"]

CHOICES = ("auto", "any", "tool", "none")
CHOICE_FIELDS: Mapping[str, JsonSchema] = {
    "type": {"enum": [*CHOICES]},
    "name": FILLED,
    "disable_parallel_tool_use": {"type": "boolean"},
}
TOOL_FIELDS: Mapping[str, JsonSchema] = {
    "type": {"enum": ["custom"]},
    "name": FILLED,
    "description": STRING,
    "input_schema": {"type": "object"},
    "strict": {"type": "boolean"},
    "cache_control": {},
    "defer_loading": {},
    "eager_input_streaming": {},
    "input_examples": {},
    "allowed_callers": {},
}
"""From `cache_control` on they have no effect."""
TOOLS_SCHEMA: Mapping[str, JsonSchema] = {
    "tools": array(objects(["name", "input_schema"], **TOOL_FIELDS), le=TOOLS),
    "tool_choice": objects(["type"], **CHOICE_FIELDS),
}


class Choice(NamedTuple):
    """What may be called, and how."""

    tools: Tools
    parallel: bool = True
    """Whether an answer may have several calls."""


def read_tools(payload: Payload, settings: Settings) -> Choice:
    """The tools that a conversation carries; raises RequestError, naming the place."""
    given = list_of_tools(payload)
    tools = tuple(_tool(one, f"tools[{index}]", settings) for index, one in enumerate(given))
    names = [tool["function"]["name"] for tool in tools]
    choice, function, parallel = _choice(payload.get("tool_choice"), names, settings)
    if not tools or choice == "none":
        return Choice(Tools())
    return Choice(Tools(tools, choice, function), parallel)


def _tool(given: Any, place: str, settings: Settings) -> dict[str, Any]:
    tool = Object().read(place, given)
    kind = tool.get("type")
    if kind not in (None, "custom"):
        # Tools that Anthropic's own servers run, or whose schema its models know by heart.
        refused = UnsupportedError if isinstance(kind, str) else PayloadError
        raise refused.of(f"{place}.type", kind, "'custom'")
    for name, value in tool.items():
        if value is not None and name not in TOOL_FIELDS:
            handle_unknown_field(name, TOOL_FIELDS, settings, "tools[].")
    name = Text().read(f"{place}.name", tool.get("name"))
    if not name:
        raise ParameterError.of(f"{place}.name", name, "a non-empty string")
    function: dict[str, Any] = {"name": name}
    if tool.get("description") is not None:
        function["description"] = Text().read(f"{place}.description", tool["description"])
    if tool.get("strict") is not None:
        function["strict"] = Boolean().read(f"{place}.strict", tool["strict"])
    function["parameters"] = {"type": "object"} | Tree().read(f"{place}.input_schema", tool.get("input_schema"))
    return {"type": "function", "function": function}


def _choice(given: Any, names: Collection[str], settings: Settings) -> tuple[str, str | None, bool]:
    """OpenAI's word, the name that is forced, and whether there may be several calls."""
    if given is None:
        return "auto", None, True
    choice = Object().read("tool_choice", given)
    kind = Text(CHOICES).read("tool_choice.type", choice.get("type"))
    for name, value in choice.items():
        if value is not None and name not in CHOICE_FIELDS:
            handle_unknown_field(name, CHOICE_FIELDS, settings, "tool_choice.")
    alone = choice.get("disable_parallel_tool_use")
    parallel = alone is None or not Boolean().read("tool_choice.disable_parallel_tool_use", alone)
    if kind in ("auto", "none"):
        return kind, None, parallel
    if not names:
        raise ParameterError(f"tool_choice: {kind!r} requires tools, and there are none", "tool_choice")
    if kind == "any":
        return "required", None, parallel
    function = Text().read("tool_choice.name", choice.get("name"))
    if function not in names:
        raise ParameterError.of("tool_choice.name", function, "the name of one of the tools that are given")
    return "required", function, parallel
