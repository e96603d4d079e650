"""Tools that the prompt does not list in front: the conversation describes them where they are found or added.

    a result's tool_reference to one with `defer_loading`    <functions>
                                                             <function>{"name": ...}</function>
                                                             </functions>
    a system message's tool_addition                         the same, after a line that says what it is
    a system message's tool_removal                          a line that says so

That is how clients describe their search tools to the model, and the prompt only grows. A definition is told once, and
then by its name: a hundred references to a large tool would make a prompt of a hundred times its size. One that was
neither found nor added is not offered (docs/decisions.md: Tools that are found later).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from ...model.conversation import Text
from ...model.errors import ParameterError
from ...model.options import Settings
from ..base import encode
from ..conversation.content import Content
from ..conversation.tools import Offer
from .said import ADDED, REMOVED, Blocks, Change
from .tools import offer_of

__all__ = ["FoundTools"]

LINES = {ADDED: "These tools can be called from now on:", REMOVED: "These tools can no longer be called:"}


class FoundTools:
    """The tools of one request, and which of those that are not listed may be called."""

    def __init__(self, offers: Sequence[Offer] = ()) -> None:
        self._given = offers
        self._added: dict[str, Offer] = {}
        self._by_name = {offer.name: offer for offer in [*offers][::-1]}
        self._described: set[str] = set()
        self.names: set[str] = set()
        """Those that were found or added."""

    @property
    def offers(self) -> list[Offer]:
        """All tools, those that were added behind the others."""
        return [*(offer for offer in self._given if offer.name not in self._added), *self._added.values()]

    def told(self, content: str | Content, settings: Settings) -> str | Content:
        """A content, with what the model is told of tools in it; raises RequestError, naming the place."""
        if not isinstance(content, Blocks) or not content.changes:
            return content
        made = Content()
        kinds = [content.changes[index].kind if index in content.changes else "" for index in range(len(content.parts))]
        for kind, row in groupby(range(len(kinds)), kinds.__getitem__):
            if kind:
                if text := self._text(kind, [content.changes[index] for index in row], settings):
                    made.text(text)
                continue
            for index in row:
                part = content.parts[index]
                if isinstance(part, Text):
                    made.text(part.text)
                else:
                    made.media(part.kind, part.url, content.fields[index])
        return made

    def _text(self, kind: str, changes: Sequence[Change], settings: Settings) -> str:
        """Tells of changes of one kind in a row."""
        names: list[str] = []
        described: list[str] = []
        for change in changes:
            offer = self._changed(change, settings)
            if offer is not None:
                described.append(f"<function>{encode({'name': offer.name, **offer.function}).decode()}</function>")
            elif change.name:
                names.append(change.name)
        lines = [*names, *(["<functions>", *described, "</functions>"] if described else ())]
        return "\n".join([LINES[kind], *lines] if kind in LINES and lines else lines)

    def _changed(self, change: Change, settings: Settings) -> Offer | None:
        """The tool that is to be described; None: it is not, its name says all."""
        if change.kind == REMOVED:
            self.names.discard(change.name)
            return None
        offer = self._by_name.get(change.name)
        if change.definition is not None:
            offer = offer_of(change.definition, change.place, settings)
            if offer is None:
                return None
            offer = replace(offer, deferred=True)
            self._added[offer.name] = self._by_name[offer.name] = offer
            self._described.discard(offer.name)
        elif offer is None and change.kind == ADDED:
            raise ParameterError.of(change.place, change.name, "the name of one of the tools that are given")
        if offer is None or not offer.deferred:
            return None
        self.names.add(offer.name)
        if offer.name in self._described:
            return None
        self._described.add(offer.name)
        return offer
