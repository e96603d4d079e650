"""LMI's answers (docs/decisions.md: LMI details): events and the bytes that they become, whole and incremental."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from lmi.formatters.lmi import parse

from ...kit.answers.events import feed
from ...kit.api.errors import ContextError, GenerationError, PayloadError, UnsupportedError
from ...kit.api.options import typed_settings
from ...kit.api.types import (
    JSON,
    JSON_LINES,
    SSE,
    Delta,
    Failed,
    Finish,
    FinishReason,
    Request,
    ResponseEncoder,
    Started,
    Token,
    TopToken,
)
from ...kit.rows import each_row

PROMPT = "What is Deep Learning?"
DEEP = Token(304, "Deep ", -0.052432529628276825)
LEARNING = Token(11157, " Learning", -1.2865009307861328)
IS = Token(278, " is", -0.007458459585905075)
FIELD = Token(5972, " field.", -0.6950479745864868)
TOKENS = (DEEP, LEARNING, IS, FIELD)
TEXT = "Deep  Learning is field."


def reply(parameters: dict[str, Any] | None = None, *, output_formatter: Any = None, **fields: Any) -> ResponseEncoder:
    settings = typed_settings(output_formatter=output_formatter)
    return parse({"inputs": PROMPT, "parameters": parameters, **fields}, Request(b""), settings).reply


def delta(tokens: Sequence[Token] = (), finish: FinishReason | None = None) -> Delta:
    ended = None if finish is None else Finish(finish, generated_tokens=len(tokens))
    return Delta(0, "".join(token.text for token in tokens), tuple(tokens), ended)


def document(record: bytes) -> Any:
    return json.loads(record.removeprefix(b"data: "))


# --- The samples of LMI's schema, Rolling Batch ---


def test_best_of_sequences() -> None:
    """LMI's BestOfSequence: all but the likeliest, each with text, finish_reason, generated_tokens and tokens."""
    answer = reply({"n": 2, "details": True, "return_full_text": True})
    best = Delta(0, "Deep ", (DEEP,), Finish("eos", generated_tokens=1, last=False))
    other = Delta(1, " is", (IS,), Finish("length", generated_tokens=1))
    (body,) = feed(answer, Started(5), best, other)
    told = json.loads(body)
    assert told["generated_text"] == PROMPT + "Deep "
    assert list(told["details"])[-1] == "best_of_sequences"
    assert (told["details"]["finish_reason"], told["details"]["generated_tokens"]) == ("eos_token", 1)
    assert told["details"]["best_of_sequences"] == [
        {
            "generated_text": PROMPT + " is",
            "finish_reason": "length",
            "generated_tokens": 1,
            "tokens": [{"id": 278, "text": " is", "log_prob": IS.logprob}],
        }
    ]


@each_row("name", ["n", "best_of"])
def test_several_sequences_are_not_streamed(name: str) -> None:
    """LMI's schema: "only works with non-streaming case"."""
    with pytest.raises(UnsupportedError) as caught:
        reply({name: 2}, stream=True)
    assert caught.value.message == f"parameters.{name}: above 1 is not supported with streaming"


def test_sample_whole() -> None:
    """LMI's schema, Response Schema, "Example response" with details; `finish reason` with a space is a misprint."""
    tokens = [
        Token(100 + number, text, -0.5) for number, text in enumerate(["Deep Learning is a really", " cool field"])
    ]
    answer = reply({"details": True})
    (body,) = feed(answer, Started(5), delta(tokens, "length"))
    assert json.loads(body) == {
        "generated_text": "Deep Learning is a really cool field",
        "details": {
            "finish_reason": "length",
            "generated_tokens": 2,
            "inputs": "What is Deep Learning?",
            "tokens": [
                {"id": 100, "text": "Deep Learning is a really", "log_prob": -0.5},
                {"id": 101, "text": " cool field", "log_prob": -0.5},
            ],
        },
    }
    assert list(json.loads(body)) == ["generated_text", "details"]
    assert list(json.loads(body)["details"]) == ["finish_reason", "generated_tokens", "inputs", "tokens"]
    assert (answer.status, answer.content_type, answer.finished, answer.failure) == (200, JSON, True, None)


