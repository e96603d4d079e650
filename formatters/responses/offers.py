"""One tool of a request: how the client knows it, what the model is offered of it, what the response repeats of it.

{"type": "function", "name", "parameters" ...}     a function
{"type": "namespace", "name", "tools": [...]}      functions and custom tools, named NAMESPACE__NAME
{"type": "custom", "name", "format" ...}           a function of one string (custom.py)
{"type": "web_search"} and all others              left out, or refused (option.server_tools)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...model.errors import PayloadError, UnsupportedError
from ...model.options import Settings
from ..base import JsonSchema
from ..common.custom_tools import custom_function
from ..common.fields import handle_unknown_field, log_once
from ..common.kinds import Object, Text
from ..common.schemas import FILLED, STRING, array, objects, one_of
from ..openai.messages import read_filled
from ..openai.tools import read_function
from .custom import FORMAT_SCHEMA, read_form

__all__ = ["CALLED", "TOOL_SCHEMA", "Offer", "joined", "read_tool"]

CALLED = ("function", "custom")
"""The types of tools that clients run by what the model writes."""
BESIDE = ("type", "allowed_callers", "defer_loading", "output_schema")
"""Fields of a tool that say nothing to the model; null is the same as leaving them out."""
CUSTOM_FIELDS = ("name", "description", "format", *BESIDE)
NAMESPACE_FIELDS = ("type", "name", "description", "tools")
SERVED = "'function', 'custom' or 'namespace'"


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool that the model may call."""

    name: str
    """The client's."""
    namespace: str | None
    function: dict[str, Any]
    """What templates take of it, but for the name."""
    place: str
    """Where the client has the schema of its arguments."""
    custom: bool = False


def joined(namespace: str | None, name: str) -> str:
    """The model's name of a tool: valid at OpenAI's, and as vLLM 0.32 and Codex join the two."""
    return name if namespace is None else f"{namespace}__{name}"


def read_tool(given: Any, place: str, settings: Settings) -> tuple[list[Offer], dict[str, Any] | None]:
    """What the model is offered of a tool, and what the response repeats; None: it is left out. Raises RequestError."""
    tool = Object().read(place, given)
    kind = tool.get("type")
    if kind == "namespace":
        return _namespace(tool, place, settings)
    if kind in CALLED:
        offer, shown = _called(tool, None, place, settings)
        return [offer], shown
    if not isinstance(kind, str):
        raise PayloadError.of(f"{place}.type", kind, SERVED)
    if settings.server_tools == "error":
        raise UnsupportedError.of(f"{place}.type", kind, f"{SERVED} (option.server_tools=error refuses the others)")
    log_once("tools of a type that is not served here are left out: %s", kind, "type ")
    return [], None


def _namespace(tool: dict[str, Any], place: str, settings: Settings) -> tuple[list[Offer], dict[str, Any]]:
    name = read_filled(tool.get("name"), f"{place}.name")
    members = tool.get("tools")
    if not isinstance(members, list):
        raise PayloadError.of(f"{place}.tools", members, "a list of tools")
    for key, value in tool.items():
        if value is not None and key not in NAMESPACE_FIELDS:
            handle_unknown_field(key, NAMESPACE_FIELDS, settings, "tools[].")
    shown: dict[str, Any] = {"type": "namespace", "name": name, "description": _description(tool, place), "tools": []}
    offers: list[Offer] = []
    for index, one in enumerate(members):
        where = f"{place}.tools[{index}]"
        member = Object().read(where, one)
        kind = member.get("type")
        if kind not in CALLED:
            refused = UnsupportedError if isinstance(kind, str) else PayloadError
            raise refused.of(f"{where}.type", kind, "'function' or 'custom' in a namespace")
        offer, repeated = _called(member, name, where, settings)
        offers.append(offer)
        shown["tools"].append(repeated)
    return offers, shown


def _called(
    tool: dict[str, Any], namespace: str | None, place: str, settings: Settings
) -> tuple[Offer, dict[str, Any]]:
    """A function or a custom tool."""
    if tool["type"] == "custom":
        name = read_filled(tool.get("name"), f"{place}.name")
        for key, value in tool.items():
            if value is not None and key not in CUSTOM_FIELDS:
                handle_unknown_field(key, CUSTOM_FIELDS, settings, "tools[].")
        description, form = _description(tool, place), read_form(tool.get("format"), f"{place}.format")
        grammar = (form["syntax"], form["definition"]) if form["type"] == "grammar" else None
        offer = Offer(name, namespace, custom_function(description, grammar), place, custom=True)
        return offer, {"type": "custom", "name": name, "description": description, "format": form}
    plain = {key: value for key, value in tool.items() if key not in BESIDE}
    function = read_function(plain, place, settings, "tools[].")["function"]
    name = function.pop("name")
    shown = {
        "type": "function",
        "name": name,
        "description": function.get("description"),
        "parameters": function.get("parameters"),
        "strict": tool.get("strict"),
    }
    return Offer(name, namespace, function, f"{place}.parameters"), shown


def _description(tool: dict[str, Any], place: str) -> str | None:
    given = tool.get("description")
    return None if given is None else Text().read(f"{place}.description", given)


FUNCTION = objects(
    ["type", "name"],
    type={"const": "function"},
    name=FILLED,
    description=STRING,
    parameters={"type": "object"},
    strict={"type": "boolean"},
)
CUSTOM = objects(["type", "name"], type={"const": "custom"}, name=FILLED, description=STRING, format=FORMAT_SCHEMA)
NAMESPACE = objects(
    ["type", "name", "tools"],
    type={"const": "namespace"},
    name=FILLED,
    description=STRING,
    tools=array(one_of(FUNCTION, CUSTOM)),
)
OTHER = objects(["type"], type={"type": "string", "not": {"enum": [*CALLED, "namespace"]}})
TOOL_SCHEMA: JsonSchema = one_of(FUNCTION, CUSTOM, NAMESPACE, OTHER)
