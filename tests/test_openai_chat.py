"""OpenAI chat answers (specs 000 and 001): events and the bytes that they become, whole and incremental."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmi.formatters.base import JSON, SSE, Reply, Request
from lmi.formatters.openai import parse
from lmi.model.errors import ContextError, GenerationError, OverloadedError
from lmi.model.events import CallDelta, Delta, Event, Failed, Finish, FinishReason, Started, Token, TopToken
from lmi.model.options import Settings

SETTINGS = Settings(model_dir="/opt/ml/model", model_id="/opt/ml/model", model_name="/opt/ml/model")
REASONING = msgspec.structs.replace(SETTINGS, reasoning_parser="deepseek_r1")
DONE = b"data: [DONE]\n\n"
TOOLS = [{"type": "function", "function": {"name": "get_weather"}}]
USAGE = {"stream_options": {"include_usage": True}}


def reply(settings: Settings = SETTINGS, **fields: Any) -> Reply:
    return parse({"messages": [{"role": "user", "content": "hi"}], **fields}, Request(b""), settings).reply


def feed(answer: Reply, *events: Event) -> list[bytes]:
    records: list[bytes] = []
    for event in events:
        assert not answer.finished
        records += answer.feed(event)
    assert all(records)
    return records


def whole(answer: Reply, *events: Event) -> Any:
    (body,) = feed(answer, *events)
    assert answer.content_type == JSON
    return json.loads(body)


def chunks(answer: Reply, *events: Event) -> list[Any]:
    """The chunks of a stream, which ends with [DONE], once."""
    records = feed(answer, *events)
    assert answer.finished
    assert answer.content_type == SSE
    assert records[-1] == DONE
    for record in records:
        assert record.startswith(b"data: ")
        assert record.endswith(b"\n\n")
        assert record.count(b"\n") == 2
    return [json.loads(record.removeprefix(b"data: ")) for record in records[:-1]]


def end(reason: FinishReason = "eos", count: int = 1, **more: Any) -> Finish:
    return Finish(reason, generated_tokens=count, **more)


def same_shape(given: Any, documented: Any, place: str = "") -> None:
    """Asserts the same keys, in the same order, with the same types and nulls, as deep as the document goes."""
    if isinstance(documented, dict):
        assert isinstance(given, dict), place
        assert list(given) == list(documented), place
        for key, value in documented.items():
            same_shape(given[key], value, f"{place}.{key}")
    elif isinstance(documented, list):
        assert isinstance(given, list), place
        assert bool(given) == bool(documented), place
        for one in given:
            same_shape(one, documented[0], f"{place}[]")
    else:
        assert type(given) is type(documented), place


# --- The examples of specs 000 and 001 ---

DETAILS = {
    "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
    "completion_tokens_details": {
        "reasoning_tokens": 0,
        "audio_tokens": 0,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    },
}
"""Specs 001, Final Chunk with Usage; 000 has null for the first (wire-decisions: usage details are 001's)."""

EXAMPLE_WHOLE: dict[str, Any] = {
    "id": "chatcmpl-30c3dbfa9f8b4208bff3f8db99e04a31",
    "object": "chat.completion",
    "created": 1754927010,
    "model": "/opt/ml/model",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "\n\n# Clinical Case",
                "refusal": None,
                "annotations": None,
                "audio": None,
                "function_call": None,
                "tool_calls": [],
                "reasoning_content": "\nOkay, let's try",
            },
            "logprobs": None,
            "finish_reason": "stop",
            "stop_reason": None,
        }
    ],
    "service_tier": None,
    "system_fingerprint": None,
    "usage": {"prompt_tokens": 234, "completion_tokens": 1613, "total_tokens": 1847, **DETAILS},
    "prompt_logprobs": None,
    "kv_transfer_params": None,
}
"""Specs 000, Non-Streaming, Chat Completion, Example (texts cut), with 001's usage details."""


def test_example_whole() -> None:
    body = whole(
        reply(REASONING),
        Started(234),
        Delta(0, "\n\n# Clinical Case", (), end(count=1613), reasoning="\nOkay, let's try"),
    )
    same_shape(body, EXAMPLE_WHOLE)
    assert re.fullmatch("chatcmpl-[0-9a-f]{32}", body["id"])
    assert body | {"id": "", "created": 0} == EXAMPLE_WHOLE | {"id": "", "created": 0}


def _chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {
        "id": "chatcmpl-2e46f7e56d474ad8874756df2b358a10",
        "object": "chat.completion.chunk",
        "created": 1752128962,
        "model": "/opt/ml/model",
        "choices": [
            {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish, "stop_reason": None},
        ],
    }


