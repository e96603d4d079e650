"""The tools of a chat request, and which of them may or must be called.

    {"tools", "tool_choice"} or the deprecated {"functions", "function_call"} --read_tools--> ToolUse

The deprecated fields are turned into tools, and the answer is in their kind.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ...model.errors import ParameterError, PayloadError
from ...model.options import Settings
from ..base import JsonSchema, Payload
from ..client_fields import Paths
from ..common.forms import Form, Listed, Tagged
from ..common.kinds import Filled, Text
from ..common.schemas import one_of
from ..conversation.custom_tools import GRAMMAR, custom_function
from ..conversation.tools import CHOICES, FUNCTION, MODES, TOOLS, Choice, Offer, ToolUse, known, listed, use

__all__ = ["TOOLS_SCHEMA", "read_tools"]

FUNCTION_CHOICES = ("none", "auto")
LEGACY: Paths = {"prompt.tools": "functions", "prompt.tools[]": "functions[]", "prompt.tool_choice": "function_call"}
"""What the deprecated fields are called."""

CUSTOM = Form(
    {
        "name": Filled(),
        "description": Text(),
        "format": Tagged("type", {"text": Form({}), "grammar": Form({"grammar": GRAMMAR}, ("grammar",))}),
    },
    ("name",),
)
TOOL = Tagged(
    "type",
    {
        "function": Form({"function": FUNCTION, "cache_control": None}, ("function",)),
        "custom": Form({"custom": CUSTOM}, ("custom",)),
    },
)
# Clients may give the whole tool.
NAMED = Form({"name": Filled(), **dict.fromkeys(("description", "parameters", "strict", "format"))}, ("name",))
NAMED_TOOL = Tagged("type", {kind: Form({kind: NAMED}, (kind,)) for kind in TOOL.forms})
ALLOWED = Form(
    {"mode": Text(MODES), "tools": Listed(NAMED_TOOL, 1, TOOLS, "tools")},
    ("mode", "tools"),
)
CHOICE = Tagged(
    "type",
    {
        **NAMED_TOOL.forms,
        "allowed_tools": Form({"allowed_tools": ALLOWED}, ("allowed_tools",)),
        # As Anthropic's API has it.
        **{word: Form({}) for word in CHOICES},
    },
)

TOOLS_SCHEMA: Mapping[str, JsonSchema] = {
    "tools": Listed(TOOL, most=TOOLS).schema,
    "tool_choice": one_of({"enum": [*CHOICES]}, CHOICE.schema),
    "functions": Listed(FUNCTION, most=TOOLS).schema,
    "function_call": one_of({"enum": [*FUNCTION_CHOICES]}, NAMED.schema),
}
"""Of the fields of a request that are read here."""


def read_tools(payload: Payload, settings: Settings) -> tuple[ToolUse, bool]:
    """The tools of a conversation, and whether they were given as functions; raises RequestError, naming the place."""
    legacy = [name for name in ("functions", "function_call") if payload.get(name) is not None]
    modern = [name for name in ("tools", "tool_choice") if payload.get(name) is not None]
    if not legacy:
        offers = [
            _offer(*TOOL.read(place := f"tools[{index}]", one, settings), place)
            for index, one in enumerate(listed(payload.get("tools"), "tools"))
        ]
        choice = _choice(payload.get("tool_choice"), [offer.name for offer in offers], settings)
        return use(offers, choice, "tool_choice", "tools[].function", "tools[].function.parameters"), False
    if modern:
        raise ParameterError(f"{legacy[0]}: cannot be combined with {modern[0]}", legacy[0])
    offers = [
        _function(FUNCTION.read(place := f"functions[{index}]", one, settings), place)
        for index, one in enumerate(listed(payload.get("functions"), "functions"))
    ]
    choice = _function_call(payload.get("function_call"), [offer.name for offer in offers], settings)
    read = use(offers, choice, "function_call", "functions[]", "functions[].parameters")
    read.own.update(LEGACY)
    return read, True


def _offer(kind: str, read: dict[str, Any], place: str) -> Offer:
    if kind == "function":
        return _function(read["function"], f"{place}.function")
    custom = read["custom"]
    _, form = custom.get("format", ("text", {}))
    function = custom_function(custom.get("description"), form.get("grammar"))
    return Offer(custom["name"], function, f"{place}.custom", f"{place}.custom", custom=True)


def _function(read: dict[str, Any], place: str) -> Offer:
    return Offer(read.pop("name"), read, place, f"{place}.parameters")


def _choice(given: Any, names: Collection[str], settings: Settings) -> Choice:
    if given is None:
        return Choice()
    if isinstance(given, str):
        return Choice(Text(CHOICES).read("tool_choice", given))
    if not isinstance(given, dict):
        raise PayloadError.of("tool_choice", given, f"one of {', '.join(CHOICES)}, or an object with a tool's name")
    kind, read = CHOICE.read("tool_choice", given, settings)
    if kind in CHOICES:
        return Choice(kind)
    if kind != "allowed_tools":
        return Choice("required", known(read[kind]["name"], f"tool_choice.{kind}.name", names))
    allowed, place = read[kind], f"tool_choice.{kind}"
    found = [
        known(one[tool]["name"], f"{place}.tools[{index}].{tool}.name", names)
        for index, (tool, one) in enumerate(allowed["tools"])
    ]
    return Choice(allowed["mode"], None, found)


def _function_call(given: Any, names: Collection[str], settings: Settings) -> Choice:
    if given is None:
        return Choice()
    if isinstance(given, str):
        return Choice(Text(FUNCTION_CHOICES).read("function_call", given))
    if not isinstance(given, dict):
        raise PayloadError.of("function_call", given, "none, auto, or an object with a function's name")
    name = NAMED.read("function_call", given, settings)["name"]
    return Choice("required", known(name, "function_call.name", names))
