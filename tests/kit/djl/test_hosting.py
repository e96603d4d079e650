"""The host of the other tests, tried with handlers of a few lines: what reaches Python, and what reaches the client."""

from __future__ import annotations

import json
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import pytest

from .hosting import DjlHost, HostError, available

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))

ROLLING = """
    from djl_python import Output

    running = []  # what was asked in every request, in Java's order
    resets = 0

    def handle(inputs):
        global resets
        if not inputs.get_properties().get("batch_size"):
            return None
        if inputs.get_property("reset_rollingbatch"):
            resets += 1
            running.clear()
        running.extend(item.get_as_json("data") for item in inputs.get_batches()[len(running):])
        output = Output()
        faults = [asked["fault"] for asked in running if "fault" in asked]
        if faults and len(running) > 1:
            if faults == ["raise"]:
                raise RuntimeError("over")
            return output
        for asked in running:
            frame = {"data": ""} if "fault" in asked else asked["frames"].pop(0)
            if frame == "resets":
                frame = {"data": str(resets)}
            last = not asked["frames"] and "fault" not in asked
            output.add(Output.binary_encode({"data": "", **frame, "last": last}))
        running[:] = [asked for asked in running if asked["frames"] or "fault" in asked]
        return output
"""

PLAIN = """
    from djl_python import Output

    def handle(inputs):
        if inputs.get_content().is_empty():
            return None
        output = Output()
        for item in inputs.get_batches():
            content = item.get_content()
            keys = [content.key_at(i) for i in range(content.size())]
            values = [bytes(content.value_at(i)).decode() for i in range(content.size())]
            seen = {
                "properties": {key: str(value) for key, value in item.get_properties().items()},
                "content": list(zip(keys, values, strict=True)),
            }
            output.add_property("Content-Type", "application/json").add_as_json(seen)
        return output
"""


def started(folder: Path, model_py: str, serving_properties: str, **options: Any) -> DjlHost:
    """The host of a model directory in `folder` with this handler."""
    (folder / "model.py").write_text(textwrap.dedent(model_py))
    (folder / "serving.properties").write_text(serving_properties)
    return DjlHost(folder, python=Path(sys.executable), log=folder / "host.log", **options)


@pytest.fixture(scope="module")
def rolling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DjlHost]:
    with started(tmp_path_factory.mktemp("model"), ROLLING, "option.rolling_batch=scheduler") as host:
        yield host


def post(host: DjlHost, *frames: object, **fault: str) -> httpx.Response:
    """What is answered to a request that is to get these frames."""
    asked = {"frames": frames, **fault}
    return httpx.post(f"{host.url}/invocations", json=asked, timeout=30, trust_env=False, verify=False)


def test_an_error_frame_in_a_stream(rolling: DjlHost) -> None:
    # Java reads the status when it comes to the first chunk; until then an error's would be there too.
    later = [{"data": ""}] * 300
    response = post(rolling, {"data": "one"}, *later, {"data": "lost", "code": 500, "error": "over"})
    assert response.status_code == 200
    assert response.text.startswith("one{")
    assert json.loads(response.text[3:]) == {"error": "over", "code": 500}


def test_an_error_with_a_line_break_is_a_500(rolling: DjlHost) -> None:
    assert post(rolling, {"code": 422, "error": "two\nlines"}).status_code == 500


@pytest.mark.parametrize(("fault", "code"), [("raise", 424), ("miscount", 200)])
def test_a_fault_fails_all_in_flight(rolling: DjlHost, fault: str, code: int) -> None:
    """Java then asks for a reset with the next call. Of a wrong number of frames it keeps the Output's code,
    so that clients take a failure for a success."""
    before = int(post(rolling, "resets").text)
    with ThreadPoolExecutor(1) as threads:
        # The second one brings about the fault of the first, which waits.
        waiting = threads.submit(post, rolling, fault=fault)
        time.sleep(0.5)
        answers = [post(rolling, {"data": "never"}), waiting.result(30)]
    assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(code, code)] * 2
    assert [answer.json()["message"] for answer in answers] == ["Batch inference failed"] * 2
    assert int(post(rolling, "resets").text) == before + 1


