"""docs/threat-model.md names tests that there are."""

from __future__ import annotations

import ast
import re

from ..kit.paths import TESTS

DOCUMENT = TESTS.parent / "docs" / "threat-model.md"
NAMED = re.compile(r"((?:\w+/)*test_\w+\.py)(?:::(\w+))?")


def rows() -> list[list[str]]:
    """The table's, without its head."""
    lines = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def test_each_row_names_a_test() -> None:
    assert len(rows()) > 20
    for threat, defence, tests in rows():
        assert threat
        assert defence
        assert NAMED.search(tests), threat
        assert not NAMED.sub("", tests).strip(", "), f"more than tests: {tests}"


def test_the_tests_are_there() -> None:
    for file, name in {match for row in rows() for match in NAMED.findall(row[2])}:
        tree = ast.parse((TESTS / file).read_text())
        functions = {one.name for one in tree.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert name in functions if name else any(one.startswith("test_") for one in functions), f"{file}::{name}"
