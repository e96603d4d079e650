"""Folders that are looked through at a glance, and maps of them that are true."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from ..kit.paths import ROOT, TESTS
from ..kit.rows import each_row
from .imports import LAYERS

MAX_FILES = 14
"""Python files in a folder beside its __init__.py: in more nobody finds what they look for."""
USERS_FILES = {"model.py"}
"""What docstrings name that is a user's."""
NAMED = re.compile(r"(?<![\w/.-])((?:[a-z_]\w*/)*(?:[a-z_]\w*\.py|[a-z_]\w*/))(?!\w)")
"""A file or a folder in a docstring: `engine.py`, `text/`, `model/engine.py`."""


def map_faults(folder: Path, root: Path) -> list[str]:
    """What is wrong with a package's folder: too many files, no docstring that names what is there, or a wrong one."""
    place = folder.relative_to(root).as_posix()
    files = {path.name for path in folder.glob("*.py")} - {"__init__.py"}
    packages = {f"{path.name}/" for path in folder.iterdir() if any(path.glob("*.py"))}
    faults = [f"{place}: {len(files)} files, expected at most {MAX_FILES}"] if len(files) > MAX_FILES else []
    entry = folder / "__init__.py"
    named = set(NAMED.findall(ast.get_docstring(ast.parse(entry.read_text("utf-8"))) or ""))
    faults += [f"{place}: does not name {name}" for name in sorted((files | packages) - named)]
    return faults + [
        f"{place}: there is no {name}"
        for name in sorted(named - USERS_FILES)
        if not any((parent / name).exists() for parent in (folder, *folder.parents) if parent.is_relative_to(root))
    ]


def test_maps_are_true() -> None:
    folders = sorted({path.parent for layer in LAYERS for path in (ROOT / layer).rglob("*.py")})
    assert [fault for folder in folders for fault in map_faults(folder, ROOT)] == []


def test_folders_of_tests_are_no_fuller() -> None:
    files = {folder: len([*folder.glob("*.py")]) for folder in TESTS.rglob("*") if folder.is_dir()}
    assert {str(folder): count for folder, count in files.items() if count > MAX_FILES} == {}


FIFTEEN = [f"{name}.py" for name in "abcdefghijklmno"]


@each_row(
    ("files", "text", "faults"),
    [
        (["a.py", "b/c.py"], "a.py   one, of x/y.rs, a/path and a.pyc\nb/     two", []),
        (["a.py", "b.py", "c/d.py"], "a.py", ["model: does not name b.py", "model: does not name c/"]),
        (["a.py"], "a.py, b.py, c/", ["model: there is no b.py", "model: there is no c/"]),
        (FIFTEEN, " ".join(FIFTEEN), ["model: 15 files, expected at most 14"]),
    ],
)
def test_what_is_wrong_with_a_folder(
    tmp_path_factory: pytest.TempPathFactory, files: list[str], text: str, faults: list[str]
) -> None:
    root = tmp_path_factory.mktemp("root")
    for name in files:
        path = root / "model" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (root / "model" / "__init__.py").write_text(f'"""{text}"""\n')
    assert map_faults(root / "model", root) == faults
