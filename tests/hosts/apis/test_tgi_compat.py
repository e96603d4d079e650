"""`option.tgi_compat` on every host: LMI's requests, with TGI's responses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from ...demo.model import question
from ...kit.answers.tgi import check, lines, whole
from ...kit.djl import hosting
from ...kit.hosts.host import Host, model_directory, start

pytestmark = [pytest.mark.once, pytest.mark.engine, pytest.mark.djl]

LONG = question("endless").prompt


@pytest.fixture(scope="module", params=["server", "rolling", "async", "dynamic"])
def compatible(
    request: pytest.FixtureRequest, demo_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Host]:
    kind: str = request.param
    if kind != "server" and (missing := hosting.available()):
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp(kind)
    properties = {"option.tgi_compat": "true"} | ({"option.rolling_batch": "disable"} if kind == "dynamic" else {})
    directory = model_directory(demo_model, folder / "model", properties)
    running = start(kind, directory, folder / "log", {} if kind == "server" else properties)
    yield running
    running.stop()


def ask(host: Host, dialect: str = "", *, stream: bool = False, **parameters: Any) -> httpx.Response:
    """The response to a body that tells its dialect by nothing else than an attribute."""
    headers = {"x-amzn-sagemaker-custom-attributes": f"dialect={dialect}"} if dialect else {}
    body = {"inputs": LONG, "parameters": parameters, "stream": stream}
    return httpx.post(f"{host.url}/invocations", json=body, headers=headers, timeout=120)


def test_lmis_request_and_tgis_response(compatible: Host) -> None:
    (made,) = ask(compatible).json()
    check(made, whole(details=True, inputs=True))
    assert made["details"]["generated_tokens"] == 30
    assert made["generated_text"] == ask(compatible, "lmi").json()["generated_text"]
    stop = made["generated_text"][10:14]
    streamed = ask(compatible, stream=True, stop=[stop])
    events = [json.loads(event.removeprefix("data: ")) for event in streamed.text.removesuffix("\n\n").split("\n\n")]
    line, last = lines(details=True, inputs=True)
    for event in events[:-1]:
        check(event, line)
    check(events[-1], last)
    assert events[-1]["generated_text"] == made["generated_text"][: made["generated_text"].index(stop)]


def test_a_request_that_is_tgis(compatible: Host) -> None:
    (cut,) = ask(compatible, "tgi", max_new_tokens=40).json()
    assert list(cut) == ["generated_text"]
    stop = cut["generated_text"][10:14]
    (stopped,) = ask(compatible, "tgi", stop=[stop]).json()
    assert stopped["generated_text"].endswith(stop)


def test_an_error(compatible: Host) -> None:
    refused = ask(compatible, temperature=-1)
    assert refused.status_code == 422
    assert "parameters.temperature: " in refused.json()["error"]
