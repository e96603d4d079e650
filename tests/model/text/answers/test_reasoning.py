"""Whether an answer begins with reasoning, by its prompt and its first tokens."""

from __future__ import annotations

from lmi.model.text.answers.reasoning import Reasoning

from ....kit.rows import each_row

START, END, EOS, BLANK = 1, 2, 3, 4


@each_row(
    ("prompt", "ids", "open_"),
    [
        ([8, EOS, 9], [9], False),
        ([8, EOS, 9, START, 7], [START, 7], True),
        ([8, EOS, 9, START, 7, END], [END], False),
        # The end of an earlier thought, one that was cut off, and what a message quotes.
        ([START, 8, END, 8, EOS, 9], [9], False),
        ([START, 8, EOS, 9], [9], False),
        ([8, END, EOS, 8, START, EOS, 9], [9], False),
        # A prompt that goes on with a message, of which no message has ended, and one that ends with its last message.
        ([EOS, START, 8, END, 8], [END, 8], False),
        ([8, START], [START], True),
        ([8, START, 8, EOS], [], False),
        ([], [], False),
    ],
)
def test_only_what_stands_behind_the_last_message_says_whether_an_answer_thinks(
    prompt: list[int], ids: list[int], open_: bool
) -> None:
    reasoning = Reasoning(START, END, prompt, {EOS}, str)
    assert (reasoning.ids, reasoning.open) == (ids, open_)
    assert reasoning.prompt == prompt


@each_row(
    ("ids", "begun"),
    [
        ([START], True),
        ([7], False),
        ([7, START], False),
        ([END], False),
        ([], None),
        # White space says nothing.
        ([BLANK], None),
        ([BLANK, BLANK, START], True),
        ([BLANK, 7, START], False),
    ],
)
def test_the_first_tokens_say_whether_an_answer_begins_its_own_reasoning(ids: list[int], begun: bool | None) -> None:
    assert Reasoning(START, END, [8], {EOS}, lambda token: " " if token == BLANK else "a").begun_by(ids) is begun


def test_where_the_tokens_are_not_known_anything_may_be_reasoning() -> None:
    reasoning = Reasoning(None, END, [8, EOS, 9], {EOS}, str)
    assert not reasoning.known
    assert reasoning.ids == [9]
    assert reasoning.begun_by([START]) is False
