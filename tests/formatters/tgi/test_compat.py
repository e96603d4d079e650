"""`option.tgi_compat`: LMI's request with TGI's answer (docs/decisions.md: LMI requests with TGI responses)."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from lmi.formatters.tgi.compat import ROWS

from ...kit.answers.events import feed
from ...kit.answers.tgi import ERROR, PREFILL, check, lines, whole
from ...kit.api.dialects import LMI_ROWS, parse, receive
from ...kit.api.options import typed_settings
from ...kit.api.types import (
    JSON_LINES,
    SSE,
    Delta,
    Finish,
    Generation,
    ParsedRequest,
    Request,
    Response,
    ResponseEncoder,
    Started,
    StructuredOutput,
    Token,
    TopToken,
)
from ...kit.rows import each_row

PROMPT = "What is Deep Learning?"
LMI = typed_settings()
COMPATIBLE = typed_settings(tgi_compat=True)
TGI = {"dialect": "tgi"}
DEEP = Token(304, "Deep", -0.25)
END = Token(2, "", -0.125, True, raw=b"</s>")


def received(
    parameters: Any, compatible: bool = True, *, stream: bool | None = None, path: str = "/invocations", **options: Any
) -> ParsedRequest | Response:
    body = {"inputs": PROMPT, "parameters": parameters, "stream": stream}
    settings = msgspec.structs.replace(COMPATIBLE if compatible else LMI, **options)
    return receive(Request(json.dumps(body).encode(), path=path), settings)


def call(parameters: Any = None, **more: Any) -> ParsedRequest:
    made = received(parameters, **more)
    assert isinstance(made, ParsedRequest), made.body
    return made


def generation(parameters: Any = None, **more: Any) -> Generation:
    (made,) = call(parameters, **more).generations
    return made


# --- The request is LMI's ---

TOGETHER: tuple[dict[str, Any], ...] = (
    {},
    {"do_sample": False, "temperature": 0.7},
    {"do_sample": False, "top_k": 5, "top_p": 0.5},
    {"do_sample": True, "temperature": 0.7, "top_k": 5, "seed": 3},
    {"do_sample": True, "temperature": 0},
    {"top_k": 0, "top_p": 0},
    {"n": 2, "best_of": 4, "do_sample": True, "seed": 7},
    {"n": 4, "best_of": 2},
    {"best_of": 2, "do_sample": False},
    {"num_beams": 3, "n": 2, "length_penalty": 0.5, "early_stopping": True},
    {"num_beams": 2, "n": 3},
    {"num_beams": 2, "temperature": 0.5},
    {"min_length": 9, "max_new_tokens": 3},
    {"stop": ["a"], "stop_sequences": ["b"]},
    {"details": False, "logprobs": 3, "decoder_input_details": True},
    {"logprobs": 3, "decoder_input_details": True, "prompt_logprobs": 2},
    dict.fromkeys(LMI_ROWS["common"]),
)


@each_row("stream", [True, False])
@each_row("schema", LMI_ROWS)
@each_row("parameters", TOGETHER)
def test_the_same_is_asked_of_the_engine(parameters: dict[str, Any], schema: str, stream: bool) -> None:
    """Or refused with the same words, but for what the answer shows: details unless they are not wanted."""
    shown = parameters if parameters.get("details") is not None else {**parameters, "details": True}
    with_option = received(parameters, stream=stream, parameter_schema=schema)
    without = received(shown, False, stream=stream, parameter_schema=schema)
    if isinstance(without, Response):
        assert isinstance(with_option, Response)
        assert with_option.failure is not None
        assert without.failure is not None
        assert with_option.failure.message == without.failure.message
        check(json.loads(with_option.body), ERROR)
        assert with_option.status == 422
        return
    assert isinstance(with_option, ParsedRequest)
    (made,), (expected,) = with_option.generations, without.generations
    # TGI shows special tokens as what they are.
    assert made == msgspec.structs.replace(expected, token_bytes=expected.tokens)


@each_row("schema", LMI_ROWS)
def test_parameters_are_lmis(schema: str) -> None:
    """But for the default of `details`, and a grammar, which only TGI's answers were asked for with."""
    own = {name for name, row in ROWS[schema].items() if LMI_ROWS[schema].get(name) is not row}
    assert own == {"details", "grammar"}
    assert set(ROWS[schema]) == set(LMI_ROWS[schema])


