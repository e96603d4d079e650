"""The direction of imports: handler -> formatters -> model, engines apart; and a cheap `import lmi.handler`."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from ..kit.paths import ROOT
from ..kit.rows import each_row

LAYERS = ("model", "formatters", "handler")
"""From the bottom up: each may import itself and what stands before it."""
HEAVY = {"vllm", "torch", "transformers"}
"""Seconds to import, and not there on every machine: inside functions only, which ruff sees to (TID253)."""
VLLM = "model/vllm/"
"""The one folder that imports the package vllm."""
VLLM_USERS = {"model/auto.py", "handler/commands/check.py"}
"""What imports that folder: the choice of an engine, and the judgment of options without one."""
DIALECTS = {path.name for path in (ROOT / "formatters").iterdir() if (path / "__init__.py").exists()} - {"common"}
"""Folders of dialects: the handler knows dialects by `formatters.base` alone."""
HOST = "djl_python"
KNOWN: dict[str, set[str]] = {
    "model/text/tokenizer.py": {f"imports vllm outside {VLLM}"},
    "model/process/ending/crash_report.py": {f"imports vllm outside {VLLM}"},
}
"""By file, the faults that are there."""
HOST_FILES = {
    "handler/djl/worker.py",
    "handler/djl/convert.py",
    "handler/djl/reading.py",
    "handler/user_code/formatters/djl_formatters.py",
}


def violations(path: str, source: str) -> list[str]:
    """What `source`, the file at `path` from the repository's root (`model/events.py`), imports against the rules."""
    return [f"{path}:{line}: {fault}" for line, fault in _faults(PurePosixPath(path), source)]


def _faults(path: PurePosixPath, source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.stmt | ast.expr):
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            level = 0
        elif isinstance(node, ast.ImportFrom):
            # `from .. import model` names the layer in its aliases, `from ..model import events` in its module.
            names = [node.module] if node.module else [alias.name for alias in node.names]
            level = node.level
            if node.module and node.module.split(".")[-1] in ("formatters", "model"):
                # `from ..formatters import openai` names a folder of it.
                names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif called := _imported_by_name(node):
            names, level = [called.lstrip(".")], len(called) - len(called.lstrip("."))
        else:
            continue
        for name in names:
            yield from ((node.lineno, fault) for fault in _faults_of_import(path, level, name))


def _faults_of_import(path: PurePosixPath, level: int, name: str) -> Iterator[str]:
    top = name.split(".")[0]
    if level == 0:
        if top == "lmi":
            yield f"absolute import of {name}, write it relative"
        if top in LAYERS:
            yield f"absolute import of {name}: in a model directory that is the user's own"
        if top == "vllm" and not str(path).startswith(VLLM):
            yield f"imports {top} outside {VLLM}"
        if top == HOST and str(path) not in HOST_FILES:
            yield f"names {HOST}"
        return
    # The package of `model/parts/x.py` is lmi.model.parts: one dot is that, one more each folder up.
    package = ("lmi", *path.parent.parts)
    if level > len(package):
        yield f"relative import of {'.' * level}{name} leaves lmi"
        return
    target = (*package[: len(package) - level + 1], *name.split("."))
    if len(target) < 2 or target[1] not in LAYERS:
        yield f"relative import of {'.' * level}{name} is of no layer"
    elif LAYERS.index(target[1]) > LAYERS.index(path.parts[0]):
        yield f"{path.parts[0]} imports {target[1]}, which stands above it"
    elif target[1:3] == ("model", "vllm") and not str(path).startswith(VLLM) and str(path) not in VLLM_USERS:
        yield f"imports {VLLM}"
    elif path.parts[0] == "handler" and target[1] == "formatters" and DIALECTS.intersection(target[2:3]):
        yield f"imports the dialect {target[2]}"


def _imported_by_name(node: ast.AST) -> str | None:
    """The name in `import_module("name")`, `__import__("name")` and `sys.modules["name"]`."""
    match node:
        case ast.Call(
            func=ast.Name("import_module" | "__import__") | ast.Attribute(attr="import_module"),
            args=[ast.Constant(str(name)), *_],
        ):
            return name
        case ast.Subscript(value=ast.Attribute(attr="modules"), slice=ast.Constant(str(name))):
            return name
        case _:
            return None


def sources() -> list[Path]:
    return [path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]


@each_row("source", [pytest.param(path, id=path.relative_to(ROOT).as_posix()) for path in sources()])
def test_a_source_keeps_the_rules(source: Path) -> None:
    path = source.relative_to(ROOT).as_posix()
    found = {fault for _, fault in _faults(PurePosixPath(path), source.read_text("utf-8"))}
    # One that is not there any more is to be taken out of here.
    assert found == KNOWN.get(path, set())


def test_each_layer_is_checked() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in sources()} == set(LAYERS)


@each_row(
    ("path", "source", "fault"),
    [
        ("model/events.py", "from ..formatters.base import Dialect", "model imports formatters"),
        ("model/events.py", "from .. import handler", "model imports handler"),
        ("model/parts/deep.py", "from ...formatters import base", "model imports formatters"),
        ("formatters/base.py", "def f():\n    from ..handler.djl import decode", "formatters imports handler"),
        ("handler/commands/cli.py", "from lmi.model import events", "absolute import of lmi.model"),
        ("handler/commands/cli.py", "from formatters.base import Dialect", "absolute import of formatters.base"),
        ("handler/service.py", "from ..tests import fakes", "is of no layer"),
        ("handler/djl/rolling_batch.py", "def f():\n    import djl_python.inputs", "names djl_python"),
        ("handler/djl/rolling_batch.py", "import sys\nOutput = sys.modules['djl_python.outputs']", "names djl_python"),
        ("model/text/tokenizer.py", "def f():\n    import vllm.tokenizers", "imports vllm outside model/vllm/"),
        ("model/process/prepare.py", "def f():\n    from ..vllm import chat", "imports model/vllm/"),
        ("handler/service.py", "from ..model import vllm", "imports model/vllm/"),
        ("handler/service.py", "from ..formatters import DIALECTS, openai", "imports the dialect openai"),
    ],
)
def test_a_violation_is_found(path: str, source: str, fault: str) -> None:
    (found,) = violations(path, source)
    assert found.startswith(f"{path}:")
    assert fault in found


@each_row(
    ("path", "source"),
    [
        ("model/parts/deep.py", "from ..errors import LmiError\nfrom ...model import events"),
        ("formatters/lmi/__init__.py", "from ..model.events import Delta\nfrom . import base"),
        ("handler/commands/cli.py", "from .. import formatters, model\nfrom ..model import engine"),
        ("handler/djl/worker.py", "from djl_python.inputs import Input"),
        ("handler/djl/rolling_batch.py", '"""What djl_python sends, said in prose."""'),
        ("model/auto.py", "def f():\n    from .vllm.engine import VllmEngine"),
        ("model/vllm/request/chat.py", "from .prompt import read"),
        ("handler/service.py", "from ..formatters import DIALECTS\nfrom ..formatters.common.encoder import aborted"),
    ],
)
def test_what_is_allowed_is_let_pass(path: str, source: str) -> None:
    assert violations(path, source) == []


def test_the_handler_is_imported_without_an_engine() -> None:
    """The host gives a worker two minutes until it must have answered, and the entry module is imported before that."""
    code = "import sys, lmi.handler; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(done.stdout.split())
    assert "lmi" in loaded
    assert not loaded & HEAVY
