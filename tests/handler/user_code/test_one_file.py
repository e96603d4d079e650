"""A dialect and an engine of a user's, each one file of the model directory that an option names."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from starlette.testclient import TestClient

from ...kit.api.dialects import GENERATING
from ...kit.api.errors import StartError
from ...kit.api.handler import Service, application
from ...kit.api.handler import check_model_dir as check
from ...kit.api.options import make_settings
from ...kit.engines.start import in_process
from ...kit.paths import USER_CODE
from ...kit.rows import each_row
from ...kit.user_code.modules import forget

ASK = [{"role": "user", "content": "Hello"}]
BODIES: dict[str, dict[str, Any]] = {
    "shout": {"shout": "Hello"},
    "azure": {"messages": ASK},
    "tgi": {"inputs": "Hello", "parameters": {"details": True}},
    "dynamic": {"inputs": ["Hello", "World"]},
    "lmi": {"inputs": "Hello", "parameters": {"details": True}},
    "anthropic": {"messages": ASK, "max_tokens": 50},
    "responses": {"input": "Hello"},
    "openai": {"messages": ASK, "n": 2},
    "minimal": {"model": "m", "messages": ASK},
}


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("one_file")
    for name in ("shout.py", "echo.py"):
        shutil.copy(USER_CODE / name, directory)
    lines = ("engine=Python", "option.entryPoint=lmi.handler", "option.output_formatter=shout:Shout")
    (directory / "serving.properties").write_text("\n".join((*lines, "option.backend=echo:Echo", "")))
    return directory


@pytest.fixture(scope="module")
def http(model_dir: Path) -> Iterator[TestClient]:
    before = list(sys.path)
    service = Service(make_settings(model_dir))
    info = service.start()
    assert (info.engine, info.context) == ("echo", 100)
    try:
        with TestClient(application(service)) as client:
            yield client
    finally:
        service.close()
        sys.path[:] = before


@each_row("dialect", BODIES)
def test_the_engine_serves_every_dialect(http: TestClient, dialect: str) -> None:
    assert set(BODIES) == {"shout", *(known.name for known in GENERATING)}
    headers = {"x-amzn-sagemaker-custom-attributes": f"dialect={dialect}"}
    answer = http.post("/invocations", json=BODIES[dialect], headers=headers)
    assert answer.status_code == 200, answer.text
    assert "hello" in answer.text.lower()


def test_what_the_engine_refuses(http: TestClient) -> None:
    answer = http.post("/v1/completions", json={"prompt": "a" * 101})
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, "prompt: too long to be said again")
    # What it calls the prompt, each dialect calls as its clients do.
    long = {"messages": [{"role": "user", "content": "a" * 101}], "max_tokens": 5}
    answer = http.post("/v1/messages", json=long)
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, "messages: too long to be said again")
    answer = http.post("/tokenize", json={"prompt": "a"})
    message = "the engine echo does not tell how a prompt is tokenized"
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, message)
    # Whose prompt it would say again.
    answer = http.post("/v1/audio/transcriptions", json={"file": "UklGRg==", "prompt": "Hello"})
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, "this model does not transcribe audio")


def test_the_dialect_has_its_route_and_is_told_by_its_body(http: TestClient) -> None:
    for path in ("/shout", "/invocations"):
        assert http.post(path, json={"shout": "Hello"}).json() == {"shouted": "HELLO"}


def test_the_dialect_refuses_in_its_own_form(http: TestClient) -> None:
    refused = http.post("/shout", json={"shout": 5})
    assert (refused.status_code, refused.json()) == (400, {"hushed": "shout: expected a string, got 5"})
    failed = http.post("/shout", json={"shout": "a" * 101})
    assert failed.json() == {"hushed": "shout: too long to be said again"}


def test_the_dialect_is_documented(http: TestClient) -> None:
    made = http.get("/openapi.json").json()
    operation = made["paths"]["/shout"]["post"]
    assert operation["summary"] == "The text, louder"
    jsonschema.Draft202012Validator(operation["requestBody"]["content"]["application/json"]["schema"]).validate(
        {"shout": "Hello"}
    )
    assert made["components"]["schemas"]["Shouted"]["required"] == ["shouted"]
    assert "Hushed" in str(operation["responses"]["4XX"])
    assert "The text, louder" in made["paths"]["/invocations"]["post"]["summary"]


def test_check_names_both(model_dir: Path) -> None:
    before = list(sys.path)
    try:
        lines = check(model_dir, {})
    finally:
        sys.path[:] = before
    assert "engine echo:Echo: your own, not checked: it is loaded at start" in lines
    assert "your own code: dialect shout" in lines


@each_row(
    ("name", "said"),
    [
        ("mute:Mute", r"option\.content_filter: mute:Mute has no prompt_text"),
        ("mute:Other", r"option\.backend: 'mute:Other': module 'mute' has no attribute 'Other'"),
        ("elsewhere:Mute", r"option\.backend: 'elsewhere:Mute': No module named 'elsewhere'"),
    ],
)
def test_an_engine_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str) -> None:
    """It gives a content filter nothing to judge, or is not there."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "mute.py").write_text("class Mute:\n    def __init__(self, settings): ...\n")
    with pytest.raises(StartError, match=said):
        in_process(make_settings(tmp_path, backend=name, content_filter="guard:judge"))
    forget(tmp_path)
