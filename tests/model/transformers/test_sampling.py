"""How tokens are chosen: what the library's processors leave of the probabilities, and how a row draws from them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ...kit.api.types import Sampling

pytestmark = pytest.mark.engine

NEVER = -math.inf
LOGITS = [2.0, 1.5, 1.0, 0.0, -1.0, -3.0]
# Of a sequence with the prompt 0 and two tokens 1 since: sampling parameters, and the logits that are left.
LEFT: list[tuple[dict[str, Any], list[float]]] = [
    ({}, LOGITS),
    ({"temperature": 2.0}, [value / 2 for value in LOGITS]),
    ({"top_k": 2}, [2.0, 1.5, *[NEVER] * 4]),
    ({"top_p": 0.7}, [2.0, 1.5, *[NEVER] * 4]),
    ({"min_p": 0.3}, [2.0, 1.5, 1.0, *[NEVER] * 3]),
    ({"repetition_penalty": 1.5}, [2.0 / 1.5, 1.0, 1.0, 0.0, -1.0, -3.0]),
    ({"presence_penalty": 1.0}, [2.0, 0.5, 1.0, 0.0, -1.0, -3.0]),
    ({"frequency_penalty": 1.0}, [2.0, -0.5, 1.0, 0.0, -1.0, -3.0]),
    ({"logit_bias": {3: 2.0}}, [2.0, 1.5, 1.0, 2.0, -1.0, -3.0]),
    ({"min_tokens": 3, "stop_token_ids": (0, 1)}, [NEVER, NEVER, *LOGITS[2:]]),
    ({"min_tokens": 2, "stop_token_ids": (0, 1)}, LOGITS),
]


def left(sampling: Sampling, words: list[list[int]], defaults: dict[str, Any]) -> Any:
    import torch

    from lmi.model.transformers.sampling import parameters, processors

    scores, past = torch.tensor([LOGITS]), torch.tensor([[0, 1, 1]])
    for process in processors(sampling, parameters(sampling, defaults), words, 1, sampling.stop_token_ids, "cpu"):
        scores = process(past, scores)
    return scores[0].softmax(-1)


@pytest.mark.parametrize(("given", "wanted"), LEFT)
def test_what_is_left(given: dict[str, Any], wanted: list[float]) -> None:
    import torch

    assert torch.allclose(left(Sampling(**given), [], {}), torch.tensor(wanted).softmax(-1))
    # As defaults of the model's; those that a model has.
    if given.keys() & {"temperature", "top_k", "top_p", "min_p", "repetition_penalty"}:
        assert torch.allclose(left(Sampling(), [], given), torch.tensor(wanted).softmax(-1))


def test_bad_words_and_typical_p() -> None:
    import torch
    from transformers import TypicalLogitsWarper

    banned = torch.tensor([NEVER, *LOGITS[1:]]).softmax(-1)
    assert torch.allclose(left(Sampling(), [[1, 0]], {}), banned)
    assert torch.allclose(left(Sampling(), [[0, 0]], {}), torch.tensor(LOGITS).softmax(-1))
    warper: Any = TypicalLogitsWarper(0.5)
    assert torch.allclose(left(Sampling(typical_p=0.5), [], {}), warper(None, torch.tensor([LOGITS]))[0].softmax(-1))


def test_greedy_leaves_out_what_is_for_drawing() -> None:
    assert left(Sampling(temperature=0.0, top_p=0.1, top_k=1, min_p=0.9), [], {})[1] > 0


def test_shares_of_what_is_drawn_and_seeds() -> None:
    import torch

    from lmi.model.transformers.sampling import Row

    logits = torch.tensor(LOGITS)
    row = Row([0], 1, 3000, greedy=False, generator=torch.Generator().manual_seed(1))
    drawn = [row.choose(logits.clone())[0] for _ in range(3000)]
    shares = torch.bincount(torch.tensor(drawn), minlength=6) / len(drawn)
    assert (shares - logits.softmax(-1)).abs().max() < 0.04
    again = Row([0], 1, 9, greedy=False, generator=torch.Generator().manual_seed(1))
    assert [again.choose(logits.clone())[0] for _ in range(9)] == drawn[:9]


def test_log_probabilities_are_the_models_own() -> None:
    """Before the processors, after the guide."""
    import torch

    from lmi.model.transformers.sampling import Row

    def guide(_: Any, scores: Any) -> Any:
        return scores.index_fill(1, torch.tensor([0]), NEVER)

    def process(_: Any, scores: Any) -> Any:
        return scores.index_fill(1, torch.tensor([1]), NEVER)

    row = Row([0], 1, 9, logprobs=2, guide=guide, processors=[process])
    token, entry = row.choose(torch.tensor(LOGITS))
    known = torch.tensor([NEVER, *LOGITS[1:]]).log_softmax(-1)
    assert token == 2
    assert entry is not None
    assert {word: one.logprob for word, one in entry.items()} == pytest.approx({2: float(known[2]), 1: float(known[1])})
