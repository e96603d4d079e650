"""The host of the other tests, tried with handlers of a few lines: what reaches Python, and what reaches the client."""

from __future__ import annotations

import json
import os
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import pytest

from .hosting import DjlHost, HostError, available
from .lockout import locked_out

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))

Start = Callable[..., DjlHost]

ROLLING = """
    from djl_python import Output

    running = []  # the frames still to send of every request, in Java's order
    resets = 0

    def handle(inputs):
        global resets
        if not inputs.get_properties().get("batch_size"):
            return None
        if inputs.get_property("reset_rollingbatch"):
            resets += 1
            running.clear()
        for item in inputs.get_batches()[len(running):]:
            asked = item.get_as_json("data")
            running.append({"type": asked.get("type"), "frames": list(asked["frames"]), "asked": asked})
        output = Output()
        faults = [one["asked"]["fault"] for one in running if "fault" in one["asked"]]
        if faults and len(running) > 1:
            if faults == ["raise"]:
                raise RuntimeError("over")
            return output
        for index, one in enumerate(running):
            if "fault" in one["asked"]:
                output.add(Output.binary_encode({"data": "", "last": False}))
                continue
            frame = one["frames"].pop(0)
            if isinstance(frame, str):
                frame = {"data": frame.replace("<resets>", str(resets))}
            output.add(Output.binary_encode({"data": "", **frame, "last": not one["frames"]}))
            if one["type"]:
                output.add_property(f"batch_{index}_Content-Type", one["type"])
        running[:] = [one for one in running if one["frames"] or "fault" in one["asked"]]
        return output
"""

ASYNC = """
    import asyncio
    import json

    from djl_python import Output

    async def frames(asked):
        for index, frame in enumerate(asked["frames"]):
            output = Output().add_property("Content-Type", asked.get("type", "application/jsonlines"))
            if isinstance(frame, str):
                frame = {"data": frame}
            last = index + 1 == len(asked["frames"])
            yield output.add(Output.binary_encode({"data": "", **frame, "last": last}))
            await asyncio.sleep(asked.get("pause", 0))

    registered = []

    async def register_adapter(inputs):
        preload = inputs.get_as_string("preload") if inputs.contains_key("preload") else ""
        registered.append([inputs.get_property("name"), inputs.get_property("src").rpartition("/")[2], preload])
        return Output().add(Output.binary_encode({"data": "done", "last": True}))

    async def handle(inputs):
        if not inputs.contains_key("data"):
            return None
        asked = inputs.get_as_json("data")
        return frames(asked if "frames" in asked else {"frames": [json.dumps(registered)]})
"""

