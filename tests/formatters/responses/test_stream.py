"""Streamed responses: the events, their order, and what they hold."""

from __future__ import annotations

import json
from typing import Any

from ...kit.answers.events import end, feed
from ...kit.answers.responses import events_of, reply
from ...kit.api.errors import OverloadedError
from ...kit.api.types import JSON, CallDelta, Delta, Failed, Finish, Started, Token, TopToken

LOGPROBS = {"include": ["message.output_text.logprobs"], "top_logprobs": 1}


def token(text: str) -> Token:
    return Token(5, text, -1.5, top=(TopToken(5, text, -1.5, text.encode()),), raw=text.encode())


def kinds(events: list[Any]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


def test_a_text() -> None:
    events = events_of(reply(stream=True), Started(7), Delta(0, "Hel"), Delta(0, ""), Delta(0, "lo", finish=end()))
    assert kinds(events) == [
        "created", "in_progress", "output_item.added", "content_part.added", "output_text.delta", "output_text.delta",
        "output_text.done", "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip
    created, progress, added, part, first, second, done, part_done, item_done, completed = events
    assert created["response"] == progress["response"]
    assert (created["response"]["status"], created["response"]["output"], created["response"]["usage"]) == (
        "in_progress",
        [],
        None,
    )
    assert (added["item"]["status"], added["item"]["content"]) == ("in_progress", [])
    nothing = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    assert (part["part"], part_done["part"]) == (nothing, {**nothing, "text": "Hello"})
    assert (first["delta"], second["delta"], done["text"]) == ("Hel", "lo", "Hello")
    assert first["logprobs"] == done["logprobs"] == []
    assert item_done["item"] == completed["response"]["output"][0]
    assert {event["item_id"] for event in events if "item_id" in event} == {item_done["item"]["id"]}
    assert {event[name] for event in events for name in ("output_index", "content_index") if name in event} == {0}
    assert completed["response"]["usage"]["input_tokens"] == 7


def test_reasoning_and_calls() -> None:
    events = events_of(
        reply(stream=True),
        Started(1),
        Delta(0, "", reasoning="h"),
        Delta(0, "", reasoning="m"),
        Delta(0, "\n"),
        Delta(0, "", calls=(CallDelta(0, "call_1", "f"),)),
        Delta(0, "", calls=(CallDelta(0, arguments="{"),)),
        Delta(0, "", calls=(CallDelta(0, arguments="}"), CallDelta(1, "call_2", "g", "{}"))),
        Delta(0, "\n", finish=end()),
    )
    call = ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"]
    assert kinds(events)[2:] == [
        "output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.delta",
        "reasoning_text.done", "content_part.done", "output_item.done",
        call[0], call[1], *call[1:], *call, "completed",
    ]  # fmt: skip
    items = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert items == events[-1]["response"]["output"]
    assert [event["output_index"] for event in events if event["type"] == "response.output_item.added"] == [0, 1, 2]
    done = [event for event in events if event["type"].endswith("arguments.done")]
    assert [(event["name"], event["arguments"], event["item_id"]) for event in done] == [
        ("f", "{}", items[1]["id"]),
        ("g", "{}", items[2]["id"]),
    ]


def test_log_probabilities_of_a_message_that_ends_last() -> None:
    events = events_of(
        reply(stream=True, **LOGPROBS),
        Delta(0, "", (token("<"),), reasoning="h"),
        Delta(0, "Hi", (token("Hi"),)),
        Delta(0, "", (token("{"),), calls=(CallDelta(0, "call_1", "f", "{}"),)),
        Delta(0, "", (), end()),
    )
    (delta,) = [event for event in events if event["type"] == "response.output_text.delta"]
    assert [entry["token"] for entry in delta["logprobs"]] == ["<", "Hi"]
    (done,) = [event for event in events if event["type"] == "response.output_text.done"]
    assert [entry["token"] for entry in done["logprobs"]] == ["<", "Hi", "{"]
    items = events[-1]["response"]["output"]
    assert [item["type"] for item in items] == ["reasoning", "message", "function_call"]
    assert items[1]["content"][0]["logprobs"] == done["logprobs"]


def test_one_that_is_cut_off() -> None:
    events = events_of(reply(stream=True), Delta(0, "a"), Delta(0, "", finish=end("length")))
    assert events[-1]["type"] == "response.incomplete"
    assert events[-1]["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert events[-2]["item"]["status"] == "incomplete"


def test_one_that_is_aborted_shows_what_there_is() -> None:
    events = events_of(reply(stream=True), Delta(0, "a"), Delta(0, "b", finish=Finish("abort")))
    assert kinds(events)[-4:] == ["output_text.delta", "output_text.delta", "error", "failed"]
    assert events[-2]["code"] == "generation_failed"
    response = events[-1]["response"]
    assert (response["status"], response["error"]["code"]) == ("failed", "server_error")
    assert response["output"][0]["content"][0]["text"] == "ab"
    assert response["output"][0]["status"] == "incomplete"


def test_an_error_before_the_first_event_has_its_status() -> None:
    answer = reply(stream=True)
    (body,) = feed(answer, Started(1), Failed.of(OverloadedError("full")))
    assert (answer.status, answer.content_type) == (429, JSON)
    assert json.loads(body)["error"]["type"] == "rate_limit_error"


def test_an_error_in_mid_stream() -> None:
    answer = reply(stream=True)
    events = events_of(answer, Delta(0, "a"), Failed.of(OverloadedError("full")))
    assert (answer.finished, type(answer.failure)) == (True, OverloadedError)
    assert events[-2] | {"sequence_number": 0} == {
        "type": "error", "code": "rate_limit_exceeded", "message": "full", "param": None, "sequence_number": 0,
    }  # fmt: skip
    assert events[-1]["response"]["error"] == {"code": "rate_limit_exceeded", "message": "full"}


def test_what_a_call_still_has_comes_before_a_text_of_the_same_step() -> None:
    """As an answer's text may follow a call without arguments at once."""
    events = events_of(
        reply(stream=True),
        Started(5),
        Delta(0, "", calls=(CallDelta(0, "call_1", "f"),)),
        Delta(0, "Done.", calls=(CallDelta(0, arguments="{}"),)),
        Delta(0, "", finish=end()),
    )
    names = [event["type"] for event in events]
    (called,) = [event["item"] for event in events if event.get("item", {}).get("status") == "completed"][:1]
    assert (called["type"], called["arguments"]) == ("function_call", "{}")
    delta = names.index("response.function_call_arguments.delta")
    assert delta < names.index("response.output_item.done") < names.index("response.output_text.delta")
    assert [item["type"] for item in events[-1]["response"]["output"]] == ["function_call", "message"]