EXAMPLE_CHUNKS = [
    _chunk({"role": "assistant", "content": ""}),
    _chunk({"reasoning_content": "\n"}),
    _chunk({"reasoning_content": "Okay"}),
    _chunk({"reasoning_content": ".\n"}),
    _chunk({"content": "\n\n"}),
    _chunk({"content": "The"}),
    _chunk({"content": "..."}),
    _chunk({"content": ""}, "stop"),
]
"""Specs 000, Chat Completion (Streaming), Example; like lines left out."""


def test_example_stream() -> None:
    thoughts = [Delta(0, "", reasoning=text) for text in ("\n", "Okay", ".\n")]
    texts = [Delta(0, text) for text in ("\n\n", "The", "...")]
    made = chunks(reply(REASONING, stream=True), Started(5), *thoughts, *texts, Delta(0, "", (), end()))
    assert len({(chunk["id"], chunk["created"]) for chunk in made}) == 1
    for chunk, documented in zip(made, EXAMPLE_CHUNKS, strict=True):
        same_shape(chunk, documented)
        assert chunk["choices"] == documented["choices"]


FULL_CHUNK_LOGPROBS: dict[str, Any] = {
    "content": [
        {
            "token": "Hello",
            "logprob": -0.31725305,
            "bytes": [72, 101, 108, 108, 111],
            "top_logprobs": [{"token": "Hello", "logprob": -0.31725305, "bytes": [72, 101, 108, 108, 111]}],
        }
    ],
    "refusal": None,
}
"""Specs 001, Full Chunk Format, logprobs."""

HELLO = Token(9, "Hello", -0.31725305, top=(TopToken(9, "Hello", -0.31725305, b"Hello"),), raw=b"Hello")


def test_example_logprobs() -> None:
    made = chunks(
        reply(stream=True, logprobs=True, top_logprobs=1),
        Started(5),
        Delta(0, "Hello", (HELLO,)),
        Delta(0, "", (), end()),
    )
    assert [chunk["choices"][0]["logprobs"] for chunk in made] == [
        {"content": [], "refusal": None},
        FULL_CHUNK_LOGPROBS,
        {"content": [], "refusal": None},
    ]
    body = whole(reply(logprobs=True, top_logprobs=1), Started(5), Delta(0, "Hello", (HELLO,), end()))
    assert body["choices"][0]["logprobs"] == FULL_CHUNK_LOGPROBS


EXAMPLE_CALLS: list[dict[str, Any]] = [
    {"index": 0, "id": "call_abc123", "type": "function", "function": {"name": "get_weather", "arguments": ""}},
    {"index": 0, "function": {"arguments": '{"loc'}},
    {"index": 0, "function": {"arguments": 'ation": "San'}},
]
"""Specs 001, Tool Call Streaming."""

CALLS = [
    CallDelta(0, "call_abc123", "get_weather", ""),
    CallDelta(0, arguments='{"loc'),
    CallDelta(0, arguments='ation": "San'),
]


def test_example_tool_calls() -> None:
    deltas = [Delta(0, "", calls=(call,)) for call in CALLS]
    made = chunks(reply(stream=True, tools=TOOLS), Started(5), *deltas, Delta(0, "", (), end()))
    assert [chunk["choices"][0]["delta"] for chunk in made] == [
        {"role": "assistant", "content": ""},
        *({"tool_calls": [call]} for call in EXAMPLE_CALLS),
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in made] == [None] * 4 + ["tool_calls"]
    (choice,) = whole(reply(tools=TOOLS), Started(5), *deltas, Delta(0, "", (), end()))["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert choice["message"]["tool_calls"] == [
        {
            "id": "call_abc123",
            "type": "function",
            "function": {"name": "get_weather", "arguments": '{"location": "San'},
        }
    ]


def test_example_usage_chunk() -> None:
    """Specs 001, Final Chunk with Usage; wire-decisions: `usage: null` on every other chunk."""
    made = chunks(
        reply(REASONING, stream=True, **USAGE),
        Started(9, 4),
        Delta(0, "Hello", reasoning="Hm"),
        Delta(0, "", (), end(count=12, reasoning_tokens=3)),
    )
    assert [chunk["usage"] for chunk in made[:-1]] == [None] * 3
    assert made[-1] | {"id": "", "created": 0} == {
        "id": "",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": "/opt/ml/model",
        "choices": [],
        "usage": {
            "prompt_tokens": 9,
            "completion_tokens": 12,
            "total_tokens": 21,
            "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
            "completion_tokens_details": DETAILS["completion_tokens_details"] | {"reasoning_tokens": 3},
        },
    }


