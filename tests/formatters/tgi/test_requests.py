"""TGI requests: what is asked of the engine, what is refused and how, and what a server says of itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from lmi.formatters.tgi import parse
from lmi.formatters.tgi.info import info_page

from ...kit.answers.tgi import ERROR, INFO, check
from ...kit.api.dialects import receive, refusal, route_of
from ...kit.api.errors import ForbiddenError, MediaTypeError, RequestError, UnauthorizedError
from ...kit.api.handler import Service, application
from ...kit.api.options import load_settings, typed_settings
from ...kit.api.types import (
    EngineInfo,
    Failed,
    Generation,
    ParsedRequest,
    Request,
    Response,
    StructuredOutput,
)
from ...kit.rows import each_row
from ...kit.user_code.engine import ScriptedEngine

PROMPT = "What is Deep Learning?"
SETTINGS = typed_settings()
NAMED = {"dialect": "tgi"}
"""The attribute; test_compat.py has the requests that the option alone makes TGI's."""


def generation(parameters: dict[str, Any] | None = None, *, path: str = "/invocations", **fields: Any) -> Generation:
    body = {"inputs": PROMPT, "parameters": parameters, **fields}
    return parse(body, Request(b"", path=path), SETTINGS).generations[0]


def refused(parameters: dict[str, Any] | None = None, **fields: Any) -> str:
    """The message of what is wrong, from the answer that tells it."""
    body = json.dumps({"inputs": PROMPT, "parameters": parameters, **fields}).encode()
    answer = receive(Request(body, attributes=NAMED), SETTINGS)
    assert isinstance(answer, Response)
    made = json.loads(answer.body)
    check(made, ERROR)
    assert (answer.status, answer.content_type, made["error_type"]) == (422, "application/json", "validation")
    assert made["error"].startswith("Input validation error: ")
    assert answer.failure is not None
    assert made["error"].endswith(answer.failure.message)
    return answer.failure.message


# --- The option ---


@pytest.mark.parametrize(("text", "on"), [("true", True), ("True", True), ("false", False), (None, False)])
def test_the_option_and_its_environment_variable(tmp_path: Path, text: str | None, on: bool) -> None:
    environment = {} if text is None else {"OPTION_TGI_COMPAT": text}
    settings = load_settings(tmp_path, environment=environment, overrides={})
    assert settings.tgi_compat is on
    call = receive(Request(b'{"inputs": "a"}'), settings)
    assert isinstance(call, ParsedRequest)
    (body,) = call.reply.feed(Failed("GenerationError", "why"))
    assert ("error_type" in json.loads(body)) is on


# --- Parameters ---

NAMES = (
    *("best_of", "decoder_input_details", "details", "do_sample", "frequency_penalty", "grammar"),
    *("max_new_tokens", "repetition_penalty", "return_full_text", "seed", "stop", "temperature", "top_k"),
    *("top_n_tokens", "top_p", "truncate", "typical_p", "watermark"),
)
ALL_NULL: dict[str, Any] = dict.fromkeys(NAMES)
"""What huggingface_hub's client may send: each of TGI's parameters, as null."""

OLD_CLIENT = {
    **ALL_NULL,
    "details": True,
    "do_sample": False,
    "max_new_tokens": 20,
    "return_full_text": False,
    "stop": [],
    "watermark": False,
    "decoder_input_details": False,
}
"""What the client `text-generation` sends where its user says nothing."""


@each_row("parameters", [None, {}, ALL_NULL], ids=["none", "empty", "nulls"])
def test_defaults(parameters: dict[str, Any] | None) -> None:
    made = generation(parameters)
    sampling = made.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.seed) == (0, 1, 0, None)
    assert (sampling.repetition_penalty, sampling.frequency_penalty) == (1, 0)
    assert (sampling.max_tokens, sampling.stop, sampling.truncate, sampling.structured_output) == (None, (), None, None)
    assert sampling.include_stop
    assert (made.stream, made.tokens, sampling.logprobs, sampling.prompt_logprobs) == (False, False, None, None)
    assert (made.prompt, made.overflow) == (PROMPT, "refuse")


def test_what_the_old_client_sends() -> None:
    made = generation(OLD_CLIENT)
    assert (made.sampling.temperature, made.sampling.max_tokens, made.sampling.logprobs) == (0, 20, 0)


@each_row(
    ("name", "value", "field", "read"),
    [
        ("stop", ["a", "b"], "stop", ("a", "b")),
        ("include_stop_str_in_output", False, "include_stop", False),
        # Without effect.
        ("best_of", 1, "n", 1),
        ("typical_p", 1.0, "temperature", 0),
        ("top_p", 1.0, "temperature", 0),
        ("top_k", 0, "temperature", 0),
        ("temperature", 1.0, "temperature", 0),
        ("top_n_tokens", 0, "logprobs", None),
    ],
)
def test_a_parameter(name: str, value: Any, field: str, read: Any) -> None:
    assert getattr(generation({name: value}).sampling, field) == read


