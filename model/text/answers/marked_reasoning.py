"""Reasoning between words or tags of plain text, where vLLM's parser of streams loses its way (tests/families).

text, text, ... --MarkedReasoning.feed--> reasoning, text
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .text_marks import find_mark, may_begin

__all__ = ["MARKED", "MarkedReasoning", "Marks"]


@dataclass(frozen=True, slots=True)
class Marks:
    """What reasoning lies between."""

    starts: tuple[str, ...]
    ends: tuple[str, ...]
    begun: bool = False
    """Whether an answer begins with reasoning even without a start: the prompt has it."""
    before: tuple[str, ...] = ()
    """What text may begin with that is no part of it."""
    after: tuple[str, ...] = ()
    """What ends the text and is no part of it."""


MARKED: Mapping[str, Marks] = {
    "granite": Marks(
        ("Here is my thought process:", "Here's my thought process:"),
        ("Here is my response:", "Here's my response:"),
    ),
    "hunyuan_a13b": Marks(
        ("<think>\n",),
        ("\n</think>\n", "</think>\n"),
        before=("<answer>\n",),
        after=("\n</answer>",),
    ),
    "olmo3": Marks(("<think>",), ("</think>",), begun=True),
}
"""By vLLM's name of a reasoning parser."""


class MarkedReasoning:
    """Reads one answer."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        self._rest = ""
        """What cannot be told before more comes."""
        self._expected = "start"

    def feed(self, text: str, *, ended: bool) -> tuple[str, str]:
        """What new text brings: reasoning and text. With `ended` it is the last, and nothing is held back."""
        self._rest += text
        marks, reasoning, content = self._marks, "", ""
        if self._expected == "start" and self._begins(marks.starts, ended):
            self._expected = "end" if self._begun or marks.begun else "before"
        if self._expected == "end":
            found = find_mark(self._rest, marks.ends)
            if found is None:
                reasoning = self._take(0 if ended else may_begin(self._rest, marks.ends))
            else:
                at, mark = found
                reasoning, self._rest = self._rest[:at], self._rest[at + len(mark) :]
                self._expected = "before"
        if self._expected == "before" and self._begins(marks.before, ended):
            self._expected = "text"
        if self._expected == "text":
            last = next((len(mark) for mark in marks.after if self._rest.endswith(mark)), 0)
            content = self._take(last if ended or last else may_begin(self._rest, marks.after))
        return reasoning, content

    def _begins(self, marks: tuple[str, ...], ended: bool) -> bool:
        """Whether it is known now if the text begins with one of the marks; then that is `self._begun`, and dropped."""
        text = self._rest.lstrip()
        mark = next((mark for mark in marks if text.startswith(mark)), "")
        self._begun = bool(mark)
        if mark:
            self._rest = text[len(mark) :]
        elif not ended and any(mark.startswith(text) for mark in marks):
            return False
        return True

    def _take(self, kept: int) -> str:
        """What is known of the text, all but `kept` characters."""
        known = len(self._rest) - kept
        text, self._rest = self._rest[:known], self._rest[known:]
        return text