def test_example_error_in_a_stream() -> None:
    """Specs 001, Error Handling; then [DONE] (wire-decisions)."""
    answer = reply(stream=True)
    made = chunks(answer, Started(5), Delta(0, "Hello"), Failed.of(GenerationError("the reason")))
    same_shape(made[-1], {"error": {"message": "x", "type": "x", "param": None, "code": "x"}})
    assert made[-1]["error"]["message"] == "the reason"
    assert (answer.status, type(answer.failure)) == (200, GenerationError)


# --- Errors and endings ---


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("error", "status"), [(ContextError("the reason", "messages"), 400), (OverloadedError("the reason"), 429)]
)
def test_an_error_before_the_first_chunk(stream: bool, error: Any, status: int) -> None:
    answer = reply(stream=stream)
    body = whole(answer, Started(5), Failed.of(error))
    assert (answer.status, answer.finished) == (status, True)
    assert body["error"] | {"type": ""} == {
        "message": "the reason",
        "type": "",
        "param": error.param,
        "code": error.code,
    }


def test_an_abort_is_an_error() -> None:
    answer = reply(stream=True)
    made = chunks(answer, Delta(0, "a"), Delta(0, "b", (), end("abort")))
    assert [chunk["choices"][0]["delta"]["content"] for chunk in made[:-1]] == ["", "a", "b"]
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in made[:-1])
    assert made[-1]["error"]["message"] == "the generation was cut off before its end"
    silent = reply()
    assert whole(silent, Delta(0, "b", (), end("abort")))["error"]["type"] == "server_error"
    assert silent.status == 500


