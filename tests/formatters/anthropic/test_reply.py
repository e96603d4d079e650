"""Anthropic's answers: events and the bytes that they become, whole and streamed, whatever the split."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmi.formatters.anthropic.reply import MessageEncoder

from ...kit.answers.anthropic import REASONING, call, events, joined, reply, whole
from ...kit.answers.events import end, feed, same_shape
from ...kit.answers.splits import LETTERS
from ...kit.api.conversation import uncarried
from ...kit.api.errors import ContextError, GenerationError, OverloadedError
from ...kit.api.types import CallDelta, Delta, Event, Failed, Finish, Started
from ...kit.rows import each_row

# --- The documentation's examples ---

USAGE = {
    "input_tokens": 25,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 8,
    "output_tokens": 15,
    "output_tokens_details": {"thinking_tokens": 3},
}
WHOLE: dict[str, Any] = {
    "id": "msg_013Zva2CMHLNnXjNJJKqJ2EF",
    "type": "message",
    "role": "assistant",
    "model": "served",
    "content": [{"type": "text", "text": "Hi! My name is Claude."}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": USAGE,
}


def test_a_whole_answer() -> None:
    body = whole(reply(), Started(33, 8), Delta(0, "Hi! My name is Claude.", finish=end(count=15, reasoning_tokens=3)))
    same_shape(body, WHOLE)
    assert re.fullmatch("msg_[0-9a-f]{32}", body["id"])
    assert body == {**WHOLE, "id": body["id"]}


@each_row("stream", [False, True])
def test_a_prompt_alone(stream: bool) -> None:
    """With `max_tokens` 0, which puts it into the cache; an engine generates a token at least."""
    (asked,) = call(max_tokens=0).generations
    assert asked.sampling.max_tokens == 1
    answer = reply(max_tokens=0, stream=stream)
    told = (Started(33, 8), Delta(0, "So", reasoning="Hm"), Delta(0, "", finish=end("length", count=1)))
    body = joined(events(answer, *told)) if stream else whole(answer, *told)
    assert (body["content"], body["stop_reason"]) == ([], "max_tokens")
    assert (body["usage"]["input_tokens"], body["usage"]["output_tokens"]) == (25, 0)
    failed = reply(max_tokens=0, stream=stream)
    assert json.loads(feed(failed, Failed.of(OverloadedError("full")))[0])["error"]["message"] == "full"


def test_a_streamed_answer() -> None:
    """The whole of it, byte by byte."""
    answer = reply(stream=True)
    assert isinstance(answer, MessageEncoder)
    answer.key = "a"
    sent = b"".join(feed(
        answer, Started(33, 8), Delta(0, "", reasoning="So"), Delta(0, "Hello"), Delta(0, "!\n"),
        Delta(0, "", calls=(CallDelta(0, "chatcmpl-tool-1", "look"),)),
        Delta(0, "", calls=(CallDelta(0, arguments='{"a": '),)),
        Delta(0, "", calls=(CallDelta(0, arguments="1}"),), finish=end(count=15, reasoning_tokens=3)),
    ))  # fmt: skip
    assert sent.decode() == EXAMPLE


EXAMPLE = """\
event: message_start
data: {"type":"message_start","message":{"id":"msg_a","type":"message","role":"assistant","model":"served",\
"content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":25,"cache_creation_input_tokens":0,\
"cache_read_input_tokens":8,"output_tokens":0,"output_tokens_details":{"thinking_tokens":0}}}}

event: ping
data: {"type":"ping"}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"So"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"a"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Hello"}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"!\\n"}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: content_block_start
data: {"type":"content_block_start","index":2,"content_block":{"type":"tool_use",\
"id":"toolu_1","name":"look","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\\"a\\": "}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"1}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":2}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"input_tokens":25,\
"cache_creation_input_tokens":0,"cache_read_input_tokens":8,"output_tokens":15,\
"output_tokens_details":{"thinking_tokens":3}}}

event: message_stop
data: {"type":"message_stop"}

