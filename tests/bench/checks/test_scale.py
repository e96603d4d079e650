"""`make scale` in small: what it prints, that it notices a wrong answer, and where it puts processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from lmi.model.errors import OptionError

from ...kit.acted.said import Said
from ..scale.__main__ import COLUMNS, main
from ..scale.machine import Machine, place
from ..workloads import WORKLOADS

SMALL = ["--machine", "16/2", "--connections", "1,40", "--tokens", "40", "--rounds", "1"]


def test_a_machine() -> None:
    machine = Machine.read("512/10.24")
    assert machine.sequences == 512
    assert machine.step == pytest.approx(0.01024)
    assert machine.rate == pytest.approx(50_000)
    for wrong in ("512", "0/10", "512/0", "a/b", "1/2/3"):
        with pytest.raises(OptionError, match=rf"--machine: expected SEQUENCES/MILLISECONDS, .* got {wrong}"):
            Machine.read(wrong)


def test_what_is_measured_has_a_processor_of_its_own() -> None:
    before = os.sched_getaffinity(0)
    if len(before) < 2:
        pytest.skip("one processor")
    first, second, *_ = sorted(before)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        place(child.pid, ("host",))
        assert psutil.Process(child.pid).cpu_affinity() == [first]
        assert os.sched_getaffinity(0) == {second}
        place(child.pid, ("server",))
        assert psutil.Process(child.pid).cpu_affinity() == [second]
    finally:
        child.communicate(b"\n")
        os.sched_setaffinity(0, before)


@pytest.mark.engine
@pytest.mark.once
def test_a_run(demo_model: Path) -> None:
    """A row for each workload and number of connections, on the machine that was asked for."""
    command = [sys.executable, "-m", "tests.bench.scale", str(demo_model), *SMALL]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines())
    assert tuple(head) == COLUMNS
    assert [row[:3] for row in rows] == [
        ["8,000", workload.name, connections] for workload in WORKLOADS for connections in ("1", "40")
    ]
    for row in rows:
        told = dict(zip(COLUMNS, row, strict=True))
        # 40 tokens a request, and no more of them than the machine makes.
        assert 0 < float(told["tokens/s"].replace(",", "")) < 8_500
        assert {"engine process", "server"} <= {part.rsplit(" ", 1)[0] for part in told["CPU µs a token"].split(", ")}


@pytest.mark.engine
@pytest.mark.once
def test_a_wrong_answer_fails_it(
    demo_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = os.sched_getaffinity(0)
    right = Said.text
    monkeypatch.setattr(Said, "text", lambda self, prompt, *rest, **more: right(self, prompt[::-1], *rest, **more))
    try:
        with pytest.raises(SystemExit, match="1"):
            main([str(demo_model), *SMALL, "--workload", "LMI whole"])
    finally:
        os.sched_setaffinity(0, before)
    assert "answers were not what they must be" in capsys.readouterr().err
