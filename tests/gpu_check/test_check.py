"""The exit status, and the report in its folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .bench import TABLES
from .check import REPORT, check
from .run import NotPossibleError, Step


def works() -> str:
    return "seen"


def fails() -> str:
    raise AssertionError("another text")


def cannot() -> str:
    raise NotPossibleError("no Java")


@pytest.mark.parametrize(
    ("action", "status", "told"),
    [(works, 0, "| last | passed |"), (fails, 1, "another text"), (cannot, 1, "| last | not possible |")],
)
def test_only_steps_that_pass_are_success(tmp_path: Path, action: Callable[[], str], status: int, told: str) -> None:
    assert check([Step("first", works), Step("last", action)], tmp_path, "cpu") == status
    text = (tmp_path / REPORT).read_text(encoding="utf-8")
    assert "| first | passed |" in text
    assert told in text


def test_the_report_has_the_benchs_tables(tmp_path: Path) -> None:
    def bench() -> str:
        (tmp_path / TABLES).write_text("| layer | tokens/s |\n")
        return "no token was lost"

    assert check([Step("bench", bench)], tmp_path, "cpu") == 0
    assert "## Bench\n\n| layer | tokens/s |" in (tmp_path / REPORT).read_text(encoding="utf-8")


def test_what_ends_the_check_early_leaves_a_report(tmp_path: Path) -> None:
    def interrupted() -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check([Step("first", works), Step("second", interrupted), Step("third", works)], tmp_path, "cpu")
    text = (tmp_path / REPORT).read_text(encoding="utf-8")
    assert "1 of 3 steps passed" in text
    assert text.count("not run") == 2