"""

# --- How it ends ---

CALL = (CallDelta(0, "call_1", "look", "{}"),)


@each_row("stream", [False, True])
@each_row(
    ("finish", "calls", "reason", "sequence"),
    [
        (Finish("eos"), (), "end_turn", None),
        (Finish("eos"), CALL, "tool_use", None),
        (Finish("stop", 7), (), "end_turn", None),
        (Finish("stop", 7), CALL, "tool_use", None),
        (Finish("stop", "END"), (), "stop_sequence", "END"),
        (Finish("stop", "END"), CALL, "stop_sequence", "END"),
        (Finish("length", generated_tokens=100), (), "max_tokens", None),
        (Finish("length", generated_tokens=100), CALL, "max_tokens", None),
        (Finish("length", generated_tokens=99), (), "model_context_window_exceeded", None),
        (Finish("content_filter"), (), "refusal", None),
        (Finish("content_filter"), CALL, "refusal", None),
    ],
)
def test_the_end(stream: bool, finish: Finish, calls: tuple[CallDelta, ...], reason: str, sequence: str | None) -> None:
    told = (Started(1), Delta(0, "a", calls=calls), Delta(0, "", finish=finish))
    message = joined(events(reply(stream=True), *told)) if stream else whole(reply(), *told)
    assert (message["stop_reason"], message["stop_sequence"]) == (reason, sequence)


@each_row("stream", [False, True])
@each_row("text", ["", "\n", " \n\t"])
def test_an_answer_without_text_has_no_block(stream: bool, text: str) -> None:
    told = (Started(1), Delta(0, text), Delta(0, "", finish=end()))
    message = joined(events(reply(stream=True), *told)) if stream else whole(reply(), *told)
    assert message["content"] == []


# --- Blocks ---


def test_white_space_before_a_text_belongs_to_it() -> None:
    """And to no later one."""
    told = (
        Started(1), Delta(0, "", reasoning="So"), Delta(0, "\n"), Delta(0, "\n"), Delta(0, "Hi"),
        Delta(0, "", calls=CALL), Delta(0, "b", finish=end()),
    )  # fmt: skip
    for message in (joined(events(reply(stream=True), *told)), whole(reply(), *told)):
        assert [block["type"] for block in message["content"]] == ["thinking", "text", "tool_use", "text"]
        assert [block["text"] for block in message["content"][1::2]] == ["\n\nHi", "b"]


def test_white_space_between_calls_is_no_text() -> None:
    told = (
        Started(1), Delta(0, "", calls=CALL), Delta(0, "\n"), Delta(0, "\n", calls=(CallDelta(1, "b", "leap", "{"),)),
        Delta(0, "\n", calls=(CallDelta(1, arguments="}"),)), Delta(0, "\n", finish=end()),
    )  # fmt: skip
    for message in (joined(events(reply(stream=True), *told)), whole(reply(), *told)):
        assert [block["type"] for block in message["content"]] == ["tool_use", "tool_use"]
        assert [block["input"] for block in message["content"]] == [{}, {}]


def test_what_an_open_call_adds_comes_before_a_text() -> None:
    told = (
        Started(1), Delta(0, "", calls=(CallDelta(0, "a", "look", "{"),)),
        Delta(0, "So.", calls=(CallDelta(0, arguments="}"), CallDelta(1, "b", "leap", "{}"))),
        Delta(0, "", finish=end()),
    )  # fmt: skip
    message = joined(events(reply(stream=True), *told))
    assert [block["type"] for block in message["content"]] == ["tool_use", "text", "tool_use"]


def test_a_text_after_a_call_is_a_block_of_its_own() -> None:
    told = (
        Started(1), Delta(0, "", reasoning="So"), Delta(0, "a"), Delta(0, "", calls=CALL), Delta(0, "\n"),
        Delta(0, "b", finish=end()),
    )  # fmt: skip
    for message in (joined(events(reply(stream=True), *told)), whole(reply(), *told)):
        assert [block.get("text", block["type"]) for block in message["content"]] == [
            "thinking",
            "a",
            "tool_use",
            "\nb",
        ]


def test_what_comes_of_a_call_late_is_the_calls() -> None:
    begun = (CallDelta(0, "a", "look", '{"b": '), CallDelta(1, "c", "leap", "{"))
    late = (CallDelta(0, arguments="1}"), CallDelta(1, arguments="}"))
    message = whole(reply(), Started(1), Delta(0, "", calls=begun), Delta(0, "", calls=late, finish=end()))
    assert [(block["name"], block["input"]) for block in message["content"]] == [("look", {"b": 1}), ("leap", {})]


def test_thinking_that_is_omitted_is_in_its_signature() -> None:
    """As Anthropic's API has it (its documentation: Extended thinking, Controlling thinking display)."""
    thinking = {"type": "adaptive", "display": "omitted"}
    told = (Started(1), Delta(0, "", reasoning="So"), Delta(0, "Hi", reasoning="."), Delta(0, "", finish=end()))
    streamed, answer = reply(REASONING, stream=True, thinking=thinking), reply(REASONING, thinking=thinking)
    made = events(streamed, *told)
    assert [event.get("delta", {}).get("type", event["type"]) for event in made[2:8]] == [
        "content_block_start", "signature_delta", "content_block_stop",
        "content_block_start", "text_delta", "content_block_stop",
    ]  # fmt: skip
    for message in (joined(made), whole(answer, *told)):
        block, text = message["content"]
        assert block == {"type": "thinking", "thinking": "", "signature": block["signature"]}
        assert uncarried(block["signature"]) == "So."
        assert text == {"type": "text", "text": "Hi"}


