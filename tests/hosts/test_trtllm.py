"""TensorRT-LLM's parameters: `rolling_batch=trtllm` on the local server, `parameter_schema=trtllm` behind DJL.

DJL starts `rolling_batch=trtllm` under mpirun (LmiConfigRecommender sets mpi_mode), for which PyModel asks for GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..demo.model import question
from ..kit.djl import hosting
from ..kit.hosts.host import Host, client, model_directory, start

pytestmark = [pytest.mark.engine, pytest.mark.djl, pytest.mark.anyio]

PLAIN = question("plain")


@pytest.fixture(scope="module", params=["server", "rolling"])
def trtllm(
    request: pytest.FixtureRequest, demo_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Host]:
    if request.param != "server" and (missing := hosting.available()):
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp(request.param)
    chosen = {"server": {"option.rolling_batch": "trtllm"}, "rolling": {"option.parameter_schema": "trtllm"}}
    properties = {**chosen[request.param], "option.tensor_parallel_degree": "1"}
    model_dir = model_directory(demo_model, folder / "model", properties)
    running = start(request.param, model_dir, folder / "log", properties)
    yield running
    running.stop()


async def test_its_defaults_and_names(trtllm: Host) -> None:
    said = PLAIN.prompt + PLAIN.answer
    async with client(trtllm) as http:
        greedy = await http.post({"inputs": PLAIN.prompt, "parameters": {"top_k": 0, "top_p": 0, "temperature": 0.8}})
        # Its min_length of 1: the model would end at once.
        first = await http.post({"inputs": said, "parameters": {"max_new_tokens": 3}})
        drawn = {"do_sample": True, "seed": 3, "min_length": 12, "request_output_len": 12}
        spelt = {**drawn, "temperature": 1.0, "runtime_top_k": 5, "runtime_top_p": 0.85}
        answers = [await http.post({"inputs": said, "parameters": given}) for given in (drawn, spelt)]
        wrong = await http.post({"inputs": said, "parameters": {"end_id": "x"}})
    assert greedy.json() == {"generated_text": PLAIN.answer}
    assert first.json()["generated_text"] != ""
    assert answers[0].json() == answers[1].json()
    assert (wrong.status_code, wrong.json()["error"]) == (
        424,
        "parameters.end_id: expected an integer >= -1, got 'x'",
    )


@pytest.mark.parametrize("trtllm", ["server"], indirect=True)
async def test_the_log_says_once_that_it_runs_on_vllm(trtllm: Host) -> None:
    assert trtllm.log_text().count("option.rolling_batch=trtllm runs on vLLM") == 1