@each_row(
    ("parameters", "samples"),
    [
        ({"do_sample": True}, True),
        ({"temperature": 0.7}, True),
        ({"top_k": 10}, True),
        ({"top_p": 0.95}, True),
        # TGI's clients send do_sample false wherever their user does not set it.
        ({"do_sample": False, "temperature": 0.7}, True),
        ({"do_sample": False}, False),
        ({"do_sample": False, "temperature": 1.0, "top_p": 1, "seed": 3}, False),
    ],
)
@each_row("details", [True, False])
def test_when_tokens_are_drawn(parameters: dict[str, Any], samples: bool, details: bool) -> None:
    sampling = generation({**parameters, "details": details}).sampling
    assert (sampling.temperature != 0) is samples
    # A seed of ours is drawn only to be shown.
    assert (sampling.seed is not None) is ("seed" in parameters or (samples and details))


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


@each_row(
    ("grammar", "guide"),
    [
        ({"type": "json", "value": SCHEMA}, {"json_schema": SCHEMA}),
        ({"type": "json", "value": json.dumps(SCHEMA)}, {"json_schema": SCHEMA}),
        ({"type": "json_object", "value": SCHEMA}, {"json_schema": SCHEMA}),
        ({"type": "json_schema", "value": {"name": "x", "strict": True, "schema": SCHEMA}}, {"json_schema": SCHEMA}),
        ({"type": "json_schema", "value": {"schema": SCHEMA}}, {"json_schema": SCHEMA}),
        ({"type": "regex", "value": "[0-9]+"}, {"regex": "[0-9]+"}),
    ],
)
def test_grammar(grammar: dict[str, Any], guide: dict[str, Any]) -> None:
    made = generation({"grammar": grammar}).sampling.structured_output
    assert isinstance(made, StructuredOutput)
    shown = {"json_schema": made.json_schema and json.loads(made.json_schema), "regex": made.regex}
    assert shown == {"json_schema": None, "regex": None} | guide


@each_row(
    ("parameters", "stream", "tokens", "logprobs", "prompt_logprobs"),
    [
        ({"details": True}, False, True, 0, None),
        ({"details": True, "top_n_tokens": 5}, False, True, 5, None),
        ({"top_n_tokens": 5}, False, False, None, None),
        ({"best_of": 2, "do_sample": True}, False, False, 0, None),
        ({"best_of": 2, "do_sample": True, "details": True, "top_n_tokens": 3}, False, True, 3, None),
        ({"decoder_input_details": True}, False, True, 0, 0),
        ({}, True, True, 0, None),
        ({"details": False, "top_n_tokens": 3}, True, True, 3, None),
        # LMI's names.
        ({"details": True, "logprobs": 5}, False, True, 5, None),
        ({"logprobs": 5}, True, True, 5, None),
        ({"prompt_logprobs": 0}, False, True, 0, 0),
        ({"prompt_logprobs": 3, "decoder_input_details": True}, False, True, 0, 3),
    ],
)
def test_log_probabilities_only_where_shown(
    parameters: dict[str, Any], stream: bool, tokens: bool, logprobs: int | None, prompt_logprobs: int | None
) -> None:
    made = generation(parameters, stream=stream)
    assert (made.stream, made.tokens) == (stream, tokens)
    assert (made.sampling.logprobs, made.sampling.prompt_logprobs) == (logprobs, prompt_logprobs)


@each_row(
    ("path", "stream", "streams"),
    [
        ("/generate", True, False),
        ("/generate_stream", None, True),
        ("/generate_stream", False, True),
        ("/", True, True),
        ("/", None, False),
        ("/invocations", True, True),
        ("/predictions/m", False, False),
    ],
)
def test_what_streams(path: str, stream: bool | None, streams: bool) -> None:
    assert generation(path=path, stream=stream).stream is streams


# --- What is refused ---


@each_row(
    ("name", "value", "expected"),
    [
        ("best_of", 17, "parameters.best_of: expected an integer from 1 to 16, got 17"),
        ("best_of", 2, "parameters.best_of: expected 1 without sampling (do_sample is false), got 2"),
        ("num_beams", 2, "parameters.num_beams: expected 1, the only value that is supported, got 2"),
        ("temperature", 0, "parameters.temperature: expected a number above 0 and up to 100, got 0"),
        ("seed", -1, "parameters.seed: expected an integer >= 0, got -1"),
        ("top_n_tokens", 21, "parameters.top_n_tokens: expected an integer from 0 to 20, got 21"),
        ("n", 2, "parameters.n: expected 1, the only value that is supported, got 2"),
        (
            "grammar",
            {"type": "ebnf", "value": "x"},
            "parameters.grammar.type: expected 'json' or 'json_object' or 'regex' or 'json_schema', got 'ebnf'",
        ),
        ("grammar", {"type": "json"}, "parameters.grammar.value: expected a JSON schema, a non-empty object, got None"),
        ("grammar", {"type": "regex", "value": ""}, "parameters.grammar.value: expected a non-empty string, got ''"),
        (
            "grammar",
            {"type": "json_schema", "value": {"schema": 5}},
            "parameters.grammar.value.schema: expected a JSON schema, a non-empty object, got 5",
        ),
    ],
)
@each_row("stream", [True, False])
def test_refused_by_name(name: str, value: Any, expected: str, stream: bool) -> None:
    assert refused({name: value}, stream=stream) == expected


