"""What SageMaker asks a container: the scripts' first requests, and a batch transform's; with the parrot's engine."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
import httpx
import pytest

from ..demo.model import question
from ..kit.clients.account import Account, Step
from ..kit.clients.bridge import Bridge, serving
from ..kit.hosts.host import Host, Server, model_directory, start, with_parrot
from ..kit.pages import blocks_of
from ..kit.paths import DOCS

pytestmark = [pytest.mark.processes, pytest.mark.engine, pytest.mark.once]

PAGE = DOCS / "sagemaker.md"
SCRIPTS = DOCS / "sagemaker"
LMI = Path(sys.executable).with_name("lmi")
LONG = {"max_new_tokens": 500}
ASKED = [question(kind) for kind in ("plain", "unicode", "json", "long")]


@pytest.fixture(scope="module")
def server(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A container without DJL Serving: it has what `lmi package` makes and SageMaker unpacks."""
    folder = tmp_path_factory.mktemp("server")
    archive, unpacked = folder / "model.tar.gz", folder / "unpacked"
    packing = [LMI, "package", model_directory(demo_model, folder / "model", {}), "-o", archive]
    subprocess.run([*map(str, packing)], check=True, stderr=subprocess.DEVNULL)
    with tarfile.open(archive) as packed:
        packed.extractall(unpacked, filter="data")
    server = Server(unpacked, folder / "log", environment=with_parrot())
    yield server
    server.stop()


def test_the_first_requests_are_answered(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    script = runpy.run_path(str(SCRIPTS / "deploy_boto3.py"))
    with serving(Bridge(server.url, seed=1).app) as url:
        script["ask"](Account([], url).session(), "demo", json.loads(script["REQUEST"]))
    whole, first, *_ = capsys.readouterr().out.splitlines()
    assert json.loads(whole)["choices"][0]["message"]["content"] == "The capital of France is Paris."
    assert first.startswith("data: ")


def test_without_djl_serving_there_is_one_model(server: Server) -> None:
    """What a multi-model endpoint asks its container is not there."""
    asked = ("GET /models", "POST /models", "GET /models/a", "DELETE /models/a", "POST /models/a/invoke")
    with httpx.Client(base_url=server.url) as http:
        assert {one: http.request(*one.split()).status_code for one in asked} == dict.fromkeys(asked, 404)


@pytest.fixture(
    scope="module", params=["server", *(pytest.param(kind, marks=pytest.mark.djl) for kind in ("rolling", "async"))]
)
def container(
    request: pytest.FixtureRequest, demo_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("container")
    host = start(request.param, model_directory(demo_model, folder / "model", {}), folder / "log", parrot=True)
    yield host
    host.stop()


def test_a_batch_transform(container: Host) -> None:
    """SplitType=Line, SingleRecord and AssembleWith=Line: a line of the output for each of the input, in order."""
    records = [json.dumps({"inputs": asked.prompt, "parameters": LONG}).encode() + b"\n" for asked in ASKED]

    def transformed(http: httpx.Client, record: bytes) -> bytes:
        answer = http.post("/invocations", content=record, headers={"content-type": "application/jsonlines"})
        assert answer.status_code == 200, answer.text
        return answer.content.rstrip(b"\n")

    with httpx.Client(base_url=container.url, timeout=60) as http, ThreadPoolExecutor(len(records)) as threads:
        # Before the first record; without an answer MaxConcurrentTransforms is the job's.
        assert http.get("/execution-parameters").status_code == 404
        output = b"\n".join(threads.map(lambda record: transformed(http, record), records))
        several = http.post(
            "/invocations", content=b"".join(records), headers={"content-type": "application/jsonlines"}
        )
    assert [json.loads(line)["generated_text"] for line in output.splitlines()] == [asked.answer for asked in ASKED]
    # MultiRecord.
    assert (several.status_code, "expected one line of application/jsonlines" in several.text) == (424, True)


def test_the_page_asks_for_a_batch_transform(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the service's model has it, and with its own limit: the records sent at once may be 100 MB."""
    (block,) = [block for block in blocks_of(PAGE) if block.language == "python"]
    made = {"TransformJobArn": "arn:aws:sagemaker:us-east-1:111122223333:transform-job/j"}
    account = Account([Step("sagemaker.create_transform_job", made)])
    monkeypatch.setattr(boto3, "client", account.session().client)
    exec(compile(block.text, str(PAGE), "exec"), {})
    account.done()
    ((_, given),) = account.calls
    assert given["TransformInput"]["SplitType"] == given["TransformOutput"]["AssembleWith"] == "Line"
    assert given["BatchStrategy"] == "SingleRecord"
    assert given["MaxConcurrentTransforms"] * given["MaxPayloadInMB"] <= 100
