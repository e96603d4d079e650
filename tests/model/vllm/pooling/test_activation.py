"""Which activation a model's config asks for."""

from __future__ import annotations

from typing import Any

import pytest

from lmi.model.vllm.pooling.activation import activation_of, leaving_logits

from ....kit.api.errors import OptionError

pytestmark = pytest.mark.engine

MODULES = "torch.nn.modules"


@pytest.mark.parametrize(
    ("config", "one", "two"),
    [
        ({}, "sigmoid", "softmax"),
        ({"sentence_transformers": {"activation_fn": f"{MODULES}.linear.Identity"}}, "same", "same"),
        ({"sentence_transformers": {"activation_fn": f"{MODULES}.activation.Sigmoid"}}, "sigmoid", "sigmoid"),
        ({"sentence_transformers": {"version": "4"}}, "sigmoid", "softmax"),
        ({"sbert_ce_default_activation_function": f"{MODULES}.linear.Identity"}, "same", "same"),
        ({"problem_type": "regression"}, "same", "same"),
        ({"problem_type": "single_label_classification"}, "sigmoid", "softmax"),
        ({"problem_type": "multi_label_classification"}, "sigmoid", "sigmoid"),
    ],
    ids=str,
)
def test_of_one_and_of_two_labels(config: dict[str, Any], one: str, two: str) -> None:
    import torch

    activation = activation_of({**config, **leaving_logits(config, {})})
    for logits, expected in ((torch.tensor([2.0]), one), (torch.tensor([2.0, -1.0]), two)):
        by_name = {"same": logits, "sigmoid": logits.sigmoid(), "softmax": logits.softmax(0)}
        assert activation(logits).tolist() == by_name[expected].tolist()


def test_the_users_override_counts() -> None:
    import torch

    overridden = leaving_logits({"problem_type": "regression"}, {"problem_type": "multi_label_classification"})
    assert overridden["problem_type"] == "regression"
    assert activation_of(overridden)(torch.tensor([0.0])).tolist() == [0.5]


def test_another_function() -> None:
    config = {"sentence_transformers": {"activation_fn": f"{MODULES}.activation.GELU"}}
    with pytest.raises(OptionError, match="expected Identity, Sigmoid or Softmax as the activation_fn"):
        activation_of(config)
