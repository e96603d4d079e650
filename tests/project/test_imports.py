"""Tests import the module that they mirror; all else of the product comes by way of the kit, engines' starts too."""

from __future__ import annotations

import pytest

from ..kit.paths import ROOT, TESTS
from ..kit.rows import each_row
from .imports import TOOLS, engine_starts, mirrored, strangers

FILES = {path.relative_to(ROOT).as_posix(): path for path in sorted(TESTS.rglob("*.py"))}


DIALECT = "tests/formatters/conversation/test_yardstick.py"
"""A dialect, which imports what dialects do."""


def test_files_import_what_they_mirror() -> None:
    held = {name: path for name, path in FILES.items() if name.count("/") > 1 and name.split("/")[1] not in TOOLS}
    held.pop(DIALECT)
    assert [fault for name, path in held.items() for fault in strangers(name, path.read_text("utf-8"))] == []
    assert len(held) > 100


def test_engines_are_started_in_one_place() -> None:
    assert [fault for name, path in FILES.items() for fault in engine_starts(name, path.read_text("utf-8"))] == []


def test_each_folder_of_tests_is_a_room_or_a_subject() -> None:
    """What mirrors a layer mirrors its rooms by name."""
    rooms = {path.parent for name, path in FILES.items() if name.split("/")[1] in ("model", "handler", "formatters")}
    assert [str(room) for room in rooms if not (ROOT / room.relative_to(TESTS) / "__init__.py").exists()] == []


@pytest.mark.parametrize(
    ("path", "module", "room"),
    [
        ("tests/model/vllm/test_engine.py", "lmi.model.vllm.engine", "lmi.model.vllm"),
        ("tests/handler/djl/test_async_mode.py", "lmi.handler.djl.async_mode", "lmi.handler.djl"),
        ("tests/handler/threads/test_limits.py", "", "lmi.handler.threads"),
    ],
)
def test_what_a_file_mirrors(path: str, module: str, room: str) -> None:
    assert mirrored(path) == (module, room)


@each_row(
    ("path", "source", "found"),
    [
        ("tests/model/vllm/test_engine.py", "from lmi.model.vllm.engine import VllmEngine", ""),
        ("tests/model/vllm/test_engine.py", "from lmi.model.vllm import beam", "lmi.model.vllm.beam"),
        ("tests/model/vllm/test_engine.py", "def f():\n    import lmi.model.errors", "lmi.model.errors"),
        ("tests/formatters/test_azure.py", "from lmi.formatters.azure.reply import encoder", ""),
        ("tests/formatters/test_azure.py", "from lmi.model.events import Delta", "lmi.model.events"),
        ("tests/handler/threads/test_limits.py", "from lmi.handler.service import Service", "lmi.handler.service"),
        ("tests/hosts/test_tgi.py", "from lmi.handler.api import Response\nfrom lmi.handler import handle", ""),
        ("tests/hosts/test_tgi.py", "from lmi.handler import service", "lmi.handler.service"),
    ],
)
def test_what_is_against_the_rule(path: str, source: str, found: str) -> None:
    assert [fault.split()[2].rstrip(",") for fault in strangers(path, source)] == [found] * bool(found)


@pytest.mark.parametrize(
    ("path", "source", "faults"),
    [
        ("tests/model/vllm/test_engine.py", "engine = VllmEngine(settings)", 1),
        ("tests/oracles/test_vision.py", "def f():\n    return engine.load_backend(settings)", 1),
        ("tests/oracles/test_vision.py", "engine = in_process(settings)", 0),
        ("tests/kit/engines/start.py", "load_backend(settings)", 0),
    ],
)
def test_where_an_engine_is_started(path: str, source: str, faults: int) -> None:
    assert len(engine_starts(path, source)) == faults
