"""TGI's answers (docs/decisions.md: TGI responses): events and their bytes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from lmi.formatters.tgi import parse
from lmi.formatters.tgi.reply import ResponseOptions, WholeEncoder

from ...kit.answers.events import feed
from ...kit.answers.tgi import ERROR, check, lines, whole
from ...kit.api.errors import (
    ContextError,
    EngineError,
    GenerationError,
    LmiError,
    OverloadedError,
    ParameterError,
    PayloadError,
    TimeLimitError,
    TooLargeError,
    UnavailableError,
    UnsupportedError,
)
from ...kit.api.options import typed_settings
from ...kit.api.types import (
    JSON,
    JSON_LINES,
    SSE,
    Delta,
    Event,
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
DEEP = Token(304, "Deep", -0.25)
LEARNING = Token(11157, " Learning", -1.5)
FIELD = Token(5972, " field.", -0.5)
END = Token(2, "", -0.125, True, raw=b"</s>")
TOKENS = (DEEP, LEARNING, FIELD, END)
TEXT = "Deep Learning field."

ROUTES = ["/invocations", "/predictions/model", "/", "/generate", "/generate_stream"]


def reply(
    parameters: dict[str, Any] | None = None,
    stream: bool | None = None,
    path: str = "/invocations",
    output_formatter: Any = None,
) -> ResponseEncoder:
    settings = typed_settings(output_formatter=output_formatter)
    body = {"inputs": PROMPT, "parameters": parameters, "stream": stream}
    return parse(body, Request(b"", path=path), settings).reply


def delta(tokens: Sequence[Token] = (), finish: FinishReason | None = None, index: int = 0) -> Delta:
    ended = None if finish is None else Finish(finish, generated_tokens=len(tokens))
    return Delta(index, "".join(token.text for token in tokens), tuple(tokens), ended)


def document(record: bytes) -> Any:
    return json.loads(record.removeprefix(b"data: "))


# --- The samples of LMI's schema, Response with TGI compatibility, and TGI's own ---


def test_sample_whole() -> None:
    """LMI: "Response will be a JSONArray"; the keys of its sample, and TGI's besides; `logprob`, not `log_prob`."""
    answer = reply({"details": True})
    (body,) = feed(answer, Started(7), delta(TOKENS, "length"))
    (made,) = json.loads(body)
    assert made == {
        "generated_text": TEXT,
        "details": {
            "finish_reason": "length",
            "generated_tokens": 4,
            "inputs": PROMPT,
            "seed": None,
            "prefill": [],
            "tokens": [
                {"id": 304, "text": "Deep", "logprob": -0.25, "special": False},
                {"id": 11157, "text": " Learning", "logprob": -1.5, "special": False},
                {"id": 5972, "text": " field.", "logprob": -0.5, "special": False},
                {"id": 2, "text": "</s>", "logprob": -0.125, "special": True},
            ],
        },
    }
    check(made, whole(details=True, inputs=True))
    assert (answer.status, answer.content_type, answer.finished, answer.failure) == (200, JSON, True, None)
    assert answer.headers == {
        "x-compute-characters": "22",
        "x-prompt-tokens": "7",
        "x-generated-tokens": "4",
    }


SAMPLE_EVENTS = [
    b'{"index":1,"token":{"id":304,"text":"Deep","logprob":-0.25,"special":false},"generated_text":null,"details":null}',
    (
        b'{"index":2,"token":{"id":5972,"text":" field.","logprob":-0.5,"special":false},'
        b'"generated_text":"Deep field.","details":{"finish_reason":"length","generated_tokens":2,'
        b'"inputs":"What is Deep Learning?","seed":null,"input_length":7}}'
    ),
]


@each_row("parameters", [{"details": True}, None, {"details": None}], ids=str)
def test_sample_stream(parameters: dict[str, Any] | None) -> None:
    """LMI: "Server Sent Events (text/event-stream) which will prefix with `data:`"; the last line with details."""
    answer = reply(parameters, stream=True)
    records = feed(answer, Started(7), delta([DEEP]), delta([FIELD], "length"))
    assert records == [b"data: " + line + b"\n\n" for line in SAMPLE_EVENTS]
    assert (answer.status, answer.content_type, answer.finished, answer.failure) == (200, SSE, True, None)
    assert answer.headers == {"x-accel-buffering": "no"}


