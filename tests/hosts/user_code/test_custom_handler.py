"""`handle` in model.py beside our entry point, behind DJL: what it answers, what it leaves to the engine."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest

from ...demo.model import question
from ...kit.hosts.host import Host, model_directory, running
from ...kit.paths import USER_CODE

pytestmark = [pytest.mark.once, pytest.mark.engine, pytest.mark.djl]

CUSTOM = "X-Amzn-SageMaker-Custom-Attributes"
ASKED = question("plain")
LMI = {"inputs": ASKED.prompt, "parameters": {"max_new_tokens": 100}}


@pytest.fixture(scope="module", params=["rolling", "async", "dynamic"])
def folder(request: pytest.FixtureRequest, demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory: Path = tmp_path_factory.mktemp(request.param) / request.param
    model_directory(demo_model, directory, {})
    shutil.copy(USER_CODE / "handled.py", directory / "model.py")
    return directory


@pytest.fixture(scope="module")
def host(folder: Path) -> Iterator[Host]:
    with running(folder.name, folder, folder.parent / "log", parrot=True) as host:
        yield host


def post(host: Host, body: Mapping[str, object], attributes: str = "") -> httpx.Response:
    headers = {CUSTOM: attributes} if attributes else {}
    return httpx.post(f"{host.url}/invocations", json=body, headers=headers, timeout=60)


def test_what_it_answers(host: Host, folder: Path) -> None:
    properties = json.loads((folder / "initialised").read_text())
    assert properties["entryPoint"] == "lmi.handler"
    assert Path(properties["model_dir"]).samefile(folder)
    answer = post(host, {"mine": 1}, "tenant=a")
    assert (answer.status_code, answer.json()) == (200, {"mine": 1, "tenant": "a"})
    assert answer.headers[CUSTOM] == "by=handle"
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["content-length"] == str(len(answer.content))
    stream = post(host, {"count": 3})
    assert (stream.status_code, stream.headers["content-type"]) == (200, "application/jsonlines")
    assert [json.loads(line) for line in stream.text.splitlines()] == [{"count": one} for one in range(3)]


def test_none_is_the_engines(host: Host) -> None:
    told = {"generated_text": ASKED.answer}
    assert post(host, LMI).json() in (told, [told])
    chat = {"messages": [{"role": "user", "content": ASKED.prompt}], "max_tokens": 100}
    assert post(host, chat).json()["choices"][0]["message"]["content"] == ASKED.answer
    assert post(host, {}, "route=/v1/models").json()["object"] == "list"
    assert post(host, {}, "route=/nothing").status_code == 404


def test_what_fails(host: Host) -> None:
    failed = post(host, {"inputs": "a", "fail": "intentional"})
    assert failed.status_code == 424
    said = "Custom handler failed: model.py: handle raised RuntimeError: intentional"
    assert said in failed.json()["error"]
    refused = post(host, LMI, "tenant=unknown")
    assert (refused.status_code, refused.json()["error"]) == (403, "no such tenant")
    assert post(host, LMI).status_code == 200
