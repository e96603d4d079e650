"""Whether the answer to a prompt begins with reasoning."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

__all__ = ["Reasoning"]


class Reasoning:
    """Where the reasoning of an answer begins, by its prompt and its own first tokens.

    vLLM's parsers for models that think between two tokens take an answer for reasoning until the second token comes,
    and so all of an answer that has none. But a model that thinks has the first token in its prompt or writes it first.
    What earlier messages have thought, or quote of these tokens, says nothing of the answer.
    """

    def __init__(
        self,
        start: int | None,
        end: int | None,
        prompt_ids: Sequence[int],
        ends: Collection[int],
        text_of: Callable[[int], str],
        special: frozenset[int] = frozenset(),
    ) -> None:
        """`start` and `end`: the two tokens; `ends`: those that end a message; `text_of`: a token's text; `special`:
        tokens that are no words.
        """
        self._special = special
        self._start = start
        self._end = end
        self._end_ids = ends
        self._text_of = text_of
        self.known = start is not None and end is not None
        """Whether this is known at all: some models mark their reasoning in other ways."""
        self.prompt = prompt_ids
        self.ids = [*prompt_ids]
        """What of the prompt says whether it ends within reasoning: from the last mark of its last message on, or from
        where that begins."""
        self.open = False
        """Whether the prompt ends within the reasoning."""
        marks = {start, end, *ends}
        last = next((at for at in range(len(self.ids) - 1, -1, -1) if self.ids[at] in marks), -1)
        if last >= 0:
            self.ids = self.ids[last + (self.ids[last] in ends) :]
            self.open = self.known and self.ids[:1] == [start]
        elif self.known:
            self.ids = []
        self.mark = [start] if self.open and start is not None else []
        """The token with which the prompt opens the reasoning; none where it does not."""
        self.opening = "".join(map(text_of, self.mark))
        """Its text."""

    def begun_by(self, ids: Sequence[int]) -> bool | None:
        """Whether an answer that begins with `ids` begins its own reasoning; None where more tokens must tell."""
        if not self.known:
            return False
        first = next((token_id for token_id in ids if token_id == self._start or self._text_of(token_id).strip()), None)
        return None if first is None else first == self._start

    def ended_by(self, ids: Sequence[int]) -> bool:
        """Whether all of an answer, `ids`, ends reasoning that neither it nor its prompt began, and goes on. Texts of
        some models have the same end.

        Of a stream nobody knows that in time: it would have to take every plain answer for reasoning.
        """
        marks = (self._start, self._end)
        at = next((at for at, token_id in enumerate(ids) if token_id in marks), -1)
        if not self.known or self.open or at < 0 or ids[at] == self._start or self.ids[:1] == [self._end]:
            return False
        return any(token_id not in self._end_ids for token_id in ids[at + 1 :])

    def between(self, ids: list[int], text: str, thought: str) -> int | None:
        """How many of all tokens of an answer are reasoning, given the answer's `text` and what of it has been read as
        that; None where it takes a parser to say so: reasoning with other marks in it, or that ends otherwise.
        """
        start, end = self._start, self._end
        if start is None or end is None:
            return None
        at = ids.index(end) if end in ids else len(ids)
        words, written = ids[:at], text.partition(self._text_of(end))[0] if at < len(ids) else text
        if not self.open:
            if words[:1] != [start]:
                return None
            words = words[1:]
            written = written.partition(self._text_of(start))[2]
        # After its end it may begin again.
        plain = start not in ids[at:] and self._special.isdisjoint(words)
        return len(words) if plain and written.strip() == thought.strip() else None