@each_row("path", ROUTES)
@each_row("details", [True, False])
@each_row("top", [0, 2])
@each_row("stream", [True, False])
def test_shapes(path: str, details: bool, top: int, stream: bool) -> None:
    """Every key that TGI documents, null where TGI has null, and `inputs` where LMI documents it."""
    answer = reply({"details": details, "top_n_tokens": top}, stream=stream, path=path)
    likely = (TopToken(304, "Deep", -0.25, b"Deep"), TopToken(2, "</s>", -3.5, b"</s>", special=True))[:top]
    tokens = [Token(304, "Deep", -0.25, top=likely), Token(2, "", -1.0, True, likely, b"</s>")]
    records = feed(answer, Started(7), delta(tokens[:1]), delta(tokens[1:], "eos"))
    inputs = path in ("/invocations", "/predictions/model")
    if path == "/generate_stream" or (stream and path != "/generate"):
        assert all(record.startswith(b"data: ") and record.endswith(b"\n\n") for record in records)
        line, last = lines(details=details, inputs=inputs, top=top > 0)
        check(document(records[0]), line)
        check(document(records[-1]), last)
        assert [document(record)["index"] for record in records] == [1, 2]
        shown = [document(record).get("top_tokens") for record in records]
    else:
        (body,) = records
        made = json.loads(body)
        if path != "/generate":
            (made,) = made
        check(made, whole(details=details, inputs=inputs, top=details and top > 0))
        shown = made["details"].get("top_tokens") or [None, None] if details else []
    if top and shown:
        assert (
            shown
            == [
                [
                    {"id": 304, "text": "Deep", "logprob": -0.25, "special": False},
                    {"id": 2, "text": "</s>", "logprob": -3.5, "special": True},
                ]
            ]
            * 2
        )
    else:
        assert not any(shown)


@each_row(
    ("error", "status", "kind", "said"),
    [
        (PayloadError("why"), 422, "validation", "Input validation error: why"),
        (ParameterError("why"), 422, "validation", "Input validation error: why"),
        (ContextError("why"), 422, "validation", "Input validation error: why"),
        (UnsupportedError("why"), 422, "validation", "Input validation error: why"),
        (OverloadedError("why"), 429, "overloaded", "Model is overloaded: why"),
        (GenerationError("why"), 424, "generation", "Request failed during generation: why"),
        (EngineError("why"), 424, "generation", "Request failed during generation: why"),
        (UnavailableError("why"), 503, "generation", "why"),
        (TooLargeError("why"), 413, "request_too_large", "why"),
        (TimeLimitError("why"), 504, "generation", "Request failed during generation: why"),
        (LmiError("why"), 424, "generation", "why"),
    ],
)
@each_row("path", ROUTES)
@each_row("stream", [True, False])
def test_sample_errors(error: LmiError, status: int, kind: str, said: str, path: str, stream: bool) -> None:
    """TGI's documented statuses and error types: plain JSON before the first token, for streams too."""
    answer = reply(stream=stream, path=path)
    (body,) = feed(answer, Failed.of(error))
    assert json.loads(body) == {"error": said, "error_type": kind}
    check(json.loads(body), ERROR)
    assert (answer.status, answer.content_type, answer.finished, answer.headers) == (status, JSON, True, {})
    assert answer.failure is not None
    assert answer.failure.message == "why"


@each_row("stream", [True, False])
def test_incomplete_generation(stream: bool) -> None:
    """TGI, 500: "Incomplete generation"; after the first token it is an event."""
    answer = reply({"details": True}, stream=stream)
    records = feed(answer, Started(7), delta([DEEP]), delta([LEARNING], "abort"))
    assert document(records[-1]) == {
        "error": "Incomplete generation: the generation was cut off before its end",
        "error_type": "incomplete_generation",
    }
    assert isinstance(answer.failure, GenerationError)
    if stream:
        assert [document(record).get("index") for record in records] == [1, 2, None]
        assert (answer.status, answer.content_type) == (200, SSE)
    else:
        assert len(records) == 1
        assert (answer.status, answer.content_type) == (500, JSON)


