"""Azure AI Model Inference: what is asked of the engine, the answers, every error; no engine is needed."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from lmi.formatters import ParsedRequest, Request, Response, azure, receive, route_of
from lmi.formatters.azure.errors import error_response

from ..kit.answers.events import feed
from ..kit.answers.shapes import shape_of
from ..kit.api.errors import (
    ContextError,
    ForbiddenError,
    GenerationError,
    LmiError,
    NotFoundError,
    OverloadedError,
    ParameterError,
    TimeLimitError,
    TooLargeError,
    UnauthorizedError,
    UnavailableError,
    UnsupportedError,
)
from ..kit.api.options import typed_settings
from ..kit.api.types import (
    JSON,
    SSE,
    CallDelta,
    Conversation,
    Delta,
    EngineInfo,
    Event,
    Failed,
    Finish,
    FinishReason,
    Generation,
    ResponseEncoder,
    Settings,
    Started,
    Token,
    said,
)
from ..kit.rows import each_row

SETTINGS = typed_settings(model_name="llama2-70b-chat")
REASONING = msgspec.structs.replace(SETTINGS, reasoning_parser="qwen3")
INFO = EngineInfo(engine="vllm", version="1", context=2048)
PATH = "/chat/completions"
VERSION = {"api-version": "2024-04-01-preview"}
PASS = {"extra-parameters": "pass-through"}
USER: dict[str, Any] = {"role": "user", "content": "hi"}
WEATHER: dict[str, Any] = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
DONE = b"data: [DONE]\n\n"


def request(
    body: Any, headers: Mapping[str, str] | None = None, query: Mapping[str, str] = VERSION, path: str = PATH
) -> Request:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Request(content, headers=headers or {}, query=query, path=path)


def call(headers: Mapping[str, str] | None = None, settings: Settings = SETTINGS, /, **fields: Any) -> ParsedRequest:
    received = receive(request({"messages": [USER], **fields}, headers), settings)
    assert isinstance(received, ParsedRequest), received
    return received


def asked(headers: Mapping[str, str] | None = None, /, **fields: Any) -> Generation:
    (generation,) = call(headers, **fields).generations
    return generation


def refused(body: Any, headers: Mapping[str, str] | None = None, query: Mapping[str, str] = VERSION) -> Response:
    answer = receive(request(body, headers, query), SETTINGS)
    assert isinstance(answer, Response)
    return answer


def whole(reply: ResponseEncoder, *events: Event) -> Any:
    (body,) = feed(reply, *events)
    assert reply.finished
    assert (reply.status, reply.content_type, dict(reply.headers)) == (200, JSON, {})
    return json.loads(body)


def end(reason: FinishReason = "eos", count: int = 5) -> Finish:
    return Finish(reason, generated_tokens=count)


# --- The sample of Azure's reference, Examples ---

SAMPLE_REQUEST: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "You are a helpful assistant"},
        {"role": "user", "content": "Explain Riemann's conjecture"},
        {"role": "assistant", "content": "The Riemann Conjecture is a deep mathematical conjecture"},
        {"role": "user", "content": "Ist it proved?"},
    ],
    "frequency_penalty": 0,
    "presence_penalty": 0,
    "max_tokens": 256,
    "seed": 42,
    "stop": "<|endoftext|>",
    "stream": False,
    "temperature": 0,
    "top_p": 1,
    "response_format": {"type": "text"},
}

SAMPLE_RESPONSE: dict[str, Any] = {
    "id": "1234567890",
    "model": "llama2-70b-chat",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": "No, it has never been proved"},
        }
    ],
    "created": 1234567890,
    "object": "chat.completion",
    "usage": {"prompt_tokens": 205, "completion_tokens": 5, "total_tokens": 210},
}


def test_the_sample() -> None:
    received = call(**SAMPLE_REQUEST)
    (generation,) = received.generations
    assert isinstance(generation.prompt, Conversation)
    assert said(generation.prompt) == SAMPLE_REQUEST["messages"]
    sampling = generation.sampling
    assert (sampling.frequency_penalty, sampling.presence_penalty, sampling.temperature, sampling.top_p) == (0, 0, 0, 1)
    assert (sampling.max_tokens, sampling.seed, sampling.stop, sampling.structured_output) == (
        256,
        42,
        ("<|endoftext|>",),
        None,
    )
    assert not generation.stream
    body = whole(received.reply, Started(205), Delta(0, "No, it has never been proved", (), end()))
    assert shape_of(body) == shape_of(SAMPLE_RESPONSE)
    assert body | {"id": "", "created": 0} == SAMPLE_RESPONSE | {"id": "", "created": 0}


def test_the_rest_of_the_context_without_max_tokens() -> None:
    """Azure's reference, Request Body: null is the model's max context length."""
    assert asked().sampling.max_tokens is None
    assert asked(max_tokens=None).sampling.max_tokens is None
    assert asked().overflow == "refuse"


def test_tool_calls() -> None:
    """Azure's reference, ChatCompletionResponseMessage, ChatCompletionMessageToolCall, Function."""
    received = call(tools=[WEATHER], tool_choice="required")
    (generation,) = received.generations
    assert isinstance(generation.prompt, Conversation)
    assert (generation.prompt.tools, generation.prompt.tool_choice) == ((WEATHER,), "required")
    body = whole(
        received.reply,
        Started(1),
        Delta(
            0, "", (), end(), calls=(CallDelta(0, "call_1", "get_weather", '{"city":'), CallDelta(0, arguments="1}"))
        ),
    )
    assert body["choices"][0]["message"] == {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "call_1", "function": {"name": "get_weather", "arguments": '{"city":1}'}, "type": "function"}
        ],
    }


