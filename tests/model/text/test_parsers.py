"""Whether an answer begins with reasoning, by its prompt."""

from __future__ import annotations

import pytest

from lmi.model.text.parsers import Reasoning

START, END, EOS = 1, 2, 3


@pytest.mark.parametrize(
    ("prompt", "ids", "open_", "begins"),
    [
        ([8, EOS, 9], [9], False, [START]),
        ([8, EOS, 9, START, 7], [9, START, 7], True, [7]),
        ([8, EOS, 9, START, 7, END], [9, START, 7, END], False, [START]),
        # The end of an earlier thought, one that was cut off, and what a message quotes.
        ([START, 8, END, 8, EOS, 9], [9], False, [START]),
        ([START, 8, EOS, 9], [9], False, [START]),
        ([8, END, EOS, 8, START, EOS, 9], [9], False, [START]),
        # A prompt that goes on with a message, of which no message has ended, and one that ends with its last message.
        ([EOS, START, 8, END, 8], [START, 8, END, 8], False, [START]),
        ([8, START], [8, START], True, [7]),
        ([8, START, 8, EOS], [EOS], False, [START]),
        ([], [], False, [START]),
    ],
)
def test_only_what_stands_behind_the_last_message_says_whether_an_answer_thinks(
    prompt: list[int], ids: list[int], open_: bool, begins: list[int]
) -> None:
    reasoning = Reasoning(START, END, prompt, {EOS})
    assert (reasoning.ids, reasoning.open) == (ids, open_)
    assert reasoning.may_begin_with(begins)
    assert reasoning.may_begin_with([7]) is open_


def test_where_the_tokens_are_not_known_anything_may_be_reasoning() -> None:
    reasoning = Reasoning(None, END, [8, EOS, 9], {EOS})
    assert reasoning.ids == [8, EOS, 9]
    assert reasoning.may_begin_with([7])
