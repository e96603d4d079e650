"""No circles of imports, folders that are looked through at a glance, and maps of them that are true."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..kit.paths import ROOT, TESTS
from ..kit.rows import each_row
from .structure import MAX_FILES, circles, imports_of, map_faults

LAYERS = ("model", "formatters", "handler")
SOURCES = {path.relative_to(ROOT).as_posix(): path for layer in LAYERS for path in (ROOT / layer).rglob("*.py")}
FOLDERS = sorted({path.parent for path in SOURCES.values()})


KNOWN_CIRCLES: list[list[str]] = []
"""To be taken out of here with the circle."""


def test_there_are_no_circles() -> None:
    imports = {name: imports_of(name, path.read_text("utf-8"), SOURCES) for name, path in SOURCES.items()}
    assert circles(imports) == KNOWN_CIRCLES


@each_row("folder", FOLDERS, ids=lambda folder: folder.relative_to(ROOT).as_posix())
def test_a_folders_map_is_true(folder: Path) -> None:
    assert map_faults(folder, ROOT) == []


def test_folders_of_tests_are_no_fuller() -> None:
    files = {folder: len([*folder.glob("*.py")]) for folder in TESTS.rglob("*") if folder.is_dir()}
    assert {str(folder): count for folder, count in files.items() if count > MAX_FILES} == {}


MODULES = ("model/__init__.py", "model/a.py", "model/b.py", "model/c/__init__.py", "model/c/d.py")


@each_row(
    ("path", "source", "found"),
    [
        ("model/a.py", "from .b import f", {"model/b.py"}),
        ("model/a.py", "from . import b, c", {"model/b.py", "model/c/__init__.py"}),
        ("model/a.py", "from .c import d, e", {"model/c/d.py", "model/c/__init__.py"}),
        ("model/c/d.py", "from ..a import f", {"model/a.py"}),
        ("model/c/d.py", "from . import f", {"model/c/__init__.py"}),
        ("model/c/__init__.py", "from .. import a", {"model/a.py"}),
        ("model/a.py", "if TYPE_CHECKING:\n    from .b import f", {"model/b.py"}),
        ("model/a.py", "class A:\n    from .b import f", {"model/b.py"}),
        ("model/a.py", "def f():\n    from .b import f", set[str]()),
        ("model/a.py", "import os\nfrom json import loads", set[str]()),
    ],
)
def test_what_a_module_imports(path: str, source: str, found: set[str]) -> None:
    assert imports_of(path, source, MODULES) == found


def test_circles_are_found() -> None:
    imports = {"a": ["b"], "b": ["c", "d"], "c": ["a"], "d": ["e"], "e": [], "f": ["g"], "g": ["f"]}
    assert circles(imports) == [["a", "b", "c"], ["f", "g"]]


@pytest.mark.parametrize(
    ("files", "text", "faults"),
    [
        (["a.py", "b/c.py"], "a.py   one\nb/     two", []),
        (["a.py", "b/c.py"], "a.py is model/x.py's; not a/path, a.pyc or x/y.rs", ["model: does not name b/"]),
        (["a.py", "b.py"], "a.py", ["model: does not name b.py"]),
        (["a.py"], "a.py, b.py, c/", ["model: there is no b.py", "model: there is no c/"]),
        (["a.py"], "", ["model: expected an __init__.py with a docstring"]),
        ([f"{name}.py" for name in "abcdefghijklmno"], " ".join(f"{name}.py" for name in "abcdefghijklmno"), [
            "model: 15 files, expected at most 14"]),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_folder(tmp_path: Path, files: list[str], text: str, faults: list[str]) -> None:
    for name in (*files, "x.py"):
        path = tmp_path / "model" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "model" / "x.py").unlink()
    (tmp_path / "model" / "__init__.py").write_text(f'"""{text}"""\n' if text else "")
    if "model/x.py" in text:
        (tmp_path / "x").mkdir()
        faults = [*faults, "model: there is no model/x.py"]
    assert map_faults(tmp_path / "model", tmp_path) == faults
