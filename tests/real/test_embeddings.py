"""all-MiniLM-L6-v2's embeddings are sentence-transformers', and sort sentences as their meaning does.

minilm_embeddings.json was recorded with sentence-transformers 5.2.0, its `SentenceTransformer(DIRECTORY).encode`, from
the same weights.
"""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from ..kit.hosts.host import Server

pytestmark = [pytest.mark.engine, pytest.mark.once]

RECORD = json.loads(Path(__file__).with_name("minilm_embeddings.json").read_text("utf-8"))
SENTENCES = list(RECORD)
RELATED = 3
"""After the first sentence, a question, come so many that are related, the nearest first; the others are not."""
CLOSE = 1e-4


def embedded(server: Server, texts: list[str]) -> list[list[float]]:
    answer = httpx.post(f"{server.url}/v1/embeddings", json={"input": texts}, timeout=120).raise_for_status().json()
    return [one["embedding"] for one in answer["data"]]


def test_they_are_those_of_sentence_transformers(minilm_server: Server) -> None:
    for text, vector in zip(SENTENCES, embedded(minilm_server, SENTENCES), strict=True):
        apart = max(abs(one - other) for one, other in zip(vector, RECORD[text], strict=True))
        assert apart <= CLOSE, (text, apart)


def test_sentences_are_sorted_by_meaning(minilm_server: Server) -> None:
    query, *rest = embedded(minilm_server, SENTENCES)
    near = [sum(one * other for one, other in zip(query, vector, strict=True)) for vector in rest]
    found = sorted(range(len(rest)), key=lambda at: -near[at])
    assert found[:RELATED] == list(range(RELATED)), near
    assert near[found[RELATED - 1]] > near[found[RELATED]] + 0.1, near
