"""Azure's requests on every host, told by the attribute or the query; and the local server's routes for its clients."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from ..demo.model import question
from ..formatters.test_azure import NOT_FOUND, OTHER, PNG, SAMPLE_RESPONSE, UNPROCESSABLE
from ..kit.answers.shapes import shape_of
from ..kit.hosts.host import Host, Server

pytestmark = [pytest.mark.engine, pytest.mark.djl]

ASKED = question("plain")
USER = {"role": "user", "content": ASKED.prompt}
IMAGE = {"role": "user", "content": [{"type": "image", "content": PNG}]}
VERSION = {"api-version": "2024-04-01-preview"}
ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
AZURE = {ATTRIBUTES: "dialect=azure"}
only_server = pytest.mark.parametrize("host", ["server"], indirect=True)


@pytest.fixture
def http(host: Host) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=host.url, timeout=120) as client:
        yield client


def ask(http: httpx.Client, /, headers: dict[str, str] = AZURE, **fields: Any) -> httpx.Response:
    return http.post("/invocations", json={"messages": [USER], "temperature": 0, **fields}, headers=headers)


def chunks_of(response: httpx.Response) -> list[Any]:
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    *events, done, empty = response.text.split("\n\n")
    assert (done, empty) == ("data: [DONE]", "")
    assert all(event.startswith("data: ") and "\n" not in event for event in events)
    return [json.loads(event.removeprefix("data: ")) for event in events]


def documented(body: Any) -> Any:
    """The shape of an answer without the reasoning, which Azure's document does not have: the host has a parser of
    it."""
    for name in ("reasoning", "reasoning_content"):
        del body["choices"][0]["message"][name]
    return shape_of(body)


def test_a_whole_answer(http: httpx.Client) -> None:
    answer = ask(http)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("application/json")
    body = answer.json()
    assert documented(body) == shape_of(SAMPLE_RESPONSE)
    assert body["choices"][0]["message"]["content"] == ASKED.answer
    assert body["choices"][0]["finish_reason"] == "stop"


def test_a_stream(http: httpx.Client) -> None:
    chunks = chunks_of(ask(http, stream=True))
    assert len({chunk["id"] for chunk in chunks}) == 1
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    assert "".join(choice["delta"].get("content", "") for choice in choices) == ASKED.answer
    assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["stop"]
    assert choices[-1]["finish_reason"] == "stop"


def test_a_call(http: httpx.Client) -> None:
    """Finished or not: without an option that forbids it, this model may go on with white space."""
    tool = {"type": "function", "function": {"name": "pick", "parameters": {"type": "object", "required": ["city"]}}}
    named = {"type": "function", "function": {"name": "pick"}}
    answer = ask(http, tools=[tool], tool_choice=named, max_tokens=40)
    choice = answer.json()["choices"][0]
    assert list(choice["message"]) == ["role", "content", "tool_calls", "reasoning", "reasoning_content"]
    (call,) = choice["message"]["tool_calls"]
    assert (list(call), call["type"]) == (["id", "function", "type"], "function")
    assert call["function"]["name"] == "pick"
    assert call["function"]["arguments"].startswith("{")
    finished = call["function"]["arguments"].endswith("}")
    assert choice["finish_reason"] == ("tool_calls" if finished else "length")


def test_a_schema(http: httpx.Client) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "city", "schema": {"enum": ["Paris", "Rome"]}}}
    # The demo model would rather think than name a city, and a guide lets it.
    headers = {**AZURE, "extra-parameters": "pass-through"}
    answer = ask(http, headers, response_format=wanted, chat_template_kwargs={"enable_thinking": False})
    choice = answer.json()["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) in {('"Paris"', "stop"), ('"Rome"', "stop")}


REFUSED: dict[str, tuple[dict[str, Any], int, dict[str, Any]]] = {
    "role": ({"messages": [{"role": "boss", "content": "hi"}]}, 422, UNPROCESSABLE),
    "temperature": ({"temperature": -1}, 422, UNPROCESSABLE),
    "image": ({"messages": [IMAGE]}, 422, UNPROCESSABLE),
    "part": ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, 422, UNPROCESSABLE),
    "extra": ({"top_k": 5}, 400, OTHER),
    "tokens": ({"max_tokens": 100_000}, 422, UNPROCESSABLE),
    "context": ({"messages": [{"role": "user", "content": "word " * 8000}]}, 400, OTHER),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_refused(host: Host, http: httpx.Client, kind: str, stream: bool) -> None:
    """The status and the code travel through DJL; the body is Java's (docs/decisions.md: Errors behind DJL Serving)."""
    fields, status, documented = REFUSED[kind]
    answer = ask(http, **fields, stream=stream)
    assert answer.status_code == status
    assert answer.headers["content-type"].startswith("application/json")
    assert answer.headers["x-ms-error-code"]
    body = answer.json()
    if isinstance(host, Server):
        assert list(body) == list(documented)
        assert body["status"] == status
        assert body.get("code", answer.headers["x-ms-error-code"]) == answer.headers["x-ms-error-code"]
    else:
        assert set(body) == {"error", "code"}
        assert body["code"] == status
        assert isinstance(body["error"], str)


