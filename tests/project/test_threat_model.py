"""docs/threat-model.md names tests that there are."""

from __future__ import annotations

import ast
import re

import pytest

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


@pytest.mark.parametrize("named", sorted({match for row in rows() for match in NAMED.findall(row[2])}), ids="::".join)
def test_the_test_is_there(named: tuple[str, str]) -> None:
    file, name = named
    tree = ast.parse((TESTS / file).read_text())
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert name in functions if name else any(one.startswith("test_") for one in functions)
