"""How much a model is to think, by what clients say and what it knows."""

from __future__ import annotations

import re
from typing import Any

import pytest

from lmi.model.text.efforts import ORDER, Efforts, effort_of

from ...kit.api.errors import OptionError, ParameterError
from ...kit.rows import each_row

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
    ({"reasoning_effort": "none"}, ("low", "high"), "low"),
    *(
        ({"reasoning_effort": effort}, ("high", "medium", "low"), near)
        for effort, near in {
            "none": "low",
            "minimal": "low",
            "low": "low",
            "medium": "medium",
            "high": "high",
            "xhigh": "high",
            "max": "high",
        }.items()
    ),
    ({"reasoning_effort": "medium"}, ("low", "high", "max"), "high"),
    ({"reasoning_effort": "xhigh"}, ("low", "high", "max"), "max"),
    ({"enable_thinking": True}, ("none", "high"), "high"),
    ({"thinking": True}, ("none", "medium"), "medium"),
    # It always thinks.
    ({"thinking": True}, ("low", "medium", "high"), None),
    ({"thinking": False}, ("low", "medium", "high"), "low"),
    ({"enable_thinking": False, "thinking": False}, ("none", "high"), "none"),
    ({"reasoning_effort": "high", "enable_thinking": True}, (), None),
    ({"reasoning_effort": "whatever"}, (), None),
    ({"thinking_budget": 5}, ("none", "high"), None),
]


@each_row(("given", "known", "expected"), EFFORTS)
def test_the_effort_is_one_that_the_model_knows(
    given: dict[str, Any], known: tuple[str, ...], expected: str | None
) -> None:
    assert effort_of(given, known) == expected


FIELD = r"prompt\.template_arguments\.reasoning_effort"


@pytest.mark.parametrize("given", ["whatever", 5, ["high"]], ids=str)
def test_what_is_no_effort_is_refused(given: Any) -> None:
    expected = rf"^{FIELD}: expected one of none, high, which this model knows, got "
    with pytest.raises(ParameterError, match=expected + re.escape(repr(given))):
        effort_of({"reasoning_effort": given}, ("none", "high"))
    with pytest.raises(ParameterError, match=expected):
        Efforts(("none", "high"), fails).fitted({"reasoning_effort": given})


def fails(effort: Any) -> None:
    raise ValueError(effort)


def tried(*known: Any) -> Efforts:
    """Those of a model of which a template alone knows what it takes."""
    return Efforts(None, lambda effort: None if effort in known else fails(effort))


FITTED: list[tuple[Efforts, Any, Any]] = [
    (Efforts(("low", "high"), fails), "max", "high"),
    (Efforts((), fails), "max", "max"),
    (tried("low", "high"), "low", "low"),
    (tried("low", "high"), "max", "high"),
    (tried("low", "high"), "none", "low"),
    # What only the template may know.
    (tried("low", "no_think"), "no_think", "no_think"),
    (tried("low"), "huge", "huge"),
    (tried("low"), ["low"], ["low"]),
    (tried("low"), 5, 5),
    # It fails on whatever it is tried with.
    (tried(), "max", "max"),
    (tried(*ORDER), "xhigh", "xhigh"),
]


@each_row(("efforts", "given", "fitted"), FITTED)
def test_what_a_prompt_is_made_with(efforts: Efforts, given: Any, fitted: Any) -> None:
    for _ in range(2):
        assert efforts.fitted({"reasoning_effort": given, "other": 1}) == {"reasoning_effort": fitted, "other": 1}
    assert efforts.fitted({"other": 1}) == {"other": 1}


def test_an_effort_is_tried_once() -> None:
    asked: list[Any] = []
    efforts = Efforts(None, asked.append)
    for _ in range(3):
        efforts.fitted({"reasoning_effort": "high"})
        efforts.fitted({})
    assert asked == ["high"]


@pytest.mark.parametrize("error", [MemoryError, OSError])
def test_a_fault_of_the_machine_is_not_remembered(error: type[Exception]) -> None:
    faults = [error()]

    def trial(_: Any) -> None:
        if faults:
            raise faults.pop()

    efforts = Efforts(None, trial)
    with pytest.raises(error):
        efforts.fitted({"reasoning_effort": "high"})
    assert efforts.fitted({"reasoning_effort": "high"}) == {"reasoning_effort": "high"}


DEFAULTS: list[tuple[Efforts, dict[str, Any], str | None]] = [
    (Efforts(("low", "high"), fails), {}, None),
    (Efforts(("low", "high"), fails), {"reasoning_effort": "max"}, None),
    (Efforts((), fails), {"reasoning_effort": "huge"}, None),
    (Efforts(("low", "high"), fails), {"reasoning_effort": "huge"}, "low, high"),
    (tried("low", "high"), {"other": 1}, None),
    (tried("low", "high"), {"reasoning_effort": "max"}, None),
    (tried("low", "no_think"), {"reasoning_effort": "no_think"}, None),
    (tried("low", "high"), {"reasoning_effort": "huge"}, "low, high"),
    (tried(), {"reasoning_effort": "huge"}, None),
]


@each_row(("efforts", "given", "expected"), DEFAULTS)
def test_a_wrong_default_ends_the_start(efforts: Efforts, given: dict[str, Any], expected: str | None) -> None:
    if expected is None:
        efforts.check(given)
        return
    option = r"option\.default_chat_template_kwargs: reasoning_effort"
    with pytest.raises(
        OptionError, match=f"^{option}: expected one of {expected}, which this model knows, got 'huge'$"
    ):
        efforts.check(given)