def test_an_error_in_a_stream() -> None:
    answer = reply(stream=True)
    records = feed(answer, Started(7), delta([DEEP]), Failed.of(GenerationError("why")))
    assert records[1:] == [b'data: {"error":"Request failed during generation: why","error_type":"generation"}\n\n']
    assert (answer.status, answer.content_type, answer.finished) == (200, SSE, True)


# --- What is shown ---


@each_row("stream", [True, False])
def test_full_text(stream: bool) -> None:
    """The prompt is in generated_text, never in a token."""
    records = feed(reply({"return_full_text": True}, stream=stream), Started(7), delta(TOKENS, "eos"))
    made = document(records[-1])
    assert (made if stream else made[0])["generated_text"] == PROMPT + TEXT
    if stream:
        assert "".join(document(record)["token"]["text"] for record in records) == TEXT + "</s>"


def test_prefill() -> None:
    """The first token of a prompt has no log-probability; decoder_input_details asks for the details too, as in TGI."""
    answer = reply({"decoder_input_details": True})
    prefill = (Token(1, "<s>", None, True), Token(2, " is", -2.5))
    (body,) = feed(answer, Started(2, prefill=prefill), delta(TOKENS, "eos"))
    (made,) = json.loads(body)
    check(made, whole(details=True, inputs=True))
    assert made["details"]["prefill"] == [
        {"id": 1, "text": "<s>", "logprob": None},
        {"id": 2, "text": " is", "logprob": -2.5},
    ]


def test_lmis_names_of_likely_tokens() -> None:
    """`logprobs` is `top_n_tokens`, and `prompt_logprobs` as in LMI's details, where it is asked for."""
    prefill = (Token(1, "<s>"), Token(304, "Deep", -3.0, top=(TopToken(5, "Big", -0.5),)))
    started, tokens = Started(2, prefill=prefill, ranks=(None, 2)), [Token(304, "Deep", -0.25, top=prefill[1].top)]

    def details(**parameters: Any) -> dict[str, Any]:
        (made,) = json.loads(feed(reply(parameters), started, delta(tokens, "eos"))[0])
        found: dict[str, Any] = made["details"]
        return found

    top = details(details=True, logprobs=1)
    assert top["top_tokens"] == [[{"id": 5, "text": "Big", "logprob": -0.5, "special": False}]]
    assert top == details(details=True, top_n_tokens=1)
    shown = details(prompt_logprobs=1)
    assert shown.pop("prompt_logprobs") == [
        None,
        {
            "304": {"logprob": -3.0, "rank": 2, "decoded_token": "Deep"},
            "5": {"logprob": -0.5, "rank": 1, "decoded_token": "Big"},
        },
    ]
    assert shown == details(prompt_logprobs=0) == details(decoder_input_details=True)


@each_row("stream", [True, False])
def test_the_seed_is_shown_where_tokens_are_drawn(stream: bool) -> None:
    def shown(parameters: dict[str, Any]) -> Any:
        made = document(feed(reply({"details": True, **parameters}, stream), Started(7), delta(TOKENS, "eos"))[-1])
        return (made if stream else made[0])["details"]["seed"]

    assert shown({"seed": 7}) is None
    assert shown({"seed": 7, "do_sample": True}) == 7
    drawn = {shown({"temperature": 0.5}) for _ in range(4)}
    assert len(drawn) == 4
    assert all(isinstance(seed, int) and 0 <= seed < 2**53 for seed in drawn)


def test_special_tokens_are_shown_as_what_they_are() -> None:
    """As TGI does: a token's text is `</s>`, the answer's is without it. With text of their own they have that."""
    shown = Token(9, "<x>", -1.0, True, raw=b"<x>")
    part = Token(8, "", -1.0, raw=b"\xf0\x9f")
    (body,) = feed(reply({"details": True}), Started(7), delta([part, shown, END], "eos"))
    (made,) = json.loads(body)
    assert [token["text"] for token in made["details"]["tokens"]] == ["", "<x>", "</s>"]
    assert made["generated_text"] == "<x>"


