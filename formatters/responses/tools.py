"""The tools of a request, which of them may or must be called, and what the response repeats of them.

    tools, `additional_tools` in the input, tool_choice --read_tools--> ToolUse

Clients know a tool by its name and its namespace, the model by one name: a ToolUse has the way there and back.
offers.py reads one tool, choice.py `tool_choice`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...model.errors import ParameterError
from ...model.options import Settings
from ..base import JsonSchema, Payload
from ..common.schemas import array
from ..openai.tools import TOOLS, Tools, list_of_tools
from .choice import CHOICE_SCHEMA, Choice, read_choice
from .offers import TOOL_SCHEMA, Offer, joined, read_tool

__all__ = ["TOOLS_SCHEMA", "ToolUse", "read_tools"]


@dataclass(frozen=True, slots=True)
class ToolUse:
    """What may be called, and how clients say it."""

    shown: list[dict[str, Any]]
    """`tools` of the response."""
    choice: Choice
    offers: Mapping[str, Offer]
    """By the model's names."""
    names: Mapping[tuple[str | None, str], str] = field(repr=False)
    """The model's names, by the client's namespaces and names."""

    def name(self, namespace: str | None, name: str) -> str:
        """The model's name of a tool that was called, which may not be there any more."""
        return self.names.get((namespace, name)) or joined(namespace, name)

    @property
    def read(self) -> Tools:
        """What the model is offered."""
        word, used = self.choice.word, self.choice.allowed
        if word == "none" or not used:
            return Tools()
        tools = tuple(
            {"type": "function", "function": {"name": name, **offer.function}}
            for name, offer in self.offers.items()
            if name in used
        )
        return Tools(tools, word, self.choice.function)

    @property
    def own(self) -> dict[str, str]:
        """Where the client has what the model is offered (ClientFields.own)."""
        places = (offer.place for name, offer in self.offers.items() if name in self.choice.allowed)
        return {
            path: field
            for index, place in enumerate(places)
            for path, field in (
                (f"prompt.tools[{index}]", place.removesuffix(".parameters")),
                (f"prompt.tools[{index}].parameters", place),
            )
        }


def read_tools(payload: Payload, settings: Settings, additional: Iterable[tuple[Any, str]] = ()) -> ToolUse:
    """The tools; raises RequestError, naming the place.

    additional: further ones, with their places. One that comes again, by its name and its namespace, replaces the
    earlier one.
    """
    shown: list[dict[str, Any]] = []
    read: list[Offer] = []
    for index, one in enumerate(list_of_tools(payload)):
        offers, repeated = read_tool(one, f"tools[{index}]", settings)
        read += offers
        if repeated is not None:
            shown.append(repeated)
    for one, place in additional:
        read += read_tool(one, place, settings)[0]
    if len(read) > TOOLS:
        raise ParameterError(f"tools: expected at most {TOOLS}, those of namespaces counted, got {len(read)}", "tools")
    named: dict[str, Offer] = {}
    names: dict[tuple[str | None, str], str] = {}
    for offer in read:
        key = (offer.namespace, offer.name)
        if key not in names:
            name = joined(*key)
            while name in named:
                name += "_"
            names[key] = name
        named[names[key]] = offer
    return ToolUse(shown, read_choice(payload.get("tool_choice"), named), named, names)


TOOLS_SCHEMA: Mapping[str, JsonSchema] = {"tools": array(TOOL_SCHEMA, le=TOOLS), "tool_choice": CHOICE_SCHEMA}
"""Of the fields of a request that are read here."""
