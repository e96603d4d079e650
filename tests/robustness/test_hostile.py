"""Requests that try to end or stall the engine, against the real one behind every host, while others are served.

Each is refused by name or harmless; a stream that runs beside them all goes on, and the engine's process is the same
afterwards. schemathesis then tries what the server's own document leads it to.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from ..demo.model import question
from ..kit.clients.scripts import run_client
from ..kit.faults.hostile import HARMLESS, REFUSED, text
from ..kit.hosts.host import Host, engine_process, model_directory, running
from ..kit.models.embedding import CONTEXT, build_bert

pytestmark = pytest.mark.engine

FOREIGN = """
import pathlib
from transformers import LlamaConfig, LlamaForCausalLM

pathlib.Path({mark!r}).touch()


class Config(LlamaConfig):
    pass


class Model(LlamaForCausalLM):
    pass
"""


def hostile_model(demo_model: Path, folder: Path, **options: str) -> Path:
    """A short context, so that whatever is asked for ends soon; and a model that brings code of its own.

    That leaves a file `executed` beside the model.
    """
    properties = {"option.tool_call_parser": "hermes", "option.max_model_len": "256"}
    properties |= {f"option.{name}": value for name, value in options.items()}
    model = model_directory(demo_model, folder / "model", properties)
    config = json.loads((model / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "foreign.Config", "AutoModelForCausalLM": "foreign.Model"}
    (model / "config.json").unlink()
    (model / "config.json").write_text(json.dumps(config))
    (model / "foreign.py").write_text(FOREIGN.format(mark=str(folder / "executed")))
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture(scope="module")
def server(demo_model: Path, folder: Path) -> Iterator[Host]:
    with running("server", hostile_model(demo_model, folder), folder / "log") as server:
        yield server


@pytest.fixture(scope="module")
def http(server: Host) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


class Beside:
    """A stream after the other while hostile requests are made: each must come, whole and unchanged."""

    def __init__(self, url: str) -> None:
        self.asked = question("long")
        self.texts: list[str] = []
        self.end = threading.Event()
        self._url = url
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        body = {"inputs": self.asked.prompt, "stream": True, "parameters": {"max_new_tokens": 200}}
        with httpx.Client(timeout=60) as client:
            while not self.end.is_set():
                answer = client.post(f"{self._url}/invocations", json=body)
                lines = [json.loads(line) for line in answer.text.splitlines()]
                self.texts.append("".join(line["token"]["text"] for line in lines))

    def stop(self) -> None:
        """Waits for the last one."""
        self.end.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


def test_hostile_requests_harm_nobody(server: Host, http: httpx.Client) -> None:
    def told(answer: httpx.Response) -> tuple[str, str | None]:
        error = answer.json()["error"]
        return error["message"], error["param"]

    harms_nobody(server, http.post, told)


@pytest.mark.djl
@pytest.mark.parametrize("kind", ["rolling", "async"])
def test_hostile_requests_harm_nobody_behind_djl(demo_model: Path, tmp_path: Path, kind: str) -> None:
    with (
        running(kind, hostile_model(demo_model, tmp_path), tmp_path / "log") as host,
        httpx.Client(base_url=host.url, timeout=60) as client,
    ):

        def post(path: str, *, json: Any) -> httpx.Response:
            return client.post("/invocations", json=json)

        # Java gives errors a body of its own: {"error": "...", "code": 400}.
        harms_nobody(host, post, lambda answer: (answer.json()["error"], None))


def harms_nobody(
    host: Host, post: Callable[..., httpx.Response], told: Callable[[httpx.Response], tuple[str, str | None]]
) -> None:
    """Tries everything; `told` gives an error's message and the field that it names besides."""
    engine = engine_process(host).pid
    beside = Beside(host.url)
    faults: list[str] = []
    try:
        for name, ((path, body), field) in REFUSED.items():
            answer = post(path, json=body)
            if answer.status_code == 200:
                faults.append(f"{name}: 200 {answer.text[:300]}")
                continue
            message, named = told(answer)
            if answer.status_code != 400 or not (named == field or field in message):
                faults.append(f"{name}: {answer.status_code} {message}")
            if len(answer.content) > 4096 or "\n" in message:
                faults.append(f"{name}: {len(answer.content)} bytes")
        for name, (path, body) in HARMLESS.items():
            answer = post(path, json=body)
            if answer.status_code != 200:
                faults.append(f"{name}: {answer.status_code} {answer.text[:300]}")
    finally:
        beside.stop()
    assert not faults, "\n".join(faults)
    assert len(beside.texts) >= 2
    assert set(beside.texts) == {beside.asked.answer}
    assert engine_process(host).pid == engine


def test_private_fields_change_nothing(http: httpx.Client) -> None:
    path, body = HARMLESS["private fields"]
    plain = http.post(path, json=text(temperature=0)[1]).json()["choices"]
    assert http.post(path, json=body).json()["choices"] == plain


