"""Embeddings on every host: the local server, and the real DJL engine in each of its modes."""

from __future__ import annotations

import asyncio
import base64
import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from ..kit.clients.scripts import OURS, run_python
from ..kit.djl import hosting
from ..kit.hosts.host import Host, client, model_directory, start
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
    kind = request.param
    if kind != "server" and (missing := hosting.available()):
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp(kind)
    properties = {
        "option.task": "text-embedding",
        "option.max_model_len": str(CONTEXT),
        "option.served_model_name": "tiny",
    }
    running = start(kind, model_directory(bert, folder / "model", properties), folder / "log")
    yield running
    running.stop()


def kind_of(request: pytest.FixtureRequest) -> str:
    """Which host the test runs on."""
    return str(request.node.callspec.params["host"])


def near(expected: list[float]) -> Any:
    return pytest.approx(expected, abs=1e-5)


def post(host: Host, body: object, path: str = "/invocations") -> httpx.Response:
    return httpx.post(f"{host.url}{path}", json=body, timeout=60)


def test_one_text(host: Host, reference: Reference) -> None:
    answer = post(host, {"inputs": TEXTS[0]})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json() == [near(reference.vector(TEXTS[0]))]


def test_texts_in_their_order(host: Host, reference: Reference) -> None:
    """More than one record's worth of texts, of every length."""
    texts = [*TEXTS, *("xyz "[: 1 + index % 4] * (1 + index % 9) for index in range(100))]
    answer = post(host, {"inputs": texts}).json()
    assert len(answer) == len(texts)
    for text, vector in zip(texts, answer, strict=True):
        assert vector == near(reference.vector(text))
        assert math.hypot(*vector) == pytest.approx(1, abs=1e-5)


def test_fields_of_a_request(host: Host, reference: Reference) -> None:
    (plain,) = post(host, {"inputs": TEXTS[0], "parameters": {"normalize": False}}).json()
    assert plain == near(reference.vector(TEXTS[0], normalize=False))
    ids = reference.ids(LONG)
    (cut,) = post(host, {"inputs": LONG, "truncate": True}).json()
    assert cut == near(reference.vector([*ids[: CONTEXT - 1], ids[-1]]))


