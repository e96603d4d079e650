"""Embeddings on every host: the local server, and the real DJL engine in each of its modes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from ..kit.clients.scripts import OURS, run_python
from ..kit.hosts.host import Host, client, model_directory, running
from ..kit.models.embedding import CONTEXT, Reference, build_bert
from ..kit.pages import blocks_of
from ..kit.paths import DOCS

pytestmark = [pytest.mark.engine, pytest.mark.djl]

WIDTH = 1024
"""Numbers of a vector: enough for an answer to be too long for DJL."""
TEXTS = ["what is deep learning?", "a", "how many ways can i peel an orange"]
LONG = "abcdefghij " * 30


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_bert(tmp_path_factory.mktemp("models") / "bert", WIDTH, layers=1)


@pytest.fixture(scope="module")
def reference(bert: Path) -> Reference:
    return Reference(bert, "cls")


@pytest.fixture(scope="module", params=["server", "rolling", "async", "dynamic"])
def host(request: pytest.FixtureRequest, bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp(request.param)
    properties = {
        "option.task": "text-embedding",
        "option.max_model_len": str(CONTEXT),
        "option.served_model_name": "tiny",
    }
    with running(request.param, model_directory(bert, folder / "model", properties), folder / "log") as host:
        yield host


def kind_of(request: pytest.FixtureRequest) -> str:
    """Which host the test runs on."""
    return str(request.node.callspec.params["host"])


only_server = pytest.mark.parametrize("host", ["server"], indirect=True)


def near(expected: list[float]) -> Any:
    return pytest.approx(expected, abs=1e-5)


def post(host: Host, body: object, path: str = "/invocations") -> httpx.Response:
    return httpx.post(f"{host.url}{path}", json=body, timeout=60)


def test_texts_in_their_order(host: Host, reference: Reference) -> None:
    """One, and more than one record's worth of them, of every length."""
    answer = post(host, {"inputs": TEXTS[0]})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json() == [near(reference.vector(TEXTS[0]))]
    texts = [*TEXTS, *("xyz "[: 1 + index % 4] * (1 + index % 9) for index in range(100))]
    vectors = post(host, {"inputs": texts}).json()
    for text, vector in zip(texts, vectors, strict=True):
        assert vector == near(reference.vector(text))


@pytest.mark.anyio
async def test_requests_at_once(host: Host, reference: Reference) -> None:
    """Each gets its own, and a bad one hurts no other."""
    bodies: list[Any] = [{"inputs": [text, "x"]} for text in TEXTS * 5]
    bodies.insert(7, {"inputs": ["a", LONG]})
    async with client(host) as clients:
        answers = await asyncio.gather(*(clients.post(body) for body in bodies))
    bad = answers.pop(7)
    assert "inputs[1]: prompt is too long: " in bad.json()["error"]
    for text, answer in zip(TEXTS * 5, answers, strict=True):
        assert answer.json()[0] == near(reference.vector(text))


def test_an_error_of_openais(host: Host, request: pytest.FixtureRequest) -> None:
    """OpenAI's error object where the host can send it; else Java's (docs/decisions.md: Errors behind DJL Serving)."""
    answer = post(host, {"input": ["a", LONG]})
    assert answer.status_code == 400
    error = answer.json()["error"]
    if kind_of(request) in {"rolling", "async"}:
        assert error.startswith("input[1]: prompt is too long: ")
    else:
        assert (error["type"], error["param"]) == ("invalid_request_error", "input[1]")


@only_server
def test_the_documented_example(host: Host) -> None:
    (code,) = [block.text for block in blocks_of(DOCS / "embeddings.md") if block.language == "python"]
    shown = code.replace("http://127.0.0.1:8080", host.url) + "print(len(vector))"
    assert run_python(OURS, ["-c", shown]) == f"{WIDTH}\n"


@only_server
def test_openais_client(host: Host, reference: Reference) -> None:
    """It asks for base64 unless told otherwise."""
    with openai.OpenAI(base_url=f"{host.url}/v1", api_key="none", max_retries=0) as caller:
        asked: list[dict[str, Any]] = [{}, {"encoding_format": "float", "user": "someone"}]
        for more in asked:
            answer = caller.embeddings.create(model="any", input=TEXTS, **more)
            assert (answer.model, answer.object) == ("tiny", "list")
            assert answer.usage.prompt_tokens == sum(len(reference.ids(text)) for text in TEXTS)
            for text, entry in zip(TEXTS, answer.data, strict=True):
                assert entry.embedding == near(reference.vector(text))
        with pytest.raises(openai.BadRequestError, match=f"dimensions: expected {WIDTH}"):
            caller.embeddings.create(model="any", input="a", dimensions=8)


@only_server
def test_hugging_faces_client(host: Host, reference: Reference, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written for text-embeddings containers: texts and fields side by side, and a list of lists back."""
    from huggingface_hub import InferenceClient, constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    caller = InferenceClient(f"{host.url}/invocations", timeout=60)
    (vector,) = caller.feature_extraction(TEXTS[0])
    assert [*map(float, vector)] == near(reference.vector(TEXTS[0]))
    (plain,) = caller.feature_extraction(TEXTS[0], normalize=False, truncate=True, truncation_direction="left")
    assert [*map(float, plain)] == near(reference.vector(TEXTS[0], normalize=False))


def test_an_answer_that_is_longer_than_a_field_of_the_hosts_protocol(host: Host, reference: Reference) -> None:
    """Above 20 MB DJL closes its channel to the worker: sent in slices."""
    answer = post(host, {"inputs": ["a"] * 1024})
    assert answer.status_code == 200
    assert len(answer.content) > 20 << 20
    vectors = answer.json()
    assert len(vectors) == 1024
    for vector in (vectors[0], vectors[1023]):
        assert vector == near(reference.vector("a"))