@pytest.mark.parametrize(
    ("finish", "called", "word", "stop_reason"),
    [
        (end("eos"), False, "stop", None),
        (end("stop", stop="END"), False, "stop", "END"),
        (end("stop", stop=7), False, "stop", 7),
        (end("length"), False, "length", None),
        (end("eos"), True, "tool_calls", None),
        (end("stop", stop=7), True, "tool_calls", 7),
        (end("length"), True, "length", None),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_finish_reasons(finish: Finish, called: bool, word: str, stop_reason: Any, stream: bool) -> None:
    delta = Delta(0, "a", (), finish, calls=tuple(CALLS) if called else ())
    answer = reply(stream=stream, tools=TOOLS)
    body = chunks(answer, delta)[-1] if stream else whole(answer, delta)
    assert (body["choices"][0]["finish_reason"], body["choices"][0]["stop_reason"]) == (word, stop_reason)


def test_functions_are_answered_in_kind() -> None:
    """Wire decisions: functions / function_call are accepted and answered in kind."""
    functions = [TOOLS[0]["function"]]
    deltas = [Delta(0, "", calls=(CALLS[0], CALLS[1])), Delta(0, "", calls=(CALLS[2],)), Delta(0, "", (), end())]
    (choice,) = whole(reply(functions=functions), *deltas)["choices"]
    assert choice["finish_reason"] == "function_call"
    assert choice["message"]["function_call"] == {"name": "get_weather", "arguments": '{"location": "San'}
    assert choice["message"]["tool_calls"] == []
    made = chunks(reply(functions=functions, stream=True), *deltas)
    assert [chunk["choices"][0]["delta"] for chunk in made[1:]] == [
        {"function_call": {"name": "get_weather", "arguments": '{"loc'}},
        {"function_call": {"arguments": 'ation": "San'}},
        {},
    ]
    assert made[-1]["choices"][0]["finish_reason"] == "function_call"


@pytest.mark.parametrize(
    ("settings", "fields", "there"),
    [(SETTINGS, {}, False), (REASONING, {}, True), (REASONING, {"include_reasoning": False}, False)],
)
def test_reasoning_only_with_a_parser(settings: Settings, fields: dict[str, Any], there: bool) -> None:
    (choice,) = whole(reply(settings, **fields), Delta(0, "a", (), end()))["choices"]
    assert ("reasoning_content" in choice["message"]) is there
    assert choice["message"].get("reasoning_content", "") == ""


def test_n_choices() -> None:
    events: list[Event] = [
        Started(4),
        Delta(1, "b"),
        Delta(0, "a"),
        Delta(1, "B", (), end("length", 2, last=False)),
        Delta(2, "", (), end("eos", 1, last=False)),
        Delta(0, "A", (), end("eos", 2)),
    ]
    body = whole(reply(n=3), *events)
    assert [(choice["index"], choice["message"]["content"]) for choice in body["choices"]] == [
        (0, "aA"),
        (1, "bB"),
        (2, ""),
    ]
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (4, 5)
    made = [chunk["choices"][0] for chunk in chunks(reply(n=3, stream=True), *events)]
    for index, word in enumerate(["stop", "length", "stop"]):
        own = [choice for choice in made if choice["index"] == index]
        assert own[0]["delta"] == {"role": "assistant", "content": ""}
        assert [choice["finish_reason"] for choice in own] == [None] * (len(own) - 1) + [word]


def test_prompt_logprobs() -> None:
    """As vLLM has them: by token id, the prompt's own token first."""
    top = (TopToken(8, " was", -0.1), TopToken(2, " is", -2.5))
    prefill = (Token(1, "What"), Token(2, " is", -2.5, top=top), Token(3, "?", -7.0, top=(TopToken(8, " was", -0.1),)))
    body = whole(reply(prompt_logprobs=2), Started(3, prefill=prefill), Delta(0, "a", (), end()))
    assert body["prompt_logprobs"] == [
        None,
        {
            "2": {"logprob": -2.5, "rank": 2, "decoded_token": " is"},
            "8": {"logprob": -0.1, "rank": 1, "decoded_token": " was"},
        },
        {
            "3": {"logprob": -7.0, "rank": None, "decoded_token": "?"},
            "8": {"logprob": -0.1, "rank": 1, "decoded_token": " was"},
        },
    ]


# --- Log-probabilities: the bytes, joined, are the text ---

FOX = "🦊".encode()


def _part(number: int, text: str, raw: bytes) -> Token:
    return Token(number, text, -1.0, raw=raw)


@pytest.mark.parametrize(
    ("tokens", "text", "entries"),
    [
        # A character in three tokens: each has its own bytes, the last one the text.
        (
            [_part(1, "", FOX[:1]), _part(2, "", FOX[1:3]), _part(3, "🦊!", FOX[3:] + b"!")],
            "🦊!",
            [("", FOX[:1]), ("", FOX[1:3]), ("🦊!", FOX[3:] + b"!")],
        ),
        # An end of sequence that is not shown, and one that is.
        (
            [_part(1, "漢", "漢".encode()), Token(2, "", -1.0, special=True, raw=b"</s>")],
            "漢",
            [("漢", "漢".encode())],
        ),
        ([Token(2, "</s>", -1.0, special=True, raw=b"</s>")], "</s>", [("</s>", b"</s>")]),
        # A special token that is skipped within a character.
        (
            [_part(1, "", FOX[:2]), Token(2, "", -1.0, special=True, raw=b"<x>"), _part(3, "🦊", FOX[2:])],
            "🦊",
            [("", FOX[:2]), ("🦊", FOX[2:])],
        ),
        # What a stop string cuts, and a stop token.
        ([_part(1, "fo", b"foEN"), _part(2, "", b"D")], "fo", [("fo", b"fo")]),
        # The beginning of a character at the end of the answer.
        ([_part(1, "a", b"a"), _part(2, "", FOX[:2])], "a", [("a", b"a")]),
        # Bytes that are no character, and a first token that loses its space.
        (
            [_part(1, "", b"\xf0"), _part(2, "\ufffda", b"a")],
            "\ufffda",
            [("", b""), ("\ufffda", b"\xef\xbf\xbda")],
        ),
        ([_part(1, "Hello", b" Hello")], "Hello", [("Hello", b"Hello")]),
        # No bytes are known.
        ([Token(1, "", -1.0), Token(2, "🦊", -1.0)], "🦊", [("", b""), ("🦊", FOX)]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("one_by_one", [True, False])
def test_bytes_join_to_the_text(
    tokens: list[Token], text: str, entries: list[tuple[str, bytes]], one_by_one: bool
) -> None:
    deltas = [Delta(0, token.text, (token,)) for token in tokens] if one_by_one else [Delta(0, text, tuple(tokens))]
    made = chunks(reply(stream=True, logprobs=True), *deltas, Delta(0, "", (), end()))
    content = [entry for chunk in made for entry in chunk["choices"][0]["logprobs"]["content"]]
    assert [(entry["token"], bytes(entry["bytes"])) for entry in content] == entries
    assert b"".join(bytes(entry["bytes"]) for entry in content) == text.encode()
    body = whole(reply(logprobs=True), *deltas, Delta(0, "", (), end()))
    assert body["choices"][0]["logprobs"]["content"] == content


def test_the_chosen_token_is_written_alike_among_the_likely_ones() -> None:
    top = (TopToken(1, " Hello", -1.0, b" Hello"), TopToken(2, "", -2.0, FOX[:2]))
    token = Token(1, "Hello", -1.0, raw=b" Hello", top=top)
    body = whole(reply(logprobs=True, top_logprobs=2), Delta(0, "Hello", (token,), end()))
    assert body["choices"][0]["logprobs"]["content"][0]["top_logprobs"] == [
        {"token": "Hello", "logprob": -1.0, "bytes": list(b"Hello")},
        {"token": "", "logprob": -2.0, "bytes": list(FOX[:2])},
    ]


# --- Any split ---

letters = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)


def _token(text: str) -> Token:
    return Token(5, text, -1.5, top=(TopToken(5, text, -1.5, text.encode()),), raw=text.encode())


def _step(kind: str, text: str, number: int) -> Delta:
    """What one token brings: of the reasoning, the text, or a call."""
    tokens = (_token(text),)
    if kind == "call":
        first = number % 2 == 0
        call = CallDelta(number // 2, f"call_{number}" if first else None, "f" if first else None, text)
        return Delta(0, "", tokens, calls=(call,))
    return Delta(0, "", tokens, reasoning=text) if kind == "reasoning" else Delta(0, text, tokens)


def _merged(deltas: Sequence[Delta]) -> Delta:
    return Delta(
        0,
        "".join(delta.text for delta in deltas),
        tuple(token for delta in deltas for token in delta.tokens),
        deltas[-1].finish,
        "".join(delta.reasoning for delta in deltas),
        tuple(call for delta in deltas for call in delta.calls),
    )


def _assembled(made: list[Any]) -> Any:
    """A message as clients put it together, the logprobs, the endings and the usage."""
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": []}
    entries: list[Any] = []
    words: list[str] = []
    for chunk in made:
        for choice in chunk["choices"]:
            delta = choice["delta"]
            for name in ("content", "reasoning_content"):
                message[name] += delta.get(name, "")
            for call in delta.get("tool_calls", ()):
                if call["index"] == len(message["tool_calls"]):
                    message["tool_calls"].append({"id": call["id"], "type": call["type"], "function": call["function"]})
                else:
                    assert set(call) == {"index", "function"}
                    message["tool_calls"][call["index"]]["function"]["arguments"] += call["function"]["arguments"]
            entries += choice["logprobs"]["content"]
            if choice["finish_reason"]:
                words.append(choice["finish_reason"])
    assert len(words) == 1
    return message, entries, words[0], made[-1]["usage"]


@given(
    st.lists(st.tuples(st.just("reasoning"), letters), max_size=4),
    st.lists(st.tuples(st.just("text"), letters), max_size=6),
    st.lists(st.tuples(st.just("call"), letters), max_size=5),
    st.lists(st.booleans(), min_size=16, max_size=16),
    st.sampled_from(["eos", "stop", "length"]),
)
def test_any_split_gives_the_same_answer(
    reasoning: list[tuple[str, str]],
    text: list[tuple[str, str]],
    calls: list[tuple[str, str]],
    cuts: list[bool],
    reason: FinishReason,
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
    asked = {"logprobs": True, "top_logprobs": 1, "tools": TOOLS}
    body = whole(reply(REASONING, **asked), *events)
    assert body["choices"] == whole(reply(REASONING, **asked), Started(7, 2), _merged(steps))["choices"]
    message, entries, word, usage = _assembled(chunks(reply(REASONING, **asked, stream=True, **USAGE), *events))
    (choice,) = body["choices"]
    for name, value in message.items():
        assert (choice["message"][name] or type(value)()) == value
    assert choice["logprobs"]["content"] == entries
    assert (choice["finish_reason"], body["usage"]) == (word, usage)
    assert "".join(piece for _, piece in text) == message["content"]


@given(st.lists(letters, max_size=8), st.lists(st.booleans(), min_size=8, max_size=8))
def test_plain_text_has_one_chunk_a_delta(texts: list[str], merged: list[bool]) -> None:
    events: list[Delta] = []
    for text, join in zip(texts, merged, strict=False):
        if join and events:
            events[-1] = Delta(0, events[-1].text + text)
        else:
            events.append(Delta(0, text))
    made = chunks(reply(stream=True), *events, Delta(0, "", (), end()))
    assert len(made) == 2 + sum(1 for event in events if event.text)
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in made) == "".join(texts)
