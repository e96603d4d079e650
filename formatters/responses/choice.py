"""Which of the tools may or must be called.

"auto", "none", "required"
{"type": "function" or "custom", "name", "namespace"}
{"type": "allowed_tools", "mode", "tools": [...]}          --read_choice--> Choice
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ...model.errors import ParameterError, PayloadError, UnsupportedError
from ..base import JsonSchema
from ..common.kinds import Object, Text
from ..common.schemas import FILLED, STRING, array, objects, one_of
from ..openai.tools import TOOL_CHOICES
from .offers import CALLED, Offer

__all__ = ["CHOICE_SCHEMA", "Choice", "read_choice"]

MODES = ("auto", "required")


@dataclass(frozen=True, slots=True)
class Choice:
    """What may be called, by the model's names."""

    word: str
    """none, auto or required."""
    allowed: Collection[str]
    function: str | None
    """The one that is forced."""
    shown: str | dict[str, Any]
    """`tool_choice` of the response."""


def read_choice(given: Any, offers: Mapping[str, Offer]) -> Choice:
    """`tool_choice`, with the tools by the model's names; raises RequestError."""
    expected = f"one of {', '.join(TOOL_CHOICES)}, or an object with a tool's name"
    if given is None:
        return Choice("auto", offers, None, "auto")
    if isinstance(given, str):
        if given not in TOOL_CHOICES:
            raise ParameterError.of("tool_choice", given, expected)
        if given == "required" and not offers:
            raise ParameterError("tool_choice: 'required' requires tools, and there are none to call", "tool_choice")
        return Choice(given, offers, None, given)
    if not isinstance(given, dict):
        raise PayloadError.of("tool_choice", given, expected)
    kind = given.get("type")
    if kind in CALLED:
        name = _known(given, "tool_choice", offers)
        return Choice("required", offers, name, _named(given))
    if kind == "allowed_tools":
        return _allowed(given, offers)
    raise UnsupportedError.of("tool_choice.type", kind, "'function', 'custom' or 'allowed_tools', no other runs here")


def _allowed(given: dict[str, Any], offers: Mapping[str, Offer]) -> Choice:
    mode = Text(MODES).read("tool_choice.mode", given.get("mode"))
    tools = given.get("tools")
    if not isinstance(tools, list) or not tools:
        raise PayloadError.of("tool_choice.tools", tools, "a list of tools, at least one")
    allowed: list[str] = []
    shown: list[dict[str, Any]] = []
    for index, one in enumerate(tools):
        place = f"tool_choice.tools[{index}]"
        tool = Object().read(place, one)
        if tool.get("type") in CALLED:
            allowed.append(_known(tool, place, offers))
            shown.append(_named(tool))
        elif not isinstance(tool.get("type"), str):
            raise PayloadError.of(f"{place}.type", tool.get("type"), "'function' or 'custom'")
    if not allowed and mode == "required":
        kind = tools[0]["type"]
        raise UnsupportedError.of("tool_choice.tools[0].type", kind, "'function' or 'custom': no other tool runs here")
    return Choice(mode, allowed, None, {"type": "allowed_tools", "mode": mode, "tools": shown})


def _known(given: dict[str, Any], place: str, offers: Mapping[str, Offer]) -> str:
    """The model's name of a tool: by its own, in its namespace or in the only one that has it, or by the model's."""
    name = Text().read(f"{place}.name", given.get("name"))
    namespace = given.get("namespace")
    if namespace is not None:
        Text().read(f"{place}.namespace", namespace)
    kind = given["type"]
    found = {
        key: offer
        for key, offer in offers.items()
        if offer.custom == (kind == "custom") and name in (offer.name, key) and namespace in (None, offer.namespace)
    }
    exact = [key for key, offer in found.items() if offer.namespace == namespace]
    if len(exact) == 1 or len(found) == 1:
        return (exact or [*found])[0]
    if found:
        raise ParameterError.of(f"{place}.name", name, f"one of {', '.join(found)}: there are several")
    raise ParameterError.of(f"{place}.name", name, f"the name of one of the tools of type {kind!r} that are given")


def _named(given: dict[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in ("type", "name", "namespace") if given.get(name) is not None}


NAMED = objects(["type", "name"], type={"enum": [*CALLED]}, name=FILLED, namespace=STRING)
ALLOWED = objects(
    ["type", "mode", "tools"],
    type={"const": "allowed_tools"},
    mode={"enum": [*MODES]},
    tools=array(objects(["type"], type=STRING, name=FILLED), 1),
)
CHOICE_SCHEMA: JsonSchema = one_of({"enum": [*TOOL_CHOICES]}, NAMED, ALLOWED)