def test_sample_whole_without_details() -> None:
    """LMI's schema, Response Schema: `details` "only when parameters.details = true"."""
    assert feed(reply(), Started(5), Delta(0, "Deep Learning", (), Finish("eos"))) == [
        b'{"generated_text":"Deep Learning"}'
    ]


SAMPLE_LINES = [
    b'{"token":{"id":304,"text":"Deep ","log_prob":-0.052432529628276825}}',
    b'{"token":{"id":11157,"text":" Learning","log_prob":-1.2865009307861328}}',
    b'{"token":{"id":278,"text":" is","log_prob":-0.007458459585905075}}',
    (
        b'{"token":{"id":5972,"text":" field.","log_prob":-0.6950479745864868},'
        b'"generated_text":"Deep  Learning is field.",'
        b'"details":{"finish_reason":"length","generated_tokens":4,"inputs":"What is Deep Learning?"}}'
    ),
]


def test_sample_json_lines() -> None:
    """LMI's schema, Response Schema, the streamed example: its lines, one document a line."""
    answer = reply({"details": True}, stream=True)
    records = feed(answer, Started(5), delta([DEEP]), delta([LEARNING, IS]), delta([FIELD], "length"))
    assert records == [line + b"\n" for line in SAMPLE_LINES]
    assert (answer.status, answer.content_type, answer.finished, answer.failure) == (200, JSON_LINES, True, None)


def test_sample_server_sent_events() -> None:
    """LMI's schema, Response Schema, the SSE example: the same lines as `data:` events."""
    answer = reply({"details": True}, stream=True, output_formatter="sse")
    records = feed(answer, Started(5), delta(TOKENS, "length"))
    assert records == [b"data: " + line + b"\n\n" for line in SAMPLE_LINES]
    assert answer.content_type == SSE


def test_last_line_without_details() -> None:
    assert feed(reply(stream=True), delta([DEEP], "eos")) == [
        b'{"token":{"id":304,"text":"Deep ","log_prob":-0.052432529628276825},"generated_text":"Deep "}\n'
    ]


WHOLE_ERROR = (
    b'{"generated_text":"","details":{"finish_reason":"error","generated_tokens":null,"inputs":null,"tokens":null},'
    b'"error":"the reason"}'
)
LAST_LINE_ERROR = (
    b'{"token":{"id":-1,"text":"","log_prob":-1,"special_token":true},"generated_text":"",'
    b'"details":{"finish_reason":"error","generated_tokens":null,"inputs":null},"error":"the reason"}'
)


def test_sample_generation_error() -> None:
    """LMI's schema, Error Responses, not streaming: the sample, and `error` besides."""
    answer = reply()
    assert feed(answer, Failed.of(GenerationError("the reason"))) == [WHOLE_ERROR]
    assert (answer.status, answer.content_type, answer.finished) == (424, JSON, True)
    assert isinstance(answer.failure, GenerationError)


def test_sample_generation_error_streamed() -> None:
    """LMI's schema, Error Responses, streaming: the sample (less its surplus brace), and `error` besides."""
    answer = reply(stream=True)
    assert feed(answer, Failed.of(ContextError("the reason"))) == [LAST_LINE_ERROR + b"\n"]
    assert (answer.status, answer.content_type, answer.finished) == (424, JSON_LINES, True)
    assert isinstance(answer.failure, ContextError)


# --- Errors ---


@each_row("whole", [True, False])
def test_failure_in_the_middle(whole: bool) -> None:
    answer = reply({"details": True}, stream=not whole)
    records = feed(answer, Started(5), delta([DEEP]), Failed.of(GenerationError("the reason")))
    assert answer.finished
    assert answer.failure is not None
    assert answer.failure.message == "the reason"
    if whole:
        assert (answer.status, records) == (424, [WHOLE_ERROR])
    else:
        assert (answer.status, records) == (200, [SAMPLE_LINES[0] + b"\n", LAST_LINE_ERROR + b"\n"])


