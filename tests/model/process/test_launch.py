"""The engine's process starts before the host imports what it needs itself, unless user code is there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

import pytest

from lmi.model.process.child import EngineChild
from lmi.model.process.client import EngineClient

from ...kit.api.options import typed_settings
from ...kit.paths import ENGINE_FAULTS, USER_CODE

pytestmark = pytest.mark.processes

SERVE = """
import os, sys
from lmi.handler.commands import cli
from lmi.model.process.child import engine_environment
from lmi.model.process.client import EngineClient

def launch(self):
    print("formatters", "lmi.formatters" in sys.modules, "set", engine_environment().get("SET_BY_USER"))
    raise SystemExit(0)

EngineClient.launch = launch
cli.main(["serve", sys.argv[1], "--port", "0"])
"""
"""Tells how far the host is when it would start the engine's process."""


class Launched(EngineChild):
    """Notes the processes that there have been."""

    ids: ClassVar[list[int]] = []

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.ids.append(self.process_id)


@pytest.fixture
def starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines that come up at once (tests/kit/faults)."""
    (tmp_path / "starts").touch()
    monkeypatch.setenv("LMI_TEST_STARTS", str(tmp_path / "starts"))
    monkeypatch.syspath_prepend(str(ENGINE_FAULTS))
    monkeypatch.setattr("lmi.model.process.client.EngineChild", Launched)
    monkeypatch.setattr(Launched, "ids", [])


def launched() -> tuple[EngineClient, int]:
    """A client, and its engine's process, which is not waited for yet."""
    engine = EngineClient(typed_settings(model_id="a-hub/id"))
    engine.launch()
    (process,) = Launched.ids
    return engine, process


@pytest.mark.usefixtures("starts")
def test_start_waits_for_what_is_launched() -> None:
    engine, process = launched()
    try:
        assert not engine.healthy
        engine.start()
        assert engine.process_id == process
    finally:
        engine.close()


@pytest.mark.usefixtures("starts")
def test_what_is_launched_only_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once: it is not asked to, for it may be importing for seconds."""
    monkeypatch.setattr("lmi.model.process.child.EXIT_TIMEOUT_S", 40.0)
    engine, process = launched()
    os.kill(process, signal.SIGSTOP)
    begun = time.monotonic()
    engine.close()
    assert time.monotonic() - begun < 20
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A model directory that is read, and no more."""
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "serving.properties").write_text("engine=Python\noption.entryPoint=lmi.handler\n")
    return directory


def before_launch(directory: Path, packages: Path | None = None) -> list[str]:
    """What SERVE prints, with `packages` installed."""
    command = [sys.executable, "-c", SERVE, str(directory)]
    environment = dict(os.environ)
    if packages is not None:
        before = environment.get("PYTHONPATH", "").split(os.pathsep)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(packages), *before]))
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=120, env=environment)
    return [line for line in done.stdout.splitlines() if line.startswith("formatters")]


def test_the_local_server_launches_it_before_its_own_imports(directory: Path) -> None:
    assert before_launch(directory) == ["formatters False set None"]


def test_code_of_the_users_goes_before_the_engine(directory: Path) -> None:
    """It may set the environment that the engine starts with."""
    (directory / "model.py").write_text("import os\nos.environ['SET_BY_USER'] = 'yes'\n")
    assert before_launch(directory) == ["formatters True set yes"]


def test_an_installed_dialect_goes_before_the_engine(directory: Path, tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    (packages / "theirs-1.0.dist-info").mkdir(parents=True)
    (packages / "theirs-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (packages / "theirs-1.0.dist-info" / "entry_points.txt").write_text("[lmi.dialects]\ntheirs = theirs:Toy\n")
    toy = (USER_CODE / "toy.py").read_text()
    (packages / "theirs.py").write_text(f"{toy}\n\nimport os\n\nos.environ['SET_BY_USER'] = 'yes'\n")
    assert before_launch(directory, packages) == ["formatters True set yes"]