@each_row(
    ("given", "id"),
    [("chatcmpl-tool-1f", "toolu_1f"), ("call_1", "toolu_call_1"), ("functions.look:0", "toolu_functions.look:0")],
)
def test_a_calls_id(given: str, id: str) -> None:
    told = (Started(1), Delta(0, "", calls=(CallDelta(0, given, "look", "{}"),), finish=end()))
    for message in (joined(events(reply(stream=True), *told)), whole(reply(), *told)):
        assert message["content"][0]["id"] == id


def test_a_call_without_an_id_gets_one() -> None:
    message = whole(reply(), Started(1), Delta(0, "", calls=(CallDelta(0, None, "look", "{}"),), finish=end()))
    assert re.fullmatch("toolu_[0-9a-f]{32}", message["content"][0]["id"])


@each_row("text", ["", '{"a": ', "[1]", "5", "[" * 5000])
def test_an_input_that_is_no_object_is_empty(text: str) -> None:
    calls = (CallDelta(0, "a", "look", text),)
    message = whole(reply(), Started(1), Delta(0, "", calls=calls, finish=end("length", 100)))
    assert message["content"] == [{"type": "tool_use", "id": "toolu_a", "name": "look", "input": {}}]


# --- Errors ---


@each_row("stream", [False, True])
@each_row("before", [(), (Started(1),)])
def test_an_error_before_the_first_event(stream: bool, before: tuple[Event, ...]) -> None:
    answer = reply(stream=stream)
    (body,) = feed(answer, *before, Failed.of(ContextError("messages: too long", "messages")))
    assert (answer.status, answer.content_type, answer.finished) == (400, "application/json", True)
    assert json.loads(body)["error"] == {"type": "invalid_request_error", "message": "messages: too long"}
    assert dict(answer.headers) == {"request-id": "req-7"}


def test_an_error_in_a_stream_is_its_last_event() -> None:
    answer = reply(stream=True)
    made = events(answer, Started(1), Delta(0, "Hi"), Failed.of(OverloadedError("too much")))
    assert made[-1] == {
        "type": "error",
        "error": {"type": "rate_limit_error", "message": "too much"},
        "request_id": "req-7",
    }
    assert [event["type"] for event in made[2:-1]] == ["content_block_start", "content_block_delta"]
    assert isinstance(answer.failure, OverloadedError)


@each_row("stream", [False, True])
def test_what_was_cut_off_is_an_error(stream: bool) -> None:
    answer = reply(stream=stream)
    records = feed(answer, Started(1), Delta(0, "Hi", finish=Finish("abort")))
    assert b'"api_error"' in records[-1]
    assert isinstance(answer.failure, GenerationError)
    assert b"Hi" in b"".join(records) or not stream


# --- Any split ---


@given(st.lists(st.tuples(st.sampled_from(["reasoning", "text", "call"]), LETTERS), max_size=8), st.booleans())
def test_blocks_in_any_order_are_the_same_whole_and_streamed(steps: list[tuple[str, str]], shown: bool) -> None:
    told: list[Event] = [Started(7, 2)]
    for index, (kind, text) in enumerate(steps):
        part = CallDelta(index, f"call_{index}", "look", json.dumps({"a": text}))
        told.append(
            Delta(0, text * (kind == "text"), reasoning=text * (kind == "reasoning"), calls=(part,) * (kind == "call"))
        )
    told.append(Delta(0, "", finish=end()))
    thinking = {"type": "enabled", "display": "summarized" if shown else "omitted"}
    body = whole(reply(REASONING, thinking=thinking), *told)
    streamed = joined(events(reply(REASONING, thinking=thinking, stream=True), *told))
    key, streamed_key = body["id"].removeprefix("msg_"), streamed["id"].removeprefix("msg_")
    assert json.loads(json.dumps(streamed).replace(streamed_key, key)) == body
    assert [block["type"] for block in body["content"]].count("tool_use") == [kind for kind, _ in steps].count("call")


# --- Others' types ---


@pytest.mark.engine
def test_anthropics_client_and_vllm_know_the_types() -> None:
    from anthropic.types import Message, RawMessageStreamEvent
    from pydantic import TypeAdapter
    from vllm.entrypoints.anthropic.protocol import AnthropicMessagesResponse, AnthropicStreamEvent

    told = (
        Started(9, 4), Delta(0, "", reasoning="So"), Delta(0, "Hi"),
        Delta(0, "", calls=(CallDelta(0, "a", "look", '{"a": 1}'),)), Delta(0, "", finish=end(count=5)),
    )  # fmt: skip
    body = whole(reply(), *told)
    message = Message.model_validate(body, strict=True)
    assert message.model_dump(exclude_unset=True) == body
    assert AnthropicMessagesResponse.model_validate(body).model_dump(exclude_unset=True)["content"] == body["content"]
    adapter: Any = TypeAdapter(RawMessageStreamEvent)
    for event in events(reply(stream=True), *told):
        AnthropicStreamEvent.model_validate(event)
        if event["type"] != "ping":
            assert adapter.validate_python(event, strict=True).model_dump(exclude_unset=True) == event