@each_row("formatter", ["jsonlines", "sse"])
def test_abort_is_an_error(formatter: str) -> None:
    answer = reply(output_formatter=formatter)
    records = feed(answer, delta([DEEP]), delta([LEARNING], "abort"))
    assert [document(record)["token"]["id"] for record in records] == [304, 11157, -1]
    assert document(records[-1])["error"] == "the generation was cut off before its end"
    assert isinstance(answer.failure, GenerationError)
    assert answer.status == 200

    whole = reply()
    (body,) = feed(whole, Delta(0, "Deep", (), Finish("abort")))
    assert json.loads(body)["details"]["finish_reason"] == "error"
    assert whole.status == 424


def test_payload_error_from_the_engine() -> None:
    answer = reply(stream=True)
    assert feed(answer, Failed.of(PayloadError("the reason"))) == [b'{"error":"the reason","code":424}']
    assert (answer.status, answer.content_type) == (424, JSON)


# --- What is shown ---


@each_row(("reason", "word"), [("eos", "eos_token"), ("stop", "stop_sequence"), ("length", "length")])
@each_row("stream", [True, False])
def test_finish_reasons(reason: FinishReason, word: str, stream: bool) -> None:
    records = feed(reply({"details": True}, stream=stream), delta(TOKENS, reason))
    assert document(records[-1])["details"]["finish_reason"] == word


@each_row("stream", [True, False])
def test_return_full_text(stream: bool) -> None:
    """The prompt is in generated_text, never in a token line."""
    records = feed(reply({"return_full_text": True}, stream=stream), delta(TOKENS, "eos"))
    assert document(records[-1])["generated_text"] == PROMPT + TEXT
    if stream:
        assert "".join(document(record)["token"]["text"] for record in records) == TEXT


PREFILL = (Token(1, "What"), Token(2, " is", -2.5))


@each_row("stream", [True, False])
def test_prefill(stream: bool) -> None:
    """LMI's Details: after `tokens`, from decoder_input_details; the first token of a prompt has no log_prob."""
    answer = reply({"details": True, "decoder_input_details": True}, stream=stream)
    details = document(feed(answer, Started(2, prefill=PREFILL), delta(TOKENS, "eos"))[-1])["details"]
    assert list(details)[-1] == "prefill"
    assert ("tokens" in details) is not stream
    assert details["prefill"] == [
        {"id": 1, "text": "What", "log_prob": None},
        {"id": 2, "text": " is", "log_prob": -2.5},
    ]


@each_row("parameters", [{"details": True}, {"decoder_input_details": True}])
def test_no_prefill(parameters: dict[str, Any]) -> None:
    """It is part of `details` and needs both parameters."""
    (body,) = feed(reply(parameters), Started(2, prefill=PREFILL), delta(TOKENS, "eos"))
    assert b"prefill" not in body


def test_multi_byte_and_special_tokens() -> None:
    """A part of a character and a skipped special token have lines of their own with no text."""
    tokens = [Token(1, "", -1.0), Token(2, "🦊\u2028\n", -2.0), Token(3, "", -9999.0, special=True)]
    records = feed(reply(stream=True), delta(tokens[:1]), delta(tokens[1:], "eos"))
    assert [document(record)["token"] for record in records] == [
        {"id": 1, "text": "", "log_prob": -1.0},
        {"id": 2, "text": "🦊\u2028\n", "log_prob": -2.0},
        {"id": 3, "text": "", "log_prob": -9999.0},
    ]
    assert all(record.count(b"\n") == 1 and record.endswith(b"\n") for record in records)
    assert document(records[-1])["generated_text"] == "🦊\u2028\n"


# --- The likeliest tokens: logprobs, prompt_logprobs (LMI's schema lists them, the form is djl_python's and vLLM's) ---

LIKELY = (TopToken(304, "Deep ", -0.25), TopToken(2, "", -3.5, special=True))
SHOWN = [{"id": 304, "text": "Deep ", "log_prob": -0.25}, {"id": 2, "text": "", "log_prob": -3.5}]
FIRST = Token(304, "Deep ", -0.25, top=LIKELY)
SECOND = Token(2, "", -3.5, special=True, top=LIKELY[:1])
LIKELY_PREFILL = (
    Token(1, "<s>"),
    Token(304, "Deep ", -3.0, top=(TopToken(5, "Big ", -0.5), TopToken(304, "Deep ", -3.0))),
)
STARTED = Started(2, prefill=LIKELY_PREFILL, ranks=(None, 2))