def test_a_stream() -> None:
    """Chunks are OpenAI's, and [DONE] ends them (docs/decisions.md: Azure responses)."""
    received = call(stream=True)
    assert received.generations[0].stream
    records = feed(received.reply, Started(3), Delta(0, "No, "), Delta(0, "never", (), end()))
    assert (received.reply.status, received.reply.content_type) == (200, SSE)
    assert records[-1] == DONE
    chunks = [json.loads(record.removeprefix(b"data: ")) for record in records[:-1]]
    for chunk in chunks:
        assert list(chunk) == ["id", "object", "created", "model", "choices"]
        assert (chunk["object"], chunk["model"]) == ("chat.completion.chunk", "llama2-70b-chat")
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas == [{"role": "assistant", "content": ""}, {"content": "No, "}, {"content": "never"}]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, "stop"]


def test_reasoning_and_logprobs_where_they_are_asked_for() -> None:
    received = call(PASS, REASONING, logprobs=True, top_logprobs=0)
    token = Token(7, "hi", -0.5, raw=b"hi")
    body = whole(received.reply, Started(1), Delta(0, "hi", (token,), end(), reasoning="Hm."))
    choice = body["choices"][0]
    assert list(choice) == ["index", "finish_reason", "message", "logprobs"]
    assert choice["message"] == {"role": "assistant", "content": "hi", "reasoning": "Hm.", "reasoning_content": "Hm."}
    assert choice["logprobs"]["content"][0]["token"] == "hi"


def test_several_choices() -> None:
    """Azure's reference, Choices: can be more than one if `n` is greater than 1."""
    body = whole(
        call(PASS, n=2).reply,
        Started(1),
        Delta(1, "b", (), Finish("eos", generated_tokens=1, last=False)),
        Delta(0, "a", (), end(count=2)),
    )
    assert [(one["index"], one["message"]["content"]) for one in body["choices"]] == [(0, "a"), (1, "b")]
    assert body["usage"] == {"prompt_tokens": 1, "completion_tokens": 3, "total_tokens": 4}


# --- Versions, headers, extra parameters ---


MALFORMED = ["", "1", "latest", "2024-4-1", "2024-04-01-Preview", "2024-04-01-preview2", "2024-13-01", "2024-02-30"]
MALFORMED += ["20240401", "2024-04-01\n", "٢٠٢٤-04-01"]


