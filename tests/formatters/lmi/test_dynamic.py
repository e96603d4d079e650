"""Dynamic batch's dialect (docs/decisions.md: Dynamic batch); tests/hosts/test_dynamic.py has the batches."""

from __future__ import annotations

import json
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from ...kit.api.dialects import receive
from ...kit.api.engine import ranked
from ...kit.api.errors import GenerationError
from ...kit.api.options import typed_settings
from ...kit.api.types import (
    Delta,
    EngineEvent,
    Event,
    Failed,
    Finish,
    ParsedRequest,
    Prefill,
    Rendered,
    Request,
    Response,
    Settings,
    Started,
    Token,
)
from ...kit.rows import each_row

SETTINGS = typed_settings(rolling_batch="disable")
STREAMING = Settings(
    model_dir="/model", model_id="/model", model_name="/model", rolling_batch="disable", enable_streaming=True
)
TWO = ["What is Deep Learning", "How many ways can I peel an orange"]


def call(body: object, settings: Settings = SETTINGS) -> ParsedRequest:
    received = receive(Request(json.dumps(body).encode()), settings)
    assert isinstance(received, ParsedRequest), received
    return received


def refused(body: bytes, settings: Settings = SETTINGS) -> Response:
    received = receive(Request(body), settings)
    assert isinstance(received, Response)
    return received


def events(text: str) -> list[Event]:
    """One token a word."""
    tokens = [Token(index, word) for index, word in enumerate(text.split(" "), 1)]
    deltas = [Delta(0, token.text, (token,)) for token in tokens[:-1]]
    last = Delta(0, tokens[-1].text, (tokens[-1],), Finish("eos", generated_tokens=len(tokens)))
    return [Started(3), *deltas, last]


def test_whole() -> None:
    """LMI's schema: a list of objects with one field each, in the order of the inputs."""
    asked = call({"inputs": TWO, "parameters": {"max_new_tokens": 256, "do_sample": True, "details": True}})
    assert [generation.prompt for generation in asked.generations] == TWO
    assert {generation.sampling.max_tokens for generation in asked.generations} == {256}
    assert not any(generation.stream or generation.tokens for generation in asked.generations)
    records: list[bytes] = []
    for prompt, text in ((1, "c d"), (0, "a b")):
        assert not records
        for event in events(text):
            records += asked.reply.feed(event, prompt)
    assert asked.reply.finished
    assert (asked.reply.status, asked.reply.content_type) == (200, "application/json")
    assert json.loads(b"".join(records)) == [{"generated_text": "ab"}, {"generated_text": "cd"}]


def test_one_input_is_a_list_of_one() -> None:
    asked = call({"inputs": "What is Deep Learning?", "parameters": {"return_full_text": True}})
    records = [record for event in events("It is") for record in asked.reply.feed(event)]
    assert json.loads(b"".join(records)) == [{"generated_text": "What is Deep Learning?Itis"}]


@given(st.permutations([0, 0, 0, 1, 1]), st.booleans())
def test_streamed(order: list[int], full: bool) -> None:
    """Every line has an entry for each input; those of an input, joined, are its text, in whatever order they come."""
    asked = call({"inputs": ["x", "y"], "parameters": {"return_full_text": full}}, STREAMING)
    assert all(generation.stream and generation.tokens for generation in asked.generations)
    texts = ["This opportunity is", "not lost"]
    waiting = [iter(events(text)) for text in texts]
    for prompt, each in enumerate(waiting):
        assert asked.reply.feed(next(each), prompt) == []
    records = [record for prompt in order for record in asked.reply.feed(next(waiting[prompt]), prompt)]
    assert asked.reply.finished
    assert asked.reply.content_type == "application/jsonlines"
    assert all(record.endswith(b"\n") and record.count(b"\n") == 1 for record in records)
    lines = [json.loads(record) for record in records]
    assert all(list(line) == ["outputs"] and len(line["outputs"]) == 2 for line in lines)
    joined = ["".join(line["outputs"][prompt] for line in lines) for prompt in range(2)]
    beginnings = ["x", "y"] if full else ["", ""]
    assert joined == [start + text.replace(" ", "") for start, text in zip(beginnings, texts, strict=True)]
    assert len(lines) == len(order) + full


@each_row(
    ("settings", "stream", "streams"),
    [
        (SETTINGS, None, False),
        (SETTINGS, True, True),
        (STREAMING, None, True),
        (STREAMING, False, False),
    ],
)
def test_what_decides_on_streaming(settings: Settings, stream: bool | None, streams: bool) -> None:
    (generation,) = call({"inputs": "a", "stream": stream}, settings).generations
    assert generation.stream is streams


