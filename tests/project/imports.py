"""What test files import of the product, told without importing them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import PurePosixPath

from ..kit.paths import ROOT

__all__ = ["TOOLS", "engine_starts", "mirrored", "strangers"]

PUBLIC = {"lmi.handler", "lmi.handler.api"}
"""What users import: tests may too."""
LAYERS = {"model", "handler", "formatters"}
"""The folders of tests that mirror the product's."""
TOOLS = {
    "bench": "the load generator, and vLLM alone with the arguments that the handler would use",
    "microbench": "times single functions of the product, whichever they are",
    "gpu_check": "asks vLLM for the configuration that the engine would start it with",
    "demo": "makes the demo model, and ends as the product's commands do",
    "kit": "is what stands between the product and the tests",
    "project": "reads the product's sources and tables as a whole",
}
"""Folders that are not held to the rule, each with why."""
STARTED_BY = {
    "VllmEngine",
    "VllmEmbedding",
    "VllmScoring",
    "load_backend",
    "EngineChild",
    "EngineClient",
}
"""What starts an engine where it is called."""
STARTS_HERE = ("tests/kit/", "tests/bench/", "tests/microbench/", "tests/model/process/")
"""The kit's one place (engines/start.py); tools; and the tests of the client itself, whose engine is a faulty one."""


def mirrored(path: str) -> tuple[str, str]:
    """The module that a test file mirrors, or "" where it tests a room as a whole; and the room.

    `tests/model/vllm/request/test_chat_rendered.py` mirrors lmi.model.vllm.request.chat: the longest name of a module.
    """
    place = PurePosixPath(path)
    room = ".".join(("lmi", *place.parent.parts[1:]))
    words = place.stem.removeprefix("test_").split("_")
    names = (f"{room}.{'_'.join(words[:count])}" for count in range(len(words), 0, -1))
    return next(filter(_is_module, names), ""), room


@cache
def parsed(source: str) -> ast.Module:
    """A file, which several rules are held against."""
    return ast.parse(source)


def strangers(path: str, source: str) -> list[str]:
    """What the test file at `path` (from the repository's root) imports of the product against the rule:

    the module or package that it mirrors and the face of the room it stands in, or, where it mirrors none, the room's
    own files; what users import; and all else by way of tests/kit.
    """
    module, room = mirrored(path)
    mirrors = path.split("/")[1] in LAYERS
    return [
        f"{path}:{line}: imports {name}, expected it by way of tests/kit"
        for line, name in _imported(parsed(source))
        if name not in PUBLIC and not (mirrors and _is_own(name, module, room))
    ]


def _is_own(name: str, module: str, room: str) -> bool:
    if name == room:
        return True
    if module:
        return name == module or name.startswith(f"{module}.")
    return name.rpartition(".")[0] == room


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Those in others too; expressions have none, and are most of a tree."""
    for statement in body:
        yield statement
        for field in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(statement, field, []))
        for inner in (*getattr(statement, "handlers", []), *getattr(statement, "cases", [])):
            yield from _statements(inner.body)


def _imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in _statements(tree.body):
        match node:
            case ast.Import(names=names):
                found = [alias.name for alias in names]
            case ast.ImportFrom(module=str(module), level=0, names=names):
                inner = [f"{module}.{alias.name}" for alias in names]
                found = [name if _is_module(name) else module for name in inner]
            case _:
                continue
        yield from ((node.lineno, name) for name in found if name.split(".")[0] == "lmi")


@cache
def _is_module(name: str) -> bool:
    top, *rest = name.split(".")
    place = ROOT.joinpath(*rest)
    return top == "lmi" and bool(rest) and (place.with_suffix(".py").exists() or (place / "__init__.py").exists())


def engine_starts(path: str, source: str) -> list[str]:
    """Where the file starts an engine by itself, though it is not the place for that."""
    # Most files name none of them, and a tree is long.
    if path.startswith(STARTS_HERE) or not any(name in source for name in STARTED_BY):
        return []
    return [
        f"{path}:{node.lineno}: starts an engine, expected it by way of tests/kit/engines/start.py"
        for node in ast.walk(parsed(source))
        if isinstance(node, ast.Call) and _name_of(node.func) in STARTED_BY
    ]


def _name_of(function: ast.expr) -> str:
    match function:
        case ast.Name(name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""
