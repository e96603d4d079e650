"""Whatever a step does is in the report, and only steps that pass are success."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .bench import TABLES
from .check import REPORT, check
from .report import CPU_WARNING
from .run import NotPossibleError, Step

TABLE = "| layer | tokens/s |"


def works() -> str:
    return "seen"


def fails() -> str:
    raise AssertionError("another|text\nthe end of the log")


def cannot() -> str:
    raise NotPossibleError("no Java")


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize(
    ("action", "gate", "status", "told", "then"),
    [
        (works, False, 0, "| step | passed | 0 | **On this device: other.** seen |", "passed"),
        (fails, False, 1, "another\\|text (more below) |", "passed"),
        (cannot, False, 1, "| step | not possible | 0 | **On this device: other.** no Java |", "passed"),
        (fails, True, 1, "another\\|text (more below) |", "not possible"),
        (cannot, True, 1, "no Java |", "not possible"),
    ],
)
def test_a_step(
    tmp_path: Path, device: str, action: Callable[[], str], gate: bool, status: int, told: str, then: str
) -> None:
    (tmp_path / TABLES).write_text(f"{TABLE}\n")
    steps = [Step("step", action, "other", gate=gate), Step("last", works)]
    assert check(steps, tmp_path, device) == status
    text = (tmp_path / REPORT).read_text(encoding="utf-8")
    assert told in text
    assert f"| last | {then} |" in text
    assert ("### step: failed\n\n```\nAssertionError in `fails`" in text) == (action is fails)
    assert (CPU_WARNING in text) == (device == "cpu")
    assert text.endswith(f"## Bench\n\n{TABLE}\n")


def test_what_ends_the_check_early_leaves_a_report(tmp_path: Path) -> None:
    def interrupted() -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check([Step("first", works), Step("second", interrupted), Step("third", works)], tmp_path, "cpu")
    text = (tmp_path / REPORT).read_text(encoding="utf-8")
    assert "1 of 3 steps passed" in text
    assert text.count("not run") == 2
