"""What only the local server has: health, the list of models, the API key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest

from ...demo.model import question
from ...kit.clients.scripts import run_client
from ...kit.hosts.host import Server, model_directory

pytestmark = pytest.mark.engine

KEY = "a-key-of-some-length"


@pytest.fixture(scope="module")
def server(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("key")
    properties = {
        "option.tool_call_parser": "hermes",
        "option.structured_outputs_config": '{"disable_any_whitespace": true}',
    }
    running = Server(model_directory(demo_model, folder / "model", properties), folder / "log", ["--api-key", KEY])
    yield running
    running.stop()


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


def test_health_needs_no_key(http: httpx.Client) -> None:
    assert http.get("/ping").status_code == http.get("/health").status_code == 200


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {KEY}"}], ids=str)
def test_without_the_key_each_dialect_says_so_in_its_own_form(http: httpx.Client, headers: dict[str, str]) -> None:
    refused = http.post("/invocations", json={"inputs": "Hello"}, headers=headers)
    assert refused.status_code == 401
    assert "API key" in refused.json()["error"]
    for path, body in [("/v1/chat/completions", {"messages": []}), ("/v1/completions", {"prompt": "Hello"})]:
        refused = http.post(path, json=body, headers=headers)
        assert refused.status_code == 401
        assert set(refused.json()["error"]) == {"message", "type", "param", "code"}
    assert http.get("/v1/models", headers=headers).status_code == 401


def test_without_the_key_azures_and_the_minimal_form(http: httpx.Client) -> None:
    version = {"api-version": "2024-05-01-preview"}
    refused = [http.post("/chat/completions", params=version, json={}), http.get("/info", params=version)]
    for answer in refused:
        assert (answer.status_code, answer.headers["x-ms-error-code"]) == (401, "unauthorized")
        assert list(answer.json()) == ["error", "message", "status"]
    whole = http.post("/chat/completions", json={})
    line = http.post("/chat/completions", json={"stream": True})
    assert (whole.status_code, list(whole.json())) == (401, ["error"])
    assert (line.status_code, list(line.json())) == (401, ["error", "done"])
    for events in (http.post("/chat/sse", json={}), http.get("/chat/sse", params={"request": "{}"})):
        assert events.text.startswith("event: error\ndata: ")
        assert events.text.endswith("\n\ndata: [END]\n\n")


@pytest.mark.parametrize(
    "headers",
    [{"authorization": f"Bearer {KEY}"}, {"api-key": KEY}, {"x-api-key": KEY}],
    ids=["bearer", "azure", "anthropic"],
)
def test_with_the_key_requests_are_served(http: httpx.Client, headers: dict[str, str]) -> None:
    asked = question("plain")
    answer = http.post("/invocations", json={"inputs": asked.prompt}, headers=headers)
    assert answer.json() == {"generated_text": asked.answer}


def test_openai_raises_its_own_class(server: Server) -> None:
    wrong = openai.OpenAI(base_url=f"{server.url}/v1", api_key="wrong", max_retries=0)
    with wrong, pytest.raises(openai.AuthenticationError):
        wrong.models.list()
    right = openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0)
    with right:
        (model,) = right.models.list()
        assert model.object == "model"


def test_azures_client(server: Server) -> None:
    """What it makes of the answers is asserted in the script."""
    run_client("azure_client.py", server.url, KEY)
