"""Beam search on vLLM against transformers' own, on the demo model in float32: the same texts and likelihoods."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lmi.model.demo_model import question
from lmi.model.errors import GenerationError, UnsupportedError
from lmi.model.events import Delta, Event, Failed, Started
from lmi.model.generation import Beams, Generation, Sampling
from lmi.model.options import load_settings

from .endpoints import model_directory

pytestmark = pytest.mark.engine

PROMPT = "Tell me"


@pytest.fixture(scope="module")
def backend(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from lmi.model.vllm_engine import VllmEngine

    model_dir = model_directory(demo_model, tmp_path_factory.mktemp("beam") / "model", {})
    engine = VllmEngine(load_settings(model_dir, environment={}, overrides={}))
    yield engine
    engine.close()


@dataclass
class Reference:
    """transformers' generate."""

    model: Any
    tokenizer: Any

    def beams(self, prompt: str, **arguments: Any) -> list[tuple[tuple[int, ...], float]]:
        """The new tokens of each sequence and the sum of their log-probabilities, best first."""
        inputs = self.tokenizer(prompt, return_tensors="pt")
        count = inputs["input_ids"].shape[1]
        penalty = arguments.setdefault("length_penalty", 1.0)
        out = self.model.generate(
            **inputs,
            do_sample=False,
            num_return_sequences=arguments["num_beams"],
            return_dict_in_generate=True,
            output_scores=True,
            tokenizer=self.tokenizer,
            **arguments,
        )
        answers: list[tuple[tuple[int, ...], float]] = []
        for sequence, score, indices in zip(out.sequences, out.sequences_scores, out.beam_indices, strict=True):
            length = int((indices >= 0).sum())
            answers.append((tuple(sequence[count : count + length].tolist()), float(score) * length**penalty))
        return answers


@pytest.fixture(scope="module")
def reference(demo_model: Path) -> Reference:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(demo_model, dtype=torch.float32)
    return Reference(model.eval(), AutoTokenizer.from_pretrained(demo_model))


def generation(prompt: str = PROMPT, *, beams: Beams | None = None, **sampling: Any) -> Generation:
    given = {"temperature": 0.0, "max_tokens": 12, "logprobs": 0, "beams": beams, **sampling}
    if beams is not None:
        given.setdefault("n", beams.width)
    return Generation(request_id="test", prompt=prompt, sampling=Sampling(**given), tokens=True)


def run(backend: Any, *generations: Generation) -> list[list[Event]]:
    for number, one in enumerate(generations):
        backend.add(backend.prepare(number, one))
    events: list[list[Event]] = [[] for _ in generations]
    while backend.busy:
        for number, event in backend.step():
            events[number].append(event)
    return events


def deltas(events: list[Event]) -> list[Delta]:
    return [event for event in events if isinstance(event, Delta)]


def answers(events: list[Event]) -> list[tuple[tuple[int, ...], float]]:
    found = deltas(events)
    assert [delta.index for delta in found] == list(range(len(found)))
    assert [delta.finish is not None and delta.finish.last for delta in found] == [False] * (len(found) - 1) + [True]
    for delta in found:
        assert delta.finish is not None
        assert delta.finish.cumulative_logprob == pytest.approx(sum(token.logprob or 0 for token in delta.tokens))
        assert "".join(token.text for token in delta.tokens) == delta.text
    return [
        (tuple(token.id for token in delta.tokens), delta.finish.cumulative_logprob or 0.0)
        for delta in found
        if delta.finish
    ]


def same(ours: list[tuple[tuple[int, ...], float]], theirs: list[tuple[tuple[int, ...], float]]) -> None:
    assert [tokens for tokens, _ in ours] == [tokens for tokens, _ in theirs]
    assert [score for _, score in ours] == pytest.approx([score for _, score in theirs], abs=1e-2)


@pytest.mark.parametrize("stopping", [False, True, "never"])
@pytest.mark.parametrize("penalty", [1.0, 0.0, -1.5, 2.5])
@pytest.mark.parametrize(("prompt", "width"), [(PROMPT, 2), ("What is", 4), ("The", 10)], ids=str)
def test_like_transformers(
    backend: Any, reference: Reference, prompt: str, width: int, penalty: float, stopping: Any
) -> None:
    beams = Beams(width=width, length_penalty=penalty, early_stopping=stopping)
    (events,) = run(backend, generation(prompt, beams=beams))
    expected = reference.beams(
        prompt, num_beams=width, length_penalty=penalty, early_stopping=stopping, max_new_tokens=12
    )
    same(answers(events), expected)