@each_row("version", ["2024-04-01", "2024-04-01-preview", "2099-12-31"])
def test_versions(version: str) -> None:
    assert isinstance(receive(request({"messages": [USER]}, query={"api-version": version}), SETTINGS), ParsedRequest)


@each_row("version", MALFORMED)
def test_malformed_versions(version: str) -> None:
    answer = refused({"messages": [USER]}, query={"api-version": version})
    assert answer.status == 400
    assert json.loads(answer.body)["param"] == "api-version"


def test_no_version_where_the_dialect_is_named() -> None:
    """A rolling batch of DJL does not hand the query over."""
    named = Request(json.dumps({"messages": [USER]}).encode(), attributes={"dialect": "azure"})
    received = receive(named, SETTINGS)
    assert isinstance(received, ParsedRequest)
    assert list(whole(received.reply, Started(1), Delta(0, "hi", (), end()))) == list(SAMPLE_RESPONSE)


EVERY_FIELD: dict[str, Any] = {**SAMPLE_REQUEST, "tools": [WEATHER], "tool_choice": "auto", "model": "any"}


def test_what_is_no_extra_parameter() -> None:
    """Azure's reference, Request Body; and `model` (docs/decisions.md: Azure requests)."""
    for name, value in EVERY_FIELD.items():
        fields = {"messages": [USER], "tools": [WEATHER], name: value}
        assert isinstance(receive(request(fields), SETTINGS), ParsedRequest), name


@each_row("headers", [{}, {"extra-parameters": "error"}, {"extra-parameters": " Error "}])
@each_row("name", ["n", "top_k", "logprobs", "safe_mode", "safe mode\n"])
def test_extra_parameters_are_errors(headers: dict[str, str], name: str) -> None:
    """Azure's reference, Request Header: only parameters specified in this API, or a 400 error is returned."""
    answer = refused({"messages": [USER], name: 1}, headers)
    assert answer.status == 400
    body = json.loads(answer.body)
    assert body["param"] == name.strip()
    assert "extra-parameters: pass-through" in body["message"]
    assert isinstance(receive(request({"messages": [USER], name: None}, headers), SETTINGS), ParsedRequest)


@each_row("mode", ["ignore", "drop", "Ignore"])
def test_extra_parameters_are_dropped(mode: str) -> None:
    made = asked({"extra-parameters": mode}, top_k=5, n="many", safe_mode=True, functions=5, temperature=0.5)
    assert (made.sampling.top_k, made.sampling.n, made.sampling.temperature) == (None, 1, 0.5)


def test_extra_parameters_pass_through() -> None:
    made = asked(PASS, top_k=5, n=2, safe_mode=True, min_p=0.1)
    assert (made.sampling.top_k, made.sampling.n, made.sampling.min_p) == (5, 2, 0.1)
    assert refused({"messages": [USER], "n": "many"}, PASS).status == 400
    for name, value in [("top_k", -5), ("functions", [{"name": "f"}]), ("prompt_logprobs", 1), ("audio", {})]:
        answer = refused({"messages": [USER], name: value}, PASS)
        assert answer.status == 422
        assert json.loads(answer.body)["detail"]["loc"] == [name]


def test_a_mode_that_is_none() -> None:
    answer = refused({"messages": [USER]}, {"extra-parameters": "perhaps"})
    assert answer.status == 400
    assert "expected pass-through, ignore or error, got 'perhaps'" in json.loads(answer.body)["message"]


def test_headers_may_come_as_attributes() -> None:
    attributes = {"dialect": "azure", "extra-parameters": "pass-through"}
    body = json.dumps({"messages": [USER], "top_k": 5}).encode()
    assert isinstance(receive(Request(body, attributes=attributes), SETTINGS), ParsedRequest)


