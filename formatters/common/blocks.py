"""Answers that are made of blocks: reasoning, text and calls, in the order in which they come.

    Delta --> reasoning, text, calls --> the block that is open, or the next one --> _opened, _grew, _closed

A block ends where the next one begins. White space before a text is held until there is text, for some models have
line breaks around calls: alone between two other blocks it is none. What comes of a call late is still added to it.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

import msgspec

from ...model.events import CallDelta, Delta
from .encoder import Encoder

__all__ = ["BlockEncoder", "BlockKind", "BlockStatus", "Growing"]

BlockKind = Literal["reasoning", "text", "call"]
BlockStatus = Literal["in_progress", "completed", "incomplete"]


class Growing(msgspec.Struct):
    """A block in the making."""

    kind: BlockKind
    index: int
    """Its place in the answer."""
    call_id: str = ""
    name: str = ""
    """Of what is called."""
    pieces: list[str] = []
    """Of its text, or of the call's arguments."""
    status: BlockStatus = "in_progress"
    head: bytes = b""
    tail: bytes = b""
    """The bytes around a piece in a stream, encoded once a block."""

    @property
    def text(self) -> str:
        """All of it so far."""
        return "".join(self.pieces)

    @property
    def arguments(self) -> dict[str, Any]:
        """Of a call, read; what was cut off, or is no object, is an empty one."""
        given: Any = None
        with suppress(msgspec.DecodeError, RecursionError):
            given = msgspec.json.decode(self.text)
        return given if isinstance(given, dict) else {}


B = TypeVar("B", bound=Growing)


@dataclass(slots=True, kw_only=True)
class BlockEncoder(Encoder, Generic[B]):
    """An encoder of one choice, but for what its blocks become."""

    key: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Random: what ids are made of."""
    silent: bool = False
    """Whether nothing of what is generated is shown."""
    text_ends_last: bool = False
    """Whether the text goes on until the end, whatever comes in between."""
    blocks: list[B] = field(default_factory=list)
    open: B | None = None
    """The last block, if it has not ended."""
    text: B | None = None
    """The text that has not ended."""
    calls: dict[int, B] = field(default_factory=dict)
    """By the engine's index."""
    held: str = ""
    """White space that a text may begin with."""

    def _take(self, delta: Delta, prompt: int) -> list[bytes]:
        records: list[bytes] = []
        if not self.begun:
            self._begin(records)
        if self.silent:
            return records
        if delta.reasoning:
            block = self.open
            if block is None or block.kind != "reasoning":
                block = self._new("reasoning", records)
            self._grew(block, delta.reasoning, records)
        calls = delta.calls
        if delta.text:
            # What an open call has to add came before the text.
            while calls and calls[0].index in self.calls:
                self._call(calls[0], records)
                calls = calls[1:]
            self._text(delta.text, records)
        for call in calls:
            self._call(call, records)
        return records

    def _text(self, text: str, records: list[bytes]) -> None:
        block = self.text
        if block is None:
            text = self.held + text
            if text.isspace():
                self.held = text
                return
            self.held = ""
            block = self._new("text", records)
        self._grew(block, text, records)

    def _call(self, call: CallDelta, records: list[bytes]) -> None:
        block = self.calls.get(call.index)
        if block is None:
            block = self.calls[call.index] = self._new("call", records, call)
        if call.arguments:
            self._grew(block, call.arguments, records)

    def _new(self, kind: BlockKind, records: list[bytes], call: CallDelta | None = None) -> B:
        """The next block, after the end of the one that is open."""
        if self.open is not None and not (self.text_ends_last and self.open is self.text):
            self._end(self.open, "completed", records)
        block = self.open = self._made(kind, call)
        self.blocks.append(block)
        if kind == "text":
            self.text = block
        self._opened(block, records)
        return block

    def _end(self, block: B, status: BlockStatus, records: list[bytes]) -> None:
        block.status = status
        if block is self.text:
            self.text = None
        self._closed(block, records)

    def _end_all(self, records: list[bytes], *, whole: bool = True) -> None:
        """The end of all blocks; `whole`: the last one was not cut off."""
        for block in self.blocks:
            if block.status == "in_progress":
                self._end(block, "completed" if whole or block is not self.blocks[-1] else "incomplete", records)

    def _derived_id(self, name: str) -> str:
        """An id of this answer's, the same each time for one name."""
        return uuid.uuid5(uuid.NAMESPACE_OID, f"{self.key}/{name}").hex

    # What blocks become; of an answer that is sent whole, nothing until its end.

    def _made(self, kind: BlockKind, call: CallDelta | None) -> B:
        """A block that begins, a call by its first delta."""
        raise NotImplementedError

    def _begin(self, records: list[bytes]) -> None:
        """What is sent before all blocks; sets `begun`."""

    def _opened(self, block: B, records: list[bytes]) -> None:
        """What is sent where a block begins."""

    def _grew(self, block: B, piece: str, records: list[bytes]) -> None:
        """Takes a piece of a block, and what is sent of it."""
        block.pieces.append(piece)

    def _closed(self, block: B, records: list[bytes]) -> None:
        """What is sent where a block has ended."""
