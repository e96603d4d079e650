"""Reasoning between words of plain text, which comes in any pieces."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from lmi.model.text.answers.marked_reasoning import MARKED, MarkedReasoning

from ....kit.rows import each_row

CASES = {
    ("granite", "Here is my thought process: Hm.\nHere is my response: Yes."): (" Hm.\n", " Yes."),
    ("granite", "\nHere's my thought process:Hm."): ("Hm.", ""),
    ("granite", "Here is my plan: none."): ("", "Here is my plan: none."),
    ("granite", "Here is"): ("", "Here is"),
    ("hunyuan_a13b", "<think>\nHm.\n</think>\n<answer>\nYes.\n</answer>"): ("Hm.", "Yes."),
    ("hunyuan_a13b", "<think>\n\n</think>\n<answer>\nYes."): ("", "Yes."),
    ("hunyuan_a13b", "Yes <answer>\n."): ("", "Yes <answer>\n."),
    ("olmo3", "<think>Hm.</think>Yes."): ("Hm.", "Yes."),
    ("olmo3", "Hm.</think>Yes </think>."): ("Hm.", "Yes </think>."),
    ("olmo3", "Hm. </thin"): ("Hm. </thin", ""),
}


@each_row(("name", "text"), CASES)
def test_any_split_gives_the_same(name: str, text: str) -> None:
    @given(st.lists(st.integers(0, len(text)), max_size=6))
    def split(cuts: list[int]) -> None:
        ends = [0, *sorted(cuts), len(text)]
        reader = MarkedReasoning(MARKED[name])
        pieces = [text[a:b] for a, b in pairwise(ends)]
        read = [reader.feed(piece, ended=number == len(pieces)) for number, piece in enumerate(pieces, 1)]
        assert tuple("".join(texts) for texts in zip(*read, strict=True)) == CASES[name, text]

    split()
