"""Metrics on a port of their own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import httpx
import pytest

from lmi.handler.scraping.port import listen

from ...kit.api.handler import Exposition, Service, started_service
from ...kit.user_code.engine import ScriptedEngine

THEIRS = b"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 3.0\n"


class Told(ScriptedEngine):
    """Tells metrics of its own once it is asked."""

    silent = False

    def scrape(self, content_type: str) -> Future[bytes]:
        future: Future[bytes] = Future()
        if not self.silent:
            threading.Timer(0.01, future.set_result, [THEIRS]).start()
        return future


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = started_service(Told(), tmp_path)
    yield service
    service.close()


@pytest.fixture
def url(service: Service) -> Iterator[str]:
    server = listen(Exposition(service), 0)
    assert server is not None
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_scrape(url: str) -> None:
    answer = httpx.get(f"{url}/metrics?name=any")
    assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, "text/plain")
    assert "lmi_requests_in_flight 0.0" in answer.text
    assert answer.content.endswith(THEIRS)
    assert httpx.get(f"{url}/").status_code == 404
    assert httpx.post(f"{url}/metrics").status_code == 501


def test_an_engine_that_does_not_answer(url: str, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmi.handler.scraping.exposition.ENGINE_S", 0.05)
    monkeypatch.setattr(service.engine, "silent", True)
    answer = httpx.get(f"{url}/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.text.endswith("# EOF\n")


def test_who_sends_nothing_keeps_nobody_out(url: str) -> None:
    address = ("127.0.0.1", int(url.rpartition(":")[2]))
    with socket.create_connection(address), socket.create_connection(address) as part:
        part.sendall(b"GET /metr")
        assert httpx.get(f"{url}/metrics").status_code == 200


def test_a_port_that_is_taken(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        assert listen(Exposition(service), port) is None
    assert f"option.metrics_port: there are no metrics on port {port}: " in caplog.text
    assert listen(Exposition(service), 65536) is None