def test_what_reaches_python(tmp_path: Path) -> None:
    """Names of headers as they were sent; parameters ahead of the body."""
    headers = {
        "X-Amzn-SageMaker-FOO": "bar",
        "x-lower": "1",
        "X-Amzn-SageMaker-Custom-Attributes": "k=v;k2 = a=b,c;dropped",
        "Content-Type": "application/json",
    }
    with (
        started(tmp_path, PLAIN, "option.rolling_batch=disable\nminWorkers=1") as plain,
        closing(HTTPConnection("127.0.0.1", plain.port, timeout=30)) as connection,
    ):
        connection.request("POST", "/invocations?a=1&b=x%20y", "{}", headers)
        seen = json.load(connection.getresponse())
    assert seen["content"] == [["a", "1"], ["b", "x y"], ["data", "{}"]]
    properties = seen["properties"]
    assert len(properties.pop("requestId")) == 36
    wanted = {"X-Amzn-SageMaker-FOO": "bar", "x-lower": "1", "k": "v", "k2": "a=b,c", "handler": "handle"}
    assert wanted.items() <= properties.items()
    assert "X-Amzn-SageMaker-Custom-Attributes" not in properties


WHAT_DJL_SERVING_ADDS = [
    # Mode by the file and the environment, what it adds: seen on DJL Serving 0.36.0, which was asked the same.
    (
        "option.rolling_batch=vllm\noption.from_file=file",
        {"OPTION_FROM_FILE": "lost", "OPTION_KEPT": "yes", "ARGS_MINE": "1", "ARGS_maxIdle": "2",
         "SERVING_MIN_WORKERS": "1", "SERVING_MAX_WORKERS": "3"},
        {
            "from_file": "file", "kept": "yes",
            "rolling_batch": "vllm", "max_rolling_batch_size": "256", "pipeline_parallel_degree": "1", "mine": "1",
            "maxIdle": "2", "minWorkers": "1", "maxWorkers": "3",
        },
    ),
    (
        "maxWorkers=1",
        {"SAGEMAKER_NUM_MODEL_WORKERS": "2", "SAGEMAKER_STARTUP_TIMEOUT": "99",
         "SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS": "33"},
        {
            "rolling_batch": "disable", "async_mode": "true", "max_rolling_batch_size": "32",
            "pipeline_parallel_degree": "1", "minWorkers": "2", "maxWorkers": "2", "model_loading_timeout": "99",
            "predict_timeout": "33",
        },
    ),
    (
        "option.rolling_batch=vllm\nbatch_size=4",
        {},
        {
            "rolling_batch": "disable", "max_rolling_batch_size": "32", "pipeline_parallel_degree": "1",
            "batch_size": "4", "batchifier": "stack",
        },
    ),
    (
        "max_dynamic_batch_size=4",
        {},
        {
            "rolling_batch": "disable", "async_mode": "true", "max_rolling_batch_size": "32",
            "pipeline_parallel_degree": "1", "max_dynamic_batch_size": "4", "batch_size": "4", "batchifier": "stack",
        },
    ),
    (
        "option.rolling_batch=lmi-dist\noption.max_rolling_batch_size=7",
        {"TENSOR_PARALLEL_DEGREE": "1"},
        {
            "rolling_batch": "vllm", "mpi_mode": "false", "max_rolling_batch_size": "7",
            "pipeline_parallel_degree": "1", "tensor_parallel_degree": "1", "gpu.minWorkers": "1",
            "gpu.maxWorkers": "1",
        },
    ),
]  # fmt: skip
OF_EVERY_START = {"handler", "device_id", "cluster_size", "model_dir"}


@pytest.mark.parametrize(("text", "environment", "added"), WHAT_DJL_SERVING_ADDS, ids=lambda one: str(one)[:24])
def test_the_host_adds_what_djl_serving_adds(
    tmp_path: Path, text: str, environment: dict[str, str], added: dict[str, str]
) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    with suppress(HostError):
        started(tmp_path, TELLING_ITS_OPTIONS, text, environment=environment, timeout=60).stop()
    told = json.loads((tmp_path / "seen.json").read_text())
    assert {name: value for name, value in told.items() if name not in OF_EVERY_START} == added


TELLING_ITS_OPTIONS = """
    import asyncio
    import json
    from pathlib import Path

    async def nothing():
        return None

    def handle(inputs):
        told = {key: str(value) for key, value in inputs.get_properties().items()}
        Path(__file__).with_name("seen.json").write_text(json.dumps(told))
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return None
        return nothing()
"""