@each_row(
    ("body", "message"),
    [
        (b"", "the body is empty, expected a JSON object"),
        (b"{}", "unknown dialect: expected a field inputs (dynamic)"),
        (b'{"inputs": ""}', "inputs: expected a non-empty string or a list of them, got ''"),
        (b'{"inputs": []}', "inputs: expected a non-empty string or a list of them, got []"),
        (b'{"inputs": ["a", 5]}', "inputs[1]: expected a non-empty string, got 5"),
        (b'{"inputs": "a", "parameters": 5}', "parameters: expected an object, got 5"),
        (b'{"inputs": "a", "parameters": {"temperature": -1}}', "parameters.temperature: expected a number"),
        (json.dumps({"inputs": ["a"] * 1025}).encode(), "inputs: expected at most 1024 texts, got 1025"),
    ],
)
def test_errors(body: bytes, message: str) -> None:
    """LMI's schema, Dynamic Batch, Error Responses: code, message and error, with status 424."""
    answer = refused(body)
    assert (answer.status, answer.content_type) == (424, "application/json")
    told = json.loads(answer.body)
    assert set(told) == {"code", "message", "error"}
    assert (told["code"], told["message"]) == (424, "invoke handler failure")
    assert told["error"].startswith(message)


SEVERAL = {
    "n": ({"n": 2, "temperature": 1}, "n"),
    "best_of": ({"best_of": 2, "temperature": 1}, "best_of"),
    "n and best_of": ({"n": 2, "best_of": 3, "temperature": 1}, "best_of"),
    "num_beams": ({"num_beams": 2}, "num_beams"),
    "beam_width": ({"beam_width": 2}, "beam_width"),
}
"""Parameters that ask for several sequences, and the one that an error names."""


@each_row(("settings", "stream"), [(SETTINGS, {"stream": True}), (STREAMING, {}), (STREAMING, {"stream": True})])
@each_row("several", SEVERAL)
def test_several_sequences_are_not_streamed(several: str, settings: Settings, stream: dict[str, bool]) -> None:
    parameters, name = SEVERAL[several]
    answer = refused(json.dumps({"inputs": ["a", "b"], "parameters": parameters, **stream}).encode(), settings)
    assert answer.status == 424
    assert json.loads(answer.body) == {
        "code": 424,
        "message": "invoke handler failure",
        "error": f"parameters.{name}: above 1 is not supported with streaming",
    }
    (one,) = call({"inputs": "a", "parameters": dict.fromkeys(parameters, 1), **stream}, settings).generations
    assert one.stream


@each_row("several", SEVERAL)
def test_of_several_sequences_the_likeliest_is_the_text(several: str) -> None:
    """n, best_of: drawn and ranked. Beams: the engine's first one."""
    parameters, name = SEVERAL[several]
    asked = call({"inputs": ["a", "b"], "parameters": parameters, "stream": False}, STREAMING)
    records: list[bytes] = []

    def take(prompt: int, event: EngineEvent) -> None:
        assert not isinstance(event, Rendered | Prefill)
        records.extend(asked.reply.feed(event, prompt))

    for prompt, generation in enumerate(asked.generations):
        wider, tell = ranked(generation, partial(take, prompt))
        beams = wider.sampling.beams
        assert (beams.width if beams else wider.sampling.n) == max(parameters.values())
        assert (beams is not None) == ("beam" in name)
        assert not records
        tell(Started(3))
        if beams:
            assert wider.sampling.n == 1
        likelihoods = [-1.0] if beams else [-4.0, -1.0, -9.0][: wider.sampling.n]
        for index, likelihood in enumerate(likelihoods):
            last = index == len(likelihoods) - 1
            finish = Finish("length", generated_tokens=1, cumulative_logprob=likelihood, last=last)
            tell(Delta(index, f"of {prompt}: {likelihood}", finish=finish))
    assert asked.reply.finished
    assert json.loads(b"".join(records)) == [{"generated_text": "of 0: -1.0"}, {"generated_text": "of 1: -1.0"}]


def test_an_error_of_one_input_ends_the_request() -> None:
    asked = call({"inputs": TWO})
    asked.reply.feed(events("a")[0], 0)
    (record,) = asked.reply.feed(Failed.of(GenerationError("no luck")), 1)
    assert json.loads(record) == {"code": 424, "message": "invoke handler failure", "error": "no luck"}
    assert (asked.reply.status, asked.reply.finished) == (424, True)


def test_an_error_in_the_middle_of_a_stream_is_its_last_line() -> None:
    asked = call({"inputs": TWO}, STREAMING)
    assert asked.reply.feed(Delta(0, "a", (Token(1, "a"),)), 0)
    (record,) = asked.reply.feed(Failed.of(GenerationError("no luck")), 1)
    assert record == b'{"code":424,"error":"no luck","message":"invoke handler failure"}\n'
    assert (asked.reply.status, asked.reply.finished) == (200, True)
