"""Calls that are held back until each is whole, out of text that comes in any pieces."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lmi.model.text.answers.call_reader import BESIDE, FORMS, CallForm, CallReader, form_of

from ....kit.rows import each_row

TAGGED = CallForm(("<call>",), "</call>")
LAST = CallForm(("[",))
FIRST = CallForm(("[",), first=True)
UNENDED = CallForm(("<call>",), "</call>", ends_itself=True)


def read(text: str) -> tuple[str, Sequence[Any]]:
    """JSON between the marks, or a list of JSON to the end."""
    before, mark, rest = text.partition("[" if "<call>" not in text else "<call>")
    try:
        found = json.loads("[" + rest) if mark == "[" else [json.loads(rest.removesuffix("</call>"))]
    except ValueError:
        return text, ()
    if mark == "<call>" and not rest.endswith("</call>"):
        return text, ()
    return before.strip(), found


def told(form: CallForm, pieces: Sequence[str], *, cut: bool = False) -> list[Any]:
    """What comes of the pieces of an answer: texts that follow one another joined, and calls."""
    reader = CallReader(form)
    joined: list[Any] = []
    for number, piece in enumerate(pieces, 1):
        for one in reader.feed(piece, read, ended=number == len(pieces), cut=cut):
            if isinstance(one, str) and joined and isinstance(joined[-1], str):
                joined[-1] += one
            else:
                joined.append(one)
    return joined


CASES: dict[str, tuple[CallForm, str, list[Any]]] = {
    "text": (TAGGED, "It is sunny. \n", ["It is sunny. \n"]),
    "a call": (TAGGED, '<call>{"a": 1}</call>', [({"a": 1},)]),
    "white space around calls": (TAGGED, "\n<call>1</call>\n<call>2</call>\n", [(1,), (2,)]),
    "text around a call": (TAGGED, "A \n<call>1</call>\nB", ["A", (1,), "\nB"]),
    "the end mark in a string": (TAGGED, '<call>{"a": "</call>"}</call>', [({"a": "</call>"},)]),
    "no JSON": (TAGGED, "A <call>x</call> B", ["A <call>x</call> B"]),
    "a mark that begins no call": (TAGGED, "Use <call>: <call>1</call>", ["Use <call>:", (1,)]),
    "the beginning of a mark": (TAGGED, "a <ca", ["a <ca"]),
    "no end mark": (TAGGED, "A <call>1", ["A <call>1"]),
    "no end mark, which says nothing": (UNENDED, "A <call>1", ["A", (1,)]),
    "calls to the end": (LAST, "A [1, 2]", ["A", (1, 2)]),
    "a list that is none": (LAST, "A [x] B", ["A [x] B"]),
    "first": (FIRST, "\n[1]", [(1,)]),
    "not first": (FIRST, "A [1]", ["A [1]"]),
}


@each_row("name", CASES)
def test_any_split_gives_the_same(name: str) -> None:
    form, text, expected = CASES[name]
    assert told(form, [text]) == expected
    assert told(form, [*text, ""]) == expected

    @given(st.lists(st.integers(0, len(text)), max_size=6))
    def split(cuts: list[int]) -> None:
        ends = [0, *sorted(cuts), len(text)]
        assert told(form, [text[a:b] for a, b in pairwise(ends)]) == expected

    split()


def test_a_call_that_was_cut_off_is_not_completed() -> None:
    assert told(UNENDED, ["A <call>1"], cut=True) == ["A <call>1"]


def test_text_goes_on_and_calls_wait() -> None:
    reader = CallReader(TAGGED)
    pieces = ("Let me see", " <", "b>", "<call>1", "</call>")
    told = [(reader.feed(piece, read, ended=False), reader.holds) for piece in pieces]
    assert told == [(["Let me see"], False), ([], False), ([" <b>"], False), ([], True), ([(1,)], False)]


def test_marks_without_calls_are_looked_at_a_few_times_only() -> None:
    asked: list[str] = []

    def count(text: str) -> tuple[str, Sequence[Any]]:
        asked.append(text)
        return text, ()

    text = "<call>" * 50 + "</call>" * 50
    reader = CallReader(TAGGED)
    assert "".join(str(one) for one in reader.feed(text, count, ended=True)) == text
    assert len(asked) < 100


def test_which_parsers_calls_are_held_back() -> None:
    assert form_of("hermes", None) is FORMS["hermes"]
    assert form_of("minimax_m2", "minimax_m2") is None
    assert form_of(*next(iter(BESIDE))) is not None
    assert form_of(None, "qwen3") is None
