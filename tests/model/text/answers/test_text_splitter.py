"""Answers that are read by their text alone: the same in any pieces, with their tokens or without."""

from __future__ import annotations

import json
import re
from typing import Any

from lmi.model.text.answers.text_splitter import TextSplitter

from ....kit.answers.events import join_calls
from ....kit.api.engine import ForcedCalls, HeldCalls, form_of
from ....kit.api.types import Token
from ....kit.rows import each_row

CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


class Reading:
    """Reads calls between tags, each of them JSON, as vLLM's hermes parser does of a whole answer."""

    def parse(self, text: str, _request: Any, **_: Any) -> tuple[None, str, list[Any]]:
        return None, CALL.sub("", text), [Function(**json.loads(found)) for found in CALL.findall(text)]


class Function:
    def __init__(self, name: str, arguments: Any) -> None:
        self.name = name
        self.arguments = json.dumps(arguments) if arguments else ""


def held(*, one_call: bool = False) -> TextSplitter:
    form = form_of("hermes", None)
    assert form is not None
    return TextSplitter(HeldCalls(form, Reading, None), one_call=one_call)


def forced(*, one_call: bool = False) -> TextSplitter:
    return TextSplitter(ForcedCalls(None, lambda name: f"id of {name}"), one_call=one_call)


PARIS, ROME, NONE = (
    f'<tool_call>{{"name": "look", "arguments": {arguments}}}</tool_call>'
    for arguments in ('{"city": "Paris"}', '{"city": "Rome"}', "{}")
)
Call = tuple[str, Any]
IN_PARIS: Call = ("look", {"city": "Paris"})
IN_ROME: Call = ("look", {"city": "Rome"})
NOWHERE: Call = ("look", {})
LISTED = '[{"name": "look", "parameters": {"city": "Paris"}}, {"name": "look", "parameters": {"city": "Rome"}}]'
ANSWERS: dict[str, tuple[Any, str, str, list[Call]]] = {
    "text": (held, "It is sunny.\n\nIn Paris, 1 < 2.", "It is sunny.\n\nIn Paris, 1 < 2.", []),
    "a call": (held, f"Let me see.\n{PARIS}", "Let me see.", [IN_PARIS]),
    "two calls and text": (held, f"See: {PARIS}\n{ROME}\nDone.", "See:\nDone.", [IN_PARIS, IN_ROME]),
    "no arguments": (held, f"{NONE} Done.", " Done.", [NOWHERE]),
    "no arguments at the end": (held, f"{PARIS}{NONE}", "", [IN_PARIS, NOWHERE]),
    "no call": (held, "<tool_call>look</tool_call> is it.", "<tool_call>look</tool_call> is it.", []),
    "one of two calls": (lambda: held(one_call=True), PARIS + ROME, "", [IN_PARIS]),
    "forced": (forced, LISTED, "", [IN_PARIS, IN_ROME]),
    "one of two that are forced": (lambda: forced(one_call=True), LISTED, "", [IN_PARIS]),
    "none that is forced": (forced, "I cannot.", "I cannot.", []),
}


@each_row("size", [1, 2, 3, 7, 10_000])
@each_row("kept", [True, False])
@each_row("name", ANSWERS)
def test_an_answer_is_the_same_in_any_pieces(name: str, kept: bool, size: int) -> None:
    made, answer, text, calls = ANSWERS[name]
    splitter: TextSplitter = made()
    said = [Token(number, piece) for number, piece in enumerate(re.findall(r"\s?\w+|\s|\W", answer))]
    parts = []
    for start in range(0, len(said), size):
        some = said[start : start + size]
        piece = "".join(token.text for token in some)
        ended = start + size >= len(said)
        parts.append(splitter.feed(some, ended=ended) if kept else splitter.feed((), text=piece, ended=ended))
    assert "".join(part.text for part in parts) == text
    joined = join_calls((call.index, call.id, call.name, call.arguments) for part in parts for call in part.calls)
    assert [(call.name, call.arguments) for call in joined] == calls
    assert [token for part in parts for token in part.tokens] == (said if kept else [])
    assert (splitter.reasoning_tokens, splitter.dropped) == (0, 0)


def test_what_passes_need_not_be_fed() -> None:
    """As the engine asks of most texts; white space, and what may begin a call, is fed."""
    splitter = held()
    answer, text = ["Let", " me", " see", ".\n", "\n", "A", " <", " B", *PARIS, "\n", "Done"], ""
    for piece in answer:
        text += piece if splitter.passes(piece) else splitter.feed((), text=piece, ended=False).text
    text += splitter.feed((), text="!", ended=True).text
    assert text == "Let me see.\n\nA < B\nDone!"
    assert [held().passes(piece) for piece in ("so", "so\n", "", "<", "a<b", "1 2")] == [
        True,
        False,
        False,
        False,
        False,
        True,
    ]
    assert not forced().passes("so"), "of JSON nothing passes"


def test_a_call_that_was_cut_off_gets_no_arguments() -> None:
    splitter = held()
    part = splitter.feed((), text=NONE, ended=True, cut=True)
    assert [(call.name, call.arguments) for call in part.calls] == [("look", "")]
