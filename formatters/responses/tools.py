"""The tools of a request, which of them may or must be called, and what the response repeats of them.

    tools, `additional_tools` in the input, tool_choice --read_tools--> ResponseTools

Clients know a tool by its name and its namespace, the model by one name: ResponseTools has the way there and back.
offers.py reads one tool, choice.py `tool_choice`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...model.errors import Fault, ParameterError
from ...model.options import Settings
from ..conversation.tools import TOOLS, Offer, ToolUse, use
from .choice import chosen
from .offers import TOOL, ClientTool, joined, offered

__all__ = ["ResponseTools", "read_tools"]


@dataclass(frozen=True, slots=True)
class ResponseTools:
    """What may be called, and how clients say it."""

    shown: list[dict[str, Any]]
    """`tools` of the response."""
    choice: str | dict[str, Any]
    """`tool_choice` of the response."""
    used: ToolUse
    tools: Mapping[str, ClientTool]
    """By the model's names."""
    names: Mapping[tuple[str | None, str], str] = field(repr=False)
    """The model's names, by the client's namespaces and names."""

    def name(self, namespace: str | None, name: str) -> str:
        """The model's name of a tool that was called, which may not be there any more."""
        return self.names.get((namespace, name)) or joined(namespace, name)


def read_tools(
    values: Mapping[str, Any], settings: Settings, additional: Iterable[tuple[Any, str]] = ()
) -> ResponseTools:
    """The tools, as the table has read them; raises RequestError, naming the place.

    additional: further ones, with their places. One that comes again, by its name and its namespace, replaces the
    earlier one.
    """
    shown: list[dict[str, Any]] = []
    read: list[ClientTool] = []
    for index, one in enumerate(values.get("tools", ())):
        tools, repeated = offered(f"tools[{index}]", settings, *one)
        read += tools
        if repeated is not None:
            shown.append(repeated)
    for one, place in additional:
        read += offered(place, settings, *TOOL.read(place, one, settings))[0]
    if len(read) > TOOLS:
        raise ParameterError.because(
            Fault("tools", expected=f"at most {TOOLS}, those of namespaces counted", given=str(len(read)))
        )
    named: dict[str, ClientTool] = {}
    names: dict[tuple[str | None, str], str] = {}
    for tool in read:
        key = (tool.namespace, tool.name)
        if key not in names:
            name = joined(*key)
            while name in named:
                name += "_"
            names[key] = name
        named[names[key]] = tool
    choice, repeated_choice = chosen(values.get("tool_choice", "auto"), named)
    offers = [
        Offer(name, tool.function, tool.place, tool.place if tool.custom else f"{tool.place}.parameters", tool.custom)
        for name, tool in named.items()
    ]
    used = use(offers, choice, "tool_choice", "tools[]", "tools[].parameters")
    return ResponseTools(shown, repeated_choice, used, named, names)