def test_defaults() -> None:
    """LMI's: 30 tokens, greedy, stop strings cut off; a long prompt leaves room for fewer."""
    made = generation()
    sampling = made.sampling
    assert (sampling.max_tokens, sampling.temperature, sampling.include_stop, made.overflow) == (30, 0, False, "clip")
    assert generation({"do_sample": False, "temperature": 0.7}).sampling.temperature == 0


def test_a_seed_is_drawn_by_the_engine() -> None:
    """Unlike TGI's own: details are there by default, and seeds cost each sampled token time."""
    assert generation({"do_sample": True, "details": True}).sampling.seed is None


# --- TGI's own stay TGI's ---


@each_row(
    ("path", "attributes", "option"),
    [
        ("/generate", {}, None),
        ("/generate_stream", {}, None),
        ("/", {}, None),
        ("/invocations", TGI, None),
        ("/predictions/model", TGI, None),
        ("/invocations", {}, "tgi"),
    ],
)
def test_tgis_routes_and_the_dialect_by_its_name(path: str, attributes: dict[str, str], option: str | None) -> None:
    """Whatever the option is."""
    bodies: list[dict[str, Any]] = [{}, {"stop": ["a"], "temperature": 0.7, "do_sample": False}, {"max_new_tokens": 5}]
    for parameters in bodies:
        body = json.dumps({"inputs": PROMPT, "parameters": parameters}).encode()
        with_option, without = (
            receive(Request(body, path=path, attributes=attributes), msgspec.structs.replace(settings, dialect=option))
            for settings in (COMPATIBLE, LMI)
        )
        assert isinstance(with_option, ParsedRequest)
        assert isinstance(without, ParsedRequest)
        (made,), (expected,) = with_option.generations, without.generations
        assert (made.sampling.include_stop, made.overflow) == (True, "refuse")
        assert made.sampling.max_tokens == parameters.get("max_new_tokens")
        if "temperature" in parameters:
            assert made.sampling.temperature == 0.7
            # Where details show it the seed is drawn.
            made, expected = (
                msgspec.structs.replace(one, sampling=msgspec.structs.replace(one.sampling, seed=None))
                for one in (made, expected)
            )
        assert made == expected
        if path != "/generate_stream":
            (answer,) = feed(with_option.reply, Started(7), Delta(0, "Deep", (), Finish("length", 1)))
            assert b"details" not in answer


# --- TGI's names beyond LMI's ---

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def test_a_grammar() -> None:
    made = generation({"grammar": {"type": "regex", "value": "[0-9]+"}}).sampling
    assert made.structured_output == StructuredOutput(regex="[0-9]+")
    assert made == msgspec.structs.replace(generation().sampling, structured_output=made.structured_output)
    made = generation({"grammar": {"type": "json", "value": SCHEMA}, "n": 2, "do_sample": True}).sampling
    assert made.structured_output is not None
    assert json.loads(made.structured_output.json_schema or "") == SCHEMA


@each_row(
    ("parameters", "message"),
    [
        ({"grammar": "json"}, "parameters.grammar: expected an object, got 'json'"),
        (
            {"grammar": {"type": "regex", "value": "[0-9]+"}, "num_beams": 2},
            "parameters.grammar: cannot be combined with parameters.num_beams above 1",
        ),
    ],
)
def test_a_grammar_that_is_refused(parameters: dict[str, Any], message: str) -> None:
    answer = received(parameters)
    assert isinstance(answer, Response)
    check(json.loads(answer.body), ERROR)
    assert json.loads(answer.body)["error"] == f"Input validation error: {message}"


# --- The answer is TGI's ---


def ended(tokens: tuple[Token, ...], index: int = 0, *, last: bool = True, logprob: float | None = None) -> Delta:
    text = "".join(token.text for token in tokens)
    return Delta(index, text, tokens, Finish("eos", len(tokens), last=last, cumulative_logprob=logprob))


def answer(reply: ResponseEncoder, *deltas: Delta, prefill: tuple[Token, ...] = ()) -> list[Any]:
    """The documents that the records hold, of which the whole answer is the only one."""
    records = feed(reply, Started(7, prefill=prefill), *(deltas or (ended((DEEP, END)),)))
    return [json.loads(record.removeprefix(b"data: ")) for record in records]


