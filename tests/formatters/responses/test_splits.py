"""Responses do not depend on how tokens come together in events: any split gives the same, streamed or whole."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lmi.formatters.responses.custom import CustomInput, custom_arguments

from ...kit.answers.events import end
from ...kit.answers.responses import events_of, reply, whole
from ...kit.api.types import CallDelta, Delta, Event, FinishReason, Started, Token, TopToken

letters = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
SAY = {"type": "custom", "name": "say"}
LOGPROBS = {"include": ["message.output_text.logprobs"], "top_logprobs": 1}


def _step(kind: str, text: str, number: int) -> Delta:
    """What one token brings: of the reasoning, the text, or a call, every other one of a custom tool."""
    tokens = (Token(5, text, -1.5, top=(TopToken(5, text, -1.5, text.encode()),), raw=text.encode()),)
    if kind == "call":
        first = number % 2 == 0
        name = "say" if number % 4 else "f"
        part = CallDelta(number // 2, f"call_{number}" if first else None, name if first else None, text)
        return Delta(0, "", tokens, calls=(part,))
    return Delta(0, "", tokens, reasoning=text) if kind == "reasoning" else Delta(0, text, tokens)


def _merged(deltas: Sequence[Delta]) -> Delta:
    return Delta(
        0,
        "".join(delta.text for delta in deltas),
        tuple(token for delta in deltas for token in delta.tokens),
        deltas[-1].finish,
        "".join(delta.reasoning for delta in deltas),
        tuple(part for delta in deltas for part in delta.calls),
    )


def _without_ids(body: Any) -> Any:
    """Of a response what is the same each time."""
    items = [{name: value for name, value in item.items() if name != "id"} for item in body["output"]]
    return items, body["status"], body["incomplete_details"], body["usage"]


def _assembled(events: list[Any]) -> list[Any]:
    """The items as clients put them together, by what comes in pieces: their texts and entries."""
    items: list[Any] = []
    for event in events:
        kind = event["type"]
        if kind == "response.output_item.added":
            assert event["output_index"] == len(items)
            items.append({"type": event["item"]["type"], "text": ""})
        elif kind.endswith(".delta"):
            item = items[event["output_index"]]
            item["text"] += event["delta"]
        elif kind in ("response.output_text.done", "response.reasoning_text.done"):
            assert items[event["output_index"]]["text"] == event["text"]
        elif kind == "response.function_call_arguments.done":
            assert items[event["output_index"]]["text"] == event["arguments"]
        elif kind == "response.custom_tool_call_input.done":
            assert items[event["output_index"]]["text"] == event["input"]
    return items


def _text(item: Any) -> str:
    for name in ("arguments", "input"):
        if name in item:
            return str(item[name])
    return "".join(part["text"] for part in item["content"])


@given(
    st.lists(st.tuples(st.just("reasoning"), letters), max_size=4),
    st.lists(st.tuples(st.just("text"), letters), max_size=6),
    st.lists(st.tuples(st.just("call"), letters), max_size=5),
    st.lists(st.booleans(), min_size=16, max_size=16),
    st.sampled_from(["eos", "stop", "length"]),
    st.booleans(),
)
def test_any_split_gives_the_same_response(
    reasoning: list[tuple[str, str]],
    text: list[tuple[str, str]],
    calls: list[tuple[str, str]],
    cuts: list[bool],
    reason: FinishReason,
    shown: bool,
) -> None:
    steps = [
        _step(kind, piece, number) for kinds in (reasoning, text, calls) for number, (kind, piece) in enumerate(kinds)
    ]
    steps.append(Delta(0, "", (), end(reason, len(steps), reasoning_tokens=len(reasoning))))
    groups: list[list[Delta]] = [[]]
    for step, cut in zip(steps, cuts, strict=False):
        groups[-1].append(step)
        if cut:
            groups.append([])
    events: list[Event] = [Started(7, 2), *(_merged(group) for group in groups if group)]
    asked: dict[str, Any] = {"tools": [SAY], **(LOGPROBS if shown else {})}
    body = whole(reply(**asked), *events)
    assert _without_ids(body) == _without_ids(whole(reply(**asked), Started(7, 2), _merged(steps)))
    streamed = events_of(reply(**asked, stream=True), *events)
    assert _without_ids(streamed[-1]["response"]) == _without_ids(body)
    assert _assembled(streamed) == [{"type": item["type"], "text": _text(item)} for item in body["output"]]
    whole_text = "".join(piece for _, piece in text)
    spoken = "".join(_text(item) for item in body["output"] if item["type"] == "message")
    assert spoken == (whole_text if whole_text.strip() or not calls else "")


@given(st.lists(letters, max_size=8))
def test_plain_text_has_one_event_a_delta(texts: list[str]) -> None:
    events = events_of(reply(stream=True), Delta(0, "a"), *(Delta(0, text) for text in texts), Delta(0, "", (), end()))
    pieces = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert pieces == ["a", *filter(None, texts)]


ESCAPED = st.lists(st.sampled_from([*'"\\/bdunD83eE0 {}:', "input"]), max_size=24).map("".join)


@given(st.one_of(letters.map(custom_arguments), ESCAPED, ESCAPED.map('{{"input": "{}'.format)), st.data())
def test_any_split_of_arguments_gives_the_same_input(arguments: str, data: st.DataObject) -> None:
    """Of arguments that are as asked for, of others, of such as are cut off."""
    whole_reader, reader = CustomInput(), CustomInput()
    expected = whole_reader.push(arguments) + whole_reader.rest()
    pieces: list[str] = []
    while arguments:
        size = data.draw(st.integers(1, 5))
        pieces.append(reader.push(arguments[:size]))
        arguments = arguments[size:]
    assert "".join(pieces) + reader.rest() == expected
    expected.encode()


@given(st.text(st.characters(exclude_categories=["Cs"])), st.booleans())
def test_an_input_comes_back(text: str, ascii_only: bool) -> None:
    reader = CustomInput()
    written = json.dumps({"input": text}, ensure_ascii=ascii_only)
    assert reader.push(written) + reader.rest() == text
    assert json.loads(custom_arguments(text)) == {"input": text}
