"""No answer depends on how tokens come together in events: any split gives the same, whole and streamed."""

from __future__ import annotations

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from ...kit.answers.calls import CALLING
from ...kit.answers.events import end, feed
from ...kit.answers.splits import CUTS, LETTERS, REASONS, merged, split, steps_of
from ...kit.answers.spoken import SPOKEN, records
from ...kit.api.dialects import parse
from ...kit.api.options import typed_settings
from ...kit.api.types import Delta, Event, FinishReason, Started, Token

PLAIN = typed_settings()
SETTINGS = typed_settings(reasoning_parser="qwen3", tool_call_parser="hermes")
TOOL = {"type": "object", "properties": {}}


def answered(form: str, events: list[Event], *, stream: bool) -> list[bytes]:
    spoken = SPOKEN[form]
    headers = {"accept": spoken.accept}
    return feed(parse(spoken.dialect, {**spoken.whole, "stream": stream}, PLAIN, headers=headers).reply, *events)


def told(records: list[bytes]) -> str:
    """All of it but what is another one each time: ids, and when it was made."""
    return re.sub(r'"(created(_at)?|completed_at)":\d+|(\w+[-_])?[0-9a-f]{32}', "", b"".join(records).decode())


@given(st.lists(LETTERS, max_size=6), CUTS, REASONS)
def test_a_text(more: list[str], cuts: list[bool], reason: FinishReason) -> None:
    text = ["Hi", *more]
    *steps, last, ended = steps_of([], text, [], reason, [])
    # Engines tell the end with the last token.
    steps.append(merged([last, ended]))
    events = split(steps, cuts)
    at_once: list[Event] = [Started(7, 2), merged(steps)]
    for form, spoken in SPOKEN.items():
        whole = answered(form, events, stream=False)
        assert told(whole) == told(answered(form, at_once, stream=False))
        assert spoken.text(json.loads(b"".join(whole))) == "".join(text)
        streamed = answered(form, events, stream=True)
        assert "".join(map(spoken.piece, records(spoken, b"".join(streamed).split(b"\n")))) == "".join(text)
        if form in ("lmi", "tgi"):
            # A line for each token.
            assert told(streamed) == told(answered(form, at_once, stream=True))


@given(st.lists(LETTERS.filter(bool), max_size=6))
def test_a_text_has_one_record_a_delta(texts: list[str]) -> None:
    """No text is held back or sent in two."""
    pieces = ["Hi", *texts]
    deltas = [Delta(0, piece, (Token(5, piece, -1.5),)) for piece in pieces]
    events: list[Event] = [Started(7), *deltas, Delta(0, "", finish=end())]
    for form, spoken in SPOKEN.items():
        lines = b"".join(answered(form, events, stream=True)).split(b"\n")
        assert [*filter(None, map(spoken.piece, records(spoken, lines)))] == pieces


@given(st.lists(LETTERS, max_size=4), st.lists(LETTERS, max_size=5), st.lists(LETTERS, max_size=3), CUTS, REASONS)
def test_reasoning_and_calls(
    reasoning: list[str], text: list[str], calls: list[str], cuts: list[bool], reason: FinishReason
) -> None:
    quoted = [part for one in calls for part in (json.dumps({"a": one})[:4], json.dumps({"a": one})[4:])]
    steps = steps_of(reasoning, text, quoted, reason, ["look"])
    events = split(steps, cuts)
    at_once: list[Event] = [Started(7, 2), merged(steps)]
    for dialect, known in CALLING.items():
        body = known.body("auto", [known.tool("look", TOOL)])
        whole, one, streamed = (
            feed(parse(dialect, {**body, "stream": stream}, SETTINGS).reply, *fed)
            for stream, fed in ((False, events), (False, at_once), (True, events))
        )
        assert told(whole) == told(one)
        found, put_together = known.whole(whole), known.stream(streamed)
        assert [(call.id, call.name, call.arguments) for call in found.calls] == [
            (call.id, call.name, call.arguments) for call in put_together.calls
        ]
        assert (found.text, found.reasoning, found.ended) == (
            put_together.text, put_together.reasoning, put_together.ended
        )  # fmt: skip
        assert found.reasoning == "".join(reasoning)
        assert [call.arguments for call in found.calls] == [{"a": one} for one in calls]
        assert found.text == "".join(text) or (found.text + "".join(text)).isspace()
