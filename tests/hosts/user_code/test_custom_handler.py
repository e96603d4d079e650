"""`handle` in model.py beside our entry point, on every host: what it answers, what it leaves to the engine."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from ...demo.model import question
from ...kit.clients.bridge import Bridge, runtime, serving
from ...kit.djl import hosting
from ...kit.hosts.host import Host, model_directory, start
from ...kit.paths import USER_CODE

pytestmark = [
    pytest.mark.once,
    pytest.mark.engine,
    pytest.mark.djl,
    pytest.mark.skipif(hosting.available() is not None, reason=str(hosting.available())),
]

CUSTOM = "X-Amzn-SageMaker-Custom-Attributes"
ASKED = question("plain")
LMI = {"inputs": ASKED.prompt, "parameters": {"max_new_tokens": 100}}


@pytest.fixture(scope="module", params=["server", "rolling", "async", "dynamic"])
def folder(request: pytest.FixtureRequest, demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory: Path = tmp_path_factory.mktemp(request.param) / request.param
    model_directory(demo_model, directory, {})
    shutil.copy(USER_CODE / "handled.py", directory / "model.py")
    return directory


@pytest.fixture(scope="module")
def host(folder: Path) -> Iterator[Host]:
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (before, str(hosting.djl_python_path()))))
    try:
        running = start(folder.name, folder, folder.parent / "log", parrot=True)
    finally:
        os.environ["PYTHONPATH"] = before
    yield running
    running.stop()


def post(host: Host, body: Mapping[str, object], attributes: str = "") -> httpx.Response:
    headers = {CUSTOM: attributes} if attributes else {}
    return httpx.post(f"{host.url}/invocations", json=body, headers=headers, timeout=60)


def test_it_was_called_for_the_initialisation(host: Host, folder: Path) -> None:
    assert host.url
    properties = json.loads((folder / "initialised").read_text())
    assert properties["entryPoint"] == "lmi.handler"
    assert Path(properties["model_dir"]).samefile(folder)


def test_its_answer(host: Host) -> None:
    answer = post(host, {"mine": 1}, "tenant=a")
    assert (answer.status_code, answer.json()) == (200, {"mine": 1, "tenant": "a"})
    assert answer.headers[CUSTOM] == "by=handle"
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["content-length"] == str(len(answer.content))


def test_boto3_gives_its_attributes_to_the_caller(host: Host) -> None:
    with serving(Bridge(host.url).app) as url, closing(runtime(url)) as client:
        told = client.invoke_endpoint(
            EndpointName="demo", ContentType="application/json", CustomAttributes="tenant=b", Body=b'{"mine": 1}'
        )
        assert json.load(told["Body"])["tenant"] == "b"
        assert told["CustomAttributes"] == "by=handle"
        told = client.invoke_endpoint(EndpointName="demo", CustomAttributes="route=/v1/models", Body=b"{}")
        assert json.load(told["Body"])["object"] == "list"


def test_its_stream(host: Host) -> None:
    answer = post(host, {"count": 3})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/jsonlines")
    assert [json.loads(line) for line in answer.text.splitlines()] == [{"count": one} for one in range(3)]


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
    chat = post(host, {"messages": [{"role": "user", "content": "a"}], "fail": "intentional"})
    assert (chat.status_code, chat.json()["code"]) == (424, 424)
    assert said in chat.json()["error"]
    refused = post(host, LMI, "tenant=unknown")
    assert (refused.status_code, refused.json()["error"]) == (403, "no such tenant")
    assert post(host, LMI).status_code == 200
