"""The version is the same wherever it stands, and the license is whole (docs/contributing.md, Versions and releases)."""

from __future__ import annotations

import re

import pytest

from ..kit.paths import DOCS, ROOT

VERSION = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
assert VERSION


def test_the_changelog_begins_with_this_version() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == VERSION[1]
    numbers = [tuple(map(int, heading.split("."))) for heading in headings]
    assert numbers == sorted(set(numbers), reverse=True)


def test_docs_name_the_wheel_of_this_version() -> None:
    named = set(re.findall(r"lmi_handler-(\d[\d.]*)-py3", (DOCS / "deploying.md").read_text(encoding="utf-8")))
    assert named == {VERSION[1]}


@pytest.mark.parametrize("word", ["Apache License", "Version 2.0, January 2004", "Grant of Patent License"])
def test_the_license_is_apaches(word: str) -> None:
    assert word in (ROOT / "LICENSE").read_text(encoding="utf-8")
