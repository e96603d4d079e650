"""Steps are run in their order, and each has an outcome whatever it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from .run import NotPossibleError, Outcome, Step, run


def works() -> str:
    return "seen"


def fails() -> str:
    raise ValueError("wrong text")


def cannot() -> str:
    raise NotPossibleError("no Java")


def results(outcomes: Sequence[Outcome]) -> list[str]:
    return [outcome.result for outcome in outcomes]


def test_each_step_has_an_outcome() -> None:
    seen: list[list[str]] = []
    outcomes = run(
        [Step("a", works), Step("b", fails), Step("c", cannot), Step("d", works)],
        lambda outcomes: seen.append(results(outcomes)),
    )
    assert results(outcomes) == ["passed", "failed", "not possible", "passed"]
    assert [outcome.detail for outcome in outcomes[::2]] == ["seen", "no Java"]
    assert "ValueError in `fails`" in outcomes[1].detail
    assert "wrong text" in outcomes[1].detail
    # What has not been run yet is told as such.
    assert seen[0] == ["not run"] * 4
    assert seen[2] == ["passed", "failed", "not run", "not run"]
    assert seen[-1] == results(outcomes)


@pytest.mark.parametrize("action", [fails, cannot])
def test_after_a_gate_that_does_not_open_nothing_is_tried(action: Callable[[], str]) -> None:
    tried: list[str] = []

    def step() -> str:
        tried.append("tried")
        return ""

    outcomes = run([Step("device", action, gate=True), Step("other", step)], lambda outcomes: None)
    assert outcomes[0].result != "passed"
    assert (outcomes[1].result, outcomes[1].detail) == ("not possible", "after “device”, which did not pass")
    assert not tried


def test_what_interrupts_a_step_leaves_the_last_word() -> None:
    seen: list[list[str]] = []

    def interrupted() -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run([Step("a", works), Step("b", interrupted)], lambda outcomes: seen.append(results(outcomes)))
    assert seen[-1] == ["passed", "not run"]
