"""Which of the tools may or must be called.

"auto", "none", "required"
{"type": "function" or "custom", "name", "namespace"}
{"type": "allowed_tools", "mode", "tools": [...]}    --CHOICE, chosen--> Choice, and what the response repeats of it
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...model.errors import ParameterError, UnsupportedError
from ..common.forms import Form, Listed, Tagged, TextOr
from ..common.kinds import Filled, Text
from ..conversation.tools import CHOICES, MODES, TOOLS, Choice
from .offers import CALLED, ClientTool

__all__ = ["CHOICE", "chosen"]

# Clients may give the whole tool.
WHOLE: Mapping[str, None] = dict.fromkeys(("description", "parameters", "strict", "format"))
NAMED = {kind: Form({"name": Filled(), "namespace": Filled(), **WHOLE}, ("name",)) for kind in CALLED}
# Tools of other types may be listed among those that are allowed: they have been left out.
ONE = Tagged("type", NAMED, other=Form({"name": None, "server_label": None}))
ALLOWED = Form({"mode": Text(MODES), "tools": Listed(ONE, 1, TOOLS, "tools")}, ("mode", "tools"))
KINDS = Tagged("type", {**NAMED, "allowed_tools": ALLOWED, **{word: Form({}) for word in CHOICES}})
CHOICE = TextOr(KINDS, "an object with a tool's name", CHOICES)

Tools = Mapping[str, ClientTool]
"""By the model's names."""


def chosen(asked: str | tuple[str, dict[str, Any]], tools: Tools) -> tuple[Choice, str | dict[str, Any]]:
    """`tool_choice`, as CHOICE has read it; raises RequestError."""
    if isinstance(asked, str):
        return Choice(asked), asked
    kind, read = asked
    if kind in CHOICES:
        return Choice(kind), kind
    if kind != "allowed_tools":
        return Choice("required", _known(kind, read, "tool_choice", tools)), {"type": kind, **read}
    mode, listed = read["mode"], [*enumerate(read["tools"])]
    called = [(index, kind, one) for index, (kind, one) in listed if kind in CALLED]
    if not called and mode == "required":
        refused = listed[0][1][0]
        raise UnsupportedError.of(
            "tool_choice.tools[0].type", refused, "'function' or 'custom': no other tool runs here"
        )
    allowed = [_known(kind, one, f"tool_choice.tools[{index}]", tools) for index, kind, one in called]
    shown = [{"type": kind, **one} for _, kind, one in called]
    return Choice(mode, None, allowed), {"type": "allowed_tools", "mode": mode, "tools": shown}


def _known(kind: str, given: Mapping[str, Any], place: str, tools: Tools) -> str:
    """The model's name of a tool: by its own, in its namespace or in the only one that has it, or by the model's."""
    name, namespace = given["name"], given.get("namespace")
    found = {
        key: tool
        for key, tool in tools.items()
        if tool.custom == (kind == "custom") and name in (tool.name, key) and namespace in (None, tool.namespace)
    }
    exact = [key for key, tool in found.items() if tool.namespace == namespace]
    if len(exact) == 1 or len(found) == 1:
        return (exact or [*found])[0]
    if found:
        raise ParameterError.of(f"{place}.name", name, f"one of {', '.join(found)}: there are several")
    raise ParameterError.of(f"{place}.name", name, f"the name of one of the tools of type {kind!r} that are given")
