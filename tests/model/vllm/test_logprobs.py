"""Chosen tokens' log-probabilities as vLLM's numbers without its objects: the same answers as with them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lmi.model.vllm import engine as vllm_engine
from lmi.model.vllm.internals import keep_chosen_only

from ...demo.model import question
from ...kit.api.options import make_settings
from ...kit.api.types import Event, Generation, Sampling
from ...kit.engines.backends import deltas, run
from ...kit.engines.start import in_process
from ...kit.hosts.host import model_directory

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def backend(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Three tokens a step where streamed: several rows of numbers at once."""
    folder = model_directory(demo_model, tmp_path_factory.mktemp("vllm") / "model", {})
    engine = in_process(make_settings(folder, stream_interval="3"))
    yield engine
    engine.close()


@pytest.fixture
def objects(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by the number asked for with each position that vLLM makes a dictionary for."""
    from vllm.v1.engine import logprobs

    made: list[int] = []
    theirs: Any = logprobs
    real = theirs.append_logprobs_for_next_position

    def append(*arguments: Any) -> None:
        made.append(arguments[-1])
        real(*arguments)

    monkeypatch.setattr(logprobs, "append_logprobs_for_next_position", append)
    return made


def asked(kind: str, logprobs: int | None, *, stream: bool = True, **sampling: Any) -> Generation:
    chosen = Sampling(**{"temperature": 0.0, "max_tokens": 40, "logprobs": logprobs, **sampling})
    return Generation(request_id="test", prompt=question(kind).prompt, sampling=chosen, stream=stream, tokens=True)


def batch() -> list[Generation]:
    """Requests of all kinds side by side, so that the arrays have columns for others."""
    return [
        asked("long", 0),
        asked("unicode", 0, stream=False),
        asked("long", 4),
        asked("plain", None),
        asked("endless", 0, stop=(question("endless").answer[20:24],)),
    ]


def answers(backend: Any) -> list[list[Event]]:
    """Of the batch, and of one that is drawn: by itself, as vLLM's CPU build minds seeds only there."""
    return run(backend, *batch()) + run(backend, asked("long", 0, n=2, temperature=1.5, seed=3))


def numbers(events: list[Event]) -> list[float | None]:
    return [token.logprob for delta in deltas(events) for token in delta.tokens]


def test_answers_are_those_of_vllms_own_objects(
    backend: Any, objects: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = answers(backend)
    assert set(objects) == {4}, "only the request that wants the likeliest tokens needs dictionaries"
    assert all(number is not None and number <= 0.0 for number in numbers(ours[0]))
    assert len(set(numbers(ours[0]))) > 10
    objects.clear()
    monkeypatch.setattr(vllm_engine, "keep_chosen_only", lambda llm, name: False)
    theirs = answers(backend)
    assert objects.count(0) > 100
    for one, other in zip(ours, theirs, strict=True):
        assert [delta.finish for delta in deltas(one) if delta.finish] == [
            delta.finish for delta in deltas(other) if delta.finish
        ]
        assert one == other


def test_a_request_that_is_not_there_or_wants_no_numbers(backend: Any) -> None:
    assert not keep_chosen_only(backend._llm, "nobody")
    backend.add(backend.prepare(0, asked("plain", None)))
    (name,) = backend._llm.output_processor.request_states
    assert not keep_chosen_only(backend._llm, name)
    backend.abort([0])
