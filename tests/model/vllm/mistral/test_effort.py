"""How much a model is to think, by what clients say and what its settings know."""

from __future__ import annotations

from typing import Any

import pytest

from lmi.model.vllm.mistral.effort import effort_of

from ....kit.api.errors import ParameterError

EFFORTS: list[tuple[dict[str, Any], tuple[str, ...], str | None]] = [
    ({}, ("none", "high"), None),
    ({"reasoning_effort": "high"}, ("none", "high"), "high"),
    ({"reasoning_effort": "none"}, ("none", "high"), "none"),
    ({"reasoning_effort": "none", "enable_thinking": True}, ("none", "high"), "none"),
    ({"reasoning_effort": "minimal"}, ("none", "high"), "high"),
    ({"reasoning_effort": "medium"}, ("none", "high"), "high"),
    ({"reasoning_effort": "max"}, ("none", "high"), "high"),
    ({"reasoning_effort": "medium"}, ("none", "low", "high"), "high"),
    ({"reasoning_effort": "low"}, ("minimal", "medium"), "medium"),
    ({"reasoning_effort": "none"}, ("low", "high"), None),
    ({"enable_thinking": True}, ("none", "high"), "high"),
    ({"thinking": True}, ("none", "medium"), "medium"),
    ({"enable_thinking": False, "thinking": False}, ("none", "high"), "none"),
    ({"reasoning_effort": "high", "enable_thinking": True}, (), None),
    ({"reasoning_effort": "whatever"}, (), None),
    ({"thinking_budget": 5}, ("none", "high"), None),
]


@pytest.mark.parametrize(("given", "known", "expected"), EFFORTS)
def test_the_effort_is_one_that_the_model_knows(
    given: dict[str, Any], known: tuple[str, ...], expected: str | None
) -> None:
    assert effort_of(given, known) == expected


@pytest.mark.parametrize("given", ["whatever", 5, ["high"]])
def test_what_is_no_effort_is_refused(given: Any) -> None:
    path = "prompt.template_arguments.reasoning_effort"
    with pytest.raises(
        ParameterError, match=rf"^{path}: expected one of none, high; got {given!r}".replace("[", r"\[")
    ):
        effort_of({"reasoning_effort": given}, ("none", "high"))