@each_row(("name", "status"), [("llama2-70b-chat", 200), ("", 200), ("other", 404)])
def test_deployments(name: str, status: int) -> None:
    received = receive(request({"messages": [USER]}, {"azureml-model-deployment": name}), SETTINGS)
    assert (received.status if isinstance(received, Response) else 200) == status
    if isinstance(received, Response):
        assert shape_of(json.loads(received.body)) == shape_of(NOT_FOUND)


# --- Parts ---

PNG = b64encode(b"\x89PNG\r\n\x1a\n" + bytes(8)).decode()
URL = "https://example.com/a.png"
TEXT_PART = {"type": "text", "text": "What is this?"}


def image(url: str) -> list[dict[str, Any]]:
    return [{"type": "image_url", "image_url": {"url": url}}]


@each_row(
    ("part", "read"),
    [
        (TEXT_PART, "What is this?"),
        ({"type": "text", "content": "What is this?"}, "What is this?"),
        ({"type": "text", "content": "What is this?", "text": None, "detail": "auto"}, "What is this?"),
        ({"type": "image_url", "content": URL}, image(URL)),
        ({"type": "image", "content": URL, "detail": "low"}, image(URL)),
        ({"type": "image", "content": PNG, "detail": "high"}, image(f"data:image/png;base64,{PNG}")),
        ({"type": "image", "image_url": {"url": URL}}, image(URL)),
        # The same by both of its names.
        ({"type": "text", "content": "What is this?", "text": "What is this?"}, "What is this?"),
        ({"type": "image", "content": URL, "image_url": {"url": URL}}, image(URL)),
    ],
)
def test_parts(part: dict[str, Any], read: Any) -> None:
    """The reference's ChatCompletionMessageContentPart; and what Azure's client sends, which is OpenAI's form."""
    prompt = asked(messages=[{"role": "user", "content": [part]}]).prompt
    assert said(prompt) == [{"role": "user", "content": read}]


@each_row(
    ("part", "place", "value"),
    [
        ({"type": "image", "content": "nonsense!"}, "content", "nonsense!"),
        ({"type": "text", "content": "a", "text": "b"}, "content", "a"),
        ({"type": "image", "content": URL, "image_url": {"url": f"{URL}A"}}, "content", URL),
        ({"type": "image", "content": URL, "detail": "fine"}, "detail", "fine"),
        ({"type": "video_url", "video_url": {"url": URL}}, "type", "video_url"),
        ({"type": 5}, "type", "5"),
        ({"type": "text"}, "text", ""),
        ("hi", None, "hi"),
    ],
)
def test_parts_that_are_refused(part: Any, place: str | None, value: str) -> None:
    answer = refused({"messages": [USER, {"role": "user", "content": [part]}]})
    assert answer.status == 422
    loc = ["messages", "1", "content", "0", *([place] if place else [])]
    assert json.loads(answer.body)["detail"] == {"loc": loc, "value": value}


# --- Errors: the tables of Azure's reference, as values of their types ---

UNAUTHORIZED: dict[str, Any] = {"error": "", "message": "", "status": 401}
NOT_FOUND: dict[str, Any] = {"error": "", "message": "", "status": 404}
TOO_MANY: dict[str, Any] = {"error": "", "message": "", "status": 429}
UNPROCESSABLE: dict[str, Any] = {
    "code": "",
    "detail": {"loc": [""], "value": ""},
    "error": "",
    "message": "",
    "status": 422,
}
OTHER: dict[str, Any] = {"code": "", "error": "", "message": "", "param": "", "status": 400}
"""ContentFilterError: Azure's reference, Responses, Other Status Codes."""


class ContentFilterError(ParameterError):
    """Of the kind that the content filter raises."""

    code = "content_filter"


