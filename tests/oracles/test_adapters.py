"""LoRA adapters against transformers with each one merged into the weights: the same tokens, alone and in any mix."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..kit.engines.asked import Answer, Asked
from ..kit.models.adapted import BASE, Adapted, adapted, adapted_directory
from ..kit.models.merged import Greediest

pytestmark = pytest.mark.engine

MOST = 12
"""Tokens of an answer."""
MEMORY = [("2", "2"), ("3", "8")]
"""max_loras, max_cpu_loras: fewer slots than adapters in both, and in the first each is read again and again."""


@pytest.fixture(scope="module")
def adapters(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Adapted:
    return adapted(demo_model, tmp_path_factory.mktemp("adapters"), most=MOST)


@pytest.fixture(scope="module", params=MEMORY, ids="of".join)
def served(
    request: pytest.FixtureRequest, demo_model: Path, adapters: Adapted, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Asked]:
    slots, kept = request.param
    properties = {
        "option.max_loras": slots,
        "option.max_cpu_loras": kept,
        "option.max_lora_rank": "16",
        # Prompts are longer than a block: what of them is cached belongs to one adapter.
        "option.block_size": "32",
    }
    directory = adapted_directory(demo_model, tmp_path_factory.mktemp("served") / "model", properties)
    directory.joinpath("adapters").symlink_to(next(iter(adapters.folders.values())).parent)
    with Asked(directory) as asked:
        yield asked


def ids_of(answer: Answer) -> tuple[int, ...]:
    """The tokens of an answer, whole or streamed."""
    assert answer.status == 200, answer.body
    lines: list[Any] = answer.lines
    tokens = [line["token"] for line in lines] if "token" in lines[0] else lines[0]["details"]["tokens"]
    return tuple(token["id"] for token in tokens)


def same(answer: Answer, expected: Greediest) -> bool:
    # An end of sequence is told as a token too.
    return ids_of(answer)[: len(expected.ids)] == expected.ids and len(ids_of(answer)) - len(expected.ids) in (0, 1)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_each_alone(served: Asked, adapters: Adapted, stream: bool) -> None:
    for name, answers in adapters.answers.items():
        for expected in answers:
            answer = served.named(name, expected.prompt, MOST, stream=stream, details=True)
            assert same(answer, expected), (name, expected, answer)


def test_sixty_four_at_once_over_all_of_them(served: Asked, adapters: Adapted) -> None:
    """And over the model itself, half of them streamed; neighbours are of different adapters."""
    rows = [*zip(*adapters.answers.values(), strict=True)]
    wanted = [(name, row[at]) for row in rows for at, name in enumerate(adapters.answers)]
    wanted = [*wanted, *reversed(wanted)][:64]
    assert {name for name, _ in wanted} == set(adapters.answers) >= {BASE}
    bodies = [
        served.body(name, expected.prompt, MOST, stream=number % 2 == 1, details=True)
        for number, (name, expected) in enumerate(wanted)
    ]
    for answer, (name, expected) in zip(served.posts(bodies), wanted, strict=True):
        assert same(answer, expected), (name, expected, answer)


def test_one_prompt_of_all_of_them(served: Asked, adapters: Adapted) -> None:
    """What is cached of a prompt is one adapter's: asked one after the other, twice, and all at once."""
    prompt = "I do not know the first capital of many neural networks. " * 4
    names = [*adapters.answers]
    alone = [ids_of(served.named(name, prompt, MOST, details=True)) for name in names]
    assert len(set(alone)) == len(names)
    assert [ids_of(served.named(name, prompt, MOST, details=True)) for name in names] == alone
    together = served.posts([served.body(name, prompt, MOST, details=True) for name in names * 3])
    assert [ids_of(answer) for answer in together] == alone * 3
