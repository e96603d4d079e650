"""How answers look where no terminal is, and what never reaches one. On a terminal: test_talk.py."""

from __future__ import annotations

import pytest

from lmi.handler.commands.chat.screen import Screen, harmless

from ....kit.api.chat import Answer, Piece
from ....kit.rows import each_row


@each_row(
    ("text", "shown"),
    [
        ("a\tb\nc 👩\u200d👧 café", "a\tb\nc 👩\u200d👧 café"),
        ("\x1b]0;title\x07\x1b[2J", "\ufffd]0;title\ufffd\ufffd[2J"),
        ("over\rwritten\x9b", "over\ufffdwritten\ufffd"),
        ("a\u202ebc\u2066\ud800", "a\ufffdbc\ufffd\ufffd"),
    ],
)
def test_control_characters_reach_no_terminal(text: str, shown: str) -> None:
    assert harmless(text) == shown


def test_the_answer_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """Without reasoning and without figures; calls are part of it."""
    screen = Screen()
    assert not screen.terminal
    for piece in (Piece("reasoning", "Hm"), Piece("text", "\n\nHel"), Piece("text", "lo"), Piece("call", "f"),
                  Piece("call", '{"a":'), Piece("call", " 1}"), Piece("call", "g", 1)):  # fmt: skip
        screen.show(piece)
    screen.end(Answer(tokens=9, finish_reason="stop"), 0.1, 0.2)
    screen.note("for a person")
    assert capsys.readouterr().out == '\n\nHello\nf({"a": 1})\ng()\n'
