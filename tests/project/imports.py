"""What files import of the product, told without importing them, and the rules for it: of sources, and of tests."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import PurePosixPath
from typing import NamedTuple

from ..kit.paths import ROOT

__all__ = ["LAYERS", "TOOLS", "Import", "engine_starts", "imports_of", "layer_faults", "mirrored", "strangers"]

LAYERS = ("model", "formatters", "handler")
"""From the bottom up: each may import itself and what stands before it."""
VLLM = "model/vllm/"
"""The one folder that imports the package vllm."""
VLLM_USERS = {"model/auto.py", "handler/commands/check.py"}
"""What imports that folder: the choice of an engine, and the judgment of options without one."""
VLLM_KNOWN = {"model/text/tokenizer.py", "model/process/ending/crash_report.py"}
"""What imports the package nevertheless."""
DIALECTS = {path.name for path in (ROOT / "formatters").iterdir() if (path / "__init__.py").exists()} - {"common"}
"""Folders of dialects: the handler knows dialects by `formatters.base` alone."""
HOST_FILES = {
    "handler/djl/worker.py",
    "handler/djl/convert.py",
    "handler/djl/reading.py",
    "handler/user_code/formatters/djl_formatters.py",
}
"""What names djl_python."""

PUBLIC = {"lmi.handler", "lmi.handler.api"}
"""What users import: tests may too."""
TOOLS = {
    "bench": "the load generator, and vLLM alone with the arguments that the handler would use",
    "microbench": "times single functions of the product, whichever they are",
    "gpu_check": "asks vLLM for the configuration that the engine would start it with",
    "demo": "makes the demo model, and ends as the product's commands do",
    "kit": "is what stands between the product and the tests",
    "project": "reads the product's sources and tables as a whole",
}
"""Folders that are not held to the rule, each with why."""
STARTED_BY = {"VllmEngine", "VllmEmbedding", "VllmScoring", "load_backend", "EngineChild", "EngineClient"}
"""What starts an engine where it is called."""
STARTS_HERE = ("tests/kit/", "tests/bench/", "tests/microbench/", "tests/model/process/")
"""The kit's one place (engines/start.py); tools; and the tests of the client itself, whose engine is a faulty one."""


class Import(NamedTuple):
    """A module that a file imports, or names for an import."""

    line: int
    name: str
    """From the top on; of a relative import that leaves `lmi` what is left of it."""
    relative: bool
    early: bool
    """Whether it is imported with the file: outside functions, for types too."""
    told: bool
    """Whether it is named to `import_module`, `__import__` or `sys.modules`."""


@cache
def parsed(source: str) -> ast.Module:
    """A file, which several rules are held against."""
    return ast.parse(source)


def imports_of(path: str, source: str) -> Iterator[Import]:
    """What the file at `path` (from the repository's root) imports."""
    # The package of `model/parts/x.py` is lmi.model.parts: one dot is that, one more each folder up.
    package = ("lmi", *PurePosixPath(path).parent.parts)
    for node, early in _imports(parsed(source), True):
        match node:
            case ast.Import(names=names):
                found, level = [alias.name for alias in names], 0
            case ast.ImportFrom(module=module, level=level, names=names):
                base = ".".join((*package[: max(0, len(package) - level + 1)], *filter(None, [module])))
                base = base if level else str(module)
                found = [inner if _file(inner := f"{base}.{alias.name}") else base for alias in names]
            case (
                ast.Call(
                    func=ast.Name("import_module" | "__import__") | ast.Attribute(attr="import_module"),
                    args=[ast.Constant(str(name)), *_],
                )
                | ast.Subscript(value=ast.Attribute(attr="modules"), slice=ast.Constant(str(name)))
            ):
                found, level = [name], 0
            case _:
                continue
        told = not isinstance(node, ast.stmt)
        yield from (Import(node.lineno, name, bool(level), early, told) for name in dict.fromkeys(found))


