"""LMI's options for transformers, on every host: vLLM runs the model with transformers' modelling, and says so."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from ..demo.model import QUESTIONS, question
from ..kit.answers.spoken import SPOKEN, records
from ..kit.djl import hosting
from ..kit.hosts.host import Host, client, djl_host, model_directory, start
from .test_same_text import BODIES, alone, body, same_texts

pytestmark = [pytest.mark.engine, pytest.mark.slow]

MODELLING = "with transformers' modelling (model_impl=transformers)"
"""What the log says."""
VLLMS_WORDS = "Resolved architecture: TransformersForCausalLM"
"""What vLLM itself says in it."""


@pytest.fixture(scope="module")
def server(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("server")
    directory = model_directory(demo_model, folder / "model", {"option.rolling_batch": "scheduler"})
    running = start("server", directory, folder / "log")
    yield running
    running.stop()


@pytest.mark.parametrize("name", SPOKEN)
def test_every_dialect(server: Host, name: str) -> None:
    """Whole and streamed, the answer that the model knows."""
    spoken = SPOKEN[name]
    headers = {
        "content-type": "application/json",
        "X-Amzn-SageMaker-Custom-Attributes": f"dialect={spoken.dialect}",
        "accept": spoken.accept or "*/*",
    }
    whole, streamed = (
        httpx.post(f"{server.url}/invocations", json=asked, headers=headers, timeout=60, verify=False)
        for asked in (spoken.whole, spoken.stream)
    )
    assert spoken.text(whole.json()) == question("unicode").answer
    pieces = records(spoken, streamed.content.split(b"\n"))
    assert "".join(spoken.piece(record) for record in pieces) == question("unicode").answer


def test_the_log_says_who_runs_the_model(server: Host) -> None:
    assert server.log_text().count(f"option.rolling_batch=scheduler runs on vLLM, {MODELLING}") == 1
    assert VLLMS_WORDS in server.log_text()


@pytest.mark.djl
@pytest.mark.anyio
async def test_behind_djl_in_rolling_batch(demo_model: Path, tmp_path: Path) -> None:
    if missing := hosting.available():
        pytest.skip(missing)
    model_dir = model_directory(demo_model, tmp_path / "model", {})
    properties = {"option.rolling_batch": "hf-accelerate", "option.device_map": "auto"}
    with djl_host(model_dir, tmp_path / "log", mode="rolling", properties=properties) as host:
        asked = [one for one in QUESTIONS if not one.endless]
        async with client(host) as http:
            streams = [http.stream({**body(one.prompt, max_new_tokens=400), "stream": True}) for one in asked]
            answers = await asyncio.gather(*streams)
        for one, streamed in zip(asked, answers, strict=True):
            assert "".join(document["token"]["text"] for document in streamed.documents) == one.answer
        assert f"option.rolling_batch=hf-accelerate runs on vLLM, {MODELLING}" in host.log_text()
        assert VLLMS_WORDS in host.log_text()


@pytest.mark.djl
@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["async", "dynamic"])
async def test_behind_djl_in_the_other_modes(server: Host, demo_model: Path, tmp_path: Path, mode: str) -> None:
    """The texts that the local server gives."""
    if missing := hosting.available():
        pytest.skip(missing)
    expected = alone(server, BODIES)
    model_dir = model_directory(demo_model, tmp_path / "model", {"option.backend": "transformers"})
    with djl_host(model_dir, tmp_path / "log", mode=mode) as host:
        await same_texts(host, expected, first_only=mode == "dynamic")
        assert f"option.backend=transformers runs on vLLM, {MODELLING}" in host.log_text()
