"""The direction of imports: handler -> formatters -> model, engines apart; tests import what they mirror, and all else
of the product by way of the kit; and a cheap `import lmi.handler`."""

from __future__ import annotations

import subprocess
import sys
from graphlib import TopologicalSorter

from ..kit.paths import ROOT, TESTS
from ..kit.rows import each_row
from .imports import LAYERS, TOOLS, engine_starts, files_of, layer_faults, mirrored, strangers

SOURCES = {
    path.relative_to(ROOT).as_posix(): path.read_text("utf-8")
    for layer in LAYERS
    for path in sorted((ROOT / layer).rglob("*.py"))
}
FILES = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in sorted(TESTS.rglob("*.py"))}
DIALECT = "tests/formatters/conversation/test_yardstick.py"
"""A dialect, which imports what dialects do."""
HEAVY = {"vllm", "torch", "transformers"}
"""Seconds to import, and not there on every machine: inside functions only, which ruff sees to (TID253)."""


def test_sources_keep_their_layer() -> None:
    assert {name.split("/")[0] for name in SOURCES} == set(LAYERS)
    assert [fault for name, source in SOURCES.items() for fault in layer_faults(name, source)] == []


@each_row(
    ("path", "source", "fault"),
    [
        ("model/events.py", "from ..formatters.base import Dialect", "model imports formatters"),
        ("model/events.py", "from .. import handler", "model imports handler"),
        ("model/nodes/deep.py", "from ...formatters import base", "model imports formatters"),
        ("formatters/base.py", "def f():\n    from ..handler.djl import convert", "formatters imports handler"),
        ("handler/commands/cli.py", "from lmi.model import events", "absolute import of lmi.model.events"),
        ("handler/commands/cli.py", "from formatters.base import Dialect", "absolute import of formatters.base"),
        ("handler/service.py", "from ..tests import fakes", "of no layer"),
        ("handler/service.py", "from .... import fakes", "of no layer"),
        ("handler/djl/frames.py", "def f():\n    import djl_python.inputs", "names djl_python"),
        (
            "handler/djl/frames.py",
            "import sys\nOutput = sys.modules['djl_python.outputs']",
            "names djl_python",
        ),
        ("handler/djl/frames.py", "import_module('djl_python.outputs')", "names djl_python"),
        ("model/text/detokenizer.py", "def f():\n    import vllm.tokenizers", "imports vllm outside model/vllm/"),
        ("model/process/prepare.py", "def f():\n    from ..vllm import engine", "imports model/vllm/"),
        ("handler/service.py", "from ..formatters import DIALECTS, openai", "imports the dialect openai"),
    ],
)
def test_what_is_against_the_direction(path: str, source: str, fault: str) -> None:
    (found,) = layer_faults(path, source)
    assert found.startswith(f"{path}:")
    assert fault in found


def test_there_are_no_circles() -> None:
    """Of what is imported with a file, for types too; CycleError names one."""
    imports = {name: files_of(name, source) for name, source in SOURCES.items()}
    assert "model/errors.py" in imports["model/events.py"]
    TopologicalSorter(imports).prepare()


def test_tests_import_what_they_mirror() -> None:
    held = {name: source for name, source in FILES.items() if name.count("/") > 1 and name.split("/")[1] not in TOOLS}
    held.pop(DIALECT)
    assert [fault for name, source in held.items() for fault in strangers(name, source)] == []
    assert len(held) > 100


def test_engines_are_started_in_one_place() -> None:
    assert [fault for name, source in FILES.items() for fault in engine_starts(name, source)] == []
    assert engine_starts("tests/oracles/test_vision.py", "def f():\n    return engine.load_backend(settings)")


def test_each_folder_of_tests_is_a_room_or_a_subject() -> None:
    """What mirrors a layer mirrors its rooms by name."""
    rooms = {(ROOT / name).parent for name in FILES if name.split("/")[1] in LAYERS}
    assert [str(room) for room in rooms if not (ROOT / room.relative_to(TESTS) / "__init__.py").exists()] == []


@each_row(
    ("path", "source", "found"),
    [
        ("tests/model/vllm/test_engine.py", "from lmi.model.vllm.engine import VllmEngine", ""),
        ("tests/model/vllm/test_engine.py", "from lmi.model.vllm import start", "lmi.model.vllm.start"),
        ("tests/model/vllm/test_engine.py", "def f():\n    import lmi.model.errors", "lmi.model.errors"),
        ("tests/formatters/test_azure.py", "from lmi.formatters.azure.reply import encoder", ""),
        ("tests/handler/threads/test_limits.py", "from lmi.handler.service import Service", "lmi.handler.service"),
        ("tests/hosts/test_tgi.py", "from lmi.handler.api import Response\nfrom lmi.handler import handle", ""),
        ("tests/hosts/test_tgi.py", "from lmi.handler import service", "lmi.handler.service"),
    ],
)
def test_what_a_test_may_import(path: str, source: str, found: str) -> None:
    assert [fault.split()[2].rstrip(",") for fault in strangers(path, source)] == [found] * bool(found)


def test_what_a_file_mirrors() -> None:
    assert mirrored("tests/handler/djl/modes/test_async_mode.py") == (
        "lmi.handler.djl.modes.async_mode",
        "lmi.handler.djl.modes",
    )
    assert mirrored("tests/handler/threads/test_limits.py") == ("", "lmi.handler.threads")


def test_the_handler_is_imported_without_an_engine() -> None:
    """The host gives a worker two minutes until it must have answered, and the entry module is imported before that."""
    code = "import sys, lmi.handler; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(done.stdout.split())
    assert "lmi" in loaded
    assert not loaded & HEAVY
