"""What backends of pooling models make of vLLM's outputs."""

from __future__ import annotations

import math

import pytest

from lmi.model.vllm.pooling.backend import vector_of

from ....kit.api.errors import GenerationError

pytestmark = pytest.mark.engine


@pytest.mark.parametrize(
    ("numbers", "message"),
    [([1.0, math.nan], "the vector is not finite"), ([math.inf], "not finite"), ([], "the engine failed")],
)
def test_a_vector_that_is_none(numbers: list[float], message: str) -> None:
    import torch

    with pytest.raises(GenerationError, match=message):
        vector_of(torch.tensor(numbers), "embeddings")


def test_an_activation_is_applied() -> None:
    import torch

    logits = torch.tensor([0.0, 1.0])
    assert vector_of(logits, "scores", lambda given: given + 1) == vector_of(logits + 1, "scores")
