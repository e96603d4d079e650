"""What a head's logits become: sigmoid, softmax, or what they are, as the model's config says.

vLLM can do so itself, but where it is told to leave it out, for a request that wants logits, BERT's pooler loses its
own tanh too (vLLM 0.23, models/bert.py), and the scores are others. So vLLM always leaves the logits as they are, which
it does for a regression, and what the config said before decides here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...errors import OptionError

__all__ = ["Activation", "activation_of", "leaving_logits"]

Activation = Callable[[Any], Any]
"""Of a tensor of one dimension, a number for each label."""

KIND = "problem_type"
GIVEN = "lmi_problem_type"
"""Where the config keeps what it said of its kind; vLLM does not know it."""


def leaving_logits(config: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """vLLM's hf_overrides with which a model of this config leaves its logits as they are."""
    return {**overrides, KIND: "regression", GIVEN: overrides.get(KIND) or config.get(KIND) or ""}


def activation_of(config: Mapping[str, Any]) -> Activation:
    """The activation of a model whose config has been overridden so; raises OptionError for one that is not known.

    By the problem that it was trained for (transformers), then by sentence-transformers' activation; else sigmoid of
    one label and softmax of several.
    """
    by_kind = {"regression": _identity, "single_label_classification": _usual, "multi_label_classification": _sigmoid}
    if (known := by_kind.get(str(config.get(GIVEN) or ""))) is not None:
        return known
    trained: Any = config.get("sentence_transformers")
    name = trained.get("activation_fn") if isinstance(trained, Mapping) else None
    name = name or config.get("sbert_ce_default_activation_function")
    if not name:
        return _usual
    by_name = {"Identity": _identity, "Sigmoid": _sigmoid, "Softmax": _softmax}
    found = by_name.get(str(name).rpartition(".")[2])
    if found is None:
        expected = "Identity, Sigmoid or Softmax as the activation_fn of sentence_transformers in config.json"
        raise OptionError.of("task", expected=expected, given=name)
    return found


def _identity(logits: Any) -> Any:
    return logits


def _sigmoid(logits: Any) -> Any:
    return logits.float().sigmoid()


def _softmax(logits: Any) -> Any:
    return logits.float().softmax(-1)


def _usual(logits: Any) -> Any:
    return _sigmoid(logits) if len(logits) == 1 else _softmax(logits)