def test_top_tokens_whole() -> None:
    """One list for every token, those of best_of_sequences too."""
    best = Delta(0, "Deep ", (FIRST, SECOND), Finish("eos", generated_tokens=2, last=False))
    other = Delta(1, "Deep ", (FIRST,), Finish("length", generated_tokens=1))
    (body,) = feed(reply({"n": 2, "details": True, "logprobs": 2}), Started(2), best, other)
    details = json.loads(body)["details"]
    assert list(details) == [
        "finish_reason", "generated_tokens", "inputs", "tokens", "top_tokens", "best_of_sequences",
    ]  # fmt: skip
    assert details["top_tokens"] == [SHOWN, SHOWN[:1]]
    assert details["best_of_sequences"][0]["top_tokens"] == [SHOWN]


def test_top_tokens_of_streams() -> None:
    """Beside the token, the last line's too; a line without a token of its own has none."""
    for parameters in ({"logprobs": 2}, {"top_n_tokens": 2}):
        records = feed(reply(parameters, stream=True), Started(2), delta([FIRST]), delta([FIRST, SECOND], "eos"))
        lines = [document(record) for record in records]
        assert [line["top_tokens"] for line in lines] == [SHOWN, SHOWN, SHOWN[:1]]
        assert list(lines[0]) == ["token", "top_tokens"]
        assert list(lines[-1]) == ["token", "top_tokens", "generated_text"]
    records = feed(reply({"logprobs": 2}, stream=True), Started(2), delta([FIRST]), delta((), "eos"))
    assert ["top_tokens" in document(record) for record in records] == [True, False]
    records = feed(reply({"logprobs": 2}, stream=True), Started(2), delta([FIRST], "abort"))
    assert [document(record).get("top_tokens") for record in records] == [SHOWN, None]


def test_prompt_logprobs() -> None:
    """As OpenAI's dialects have them, beside the `prefill` of decoder_input_details; 0 asks for that alone."""
    prefill = [{"id": 1, "text": "<s>", "log_prob": None}, {"id": 304, "text": "Deep ", "log_prob": -3.0}]
    likely = [
        None,
        {
            "304": {"logprob": -3.0, "rank": 2, "decoded_token": "Deep "},
            "5": {"logprob": -0.5, "rank": 1, "decoded_token": "Big "},
        },
    ]
    for stream in (False, True):
        for wanted, more in ((2, {"prompt_logprobs": likely}), (0, {})):
            answer = reply({"details": True, "prompt_logprobs": wanted}, stream=stream)
            details = document(feed(answer, STARTED, delta([DEEP], "eos"))[-1])["details"]
            shown = {name: value for name, value in details.items() if name in ("prefill", "prompt_logprobs")}
            assert shown == {"prefill": prefill, **more}


@each_row("stream", [True, False])
@each_row("parameters", [{}, {"details": True}, {"details": True, "decoder_input_details": True}])
def test_what_is_not_asked_for_is_not_there(parameters: dict[str, Any], stream: bool) -> None:
    """Whatever an engine tells: not a byte of an answer is another one."""
    bare = [Token(token.id, token.text, token.logprob) for token in (FIRST, SECOND)]
    plain = Started(2, prefill=tuple(Token(token.id, token.text, token.logprob) for token in LIKELY_PREFILL))
    told = feed(reply(parameters, stream=stream), STARTED, delta([FIRST, SECOND], "eos"))
    assert told == feed(reply(parameters, stream=stream), plain, delta(bare, "eos"))
    zero = {**parameters, "logprobs": 0}
    assert told == feed(reply(zero, stream=stream), STARTED, delta([FIRST, SECOND], "eos"))


def test_an_end_without_a_token() -> None:
    """Engines give the last token together with the end. Where one cannot, the last line still has a token."""
    answer = reply({"details": True}, stream=True)
    records = feed(answer, delta([DEEP, LEARNING]), delta((), "eos"))
    last = document(records[-1])
    assert [document(record)["token"]["id"] for record in records] == [304, 11157, -1]
    assert last["token"] == {"id": -1, "text": "", "log_prob": 0.0, "special_token": True}
    assert last["generated_text"] == "Deep  Learning"
    assert last["details"]["generated_tokens"] == 2
