"""A table in one item checks as much as one of many items, and tells as much."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from ...kit.rows import Failed, each_row


def test_every_row_is_run() -> None:
    seen = []

    @each_row(("one", "two"), [(1, 2), pytest.param(3, 4, id="named")])
    def check(one: int, two: int, tmp_path: Path) -> None:
        seen.append((one, two, tmp_path))

    assert [*inspect.signature(check).parameters] == ["tmp_path"]
    check(tmp_path=Path("here"))
    assert seen == [(1, 2, Path("here")), (3, 4, Path("here"))]


def test_all_that_fail_are_told() -> None:
    @each_row("value", ["right", "wrong", "raises", "not raised", "skips"], ids=str.upper)
    def check(value: str) -> None:
        if value == "raises":
            raise RuntimeError("broken")
        if value == "not raised":
            with pytest.raises(ValueError, match="never"):
                pass
        if value == "skips":
            pytest.skip("would take the others along")
        assert value != "wrong"

    with pytest.raises(Failed) as caught:
        check()
    told = str(caught.value)
    assert told.startswith("4 of 5 rows:\n\n1: WRONG\n")
    for part in ("assert 'wrong' != 'wrong'", "2: RAISES", "RuntimeError: broken", "3: NOT RAISED", "4: SKIPS"):
        assert part in told
    assert "RIGHT" not in told


def test_tables_in_tables() -> None:
    seen = []

    @each_row("one", "ab")
    @each_row("two", [1, 2], ids=["first", "second"])
    def check(one: str, two: int) -> None:
        seen.append(f"{one}{two}")
        assert seen[-1] != "b2"

    with pytest.raises(Failed, match=r"1: 'b'\n(?s:.)*1: second\n"):
        check()
    assert seen == ["a1", "a2", "b1", "b2"]


def test_coroutines_are_awaited() -> None:
    async def wait(one: int) -> None:
        assert one < 2

    with pytest.raises(Failed, match="1 of 2 rows"):
        each_row("one", [1, 2])(wait)()


def test_what_is_no_table() -> None:
    with pytest.raises(ValueError, match="without rows"):
        each_row("one", [])
    with pytest.raises(ValueError, match="2 rows, 1 ids"):
        each_row("one", [1, 2], ids=["a"])
    with pytest.raises(ValueError, match="has marks"):
        each_row("one", [pytest.param(1, marks=pytest.mark.slow)])