def test_the_models_name_is_no_path(server: Host, http: httpx.Client) -> None:
    """What is asked for is not opened: the answer carries our own name."""
    path, body = HARMLESS["path as the model"]
    assert http.post(path, json=body).json()["model"] == http.get("/v1/models").json()["data"][0]["id"]
    for url in (
        "/predictions/..%2f..%2fetc%2fpasswd",
        "/predictions/a/../../etc/passwd",
        "/v1/models/../../etc/passwd",
    ):
        answer = http.post(url, json={"inputs": "Hello", "parameters": {"max_new_tokens": 2}})
        assert answer.status_code in (200, 404, 405)
        assert "root:" not in answer.text


def test_code_of_the_models_is_not_executed(folder: Path, server: Host) -> None:
    """`option.trust_remote_code` is not set."""
    assert server.url
    assert (folder / "model" / "foreign.py").exists()
    assert not (folder / "executed").exists()


def test_code_of_the_models_is_executed_where_it_is_trusted(
    demo_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which also shows that the test above would see it. transformers imports from copies, in a cache of modules."""
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    with running("server", hostile_model(demo_model, tmp_path, trust_remote_code="true"), tmp_path / "log"):
        assert (tmp_path / "executed").exists()


def exchange(url: str, request: bytes) -> bytes:
    """What a server answers to bytes as they are."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 80), 30) as connection:
        connection.sendall(request)
        answer = b""
        while data := connection.recv(65536):
            answer += data
    return answer


BODY = b'{"inputs": "Hello", "parameters": {"max_new_tokens": 2}}'


@pytest.mark.parametrize(
    "header",
    [
        b"X-Amzn-SageMaker-Custom-Attributes: dialect=lmi%0d%0aX-Evil: 1",
        b"X-Amzn-SageMaker-Custom-Attributes: dialect=\x00\r\n X-Evil: 1",
        b"X-Amzn-SageMaker-Custom-Attributes: k=\xe2\x80\xa8X-Evil: 1,dialect=\x85X-Evil: 1",
        b"X-Request-Id: a\x0bX-Evil: 1",
        b"X-Request-Id: " + b"a" * 4000,
        b"X-Request-Id: %0d%0aX-Evil:%201",
        b"azureml-model-deployment: a%0d%0aX-Evil: 1",
        b"Content-Type: application/json\x00X-Evil: 1",
        b"Accept: text/event-stream%0d%0aX-Evil: 1",
    ],
    ids=range(9),
)
@pytest.mark.parametrize(
    "path", [b"/invocations", b"/chat/completions?api-version=2024-05-01", b"/chat/sse?a=%0d%0aX-Evil:1"]
)
def test_no_header_can_be_brought_in(server: Host, header: bytes, path: bytes) -> None:
    lines = [
        b"POST " + path + b" HTTP/1.1",
        b"Host: a",
        b"Connection: close",
        b"Content-Length: %d" % len(BODY),
        header,
    ]
    answer = exchange(server.url, b"\r\n".join(lines) + b"\r\n\r\n" + BODY)
    head = answer.partition(b"\r\n\r\n")[0].lower()
    assert head.startswith(b"http/1.1 ")
    assert int(head.split()[1]) < 500
    names = [line.partition(b":")[0] for line in head.split(b"\r\n")[1:]]
    assert b"x-evil" not in names
    assert b"\n" not in head.replace(b"\r\n", b"")


@pytest.mark.parametrize(
    ("kind", "status"),
    [("text/plain", 415), ("multipart/form-data; boundary=a", 400), ("application/x-www-form-urlencoded", 415)],
)
def test_other_content_types_are_refused(http: httpx.Client, kind: str, status: int) -> None:
    """A browser sends these from any site without asking first."""
    answer = http.post("/invocations", content=BODY, headers={"content-type": kind})
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json")


def schemathesis(url: str, expected: set[str]) -> None:
    """Zero 5xx, and every answer fits what the document tells; LMI_OPENAPI_EXAMPLES makes it more than a few."""
    seen = run_client("openapi_fuzz.py", url, os.environ.get("LMI_OPENAPI_EXAMPLES", "3"))
    statuses = {status for counts in seen.values() for status in counts}
    assert not {status for status in statuses if status >= "500"}
    assert expected <= statuses
    paths = httpx.get(f"{url}/openapi.json", timeout=60).json()["paths"]
    assert set(seen) == {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}


def test_schemathesis_by_the_servers_own_document(server: Host) -> None:
    schemathesis(server.url, {"200", "400", "404", "422", "424"})


OTHERWISE = {
    "embeddings": {"task": "text-embedding", "max_model_len": str(CONTEXT)},
    "tgi_compat": {"tgi_compat": "true"},
    "minimal": {"dialect": "minimal"},
    "dynamic": {"rolling_batch": "disable"},
    "trtllm": {"rolling_batch": "trtllm"},
}
"""Options with which the document differs: other schemas, answers or errors."""


@pytest.mark.once
@pytest.mark.parametrize("name", OTHERWISE)
def test_schemathesis_with_other_options(demo_model: Path, tmp_path: Path, name: str) -> None:
    model = build_bert(tmp_path / "bert", layers=1) if name == "embeddings" else demo_model
    with running("server", hostile_model(model, tmp_path, **OTHERWISE[name]), tmp_path / "log") as host:
        engine = engine_process(host).pid
        schemathesis(host.url, {"200", "400"})
        assert engine_process(host).pid == engine