def _imports(node: ast.AST, early: bool) -> Iterator[tuple[ast.stmt | ast.expr, bool]]:
    """What may be an import, and whether it is outside functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom | ast.Call | ast.Subscript):
            yield child, early
        yield from _imports(child, early and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))


@cache
def _file(name: str) -> str:
    """The file of a module of the product's, from the repository's root; "" where there is none."""
    top, *rest = name.split(".")
    place = ROOT.joinpath(*rest)
    files = (place.with_suffix(".py"), place / "__init__.py") if top == "lmi" and rest else ()
    return next((file.relative_to(ROOT).as_posix() for file in files if file.exists()), "")


def files_of(path: str, source: str) -> set[str]:
    """The files of the product that one imports outside functions."""
    early = [one.name for one in imports_of(path, source) if one.early and not one.told]
    return {*filter(None, map(_file, early))} - {path}


def layer_faults(path: str, source: str) -> list[str]:
    """What the product's file at `path` (`model/events.py`) imports against the rules."""
    return [f"{path}:{one.line}: {fault}" for one in imports_of(path, source) for fault in _layer_faults(path, one)]


def _layer_faults(path: str, one: Import) -> Iterator[str]:
    top, *rest = one.name.split(".")
    own = path.split("/")[0]
    if not one.relative:
        if top in ("lmi", *LAYERS):
            yield f"absolute import of {one.name}: in a model directory a name without dots is the user's own"
        if top == "vllm" and not path.startswith(VLLM) and path not in VLLM_KNOWN:
            yield f"imports vllm outside {VLLM}"
        if top == "djl_python" and path not in HOST_FILES:
            yield "names djl_python"
    elif top != "lmi" or not rest or rest[0] not in LAYERS:
        yield f"imports {one.name}, which is of no layer"
    elif LAYERS.index(rest[0]) > LAYERS.index(own):
        yield f"{own} imports {rest[0]}, which stands above it"
    elif rest[:2] == ["model", "vllm"] and not path.startswith(VLLM) and path not in VLLM_USERS:
        yield f"imports {VLLM}"
    elif own == "handler" and rest[0] == "formatters" and DIALECTS.intersection(rest[1:2]):
        yield f"imports the dialect {rest[1]}"


def mirrored(path: str) -> tuple[str, str]:
    """The module that a test file mirrors, or "" where it tests a room as a whole; and the room.

    `tests/model/vllm/request/test_chat_rendered.py` mirrors lmi.model.vllm.request.chat: the longest name of a module.
    """
    place = PurePosixPath(path)
    room = ".".join(("lmi", *place.parent.parts[1:]))
    words = place.stem.removeprefix("test_").split("_")
    names = (f"{room}.{'_'.join(words[:count])}" for count in range(len(words), 0, -1))
    return next(filter(_file, names), ""), room


def strangers(path: str, source: str) -> list[str]:
    """What the test file at `path` (from the repository's root) imports of the product against the rule:

    the module or package that it mirrors and the face of the room it stands in, or, where it mirrors none, the room's
    own files; what users import; and all else by way of tests/kit.
    """
    module, room = mirrored(path)
    mirrors = path.split("/")[1] in LAYERS
    return [
        f"{path}:{one.line}: imports {one.name}, expected it by way of tests/kit"
        for one in imports_of(path, source)
        if one.name.split(".")[0] == "lmi" and not one.relative and not one.told and one.name not in PUBLIC
        if not (mirrors and _is_own(one.name, module, room))
    ]


def _is_own(name: str, module: str, room: str) -> bool:
    if name == room:
        return True
    if module:
        return name == module or name.startswith(f"{module}.")
    return name.rpartition(".")[0] == room


def engine_starts(path: str, source: str) -> list[str]:
    """Where the file starts an engine by itself, though it is not the place for that."""
    # Most files name none of them, and a tree is long.
    if path.startswith(STARTS_HERE) or not any(name in source for name in STARTED_BY):
        return []
    return [
        f"{path}:{node.lineno}: starts an engine, expected it by way of tests/kit/engines/start.py"
        for node in ast.walk(parsed(source))
        if isinstance(node, ast.Call) and STARTED_BY & {getattr(node.func, "id", ""), getattr(node.func, "attr", "")}
    ]
