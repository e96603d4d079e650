"""The minimal chat API on every host, told by the attribute; and its own routes on the local server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from openai._streaming import SSEDecoder

from ..demo.model import question
from ..formatters.test_minimal import SAMPLE_ERROR, SAMPLE_ERROR_LINE, SAMPLE_LINES, SAMPLE_WHOLE
from ..kit.answers.shapes import shape_of
from ..kit.hosts.host import Host, Server

pytestmark = [pytest.mark.engine, pytest.mark.djl]

ASKED = question("unicode")
BODY: dict[str, Any] = {
    "model": "model-name",
    "messages": [{"role": "user", "content": ASKED.prompt}],
    "temperature": 0,
}
BAD: dict[str, Any] = {**BODY, "temperature": -1}
MINIMAL = {"X-Amzn-SageMaker-Custom-Attributes": "dialect=minimal"}
EVENTS = {**MINIMAL, "Accept": "text/event-stream"}
only_server = pytest.mark.parametrize("host", ["server"], indirect=True)


@pytest.fixture
def http(host: Host) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=host.url, timeout=120) as client:
        yield client


def events_of(response: httpx.Response) -> list[tuple[str | None, str]]:
    """Read by a parser that was not written for this API."""
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    return [(event.event, event.data) for event in SSEDecoder().iter_bytes(iter([response.content]))]


def check_whole(response: httpx.Response) -> None:
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("application/json")
    body = response.json()
    assert shape_of(body) == shape_of(SAMPLE_WHOLE)
    assert (body["model"], body["message"]["content"]) == ("model-name", ASKED.answer)


def check_lines(response: httpx.Response) -> None:
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("application/json")
    assert response.headers["transfer-encoding"] == "chunked"
    assert "no-cache" in response.headers["cache-control"]
    assert response.headers.get("connection", "keep-alive") == "keep-alive"
    *lines, rest = response.text.split("\n")
    assert rest == ""
    documents = [json.loads(line) for line in lines]
    assert all(shape_of(one) == shape_of(json.loads(SAMPLE_LINES[0])) for one in documents)
    assert "".join(one["message"]["content"] for one in documents) == ASKED.answer
    assert [one["index"] for one in documents] == list(range(len(documents)))
    assert [one["done"] for one in documents] == [False] * (len(documents) - 1) + [True]
    assert len(documents) > 5


def check_events(response: httpx.Response) -> None:
    *events, last = events_of(response)
    assert "no-cache" in response.headers["cache-control"]
    assert last == (None, "[END]")
    assert {kind for kind, _ in events} == {None}
    documents = [json.loads(data) for _, data in events]
    assert all(shape_of(one) == shape_of(json.loads(SAMPLE_LINES[0])) for one in documents)
    assert "".join(one["message"]["content"] for one in documents) == ASKED.answer
    assert [(one["index"], one["done"]) for one in documents] == [(index, False) for index in range(len(documents))]
    assert len(documents) > 5


def check_event_error(response: httpx.Response, named: str) -> None:
    (kind, data), last = events_of(response)
    assert (kind, last) == ("error", (None, "[END]"))
    assert shape_of(json.loads(data)) == shape_of(SAMPLE_ERROR["error"])
    assert named in json.loads(data)["message"]


def test_the_three_forms(http: httpx.Client) -> None:
    check_whole(http.post("/invocations", json=BODY, headers=MINIMAL))
    check_lines(http.post("/invocations", json={**BODY, "stream": True}, headers=MINIMAL))
    check_events(http.post("/invocations", json={**BODY, "stream": True}, headers=EVENTS))


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "lines"])
def test_errors(host: Host, http: httpx.Client, stream: bool) -> None:
    """The status travels through DJL; the body is Java's (docs/decisions.md: Errors behind DJL Serving)."""
    refused = http.post("/invocations", json={**BAD, "stream": stream}, headers=MINIMAL)
    assert refused.status_code == 400
    assert refused.headers["content-type"].startswith("application/json")
    body = refused.json()
    if isinstance(host, Server):
        assert shape_of(body) == shape_of(SAMPLE_ERROR_LINE if stream else SAMPLE_ERROR)
        assert refused.text.endswith("\n") is stream
        assert body["error"]["message"].startswith("temperature: ")
    else:
        assert set(body) == {"error", "code"}
        assert body["error"].startswith("temperature: ")


def test_errors_as_events(http: httpx.Client) -> None:
    """Whole on every host: their status is 200."""
    check_event_error(http.post("/invocations", json={**BAD, "stream": True}, headers=EVENTS), "temperature: ")
    # Found by the engine's side only.
    long = {**BODY, "stream": True, "max_tokens": 100_000}
    check_event_error(http.post("/invocations", json=long, headers=EVENTS), "max_tokens: ")


@only_server
def test_routes(http: httpx.Client) -> None:
    check_whole(http.post("/chat/completions", json=BODY))
    check_whole(http.post("/chat/completions", json={**BODY, "stream": False}))
    check_lines(http.post("/chat/completions", json={**BODY, "stream": True}))
    check_events(http.post("/chat/sse", json=BODY))
    check_events(http.get("/chat/sse", params={"request": json.dumps(BODY)}))


@only_server
def test_errors_of_routes(http: httpx.Client) -> None:
    for stream, documented in [(False, SAMPLE_ERROR), (True, SAMPLE_ERROR_LINE)]:
        refused = http.post("/chat/completions", json={**BAD, "stream": stream})
        assert refused.status_code == 400
        assert shape_of(refused.json()) == shape_of(documented)
    unread = http.post("/chat/completions", content=b"{", headers={"content-type": "application/json"})
    assert unread.status_code == 400
    assert shape_of(unread.json()) == shape_of(SAMPLE_ERROR)
    check_event_error(http.post("/chat/sse", json=BAD), "temperature: ")
    check_event_error(http.get("/chat/sse", params={"request": "{"}), "JSON")
    check_event_error(http.get("/chat/sse"), "request: expected the request as JSON in this query parameter")
    assert http.get("/chat/completions").status_code == 405
