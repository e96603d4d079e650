"""Ranks, scores and classes on the local server, by path and by `route=`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from ...kit.clients.scripts import run_client
from ...kit.hosts.host import Host, model_directory, running
from ...kit.models.scoring import ScoreReference, build_cross_encoder
from ...kit.pages import blocks_of
from ...kit.paths import DOCS

pytestmark = pytest.mark.engine

QUERY = "what is a panda?"
DOCUMENTS = ["hi", "a bear of china", "it is not", "the giant panda lives in china.", "0 1 2"]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_cross_encoder(tmp_path_factory.mktemp("models") / "bert")


@pytest.fixture(scope="module")
def reference(bert: Path) -> ScoreReference:
    return ScoreReference(bert)


@pytest.fixture(scope="module")
def host(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("rerank")
    properties = {"option.task": "text-ranking", "option.max_model_len": "", "option.served_model_name": "tiny"}
    with running("server", model_directory(bert, folder / "model", properties), folder / "log") as host:
        yield host


def post(host: Host, body: object, path: str = "/invocations") -> httpx.Response:
    return httpx.post(f"{host.url}{path}", json=body, timeout=60)


def order(scores: list[float]) -> list[int]:
    return sorted(range(len(scores)), key=lambda index: -scores[index])


def test_the_clients_checks(host: Host, reference: ScoreReference) -> None:
    """Each by its path, or by its route."""
    scores = [reference.score(QUERY, document) for document in DOCUMENTS]
    logits = [reference.logits(QUERY, document)[0] for document in DOCUMENTS]
    told = {"query": QUERY, "documents": DOCUMENTS, "order": order(scores), "scores": scores, "logits": logits}
    for way in ("path", "route"):
        found = run_client("rerank_client.py", host.url, way, told)
        assert len(found) >= 10
        assert {name: fault for name, fault in found.items() if fault} == {}


def test_by_the_body(host: Host, reference: ScoreReference) -> None:
    scores = [reference.score(QUERY, document) for document in DOCUMENTS]
    ranked = post(host, {"query": QUERY, "documents": DOCUMENTS}).json()["results"]
    assert [one["index"] for one in ranked] == order(scores)
    assert [one["relevance_score"] for one in ranked] == pytest.approx(sorted(scores, reverse=True), abs=1e-4)
    by_tei = post(host, {"query": QUERY, "texts": DOCUMENTS}).json()
    assert [one["index"] for one in by_tei] == order(scores)
    scored = post(host, {"text_1": QUERY, "text_2": DOCUMENTS}).json()["data"]
    assert [one["score"] for one in scored] == pytest.approx(scores, abs=1e-4)
    assert post(host, {"inputs": "hi"}).json()[0]["label"] == "LABEL_0"
    assert post(host, {"input": "hi"}).json()["data"][0]["num_classes"] == 1


def test_the_documented_requests(host: Host) -> None:
    """Each body of the page is answered, and with the keys that are shown."""
    blocks = [json.loads(block.text) for block in blocks_of(DOCS / "rerank.md") if block.language == "json"]
    assert len(blocks) >= 8
    paths = ["/v1/rerank", "/score", "/classify", "/rerank", "/predict"]
    for path, asked, shown in zip(paths, blocks[::2], blocks[1::2], strict=True):
        answer = post(host, asked, path)
        assert answer.status_code == 200
        told, entry = answer.json(), shown
        if isinstance(shown, list):
            told, entry = told[0], shown[0]
        assert told.keys() == entry.keys()