TOKENS = [
    {"id": 304, "text": "Deep", "logprob": -0.25, "special": False},
    {"id": 2, "text": "</s>", "logprob": -0.125, "special": True},
]


@each_row("details", [None, True])
def test_a_whole_answer_has_details(details: bool | None) -> None:
    """djl_python 0.36, output_formatter.py: `parameters.get("details", tgi_compat)`."""
    ((made,),) = answer(call({"details": details}).reply)
    check(made, whole(details=True, inputs=True))
    assert made == {
        "generated_text": "Deep",
        "details": {
            "finish_reason": "eos_token",
            "generated_tokens": 2,
            "inputs": PROMPT,
            "seed": None,
            "prefill": [],
            "tokens": TOKENS,
        },
    }


def test_without_details() -> None:
    assert answer(call({"details": False}).reply) == [[{"generated_text": "Deep"}]]
    *_, last = answer(call({"details": False}, stream=True).reply)
    assert (last["generated_text"], last["details"]) == ("Deep", None)


@each_row(("output_formatter", "kind"), [(None, SSE), ("sse", SSE), ("jsonlines", JSON_LINES)], ids=str)
def test_a_stream_has_details_at_its_end(output_formatter: str | None, kind: str) -> None:
    """Server-sent events unless the endpoint's output_formatter says otherwise (djl_python, get_output_formatter)."""
    reply = call(stream=True, output_formatter=output_formatter).reply
    made = answer(reply)
    assert reply.content_type == kind
    line, last = lines(details=True, inputs=True)
    check(made[0], line)
    check(made[1], last)
    assert [one["token"] for one in made] == TOKENS
    assert made[1]["details"] == {
        "finish_reason": "eos_token",
        "generated_tokens": 2,
        "inputs": PROMPT,
        "seed": None,
        "input_length": 7,
    }


def test_the_prompts_tokens() -> None:
    """In a stream's last line too, where LMI's has them and TGI has none."""
    first = Token(1, "What", None, top=(TopToken(1, "What", -0.5),))
    parameters = {"prompt_logprobs": 1}
    ((made,),) = answer(call(parameters).reply, prefill=(first,))
    *_, last = answer(call(parameters, stream=True).reply, prefill=(first,))
    for details in (made["details"], last["details"]):
        assert details["prefill"] == [{"id": 1, "text": "What", "logprob": None}]
        check(details["prefill"][0], PREFILL)
        assert len(details["prompt_logprobs"]) == 1
    *_, last = answer(call({"decoder_input_details": True}, stream=True).reply, prefill=(first,))
    assert last["details"]["prefill"] == made["details"]["prefill"]
    assert "prompt_logprobs" not in last["details"]


@each_row("parameters", [{"best_of": 2}, {"n": 2}, {"num_beams": 2}], ids=str)
def test_several_sequences_in_lmis_order(parameters: dict[str, Any]) -> None:
    """They come best first, by LMI's rule; TGI's own compares means."""
    asked = call({**parameters, "return_full_text": True, "seed": 5})
    long = ended((DEEP, DEEP, END), 0, last=False, logprob=-3.0)
    ((made,),) = answer(asked.reply, long, ended((DEEP,), 1, logprob=-0.9))
    check(made, whole(details=True, inputs=True, best_of=True))
    assert made["generated_text"] == f"{PROMPT}DeepDeep"
    (other,) = made["details"]["best_of_sequences"]
    assert (other["generated_text"], other["generated_tokens"]) == (f"{PROMPT}Deep", 1)
    # Which of them drew with which seed is no longer known.
    assert (made["details"]["seed"], other["seed"]) == (None, None)


@each_row("stream", [True, False], ids=["stream", "whole"])
@each_row(
    ("parameters", "seed"),
    [({"do_sample": True, "seed": 5}, 5), ({"do_sample": True}, None), ({"seed": 5}, None)],
    ids=str,
)
def test_the_seed_is_the_requests(parameters: dict[str, Any], seed: int | None, stream: bool) -> None:
    *_, last = answer(call(parameters, stream=stream).reply)
    (made,) = [last] if stream else last
    assert made["details"]["seed"] == seed


def test_the_dialect_is_still_tgi() -> None:
    assert call().dialect == "tgi"
    assert parse("tgi", {"inputs": PROMPT}, COMPATIBLE).generations[0].sampling.max_tokens == 30
