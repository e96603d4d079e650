"""What the sources import and how their folders are told of, read without importing them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

__all__ = ["MAX_FILES", "circles", "imports_of", "map_faults"]

MAX_FILES = 14
"""Python files in a folder beside its __init__.py: in more nobody finds what they look for."""
USERS_FILES = {"model.py"}
"""What docstrings name that is a user's."""

NAMED = re.compile(r"(?<![\w/.-])((?:[a-z_]\w*/)*(?:[a-z_]\w*\.py|[a-z_]\w*/))(?!\w)")
"""A file or a folder in a docstring: `engine.py`, `text/`, `model/engine.py`."""


def imports_of(path: str, source: str, modules: Iterable[str]) -> set[str]:
    """The modules, among `modules`, that the file at `path` imports outside functions, for types too.

    Modules are told by their paths from the root, a package by its __init__.py.
    """
    known = set(modules)
    found: set[str] = set()
    for node in _at_module_level(ast.parse(source)):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        package = PurePosixPath(path).parents[node.level - 1]
        base = package.joinpath(*(node.module or "").split(".")) if node.module else package
        for alias in node.names:
            inner = [*_files(base / alias.name)]
            found |= next(({name} for name in [*inner, *_files(base)] if name in known), set())
    return found - {path}


def _files(module: PurePosixPath) -> tuple[str, str]:
    return f"{module}.py", f"{module}/__init__.py"


def _at_module_level(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from _at_module_level(child)


def circles(imports: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The groups of modules of which each imports every other one, if by way of others; sorted."""
    reached = {module: _reached(module, imports) for module in imports}
    groups = {
        tuple(sorted(other for other in reached[module] if module in reached.get(other, ())))
        for module in imports
        if module in reached[module]
    }
    return [list(group) for group in sorted(groups)]


def _reached(start: str, imports: Mapping[str, Iterable[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = [*imports[start]]
    while waiting:
        module = waiting.pop()
        if module not in reached:
            reached.add(module)
            waiting += imports.get(module, ())
    return reached


def map_faults(folder: Path, root: Path) -> list[str]:
    """What is wrong with a package's folder: too many files, no docstring that names what is there, or a wrong one."""
    place = folder.relative_to(root).as_posix()
    files = {path.name for path in folder.glob("*.py")} - {"__init__.py"}
    packages = {f"{path.name}/" for path in folder.iterdir() if any(path.glob("*.py"))}
    faults = [f"{place}: {len(files)} files, expected at most {MAX_FILES}"] if len(files) > MAX_FILES else []
    entry = folder / "__init__.py"
    text = ast.get_docstring(ast.parse(entry.read_text("utf-8"))) if entry.exists() else None
    if not text:
        return [*faults, f"{place}: expected an __init__.py with a docstring"]
    named = set(NAMED.findall(text))
    faults += [f"{place}: does not name {name}" for name in sorted((files | packages) - named)]
    return faults + [
        f"{place}: there is no {name}"
        for name in sorted(named - USERS_FILES)
        if not any((parent / name).exists() for parent in (folder, *folder.parents) if parent.is_relative_to(root))
    ]
