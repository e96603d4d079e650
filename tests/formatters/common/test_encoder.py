"""Encoders are data: one that is pickled before its first event gives the same answer in another process, without the
handler, whichever dialect's it is and however its answer ends.
"""

from __future__ import annotations

import json
import pickle
import struct
import subprocess
import sys
from collections.abc import Sequence
from itertools import product
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from lmi.formatters.common.encoder import Encoder

from ...kit.answers.events import Told, end
from ...kit.api.dialects import DIALECTS, receive
from ...kit.api.options import typed_settings
from ...kit.api.types import (
    CallDelta,
    Delta,
    Failed,
    Finish,
    ParsedRequest,
    Request,
    Settings,
    Started,
    Token,
    TopToken,
)

TEXT = Settings(model_dir="/m", model_id="/m", model_name="m", reasoning_parser="qwen3", tool_call_parser="hermes")
EMBEDS = msgspec.structs.replace(TEXT, task="embed")
RANKS = msgspec.structs.replace(TEXT, task="rank")
CLASSIFIES = msgspec.structs.replace(TEXT, task="classify")
DYNAMIC = typed_settings(rolling_batch="disable")
DYNAMIC_VECTORS = msgspec.structs.replace(DYNAMIC, task="embed")
LINES = msgspec.structs.replace(TEXT, output_formatter="jsonlines")

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9}
SHOWN: dict[str, Any] = {"logprobs": True, "top_logprobs": 1}
SAY: dict[str, Any] = {"type": "custom", "custom": {"name": "say"}}
INPUT: dict[str, Any] = {"input": "hi"}
TOLD: dict[str, Any] = {"include": ["message.output_text.logprobs"], "top_logprobs": 1}
INPUTS: dict[str, Any] = {"inputs": "hi", "parameters": {"details": True, "decoder_input_details": True}}
STREAM: dict[str, Any] = {"stream": True}

CASES: dict[str, tuple[Settings, str, dict[str, Any]]] = {
    "chat": (TEXT, "/v1/chat/completions", CHAT | {"n": 2} | SHOWN),
    "chat, streamed": (TEXT, "/v1/chat/completions", CHAT | STREAM | {"stream_options": {"include_usage": True}}),
    "chat, custom tools": (TEXT, "/v1/chat/completions", CHAT | STREAM | {"tools": [SAY]}),
    "chat, log-probabilities": (TEXT, "/v1/chat/completions", CHAT | STREAM | SHOWN),
    "completions": (TEXT, "/v1/completions", {"prompt": ["a", "b"], "echo": True, "logprobs": 1}),
    "completions, streamed": (TEXT, "/v1/completions", {"prompt": ["a", "b"], "stream": True}),
    "embeddings": (EMBEDS, "/v1/embeddings", {"input": ["a", "b"]}),
    "transcription": (TEXT, "/v1/audio/transcriptions", {"file": "UklGRg=="}),
    "transcription, streamed": (TEXT, "/v1/audio/transcriptions", {"file": "UklGRg=="} | STREAM),
    "transcription, subtitles": (TEXT, "/v1/audio/translations", {"file": "UklGRg==", "response_format": "srt"}),
    "Anthropic": (TEXT, "/v1/messages", CHAT),
    "Anthropic, streamed": (TEXT, "/v1/messages", CHAT | STREAM),
    "Anthropic, no thinking": (TEXT, "/v1/messages", CHAT | {"thinking": {"type": "adaptive", "display": "omitted"}}),
    "Anthropic, a prompt alone": (TEXT, "/v1/messages", CHAT | {"max_tokens": 0}),
    "Anthropic, a count": (TEXT, "/v1/messages/count_tokens", {"messages": CHAT["messages"]}),
    "responses": (TEXT, "/v1/responses", INPUT | {"tools": [{"type": "custom", "name": "say"}]}),
    "responses, streamed": (TEXT, "/v1/responses", INPUT | STREAM | {"tools": [{"type": "custom", "name": "say"}]}),
    "responses, log-probabilities": (TEXT, "/v1/responses", INPUT | STREAM | TOLD),
    "Azure": (TEXT, "/chat/completions?api-version", CHAT),
    "Azure, streamed": (TEXT, "/chat/completions?api-version", CHAT | STREAM),
    "minimal": (TEXT, "/chat/completions", CHAT | {"model": "m"}),
    "minimal, lines": (TEXT, "/chat/completions", CHAT | {"model": "m"} | STREAM),
    "minimal, events": (TEXT, "/chat/sse", CHAT | {"model": "m"}),
    "LMI": (TEXT, "/invocations", INPUTS),
    "LMI, streamed": (TEXT, "/invocations", INPUTS | STREAM),
    "LMI, events, top tokens": (TEXT, "/invocations", {"inputs": "hi", "parameters": {"top_n_tokens": 1}} | STREAM),
    "LMI, lines": (LINES, "/invocations", INPUTS),
    "LMI, vectors": (EMBEDS, "/invocations", {"inputs": ["a", "b"]}),
    "dynamic": (DYNAMIC, "/invocations", {"inputs": ["a", "b"]}),
    "dynamic, streamed": (DYNAMIC, "/invocations", {"inputs": ["a", "b"]} | STREAM),
    "dynamic, vectors": (DYNAMIC_VECTORS, "/invocations", {"inputs": ["a", "b"]}),
    "TGI": (TEXT, "/generate", INPUTS),
    "TGI, streamed": (TEXT, "/generate_stream", {"inputs": "hi"}),
    "rerank": (RANKS, "/rerank", {"query": "q", "documents": ["a", "b"]}),
    "rerank, TEI's": (RANKS, "/rerank", {"query": "q", "texts": ["a", "b"]}),
    "scores": (RANKS, "/score", {"text_1": "q", "text_2": ["a", "b"]}),
    "classes": (CLASSIFIES, "/classify", {"input": ["a", "b"]}),
    "classes, TEI's": (CLASSIFIES, "/predict", {"inputs": [["a"], ["b"]]}),
    "tokens": (TEXT, "/tokenize", {"prompt": "hi"}),
    "detokenized": (TEXT, "/detokenize", {"tokens": [1]}),
}


