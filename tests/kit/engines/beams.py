"""Beam searches asked of an engine, read, and what transformers' `generate` finds instead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from lmi.model.events import Event
from lmi.model.generation import Beams, Generation, Sampling

from .backends import deltas

__all__ = ["PROMPT", "Reference", "answers", "generation", "same"]

PROMPT = "Tell me"
"""Of what the demo model was not taught."""


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


def generation(prompt: str = PROMPT, *, beams: Beams | None = None, **sampling: Any) -> Generation:
    given = {"temperature": 0.0, "max_tokens": 12, "logprobs": 0, "beams": beams, **sampling}
    if beams is not None:
        given.setdefault("n", beams.width)
    return Generation(request_id="test", prompt=prompt, sampling=Sampling(**given), tokens=True)


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