def test_openais_form(host: Host, reference: Reference) -> None:
    given = [reference.ids(text) for text in TEXTS]
    for inputs in (TEXTS, given):
        answer = post(host, {"input": inputs, "model": "any"}).json()
        assert (answer["object"], answer["model"]) == ("list", "tiny")
        tokens = sum(map(len, given))
        assert answer["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
        assert [entry["index"] for entry in answer["data"]] == [0, 1, 2]
        for text, entry in zip(TEXTS, answer["data"], strict=True):
            assert entry["object"] == "embedding"
            assert entry["embedding"] == near(reference.vector(text))


def test_base64_decodes_to_the_same_numbers(host: Host) -> None:
    body = {"input": TEXTS}
    whole = [entry["embedding"] for entry in post(host, body).json()["data"]]
    for numbers, entry in zip(whole, post(host, {**body, "encoding_format": "base64"}).json()["data"], strict=True):
        # Computed twice, and not always to the last bit.
        assert [*struct.unpack(f"<{WIDTH}f", base64.b64decode(entry["embedding"]))] == near(numbers)


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


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"inputs": ["a", LONG]}, "inputs[1]: prompt is too long: "),
        ({"inputs": ["a", 5]}, "inputs[1]: expected a non-empty string, got 5"),
        ({"inputs": "a", "dimensions": 8}, f"dimensions: expected {WIDTH}: the model is not trained for others"),
        (
            {"inputs": "a", "parameters": {"max_new_tokens": 5}},
            "parameters.max_new_tokens: this model makes embeddings and generates no text",
        ),
    ],
    ids=["context", "type", "dimensions", "generation"],
)
def test_errors_of_inputs(host: Host, body: dict[str, Any], message: str) -> None:
    """LMI's 424."""
    answer = post(host, body)
    assert answer.status_code == 424
    told = answer.json()
    assert told["code"] == 424
    assert told["error"].startswith(message)


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ({"input": ["a", LONG]}, "input[1]", "input[1]: prompt is too long: "),
        ({"input": "a", "dimensions": 8}, "dimensions", f"dimensions: expected {WIDTH}: the model is not trained"),
        ({"input": [10**6]}, "input", "input: expected tokens that the model has, below"),
        ({"prompt": "a"}, "inputs", "this model makes embeddings and generates no text"),
    ],
    ids=["context", "dimensions", "token", "generation"],
)
def test_errors_of_input(
    host: Host, request: pytest.FixtureRequest, body: dict[str, Any], param: str, message: str
) -> None:
    """OpenAI's error object where the host can send it; else Java's (docs/decisions.md: Errors behind DJL Serving)."""
    answer = post(host, body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    if kind_of(request) in {"rolling", "async"}:
        assert error.startswith(message)
        return
    assert error["message"].startswith(message)
    assert (error["type"], error["param"]) == ("invalid_request_error", param)


def test_the_documented_example(host: Host, request: pytest.FixtureRequest) -> None:
    if kind_of(request) != "server":
        pytest.skip("OpenAI's paths are the local server's")
    (code,) = [block.text for block in blocks_of(DOCS / "embeddings.md") if block.language == "python"]
    shown = code.replace("http://127.0.0.1:8080", host.url) + "print(len(vector))"
    assert run_python(OURS, ["-c", shown]) == f"{WIDTH}\n"


def test_openais_client(host: Host, request: pytest.FixtureRequest, reference: Reference) -> None:
    """It asks for base64 unless told otherwise. Behind DJL what it posts goes to /invocations."""

    def to_invocations(sent: httpx.Request) -> None:
        sent.url = sent.url.copy_with(path="/invocations")

    hooks = [] if kind_of(request) == "server" else [to_invocations]
    with (
        openai.DefaultHttpxClient(event_hooks={"request": hooks}, timeout=60) as http,
        openai.OpenAI(base_url=f"{host.url}/v1", api_key="none", http_client=http, max_retries=0) as caller,
    ):
        asked: list[dict[str, Any]] = [{}, {"encoding_format": "float", "user": "someone"}]
        for more in asked:
            answer = caller.embeddings.create(model="any", input=TEXTS, **more)
            assert (answer.model, answer.object) == ("tiny", "list")
            assert answer.usage.prompt_tokens == sum(len(reference.ids(text)) for text in TEXTS)
            for text, entry in zip(TEXTS, answer.data, strict=True):
                assert entry.embedding == near(reference.vector(text))
        with pytest.raises(openai.BadRequestError) as caught:
            caller.embeddings.create(model="any", input="a", dimensions=8)
        assert f"dimensions: expected {WIDTH}" in caught.value.response.text


def test_hugging_faces_client(host: Host, reference: Reference, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written for text-embeddings containers: texts and fields side by side, and a list of lists back."""
    from huggingface_hub import InferenceClient, constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    caller = InferenceClient(f"{host.url}/invocations", timeout=60)
    (vector,) = caller.feature_extraction(TEXTS[0])
    assert [*map(float, vector)] == near(reference.vector(TEXTS[0]))
    (plain,) = caller.feature_extraction(TEXTS[0], normalize=False, truncate=True, truncation_direction="left")
    assert [*map(float, plain)] == near(reference.vector(TEXTS[0], normalize=False))


def test_the_servers_own_route(host: Host, request: pytest.FixtureRequest, reference: Reference) -> None:
    if kind_of(request) != "server":
        pytest.skip("DJL has /invocations alone")
    answer = post(host, {"input": TEXTS[0]}, "/v1/embeddings").json()
    assert answer["data"][0]["embedding"] == near(reference.vector(TEXTS[0]))
    refused = post(host, {"messages": []}, "/v1/chat/completions")
    assert refused.status_code == 400
    assert set(refused.json()["error"]) == {"message", "type", "param", "code"}
    assert httpx.get(f"{host.url}/v1/models").json()["data"][0]["id"] == "tiny"


def test_an_answer_that_is_longer_than_a_field_of_the_hosts_protocol(host: Host, reference: Reference) -> None:
    """Above 20 MB DJL closes its channel to the worker: sent in slices."""
    answer = post(host, {"inputs": ["a"] * 1024})
    assert answer.status_code == 200
    assert len(answer.content) > 20 << 20
    vectors = answer.json()
    assert len(vectors) == 1024
    for vector in (vectors[0], vectors[1023]):
        assert vector == near(reference.vector("a"))
    assert post(host, {"inputs": "a"}).json() == [near(reference.vector("a"))]
