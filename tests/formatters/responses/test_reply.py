"""Whole responses: events and the body that they become."""

from __future__ import annotations

import re
from typing import Any

from ...kit.answers.events import end, feed
from ...kit.answers.responses import reply, whole
from ...kit.api.errors import GenerationError
from ...kit.api.types import CallDelta, Delta, Finish, Started, Token, TopToken
from ...kit.rows import each_row

CALL = CallDelta(0, "call_1", "f", "{}")
LOGPROBS = {"include": ["message.output_text.logprobs"], "top_logprobs": 1}


def token(text: str) -> Token:
    return Token(5, text, -1.5, top=(TopToken(5, text, -1.5, text.encode()),), raw=text.encode())


def test_a_text() -> None:
    body = whole(reply(), Started(7, 3), Delta(0, "Hello", finish=end(count=4)))
    assert re.fullmatch("resp_[0-9a-f]{32}", body["id"])
    (message,) = body["output"]
    assert re.fullmatch("msg_[0-9a-f]{32}", message.pop("id"))
    assert message == {
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}],
    }
    assert body["usage"] == {
        "input_tokens": 7,
        "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
        "output_tokens": 4,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 11,
    }
    assert (body["object"], body["status"], body["error"], body["incomplete_details"]) == (
        "response",
        "completed",
        None,
        None,
    )
    assert body["completed_at"] >= body["created_at"] > 1.7e9


def test_reasoning_text_and_calls() -> None:
    calls = (CALL, CallDelta(1, "call_2", "g", "{"), CallDelta(1, arguments="}"))
    event = Delta(0, "so", finish=end(count=9, reasoning_tokens=4), reasoning="hm", calls=calls)
    body = whole(reply(), Started(1), event)
    thought, message, first, second = body["output"]
    assert thought["content"] == [{"type": "reasoning_text", "text": "hm"}]
    assert (thought["summary"], thought["encrypted_content"]) == ([], None)
    assert message["content"][0]["text"] == "so"
    assert [(call["call_id"], call["name"], call["arguments"]) for call in (first, second)] == [
        ("call_1", "f", "{}"),
        ("call_2", "g", "{}"),
    ]
    assert [item["id"].partition("_")[0] for item in body["output"]] == ["rs", "msg", "fc", "fc"]
    assert body["usage"]["output_tokens_details"] == {"reasoning_tokens": 4}


@each_row(
    ("event", "kinds"),
    [
        (Delta(0, "", finish=end()), ["message"]),
        (Delta(0, "\n", finish=end()), ["message"]),
        (Delta(0, "", finish=end(), reasoning="hm"), ["reasoning", "message"]),
        # Cut off before there was a text.
        (Delta(0, "", finish=end("length"), reasoning="hm"), ["reasoning"]),
        (Delta(0, "", finish=end("length")), ["message"]),
        (Delta(0, "", finish=end(), calls=(CALL,)), ["function_call"]),
        # Line breaks around a call are no text.
        (Delta(0, "\n\n", finish=end(), calls=(CALL,)), ["function_call"]),
    ],
)
def test_which_items_there_are(event: Delta, kinds: list[str]) -> None:
    assert [item["type"] for item in whole(reply(), event)["output"]] == kinds


@each_row(("reason", "details"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
def test_one_that_is_cut_off(reason: Any, details: str) -> None:
    body = whole(reply(), Delta(0, "a", finish=end(reason), reasoning="b"))
    assert (body["status"], body["incomplete_details"]) == ("incomplete", {"reason": details})
    assert [item["status"] for item in body["output"]] == ["completed", "incomplete"]
    assert body["completed_at"] is None


def test_log_probabilities() -> None:
    body = whole(reply(**LOGPROBS), Delta(0, "Hi", (token("H"), token("i")), end()))
    entry = {"logprob": -1.5, "bytes": [72], "token": "H"}
    (part,) = body["output"][0]["content"]
    assert part["logprobs"][0] == {**entry, "top_logprobs": [entry]}
    assert [one["token"] for one in part["logprobs"]] == ["H", "i"]
    assert body["top_logprobs"] == 1


def test_one_that_is_aborted_failed() -> None:
    answer = reply()
    feed(answer, Delta(0, "a", finish=Finish("abort")))
    assert (answer.status, type(answer.failure)) == (500, GenerationError)
