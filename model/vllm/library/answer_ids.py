"""The token ids of an answer, as vLLM's parsers take them."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["AnswerIds"]


class AnswerIds(list[int]):
    """A list of which `ids + more` and `id in ids` take the same time however long it is.

    vLLM's `parse_delta` makes a list of all ids so far of each token, and its parsers look through it for their
    marks: of 30,000 tokens of reasoning that is 10 s. Here two lists take turns, each a step behind the other: `a + x`
    is `b`, `b + y` is `a` again, with x and y. So a sum is good until the sum after the next is made, and an id is
    only added to the last sum.
    """

    __slots__ = ("_other", "_places")

    def __init__(self, ids: Iterable[int] = ()) -> None:
        super().__init__(ids)
        self._other: AnswerIds | None = None
        self._places: dict[int, int] = {}
        """Where each id is first, of both lists."""
        self._note(0)

    def __add__(self, more: list[int]) -> AnswerIds:  # type: ignore[override]
        other = self._other
        if other is None:
            other = self._other = AnswerIds()
            other._other, other._places = self, self._places
        known = len(self)
        other.extend(self[len(other) :])
        other.extend(more)
        other._note(known)
        return other

    def __contains__(self, token_id: object) -> bool:
        return self._places.get(token_id, len(self)) < len(self)  # type: ignore[call-overload, no-any-return]

    def _note(self, start: int) -> None:
        for place in range(start, len(self)):
            self._places.setdefault(self[place], place)
