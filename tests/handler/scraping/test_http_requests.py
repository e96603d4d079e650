"""HTTP requests are counted as prometheus-fastapi-instrumentator counts them, by which vLLM's own server does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from starlette.applications import Starlette

from ...kit.api.types import Delta, Finish, Started, Token
from ...kit.hosts.local_server import Make, Running, serving
from ...kit.metered import Sample, parsed

NAMES = ("http_requests_total", "http_request_duration_seconds_count")
VLLMS = ["/metrics", "/health", "/load", "/ping", "/version", "/server_info"]
"""What vLLM's server does not count (vllm/entrypoints/serve/instrumentator/metrics.py)."""
REQUESTS = [
    ("GET", "/ping"),
    ("GET", "/health"),
    ("GET", "/metrics"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models"),
    ("HEAD", "/v1/models"),
    ("GET", "/v1/models/made-up"),
    ("DELETE", "/v1/models"),
    ("GET", "/nowhere"),
    ("POST", "/nowhere/at/all"),
    ("POST", "/invocations"),
    ("POST", "/predictions/mine"),
    ("POST", "/v1/chat/completions"),
    ("PUT", "/"),
]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with serving(tmp_path) as make:
        yield make


def counted(text: str) -> dict[Sample, float]:
    return {key: value for key, value in parsed(text).items() if key[0] in NAMES}


def asked(server: Running, headers: dict[str, str]) -> dict[Sample, float]:
    """What a server has counted when it has answered all of them."""
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", headers=headers) as http:
        for method, path in REQUESTS:
            http.request(method, path)
        return counted(http.get("/metrics").text)


@pytest.mark.engine
def test_as_the_instrumentator_counts(make: Make) -> None:
    from prometheus_fastapi_instrumentator.middleware import PrometheusInstrumentatorMiddleware

    registry = CollectorRegistry()

    def watched(app: Starlette) -> None:
        app.add_middleware(PrometheusInstrumentatorMiddleware, excluded_handlers=VLLMS, registry=registry)

    # What goes past ASGI (handler/server/connections/direct.py) is nothing to a middleware: TE has it go there.
    ours, direct = (
        asked(server, headers) for server, headers in ((make(prepare=watched), {"TE": "trailers"}), (make(), {}))
    )
    # It shows how Starlette is to read what varies.
    theirs = counted(generate_latest(registry).decode().replace(":rest}", "}"))
    assert ours == theirs
    assert direct == theirs
    assert sum(value for (name, _), value in ours.items() if name == NAMES[0]) == len(REQUESTS) - 3


def test_labels_are_bounded(make: Make) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{make().port}") as http:
        for number in range(3):
            http.request(f"BREW{number}", f"/coffee/{number}")
        # As SageMaker asks for it.
        http.get("/openai/v1/models")
        samples = counted(http.get("/metrics").text)
    brewed = (("handler", "none"), ("method", "other"), ("status", "4xx"))
    listed = (("handler", "/v1/models"), ("method", "GET"), ("status", "2xx"))
    assert {key: value for key, value in samples.items() if key[0] == NAMES[0]} == {
        (NAMES[0], brewed): 3,
        (NAMES[0], listed): 1,
    }


def test_a_stream(make: Make) -> None:
    """Its records go past the application; its time is that of all of them."""
    server = make()
    with server.connect() as sock:
        begun = time.monotonic()
        number = server.ask(sock, {"inputs": "Hi", "stream": True})
        server.engine.say(number, Started(1), Delta(0, "a", (Token(1, "a"),)))
        while b"\r\n\r\n" not in sock.recv(1 << 16, 0):
            pass
        time.sleep(0.15)
        server.engine.say(number, Delta(0, "b", (Token(2, "b"),), finish=Finish("eos", generated_tokens=2)))
        while not sock.recv(1 << 16).endswith(b"0\r\n\r\n"):
            pass
        taken = time.monotonic() - begun
    samples = parsed(httpx.get(f"http://127.0.0.1:{server.port}/metrics").text)
    labels = (("handler", "/invocations"), ("method", "POST"))
    assert samples[NAMES[0], (*labels, ("status", "2xx"))] == 1
    assert 0.15 <= samples["http_request_duration_seconds_sum", labels] <= taken
    assert samples["http_request_duration_seconds_bucket", (labels[0], ("le", "0.1"), labels[1])] == 0
    assert samples["http_request_duration_seconds_bucket", (labels[0], ("le", "+Inf"), labels[1])] == 1
