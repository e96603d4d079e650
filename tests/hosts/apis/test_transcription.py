"""Audio that is written down behind DJL Serving: a form where Java hands all of it on, the file itself, and JSON."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from ...kit.hosts.host import Host, model_directory, running
from ...kit.media import speech
from ...kit.media.sounds import noise, wav

pytestmark = [pytest.mark.engine, pytest.mark.djl, pytest.mark.once]

FIELDS = {"language": "en", "max_completion_tokens": "8"}
ROUTE = {"X-Amzn-SageMaker-Custom-Attributes": "route=/v1/audio/transcriptions"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, demo_model: Path) -> Path:
    return speech.build(tmp_path_factory.mktemp("models") / "speech", demo_model)


@pytest.fixture(scope="module", params=["rolling", "async"])
def host(
    request: pytest.FixtureRequest, built: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Host]]:
    folder = tmp_path_factory.mktemp(request.param)
    properties = {"option.max_model_len": str(speech.LONGEST), "option.served_model_name": "tiny"}
    with running(request.param, model_directory(built, folder / "model", properties), folder / "log") as started:
        yield request.param, started


def sound() -> bytes:
    """In three pieces."""
    return wav(noise(5, seed=3))


def in_json(host: Host, **fields: object) -> httpx.Response:
    body = {"file": base64.b64encode(sound()).decode(), "language": "en", "max_completion_tokens": 8, **fields}
    return httpx.post(f"{host.url}/invocations", json=body, headers=ROUTE, timeout=60)


def test_the_same_text_comes_of_each_body(host: tuple[str, Host]) -> None:
    kind, started = host
    told = in_json(started).raise_for_status().json()
    assert told["text"]
    assert told["usage"] == {"seconds": 5, "type": "duration"}
    url, files = f"{started.url}/invocations", {"file": ("a.wav", sound(), "audio/wav")}
    # Of a rolling batch Java hands on neither the query nor more than one part of a form.
    fields = {} if kind == "rolling" else FIELDS
    raw = httpx.post(url, params=fields, content=sound(), headers={"content-type": "audio/wav"}, timeout=60)
    text = raw.raise_for_status().json()["text"]
    assert text
    if fields:
        form = httpx.post(url, data=fields, files=files, timeout=60)
        assert form.raise_for_status().json() == told
        assert text == told["text"]


def test_a_stream_has_the_same_text(host: tuple[str, Host]) -> None:
    _, started = host
    streamed = in_json(started, stream=True)
    assert streamed.headers["content-type"].startswith("text/event-stream")
    assert '"type":"transcript.text.done"' in streamed.text
    assert streamed.text.endswith("data: [DONE]\n\n")
    text = in_json(started, response_format="text")
    assert text.headers["content-type"].startswith("text/plain")
    assert text.text.strip() == in_json(started).json()["text"]


def test_what_is_no_audio_is_refused_at_once(host: tuple[str, Host]) -> None:
    """Within two seconds, and the next request is served."""
    _, started = host
    in_json(started)
    answer = in_json(started, file=base64.b64encode(b"hello" * 100).decode())
    assert (answer.status_code, answer.elapsed.total_seconds() < 2) == (400, True)
    assert "file: the audio cannot be decoded" in answer.text
    assert in_json(started).status_code == 200