PLAIN = """
    from djl_python import Output

    initial = {}

    def handle(inputs):
        properties = {key: str(value) for key, value in inputs.get_properties().items()}
        if inputs.get_content().is_empty():
            initial.update(properties)
            if "broken" in properties:
                return Output(code=500, message=properties["broken"])
            return None
        output = Output()
        for item in inputs.get_batches():
            content = item.get_content()
            keys = [content.key_at(i) for i in range(content.size())]
            values = [bytes(content.value_at(i)).decode() for i in range(content.size())]
            seen = {
                "properties": {key: str(value) for key, value in item.get_properties().items()},
                "content": list(zip(keys, values, strict=True)),
                "initial": initial,
            }
            output.add_property("Content-Type", "application/json").add_as_json(seen)
        return output
"""


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts hosts of one handler each, and ends them with the module."""
    hosts: list[DjlHost] = []

    def start(model_py: str, serving_properties: str = "", adapter: str = "", **options: Any) -> DjlHost:
        model_dir = tmp_path_factory.mktemp("model")
        if adapter:
            (model_dir / "adapters" / adapter).mkdir(parents=True)
        (model_dir / "model.py").write_text(textwrap.dedent(model_py))
        (model_dir / "serving.properties").write_text(textwrap.dedent(serving_properties))
        log = tmp_path_factory.mktemp("log") / "host.log"
        host = DjlHost(model_dir, python=Path(sys.executable), log=log, **options)
        hosts.append(host)
        return host

    yield start
    for host in hosts:
        host.stop()


@pytest.fixture(scope="module")
def rolling(start: Start) -> DjlHost:
    return start(ROLLING, "option.rolling_batch=scheduler", environment={"SERVING_CHUNKED_READ_TIMEOUT": "20"})


@pytest.fixture(scope="module")
def asynchronous(start: Start) -> DjlHost:
    return start(ASYNC, "option.rolling_batch=disable\noption.async_mode=true\nretry_threshold=10")


@pytest.fixture(scope="module")
def plain(start: Start) -> DjlHost:
    serving_properties = """
        option.rolling_batch=disable
        option.from_file=file
        minWorkers=1
    """
    environment = {"OPTION_FROM_FILE": "lost", "OPTION_FROM_ENVIRONMENT": "kept"}
    return start(PLAIN, serving_properties, environment=environment, properties={"option.from_test": "test"})


def post(host: DjlHost, body: Mapping[str, object], path: str = "/invocations", **options: Any) -> httpx.Response:
    return httpx.post(host.url + path, json=body, timeout=30, trust_env=False, verify=False, **options)


@contextmanager
def streamed(host: DjlHost, body: Mapping[str, object]) -> Iterator[httpx.Response]:
    with (
        httpx.Client(timeout=30, trust_env=False, verify=False) as client,
        client.stream("POST", host.url + "/invocations", json=body) as response,
    ):
        yield response


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


class TestRolling:
    def test_every_frame_is_a_chunk(self, rolling: DjlHost) -> None:
        body = {"frames": ["one\n", "", "two\n", "drei ü\n"], "type": "application/jsonlines"}
        with streamed(rolling, body) as response:
            # a frame without text sends nothing
            assert list(response.iter_raw()) == [b"one\n", b"two\n", "drei ü\n".encode()]
        assert response.status_code == 200
        assert response.headers["content-type"] == "application/jsonlines"
        assert response.headers["transfer-encoding"] == "chunked"

    def test_error_frame_in_a_stream(self, rolling: DjlHost) -> None:
        # Java reads the status when it comes to the first chunk; until then an error's would be there too.
        later = [""] * 300
        response = post(rolling, {"frames": ["one", *later, {"data": "lost", "code": 500, "error": "over"}]})
        assert response.status_code == 200
        assert response.text.startswith("one{")
        assert json.loads(response.text[3:]) == {"error": "over", "code": 500}

    def test_error_with_a_line_break_is_a_500(self, rolling: DjlHost) -> None:
        response = post(rolling, {"frames": [{"code": 422, "error": "two\nlines"}]})
        assert response.status_code == 500

    @pytest.mark.parametrize(("fault", "code"), [("raise", 424), ("miscount", 200)])
    def test_a_fault_fails_all_in_flight(self, rolling: DjlHost, fault: str, code: int) -> None:
        """Java then asks for a reset with the next call. Of a wrong number of frames it keeps the Output's code,
        so that clients take a failure for a success."""
        before = int(post(rolling, {"frames": ["<resets>"]}).text)
        answers = self.two_at_once(rolling, fault)
        assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(code, code)] * 2
        assert [answer.json()["message"] for answer in answers] == ["Batch inference failed"] * 2
        assert int(post(rolling, {"frames": ["<resets>"]}).text) == before + 1

    def two_at_once(self, rolling: DjlHost, fault: str) -> list[httpx.Response]:
        """One that waits for a second, which brings about the fault."""
        answers: list[httpx.Response] = []
        waiting = threading.Thread(target=lambda: answers.append(post(rolling, {"frames": [], "fault": fault})))
        waiting.start()
        time.sleep(0.5)
        answers.append(post(rolling, {"frames": ["never"]}))
        waiting.join(30)
        return answers


KILLED = (
    b'{"code":500,"message":"Inference Engine Failure","properties":{},"content":{"keys":[],"values":[]},'
    b'"cancelled":false}'
)


class TestAsync:
    def test_a_killed_worker_ends_a_stream_with_a_chunk_of_javas(self, asynchronous: DjlHost) -> None:
        """And without a line end, as if the stream were complete: seen on DJL Serving 0.36.0 too, byte for byte."""
        before = asynchronous.worker_pid
        with streamed(asynchronous, {"frames": ["one\n", "late"], "pause": 20}) as response:
            chunks = response.iter_raw()
            assert next(chunks) == b"one\n"
            os.kill(before, 9)
            assert b"".join(chunks) == KILLED
        assert (response.status_code, response.headers["transfer-encoding"]) == (200, "chunked")
        end = time.monotonic() + 30
        while post(asynchronous, {"frames": ["back"]}).status_code != 200:
            assert time.monotonic() < end
            time.sleep(0.1)

    def test_java_tells_what_its_threads_do(self, asynchronous: DjlHost) -> None:
        dump = asynchronous.thread_dump()
        assert "lmi.testhost.Workers.run" in dump
        assert not locked_out(dump)


def test_adapters(start: Start) -> None:
    """Those of the model directory before the first request, others by the management call.

    DJL Serving passes on code and message alone, and in async mode it does not wait for them.
    """
    properties = "option.async_mode=true\noption.enable_lora=true\nretry_threshold=10"
    host = start(ASYNC, properties, adapter="first")

    def ask(method: str, path: str) -> httpx.Response:
        return httpx.request(method, f"{host.url}{path}", trust_env=False, verify=False)

    added = ask("POST", "/models/m/adapters?name=second&src=/a/b&preload=false")
    assert (added.status_code, added.json()) == (200, {"status": "OK"})
    assert post(host, {}).json() == [["first", "first", ""], ["second", "b", "false"]]
    assert ask("POST", "/adapters?name=second&src=/a/b").status_code == 409
    assert ask("DELETE", "/adapters/third").status_code == 404


def test_rolling_worker_that_dies_between_calls(start: Start) -> None:
    """Nobody notices: every request is refused for good, and the host calls itself healthy."""
    host = start(ROLLING, "option.rolling_batch=scheduler")
    assert post(host, {"frames": ["one"]}).text == "one"
    os.kill(host.worker_pid, 9)
    time.sleep(0.5)
    for _ in range(3):
        response = post(host, {"frames": ["one"]})
        assert (response.status_code, response.json()["message"]) == (400, "Backend Python process is stopped.")
    assert httpx.get(f"{host.url}/ping", trust_env=False, verify=False).status_code == 200
    with pytest.raises(HostError, match="no Python worker"):
        host.worker_pid  # noqa: B018


class TestPlain:
    def test_what_reaches_python(self, plain: DjlHost) -> None:
        """Names of headers as they were sent; parameters ahead of the body."""
        headers = {
            "X-Amzn-SageMaker-FOO": "bar",
            "x-lower": "1",
            "X-Amzn-SageMaker-Custom-Attributes": "k=v;k2 = a=b,c;dropped",
            "Content-Type": "application/json",
        }
        with closing(HTTPConnection("127.0.0.1", plain.port, timeout=30)) as connection:
            connection.request("POST", "/invocations?a=1&b=x%20y", "{}", headers)
            seen = json.load(connection.getresponse())
        assert seen["content"] == [["a", "1"], ["b", "x y"], ["data", "{}"]]
        properties = seen["properties"]
        assert properties["X-Amzn-SageMaker-FOO"] == "bar"
        assert properties["x-lower"] == "1"
        assert properties["k"] == "v"
        assert properties["k2"] == "a=b,c"
        assert "X-Amzn-SageMaker-Custom-Attributes" not in properties
        assert len(properties["requestId"]) == 36
        assert properties["handler"] == "handle"

    def test_options_at_the_start(self, plain: DjlHost) -> None:
        seen = post(plain, {}).json()["initial"]
        assert seen["from_file"] == "file"
        assert seen["from_environment"] == "kept"
        assert seen["from_test"] == "test"
        assert seen["handler"] == "handle"
        assert seen["device_id"] == "-1"
        assert {"model_dir", "cluster_size"} <= seen.keys()

    def test_the_handler_is_not_the_clients_choice(self, plain: DjlHost) -> None:
        response = post(plain, {}, headers={"handler": "other"})
        assert response.status_code == 400
        assert response.json()["type"] == "BadRequestException"


WHAT_DJL_SERVING_ADDS = [
    # Mode by the file and the environment, what it adds: seen on DJL Serving 0.36.0, which was asked the same.
    (
        "option.rolling_batch=vllm",
        {"ARGS_MINE": "1", "ARGS_maxIdle": "2", "SERVING_MIN_WORKERS": "1", "SERVING_MAX_WORKERS": "3"},
        {
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
    model_dir = tmp_path / "model"
    model_dir.mkdir()
    (model_dir / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    (model_dir / "serving.properties").write_text(text)
    (model_dir / "model.py").write_text(textwrap.dedent(TELLING_ITS_OPTIONS))
    with suppress(HostError):
        DjlHost(
            model_dir, python=Path(sys.executable), log=tmp_path / "log", environment=environment, timeout=60
        ).stop()
    told = json.loads((model_dir / "seen.json").read_text())
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


def test_failed_start_says_why(start: Start) -> None:
    with pytest.raises(HostError, match="Failed to initialize model: no weights"):
        start(PLAIN, "option.rolling_batch=disable\noption.broken=no weights")


def test_two_hosts_and_no_orphans(start: Start) -> None:
    """A child in a session of its own is ended as well."""
    child = f"import subprocess\n\nsubprocess.Popen(['sleep', '300'], start_new_session=True)\n{textwrap.dedent(PLAIN)}"
    with start(child, "option.rolling_batch=disable") as one, start(child, "option.rolling_batch=disable") as two:
        pids = [one.pid, one.worker_pid, two.pid, two.worker_pid]
        assert len(set(pids)) == 4
        sleepers = [pid for pid in _sleepers() if _parent(pid) in (one.worker_pid, two.worker_pid)]
        assert len(sleepers) == 2
        assert post(one, {}).status_code == post(two, {}).status_code == 200
        pids += sleepers
    one.stop()
    deadline = time.monotonic() + 5
    # A process is there for a moment after its SIGKILL.
    while (left := [pid for pid in pids if alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not left


def _sleepers() -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if path.read_bytes() == b"sleep\x00300\x00":
                yield int(path.parent.name)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
