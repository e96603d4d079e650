"""The tools that a model is offered, and which of them may or must be called, however a client says it.

    [Offer(...), ...], Choice("auto" | "required" | "none", forced, allowed) --use--> ToolUse, for a Conversation

Each dialect reads its own forms of tools and choices; what these mean together is one rule here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from ...model.errors import Fault, ParameterError, UnsupportedError
from ...model.options import Settings
from ..common.fields import log_once
from ..common.forms import Form
from ..common.kinds import Boolean, Filled, Text, Tree

__all__ = ["CHOICES", "FUNCTION", "MODES", "TOOLS", "Choice", "Offer", "ToolUse", "known", "leave_out", "use"]

TOOLS = 1024
"""Tools in one request. OpenAI's limit is 128."""
CHOICES = ("none", "auto", "required")
MODES = ("auto", "required")
"""Of what is allowed."""
FUNCTION = Form({"name": Filled(), "description": Text(), "parameters": Tree(), "strict": Boolean()}, ("name",))
"""A function in OpenAI's form."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool that the model may call."""

    name: str
    """The model's."""
    function: dict[str, Any]
    """What templates take of it, but for the name: description, parameters, strict."""
    place: str
    """Where the client has it."""
    schema: str
    """Where the client has the schema of its arguments."""
    custom: bool = False
    """Whether the client gave it as a custom tool."""
    deferred: bool = False
    """Whether the conversation describes it, if it has been found: the prompt does not list it in front."""

    @property
    def tool(self) -> dict[str, Any]:
        """As templates take it."""
        return {"type": "function", "function": {"name": self.name, **self.function}}


@dataclass(frozen=True, slots=True)
class Choice:
    """What a client says of its tools, by the model's names."""

    word: str = "auto"
    """none, auto or required."""
    function: str | None = None
    """The one that must be called."""
    allowed: Collection[str] | None = None
    """Those that may be; None: all."""


@dataclass(frozen=True, slots=True)
class ToolUse:
    """What a conversation says of tools."""

    tools: tuple[dict[str, Any], ...] = ()
    """In OpenAI's form."""
    choice: str | None = None
    """none, auto or required; None without tools."""
    function: str | None = None
    """The name of the one that must be called."""
    custom: frozenset[str] = frozenset()
    """The names of those that were given as custom tools."""
    own: dict[str, str] = field(default_factory=dict[str, str])
    """Where the client has them, other than its dialect usually has (ClientFields.own)."""


def use(
    offers: Iterable[Offer], choice: Choice, place: str, usual: str, schema: str, found: Collection[str] = ()
) -> ToolUse:
    """What may and must be called; raises ParameterError for too many tools, or a required call where there is none.

    place: the client's name of the choice. usual, schema: where its dialect has tool [] and its arguments' schema.
    found: of those that are deferred, those that may be called.
    """
    offers = [*offers]
    if len(offers) > TOOLS:
        message = f"tools: expected at most {TOOLS}, those counted that are added later, got {len(offers)}"
        raise ParameterError(message, "tools")
    every = [offer for offer in offers if not offer.deferred or offer.name in found or offer.name == choice.function]
    offered = every if choice.allowed is None else [offer for offer in every if offer.name in choice.allowed]
    if not offered:
        if choice.word == "required":
            raise ParameterError.because(Fault(place, "a call is required, and there are no tools to call"))
        return ToolUse()
    own: dict[str, str] = {}
    for index, offer in enumerate(offered):
        number = f"[{index}]"
        if offer.place != usual.replace("[]", number) or offer.schema != schema.replace("[]", number):
            own |= {f"prompt.tools{number}": offer.place, f"prompt.tools{number}.parameters": offer.schema}
    custom = frozenset(offer.name for offer in offered if offer.custom)
    # Templates say how to call a tool where they list one.
    some = any(not offer.deferred for offer in offered)
    tools = tuple(
        offer.tool | ({"defer_loading": True} if some and offer.deferred and offer.name in found else {})
        for offer in offered
    )
    return ToolUse(tools, choice.word, choice.function, custom, own)


def leave_out(kind: str, place: str, settings: Settings, served: str) -> None:
    """What is done about a tool of a type that only a model's maker can run, such as web_search: it is left out with a
    line in the log, as agents offer such tools unasked. Raises UnsupportedError with option.server_tools=error.
    """
    if settings.server_tools == "error":
        raise UnsupportedError.of(place, kind, f"{served} (option.server_tools=error refuses the others)")
    log_once("tools of a type that is not served here are left out: %s", kind, "type ")


def known(name: str, place: str, names: Collection[str]) -> str:
    """A name that is one of the tools'; raises ParameterError."""
    if name not in names:
        raise ParameterError.of(place, name, "the name of one of the tools that are given")
    return name
