"""Hooks of AWS's library for model containers: `lmi serve` as a process, for the library's registries are its."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from ...kit.hosts.host import Server, model_directory, with_parrot
from ...kit.metered import parsed
from ...kit.pages import blocks_of
from ...kit.paths import DOCS, USER_CODE

pytestmark = [pytest.mark.engine, pytest.mark.once]

KEY = "a-key"
ASK = {"inputs": "What is the capital of France?", "parameters": {"max_new_tokens": 20}}
PLAIN = "async def custom_sagemaker_ping_handler():\n    return {'mine': True}\n"
"""Found by its name; the library is not imported by the file."""


def directory(demo_model: Path, target: Path, code: str | None = None) -> Path:
    made = model_directory(demo_model, target, {"option.max_body_bytes": "10000"})
    if code is None:
        shutil.copy(USER_CODE / "hooks.py", made / "model.py")
        (made / "beside.py").write_text("STATUS = 218\n")
    else:
        (made / "model.py").write_text(code)
    return made


@pytest.fixture(scope="module")
def server(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("hooks")
    environment = {**with_parrot(), "SAGEMAKER_ENABLE_STATEFUL_SESSIONS": "true"}
    made = directory(demo_model, folder / "model")
    server = Server(made, folder / "log", ["--api-key", KEY], environment=environment)
    yield server
    server.stop()


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {KEY}"}, timeout=30) as http:
        yield http


def test_ping(http: httpx.Client) -> None:
    """Also without the key."""
    answer = http.get("/ping", headers={"Authorization": ""})
    assert (answer.status_code, answer.text, answer.headers["x-throttled"]) == (218, "mine", "/ping")


def test_invocations(http: httpx.Client) -> None:
    adapter = {"X-Amzn-SageMaker-Adapter-Identifier": "pirate"}
    assert http.post("/invocations", json={"mine": 1}, headers=adapter).json() == {"model": "pirate"}
    refused = http.post("/invocations", json={"mine": 1}, headers={"Authorization": ""})
    assert (refused.status_code, "API key" in refused.text) == (401, True)
    assert http.post("/invocations", json={"mine": "x" * 20_000}).status_code == 413


def test_ours_serves_what_a_handler_gives_it(http: httpx.Client) -> None:
    whole = http.post("/invocations", json=ASK)
    assert whole.status_code == 200, whole.text
    assert whole.json()["generated_text"]
    # By the middleware, which changes headers: nothing is written past it.
    stream = http.post("/invocations", json={**ASK, "stream": True})
    assert stream.headers["x-throttled"] == "/invocations"
    assert len(stream.text.splitlines()) > 3


def test_requests_to_hooks_are_counted(http: httpx.Client) -> None:
    """One that is refused has come to no route."""

    def count(handler: str, status: str) -> float:
        labels = (("handler", handler), ("method", "POST"), ("status", status))
        return parsed(http.get("/metrics").text).get(("http_requests_total", labels), 0)

    served, refused = count("/invocations", "2xx"), count("none", "4xx")
    assert http.post("/invocations", json={"mine": 1}).status_code == 200
    assert http.post("/invocations", json={"mine": 1}, headers={"Authorization": ""}).status_code == 401
    assert (count("/invocations", "2xx"), count("none", "4xx")) == (served + 1, refused + 1)


def test_sessions_are_the_librarys(http: httpx.Client) -> None:
    made = http.post("/invocations", json={"requestType": "NEW_SESSION"})
    name = made.headers["x-amzn-sagemaker-new-session-id"].partition(";")[0]
    header = {"X-Amzn-SageMaker-Session-Id": name}
    assert http.post("/invocations", json={"mine": 1}, headers=header).status_code == 200
    closed = http.post("/invocations", json={"requestType": "CLOSE"}, headers=header)
    assert closed.headers["x-amzn-sagemaker-closed-session-id"] == name


def test_adapters(http: httpx.Client) -> None:
    assert http.post("/adapters", json={"name": "a", "src": "/b"}).text == "Adapter a registered"
    assert http.post("/adapters", json={"name": "a", "src": "/b"}, headers={"Authorization": ""}).status_code == 401


def test_all_else_is_ours(http: httpx.Client) -> None:
    assert http.get("/v1/models").status_code == 200
    assert http.get("/v1/models", headers={"Authorization": ""}).status_code == 401
    assert "lmi_requests_total" in http.get("/metrics").text


def test_the_example(demo_model: Path, tmp_path: Path) -> None:
    (code,) = (block.text for block in blocks_of(DOCS / "containers.md") if block.language == "python")
    server = Server(directory(demo_model, tmp_path / "model", code), tmp_path / "log", environment=with_parrot())
    try:
        refused = httpx.post(f"{server.url}/invocations", json={"inputs": ""})
        assert (refused.status_code, refused.text) == (400, "expected inputs")
        assert httpx.post(f"{server.url}/invocations", json=ASK).json()["generated_text"]
    finally:
        server.stop()


def test_a_file_without_the_library_s_name(demo_model: Path, tmp_path: Path) -> None:
    server = Server(directory(demo_model, tmp_path / "model", PLAIN), tmp_path / "log", environment=with_parrot())
    try:
        assert httpx.get(f"{server.url}/ping").json() == {"mine": True}
        assert httpx.post(f"{server.url}/invocations", json=ASK).status_code == 200
    finally:
        server.stop()
    # The library sets the root logger's level to ERROR where nobody says otherwise.
    assert "INFO::lmi.handler.server.hooks" in server.log_text()


@pytest.mark.parametrize(
    ("code", "variables", "expected"),
    [
        ("import model_hosting_container_standards.sagemaker\nraise ValueError('no')\n", {}, "model.py: "),
        ("", {"CUSTOM_FASTAPI_PING_HANDLER": "model.py:nothing"}, "hooks of model-hosting-container-standards: "),
    ],
)
def test_what_cannot_be_loaded(
    demo_model: Path, tmp_path: Path, code: str, variables: dict[str, str], expected: str
) -> None:
    made = directory(demo_model, tmp_path / "model", code)
    with pytest.raises(RuntimeError, match=f"lmi: {expected}"):
        Server(made, tmp_path / "log", environment={**with_parrot(), **variables})


def test_nothing_is_imported_where_there_are_none(demo_model: Path, tmp_path: Path) -> None:
    made = directory(demo_model, tmp_path / "model", "import atexit, sys\n" + TELLS)
    server = Server(made, tmp_path / "log", environment=with_parrot())
    server.stop()
    assert "imported: []" in server.log_text()


TELLS = """
def tell():
    print("imported:", [name for name in ("fastapi", "model_hosting_" + "container_standards") if name in sys.modules])
atexit.register(tell)
"""