@each_row("path", ["/invocations", "/generate_stream"])
def test_an_end_without_a_token(path: str) -> None:
    """Engines give the last token together with the end. Where one cannot, the last line still has a token."""
    answer = reply(stream=True, path=path)
    records = feed(answer, Started(7), delta([DEEP, LEARNING]), delta((), "eos"))
    last = document(records[-1])
    assert [document(record)["index"] for record in records] == [1, 2, 3]
    assert last["token"] == {"id": -1, "text": "", "logprob": 0.0, "special": True}
    assert (last["generated_text"], last["details"]["generated_tokens"]) == ("Deep Learning", 2)


@each_row(
    ("formatter", "stream", "content_type"),
    [
        (None, None, JSON),
        (None, True, SSE),
        ("json", True, JSON),
        ("jsonlines", None, JSON_LINES),
        ("jsonlines", True, JSON_LINES),
        ("sse", None, SSE),
        ("sse", False, JSON),
    ],
)
def test_an_output_formatter_goes_before(formatter: str | None, stream: bool | None, content_type: str) -> None:
    """On /invocations, as for LMI answers; TGI's own routes know none."""
    assert reply(stream=stream, output_formatter=formatter).content_type == content_type
    assert reply(stream=stream, output_formatter=formatter, path="/").content_type == (SSE if stream else JSON)
    assert reply(stream=stream, output_formatter=formatter, path="/generate").content_type == JSON
    assert reply(stream=stream, output_formatter=formatter, path="/generate_stream").content_type == SSE


# --- best_of ---


def ended(index: int, text: str, cumulative: float, *, last: bool) -> Delta:
    finish = Finish("eos", generated_tokens=2, cumulative_logprob=cumulative, last=last)
    return Delta(index, text, (Token(index, text, -1.0), END), finish)


def test_the_best_of_several_sequences() -> None:
    """The one of the greatest mean log-probability, as in TGI; the others are in its details, in their order."""
    answer = WholeEncoder(ResponseOptions(PROMPT, details=True, return_full_text=True, seed=5))
    assert feed(answer, Started(7), ended(2, "two", -9.0, last=False), ended(0, "none", -4.0, last=False)) == []
    (made,) = json.loads(feed(answer, ended(1, "one", -2.0, last=True))[0])
    check(made, whole(details=True, inputs=True, best_of=True))
    assert made["generated_text"] == PROMPT + "one"
    others = made["details"]["best_of_sequences"]
    assert [(other["generated_text"], other["generated_tokens"], other["seed"]) for other in others] == [
        (PROMPT + "none", 2, 5),
        (PROMPT + "two", 2, 7),
    ]
    assert made["details"]["seed"] == 6
    assert answer.headers["x-generated-tokens"] == "2"


def test_the_best_of_several_sequences_without_details() -> None:
    answer = WholeEncoder(ResponseOptions(PROMPT, array=False))
    events: list[Event] = [Started(7), ended(0, "none", -4.0, last=False), ended(1, "one", -2.0, last=True)]
    assert feed(answer, *events) == [b'{"generated_text":"one"}']


@each_row(
    ("sequences", "best"),
    [
        # Tokens and what their log-probabilities add up to: a long text is not worse for its length, nor better.
        ([(2, -4.0), (8, -8.0)], 1),
        ([(8, -8.0), (2, -4.0)], 0),
        ([(8, -16.0), (2, -2.0)], 1),
        ([(3, -3.0), (1, -1.0)], 0),
        ([(2, None), (4, -9.0)], 1),
        ([(0, 0.0), (4, -9.0)], 0),
    ],
)
def test_the_best_is_chosen_by_its_mean(sequences: list[tuple[int, float | None]], best: int) -> None:
    answer = WholeEncoder(ResponseOptions(PROMPT, array=False))
    events: list[Event] = [
        Delta(index, str(index), (), Finish("eos", None, count, cumulative, last=index + 1 == len(sequences)))
        for index, (count, cumulative) in enumerate(sequences)
    ]
    assert feed(answer, Started(7), *events) == [b'{"generated_text":"%d"}' % best]
    assert answer.headers["x-generated-tokens"] == str(sequences[best][0])


# --- Any split ---