def call_of(case: str) -> ParsedRequest:
    settings, path, body = CASES[case]
    path, _, parameter = path.partition("?")
    query = {parameter: "2024-05-01-preview"} if parameter else {}
    request = Request(json.dumps(body).encode(), path=path, query=query, request_id="7")
    call = receive(request, settings)
    assert isinstance(call, ParsedRequest), call
    return call


TOP = TopToken(5, "Hi", -1.5, b"Hi")
TOKENS = (Token(5, "Hi", -1.5, top=(TOP,), raw=b"Hi"), Token(6, "!", -0.5, raw=b"!"))
CALLS = (CallDelta(0, None, "say", '{"input": "a'), CallDelta(0, arguments='b"}'), CallDelta(1, "call_1", "f", "{}"))
STARTED = Started(7, 2, (Token(1, "a"), Token(2, "b", -0.5, top=(TOP,))), "ab", context=100)


def answer(call: ParsedRequest, ending: str) -> list[Told]:
    """What an engine tells of a call."""
    told: list[Told] = [(prompt, STARTED) for prompt in range(len(call.generations))]
    if ending == "at once":
        return [Failed("overloaded", "full")]
    for prompt, generation in enumerate(call.generations):
        plain = generation.tokenize or generation.embedding or generation.scoring
        for index in range(1 if plain else generation.sampling.n):
            if not plain:
                told.append((prompt, Delta(index, "", TOKENS[:1], reasoning="so")))
                told.append((prompt, Delta(index, "\nHi", TOKENS)))
                told.append((prompt, Delta(index, "!", TOKENS[1:])))
                told.append((prompt, Delta(index, "", calls=CALLS)))
            finish = end("length" if generation.tokenize else "eos", 3, last=index + 1 == generation.sampling.n)
            if ending == "cut off":
                finish = Finish("abort")
            vector = struct.pack("<2f", 0.5, prompt) if plain and not generation.tokenize else b""
            told.append((prompt, Delta(index, "", TOKENS[1:] * (not plain), finish, vector=vector, labels=("a", "b"))))
            if ending == "cut off":
                return told
            if ending == "in between":
                return [*told[:-1], (prompt, Failed("overloaded", "full"))]
    return told


def fed(reply: Any, told: Sequence[Told]) -> tuple[Any, ...]:
    """The records, and what hosts read of the encoder afterwards."""
    records: list[bytes] = []
    for one in told:
        prompt, event = one if isinstance(one, tuple) else (0, one)
        if not reply.finished:
            records += reply.feed(event, prompt)
    return records, reply.status, reply.content_type, dict(reply.headers), reply.finished, repr(reply.failure)


ELSEWHERE = """
import pickle, sys
from types import SimpleNamespace
given = pickle.load(sys.stdin.buffer)
from lmi.formatters.responses import reply as responses_reply
responses_reply.time = SimpleNamespace(time=lambda: 1.7e9)
made = {}
for name, (pickled, told) in given.items():
    reply, records = pickle.loads(pickled), []
    for one in told:
        prompt, event = one if isinstance(one, tuple) else (0, one)
        if not reply.finished:
            records += reply.feed(event, prompt)
    head = reply.status, reply.content_type, dict(reply.headers), reply.finished, repr(reply.failure)
    made[name] = (records, *head)
assert not [name for name in sys.modules if name.startswith("lmi.handler")]
sys.stdout.buffer.write(pickle.dumps(made))
"""
ENDINGS = ("well", "cut off", "at once", "in between")


def test_a_pickled_encoder_gives_the_same_answer_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmi.formatters.responses.reply.time", SimpleNamespace(time=lambda: 1.7e9))
    given: dict[str, Any] = {}
    expected: dict[str, Any] = {}
    for case, ending in product(CASES, ENDINGS):
        call = call_of(case)
        assert isinstance(call.reply, Encoder)
        told = answer(call, ending)
        name = f"{case}, {ending}"
        given[name] = pickle.dumps(call.reply), told
        expected[name] = fed(call.reply, told)
        assert call.reply.finished
        assert (call.reply.failure is None) == (ending == "well")
    command = [sys.executable, "-c", ELSEWHERE]
    done = subprocess.run(command, input=pickle.dumps(given), stdout=subprocess.PIPE, check=True, timeout=120)
    made = pickle.loads(done.stdout)
    assert [name for name in given if made[name] != expected[name]] == []


def test_all_dialects_are_there() -> None:
    assert {call_of(case).dialect for case in CASES} == {dialect.name for dialect in DIALECTS}


def test_what_was_cut_off_is_sent_before_its_error() -> None:
    reply = call_of("completions, streamed").reply
    records, *_ = fed(reply, [Started(1), Delta(0, "a"), Delta(0, "b", finish=Finish("abort"))])
    assert b'"text":"b"' in records[1]
    assert b"the generation was cut off before its end" in records[2]
