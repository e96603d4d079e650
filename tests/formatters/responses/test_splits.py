"""Responses do not depend on how tokens come together in events: any split gives the same, streamed or whole."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lmi.formatters.responses.custom import CustomInput

from ...kit.answers.events import end
from ...kit.answers.responses import events_of, reply, whole
from ...kit.answers.splits import CUTS, LETTERS, REASONS, merged, split, steps_of
from ...kit.api.types import Delta, FinishReason, Started

SAY = {"type": "custom", "name": "say"}
LOGPROBS = {"include": ["message.output_text.logprobs"], "top_logprobs": 1}


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
    st.lists(LETTERS, max_size=4), st.lists(LETTERS, max_size=6), st.lists(LETTERS, max_size=5), CUTS, REASONS,
    st.booleans(),
)  # fmt: skip
def test_any_split_gives_the_same_response(
    reasoning: list[str], text: list[str], calls: list[str], cuts: list[bool], reason: FinishReason, shown: bool
) -> None:
    # Every other call is one of a custom tool.
    steps = steps_of(reasoning, text, calls, reason, ["f", "say"])
    events = split(steps, cuts)
    asked: dict[str, Any] = {"tools": [SAY], **(LOGPROBS if shown else {})}
    body = whole(reply(**asked), *events)
    assert _without_ids(body) == _without_ids(whole(reply(**asked), Started(7, 2), merged(steps)))
    streamed = events_of(reply(**asked, stream=True), *events)
    assert _without_ids(streamed[-1]["response"]) == _without_ids(body)
    assert _assembled(streamed) == [{"type": item["type"], "text": _text(item)} for item in body["output"]]
    whole_text = "".join(text)
    spoken = "".join(_text(item) for item in body["output"] if item["type"] == "message")
    assert spoken == (whole_text if whole_text.strip() or not calls else "")


@given(st.lists(LETTERS, max_size=8))
def test_plain_text_has_one_event_a_delta(texts: list[str]) -> None:
    events = events_of(reply(stream=True), Delta(0, "a"), *(Delta(0, text) for text in texts), Delta(0, "", (), end()))
    pieces = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert pieces == ["a", *filter(None, texts)]


ESCAPED = st.lists(st.sampled_from([*'"\\/bdunD83eE0 {}:', "input"]), max_size=24).map("".join)


@given(
    st.one_of(LETTERS.map(lambda text: json.dumps({"input": text})), ESCAPED, ESCAPED.map('{{"input": "{}'.format)),
    st.data(),
)
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