def test_headers_as_attributes(http: httpx.Client) -> None:
    """SageMaker hands custom attributes over, but no headers of other names."""
    attributes = "dialect=azure;extra-parameters=pass-through"
    answer = ask(http, {ATTRIBUTES: attributes}, n=2)
    assert [choice["index"] for choice in answer.json()["choices"]] == [0, 1]
    answer = ask(http, {**AZURE, "Extra-Parameters": "ignore"}, n=2)
    assert len(answer.json()["choices"]) == 1
    assert ask(http, {**AZURE, "azureml-model-deployment": "another"}).status_code == 404


@pytest.mark.parametrize("host", ["server", "async"], indirect=True)
@pytest.mark.parametrize("path", ["/invocations", "/predictions/model"])
def test_the_query_tells_the_dialect(http: httpx.Client, path: str) -> None:
    answer = http.post(path, params=VERSION, json={"messages": [USER], "temperature": 0})
    assert documented(answer.json()) == shape_of(SAMPLE_RESPONSE)
    for content, version in [(b"{", VERSION), (b'{"messages": []}', {"api-version": "soon"})]:
        refused = http.post(path, params=version, content=content, headers={"content-type": "application/json"})
        assert refused.status_code == 400
        assert refused.headers["x-ms-error-code"] == "invalid_payload"


@pytest.mark.parametrize("host", ["rolling"], indirect=True)
def test_a_rolling_batch_does_not_see_the_query(http: httpx.Client) -> None:
    """Java hands over the body and the properties alone: what tells the dialect is then the body, which is OpenAI's."""
    answer = http.post("/invocations", params=VERSION, json={"messages": [USER], "temperature": 0})
    assert "stop_reason" in answer.json()["choices"][0]


@only_server
def test_azures_routes(http: httpx.Client) -> None:
    body = {"messages": [USER], "temperature": 0}
    answer = http.post("/chat/completions", params=VERSION, json=body)
    assert documented(answer.json()) == shape_of(SAMPLE_RESPONSE)
    chunks = chunks_of(http.post("/chat/completions", params=VERSION, json={**body, "stream": True}))
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    info = http.get("/info", params=VERSION).json()
    assert (info["model_name"], info["model_type"]) == (answer.json()["model"], "chat_completion")
    refused = http.post("/chat/completions", params={"api-version": "1"}, json=body)
    assert refused.status_code == 400
    assert refused.json()["param"] == "api-version"


@only_server
@pytest.mark.parametrize("path", ["/embeddings", "/images/embeddings", "/completions"])
def test_routes_of_other_models(http: httpx.Client, path: str) -> None:
    refused = http.post(path, params=VERSION, json={"input": ["a"], "inputs": "a"})
    assert refused.status_code == 404
    assert refused.headers["x-ms-error-code"] == "not_found"
    assert shape_of(refused.json()) == shape_of(NOT_FOUND)
    # Without a version the path is nobody's; that the body could be read as LMI's does not matter.
    assert http.post(path, json={"inputs": "a"}).status_code == 404