TOLD: list[tuple[LmiError, int, str, dict[str, Any]]] = [
    (UnauthorizedError("the API key is missing"), 401, "unauthorized", UNAUTHORIZED),
    (ForbiddenError("Host: no", "Host"), 403, "forbidden", OTHER),
    (NotFoundError("no such deployment"), 404, "not_found", NOT_FOUND),
    (OverloadedError("too many requests"), 429, "rate_limit_exceeded", TOO_MANY),
    (ParameterError("temperature: no", "temperature"), 422, "invalid_parameter", UNPROCESSABLE),
    (ContextError("messages: too long", "messages"), 400, "context_length_exceeded", OTHER),
    (ContentFilterError("messages: refused", "messages"), 400, "content_filter", OTHER),
    (GenerationError("the engine failed"), 500, "generation_failed", OTHER),
    (UnavailableError("the engine is starting"), 503, "engine_unavailable", OTHER),
    (TooLargeError("too long"), 413, "request_too_large", OTHER),
    (TimeLimitError("too slow"), 504, "time_limit_exceeded", OTHER),
]


@each_row(("error", "status", "code", "documented"), TOLD, ids=lambda value: type(value).__name__)
@each_row("stream", [False, True])
def test_errors(error: LmiError, status: int, code: str, documented: dict[str, Any], stream: bool) -> None:
    answer = azure.refuse(error, {"temperature": 5, "stream": stream}, request({}), SETTINGS)
    assert (answer.status, answer.content_type, answer.failure) == (status, JSON, error)
    assert answer.headers == {"x-ms-error-code": code}
    body = json.loads(answer.body)
    assert shape_of(body) == shape_of(documented)
    assert (body["message"], body["status"]) == (error.message, status)
    assert body.get("code", code) == code
    assert body.get("param", error.param or "") == (error.param or "")


@each_row(
    "error", [told[0] for told in TOLD if not isinstance(told[0], ContentFilterError)], ids=lambda error: error.kind
)
@each_row("stream", [False, True])
def test_errors_of_the_engine_before_the_first_record(error: LmiError, stream: bool) -> None:
    reply = call(stream=stream, temperature=0.5).reply
    (body,) = feed(reply, Failed.of(error))
    answer = error_response(error, {"messages": [USER], "stream": stream, "temperature": 0.5}, {})
    assert body == answer.body
    assert (reply.status, reply.content_type, reply.headers) == (answer.status, JSON, answer.headers)
    assert reply.failure is not None
    assert reply.failure.kind == error.kind


def test_an_error_within_a_stream() -> None:
    reply = call(stream=True).reply
    records = feed(reply, Started(1), Delta(0, "No"), Failed.of(GenerationError("gone")))
    assert records[-1] == DONE
    error = json.loads(records[-2].removeprefix(b"data: "))
    assert error == {"error": {"message": "gone", "type": "server_error", "param": None, "code": "generation_failed"}}
    assert reply.status == 200


REFUSED: list[tuple[dict[str, Any], int, list[str], str]] = [
    ({"messages": [{"role": "boss", "content": "hi"}]}, 422, ["messages", "0", "role"], "boss"),
    ({"messages": [{"role": "function", "name": "f", "content": ""}]}, 422, ["messages", "0", "role"], "function"),
    ({"messages": [USER, {"role": "user"}]}, 422, ["messages", "1", "content"], ""),
    ({"messages": []}, 422, ["messages"], "[]"),
    ({"temperature": -1}, 422, ["temperature"], "-1"),
    ({"stop": ["", "a"]}, 422, ["stop", "0"], ""),
    ({"tool_choice": "required"}, 422, ["tool_choice"], "required"),
    ({"tools": [{"type": "browser"}]}, 422, ["tools", "0", "type"], "browser"),
    ({"messages": [{"role": "x" * 500, "content": ""}]}, 422, ["messages", "0", "role"], "x" * 120 + "..."),
    ({"messages": None}, 400, [], ""),
    ({"stream": "yes"}, 400, [], ""),
]


