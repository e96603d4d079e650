"""Which of vLLM's parsers reads a call that was held back, and what it is given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Literal

import pytest

from lmi.model.text.answers.held_calls import HeldCalls

from ....kit.api.engine import CallForm

CALL = "<call>look_up {}</call>"


def called(name: str, arguments: str) -> Any:
    return SimpleNamespace(id="1", name=name, arguments=arguments)


class Parser:
    """One whose parser of whole answers reads `whole`, and that of streams `pieces`, each at what ends with its key."""

    def __init__(self, whole: Any, pieces: dict[str, Any], least: int) -> None:
        self.given: list[tuple[str, bool]] = []
        self.model_tokenizer = SimpleNamespace(encode=lambda text, add_special_tokens: [*text.encode()])
        self._whole, self._pieces, self._least, self._seen = whole, pieces, least, ""

    def parse(self, text: str, *_: Any, **__: Any) -> Any:
        self.given.append((text, True))
        if isinstance(self._whole, Exception):
            raise self._whole
        return self._whole

    def parse_delta(self, text: str, ids: list[int], _request: Any, before: list[int], *, finished: bool) -> Any:
        assert (bytes(ids).decode(), before) == (text, [])
        self.given.append((text, finished))
        self._seen += text
        found = [one for end, one in self._pieces.items() if text and self._seen.endswith(end)]
        if len(text) < self._least or not found:
            return None
        return SimpleNamespace(content=None, tool_calls=[SimpleNamespace(index=0, function=one) for one in found])


NAME, ARGUMENTS = called("look_up", ""), called("", "{}")
READ = {"look_up": NAME, "</call>": ARGUMENTS}
AT_ONCE = {"</call>": called("look_up", "{}")}
NONE: Any = (None, CALL, [])
WHOLE: Any = None, "", [called("look_up", "{}")]
ONCE = [(CALL, True)]
ONE_BY_ONE = [(letter, False) for letter in CALL[:-1]] + [(CALL[-1], True)]


@pytest.mark.parametrize(
    ("stream", "whole", "pieces", "given"),
    [
        ("", WHOLE, READ, [ONCE]),
        ("then", WHOLE, READ, [ONCE]),
        ("then", NONE, AT_ONCE, [ONCE, ONCE]),
        ("first", NONE, AT_ONCE, [ONCE]),
        # Nothing comes of all of it at once: one character after the other.
        ("then", NONE, READ, [ONCE, ONCE, ONE_BY_ONE]),
        ("first", NONE, READ, [ONCE, ONCE, ONE_BY_ONE]),
        ("then", ValueError("bad"), AT_ONCE, [ONCE, ONCE]),
        ("first", WHOLE, {}, [ONCE, ONCE]),
    ],
)
def test_a_call(stream: Literal["", "first", "then"], whole: Any, pieces: Any, given: list[Any]) -> None:
    parsers: list[Parser] = []

    def make() -> Parser:
        parsers.append(Parser(whole, pieces, len(CALL) if pieces is AT_ONCE else 1))
        return parsers[-1]

    held = HeldCalls(CallForm(("<call>",), "</call>", stream=stream), make, None)
    text, calls = held.feed(CALL, ended=True, cut=False)
    assert text == ""
    assert [(call.name, call.arguments) for call in calls] == [("look_up", "{}")]
    assert [parser.given for parser in parsers] == given