@each_row(
    ("fields", "named"),
    [
        ({"inputs": ""}, "inputs"),
        ({"inputs": 5}, "inputs"),
        ({"inputs": ["a", "b"]}, "inputs"),
        ({"parameters": []}, "parameters"),
        ({"stream": "yes"}, "stream"),
        ({"adapters": "poet"}, "adapters"),
        ({"stream": True, "parameters": {"best_of": 2, "do_sample": True}}, "parameters.best_of"),
        ({"parameters": {"best_of": 2, "do_sample": True, "seed": 1}}, "parameters.seed"),
        ({"stream": True, "parameters": {"decoder_input_details": True}}, "parameters.decoder_input_details"),
        ({"stream": True, "parameters": {"prompt_logprobs": 0}}, "parameters.prompt_logprobs"),
        ({"parameters": {"min_length": 9, "max_new_tokens": 3}}, "parameters.min_length"),
        ({"parameters": {"stop": ["a"], "stop_sequences": ["b"]}}, "parameters.stop_sequences"),
    ],
    ids=str,
)
def test_refused_fields(fields: dict[str, Any], named: str) -> None:
    assert refused(**fields).startswith(f"{named}: ")


# --- Routes ---


@each_row("path", ["/generate", "/generate_stream", "/"])
@each_row("compat", [True, False])
@each_row("body", [b"{", b"", b'{"prompt": "a"}', b'{"inputs": ""}'])
def test_errors_on_its_own_routes(path: str, compat: bool, body: bytes) -> None:
    """The path tells the dialect before the body is read."""
    answer = receive(Request(body, path=path), msgspec.structs.replace(SETTINGS, tgi_compat=compat))
    assert isinstance(answer, Response)
    check(json.loads(answer.body), ERROR)
    assert (answer.status, json.loads(answer.body)["error_type"]) == (422, "validation")


@each_row(
    ("error", "status"),
    [(MediaTypeError("why"), 415), (UnauthorizedError("why"), 401), (ForbiddenError("why"), 403)],
    ids=["415", "401", "403"],
)
def test_errors_that_hosts_tell(error: RequestError, status: int) -> None:
    answer = refusal(error, Request(b'{"inputs": "a"}'), msgspec.structs.replace(SETTINGS, tgi_compat=True))
    assert (answer.status, json.loads(answer.body)) == (status, {"error": "why", "error_type": error.code})


def test_another_content_type() -> None:
    answer = receive(Request(b"", {"content-type": "text/plain"}, path="/generate"), SETTINGS)
    assert isinstance(answer, Response)
    assert answer.status == 415
    check(json.loads(answer.body), ERROR)


def test_info() -> None:
    """GET /info, unless another dialect's route has a query that this request has."""
    request = Request(b"", path="/info", method="GET")
    found = route_of(request)
    assert found is not None
    assert found[1].page is info_page
    info = EngineInfo(engine="vllm", version="0.23.0", context=2048)
    settings = msgspec.structs.replace(SETTINGS, model_id="org/model", revision="main", max_rolling_batch_size=7)
    answer = info_page(request, settings, info)
    made = json.loads(answer.body)
    check(made, INFO)
    assert (answer.status, answer.content_type) == (200, "application/json")
    assert (made["model_id"], made["model_sha"], made["max_concurrent_requests"]) == ("org/model", "main", 7)
    assert (made["max_total_tokens"], made["max_input_tokens"], made["max_best_of"]) == (2048, 2047, 16)
    assert (made["router"], made["version"]) == ("vllm", "0.23.0")


@pytest.mark.anyio
@pytest.mark.parametrize("healthy", [True, False])
async def test_health(healthy: bool) -> None:
    """TGI's documented 503; /ping keeps SageMaker's."""
    engine = ScriptedEngine()
    engine.healthy = healthy
    transport = httpx.ASGITransport(application(Service(SETTINGS, engine)))
    async with httpx.AsyncClient(transport=transport, base_url="http://local") as client:
        health, ping = await client.get("/health"), await client.get("/ping")
    assert health.status_code == ping.status_code == (200 if healthy else 503)
    assert ping.json() == ({"status": "Healthy"} if healthy else {"status": "Unhealthy", "reason": engine.down_reason})
    if not healthy:
        assert health.json() == {"error": "unhealthy", "error_type": "healthcheck"}
        check(health.json(), ERROR)
