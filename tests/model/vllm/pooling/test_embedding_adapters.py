"""Vectors of a model with adapters: those of transformers with each adapter merged into the weights."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ....kit.engines.asked import Asked
from ....kit.models.adapted import BASE, adapted_directory, write
from ....kit.models.embedding import Reference
from ....kit.models.merged import merge

pytestmark = pytest.mark.engine

TEXTS = ["what is deep learning?", "a", "how many ways can i peel an orange", "0 1 2 3"]
NAMES = ("all", "stable", "inner")


@dataclass
class Model:
    """A service that embeds, and what each adapter's vectors should be."""

    asked: Asked
    references: dict[str, Reference]


@pytest.fixture(scope="module")
def model(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    folder = tmp_path_factory.mktemp("embedding")
    properties = {
        "option.task": "text-embedding",
        "option.max_model_len": "48",
        "option.max_loras": "2",
        "option.max_cpu_loras": "2",
    }
    directory = adapted_directory(demo_model, folder / "model", properties)
    adapters = write(demo_model, directory / "adapters", NAMES)
    merged = {name: merge(demo_model, source, folder / name) for name, source in adapters.items()}
    references = {name: Reference(source, "last") for name, source in {BASE: demo_model, **merged}.items()}
    for source in merged.values():
        shutil.rmtree(source)
    with Asked(directory) as asked:
        yield Model(asked, references)


def near(expected: list[float]) -> Any:
    return pytest.approx(expected, abs=1e-4)


def test_each_adapters_vectors(model: Model) -> None:
    """Of several texts, alone and beside those of others; they differ from the model's own."""
    names = [BASE, *NAMES]
    bodies = [{"inputs": TEXTS, **({"adapters": name} if name else {})} for name in names]
    alone = [model.asked.post(body) for body in bodies]
    together = model.asked.posts(bodies * 4)
    for number, answer in enumerate([*alone, *together]):
        assert answer.status == 200, answer.body
        expected = [model.references[names[number % len(names)]].vector(text) for text in TEXTS]
        assert [near(vector) for vector in expected] == answer.json
    firsts = [answer.json[0] for answer in alone]
    assert all(max(abs(a - b) for a, b in zip(firsts[0], other, strict=True)) > 0.05 for other in firsts[1:])


def test_one_for_each_text(model: Model) -> None:
    names = ["inner", BASE, "all", "stable"]
    expected = [model.references[name].vector(text) for name, text in zip(names, TEXTS, strict=True)]
    answer = model.asked.post({"inputs": TEXTS, "adapters": names})
    assert answer.json == [near(vector) for vector in expected]
    wrong = model.asked.post({"inputs": TEXTS, "adapters": names[:3]})
    assert (wrong.status, wrong.error) == (424, "adapters: expected a name for each of the 4 inputs, got 3 names")


def test_openais_form(model: Model) -> None:
    answer = model.asked.post({"input": TEXTS, "model": "all"}, path="/v1/embeddings")
    assert answer.json["model"] == "all"
    vectors = [entry["embedding"] for entry in answer.json["data"]]
    assert vectors == [near(model.references["all"].vector(text)) for text in TEXTS]
    unknown = model.asked.post({"input": TEXTS, "adapters": "nobody"}, path="/v1/embeddings")
    assert (unknown.status, unknown.json["error"]["code"]) == (404, "model_not_found")
