"""The tools of a chat request, and which of them may or must be called.

    {"tools", "tool_choice"} or the deprecated {"functions", "function_call"} --read_tools--> ToolUse

The deprecated fields are turned into tools, and the answer is in their kind.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ...model.errors import Fault, ParameterError
from ..client_fields import Paths
from ..common.fields import Parameter
from ..common.forms import Form, Listed, Tagged, TextOr
from ..common.kinds import Filled, Text
from ..conversation.custom_tools import GRAMMAR, custom_function
from ..conversation.tools import CHOICES, FUNCTION, MODES, TOOLS, Choice, Offer, ToolUse, known, use

__all__ = ["TOOL_ROWS", "read_tools"]

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

TOOL_ROWS = (
    Parameter("tools", Listed(TOOL, most=TOOLS, noun="tools"), None, "tools"),
    Parameter("tool_choice", TextOr(CHOICE, "an object with a tool's name", CHOICES), None, "tool_choice"),
    Parameter("functions", Listed(FUNCTION, most=TOOLS, noun="functions"), None, "functions"),
    Parameter(
        "function_call", TextOr(NAMED, "an object with a function's name", FUNCTION_CHOICES), None, "function_call"
    ),
)


def read_tools(values: Mapping[str, Any]) -> tuple[ToolUse, bool]:
    """The tools of a conversation, and whether they were given as functions; raises ParameterError."""
    legacy = [name for name in ("functions", "function_call") if name in values]
    modern = [name for name in ("tools", "tool_choice") if name in values]
    if not legacy:
        offers = [_offer(f"tools[{index}]", *tool) for index, tool in enumerate(values.get("tools", ()))]
        choice = _choice(values.get("tool_choice", "auto"), [offer.name for offer in offers])
        return use(offers, choice, "tool_choice", "tools[].function", "tools[].function.parameters"), False
    if modern:
        raise ParameterError.because(Fault(legacy[0], f"cannot be combined with {modern[0]}"))
    offers = [_function(one, f"functions[{index}]") for index, one in enumerate(values.get("functions", ()))]
    choice = _function_call(values.get("function_call", "auto"), [offer.name for offer in offers])
    used = use(offers, choice, "function_call", "functions[]", "functions[].parameters")
    used.own.update(LEGACY)
    return used, True


def _offer(place: str, kind: str, read: dict[str, Any]) -> Offer:
    if kind == "function":
        return _function(read["function"], f"{place}.function")
    custom = read["custom"]
    _, form = custom.get("format", ("text", {}))
    function = custom_function(custom.get("description"), form.get("grammar"))
    return Offer(custom["name"], function, f"{place}.custom", f"{place}.custom", custom=True)


def _function(read: dict[str, Any], place: str) -> Offer:
    return Offer(read.pop("name"), read, place, f"{place}.parameters")


def _choice(read: str | tuple[str, dict[str, Any]], names: Collection[str]) -> Choice:
    if isinstance(read, str):
        return Choice(read)
    kind, form = read
    if kind in CHOICES:
        return Choice(kind)
    if kind != "allowed_tools":
        return Choice("required", known(form[kind]["name"], f"tool_choice.{kind}.name", names))
    allowed, place = form[kind], f"tool_choice.{kind}"
    found = [
        known(one[tool]["name"], f"{place}.tools[{index}].{tool}.name", names)
        for index, (tool, one) in enumerate(allowed["tools"])
    ]
    return Choice(allowed["mode"], None, found)


def _function_call(read: str | dict[str, Any], names: Collection[str]) -> Choice:
    if isinstance(read, str):
        return Choice(read)
    return Choice("required", known(read["name"], "function_call.name", names))
