"""Steps one after the other: each passes, fails, or cannot be done on this machine, and none goes by unseen.

steps --run--> outcomes, all of them after each step --> the report
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["FAILED", "NOT_POSSIBLE", "NOT_RUN", "PASSED", "NotPossibleError", "Outcome", "Step", "run"]

PASSED, FAILED, NOT_POSSIBLE, NOT_RUN = "passed", "failed", "not possible", "not run"


class NotPossibleError(Exception):
    """Why a step cannot be done on this machine."""


@dataclass(frozen=True)
class Step:
    """Something that must be seen to work."""

    name: str
    action: Callable[[], str]
    """Does it, and tells what was seen. Raises NotPossibleError, or anything else where it does not work."""
    instead: str = ""
    """What was tried in the place of what this device does not have; empty: the step is the same on each device."""
    gate: bool = False
    """Whether no further step is possible where this one fails."""


@dataclass(frozen=True)
class Outcome:
    """What came of a step."""

    step: Step
    result: str
    """PASSED, FAILED, NOT_POSSIBLE or NOT_RUN."""
    seconds: float = 0.0
    detail: str = ""
    """What was seen, or why not; Markdown, of several lines where the first does not tell all."""


def run(steps: Sequence[Step], seen: Callable[[Sequence[Outcome]], None]) -> list[Outcome]:
    """What came of each step. `seen` gets all outcomes before the first step and after each."""
    outcomes = [Outcome(step, NOT_RUN, detail="the check ended before it") for step in steps]
    closed = ""
    for number, step in enumerate(steps):
        seen(outcomes)
        outcomes[number] = Outcome(step, NOT_POSSIBLE, detail=closed) if closed else _outcome(step)
        if step.gate and outcomes[number].result != PASSED:
            closed = f"after “{step.name}”, which did not pass"
    seen(outcomes)
    return outcomes


def _outcome(step: Step) -> Outcome:
    begun = time.monotonic()
    try:
        result, detail = PASSED, step.action()
    except NotPossibleError as why:
        result, detail = NOT_POSSIBLE, str(why)
    except Exception as error:  # noqa: BLE001 - whatever it is, the report has it and the next step is tried
        *_, where = traceback.extract_tb(error.__traceback__)
        result, detail = FAILED, f"{type(error).__name__} in `{where.name}`, line {where.lineno}: {error}"
    return Outcome(step, result, time.monotonic() - begun, detail)
