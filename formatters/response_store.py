"""What a store of responses is to dialects; what it is made of is in handler/response_store.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

__all__ = ["ResponseStore"]


class ResponseStore(Protocol):
    """Responses by their ids, for a while: what is kept longest goes first. Any thread may use it."""

    @property
    def max_bytes(self) -> int:
        """How much all of them may be together."""
        ...

    def put(self, response_id: str, kept: bytes, items: Sequence[str] = ()) -> None:
        """Keeps a response, and forgets as many of the oldest as there is no room for.

        items: the ids of its output.
        """
        ...

    def get(self, response_id: str) -> bytes | None:
        """What was kept; None where there is no such response, or none any more."""
        ...

    def having(self, item_id: str) -> str | None:
        """The id of the response whose output has an item."""
        ...

    def remove(self, response_id: str) -> bool:
        """Forgets a response; whether there was one."""
        ...