@each_row(("fields", "status", "loc", "value"), REFUSED, ids=lambda value: str(value)[:40])
@each_row("stream", [False, True])
def test_what_is_refused(fields: dict[str, Any], status: int, loc: list[str], value: str, stream: bool) -> None:
    answer = refused({"messages": [USER], "stream": stream, **fields})
    assert answer.status == status
    assert answer.headers["x-ms-error-code"]
    body = json.loads(answer.body)
    if status == 422:
        assert list(body) == list(UNPROCESSABLE)
        assert body["detail"] == {"loc": loc, "value": value}
    else:
        assert shape_of(body) == shape_of(OTHER)
        assert body["param"] == next(iter(fields))


def test_a_body_that_is_not_json() -> None:
    answer = refused(b"hello")
    assert answer.status == 400
    assert answer.headers == {"x-ms-error-code": "invalid_payload"}
    assert shape_of(json.loads(answer.body)) == shape_of(OTHER)


@each_row(
    ("error", "words"),
    [(TooLargeError("too long"), "Content Too Large"), (ParameterError("no", "stop"), "Unprocessable Content")],
)
def test_words_of_a_status_are_the_same_on_every_python(error: LmiError, words: str) -> None:
    assert json.loads(error_response(error, {}, {}).body)["error"] == words


places = st.lists(st.sampled_from(["messages", "[0]", "[9]", ".role", ".content", "temperature", "x-y"]), max_size=4)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["messages", "role"]), inner),
    max_leaves=6,
)


@given(places, st.dictionaries(st.sampled_from(["messages", "temperature"]), values))
def test_a_detail_is_made_of_strings(place: list[str], payload: dict[str, Any]) -> None:
    answer = error_response(ParameterError("no", "".join(place)), payload, {"x-y": "z"})
    detail = json.loads(answer.body)["detail"]
    assert all(isinstance(step, str) and step for step in detail["loc"])
    assert isinstance(detail["value"], str)
    assert len(detail["value"]) <= 123


def test_a_detail_without_a_place_has_no_value() -> None:
    answer = error_response(UnsupportedError("this model generates no text"), {"messages": [USER]}, {})
    assert json.loads(answer.body)["detail"] == {"loc": [], "value": ""}


def test_a_detail_of_a_header() -> None:
    header = "X-Amzn-SageMaker-Session-Id"
    answer = error_response(UnsupportedError("no such session", header), {"messages": [USER]}, {header.lower(): "7"})
    assert json.loads(answer.body)["detail"] == {"loc": ["X-Amzn-SageMaker-Session-Id"], "value": "7"}


# --- Pages ---


def page(path: str, method: str, query: Mapping[str, str] = VERSION, settings: Settings = SETTINGS) -> Response:
    asked_for = Request(b"", path=path, method=method, query=query)
    found = route_of(asked_for)
    assert found is not None
    assert found[0] is azure.DIALECT
    assert found[1].page is not None
    return found[1].page(asked_for, settings, INFO)


def test_info() -> None:
    """The fields of azure-ai-inference's ModelInfo, all required strings."""
    answer = page("/info", "GET")
    assert (answer.status, answer.content_type) == (200, JSON)
    assert json.loads(answer.body) == {
        "model_name": "llama2-70b-chat",
        "model_type": "chat_completion",
        "model_provider_name": "lmi",
    }
    assert page("/info", "GET", {"api-version": "now"}).status == 400


@each_row("path", ["/embeddings", "/images/embeddings", "/images/generations", "/completions"])
def test_routes_of_other_models(path: str) -> None:
    """Azure's reference, Responses, 404: modality not supported by the model."""
    answer = page(path, "POST")
    assert answer.status == 404
    assert answer.headers == {"x-ms-error-code": "not_found"}
    assert shape_of(json.loads(answer.body)) == shape_of(NOT_FOUND)
    assert path in json.loads(answer.body)["message"]


def test_a_model_that_embeds_says_so() -> None:
    embeds = typed_settings(task="embed")
    assert json.loads(page("/info", "GET", settings=embeds).body)["model_type"] == "embeddings"
    message = json.loads(page("/embeddings", "POST", settings=embeds).body)["message"]
    assert message == "/embeddings: not supported by the model, which makes embeddings: POST /v1/embeddings"
