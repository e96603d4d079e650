"""A crash of the engine's process is seen at once; see also tests/robustness/test_engine_death.py."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.engine

CRASH = """
import os, signal
from lmi.model.process.ending.crash_report import crash_at_once
crash_at_once()
import xgrammar
PREPARE
def where_it_was():
    os.kill(os.getpid(), signal.SIGSEGV)
if FORK and (child := os.fork()):
    raise SystemExit(-os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
where_it_was()
"""


def crash(*, fork: bool = False, prepare: str = "") -> tuple[int, str]:
    script = CRASH.replace("FORK", str(fork)).replace("PREPARE", prepare)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize("fork", [False, True])
def test_it_says_where_it_was_and_ends(fork: bool) -> None:
    code, said = crash(fork=fork)
    assert code == (signal.SIGSEGV if fork else -signal.SIGSEGV)
    assert "Fatal Python error: Segmentation fault" in said
    assert "in where_it_was" in said
    assert "Segfault encountered" not in said, "tvm_ffi's handler"


def test_it_may_be_asked_for_again() -> None:
    code, said = crash(prepare="crash_at_once()")
    assert code == -signal.SIGSEGV
    assert "in where_it_was" in said


def test_without_an_output_it_ends_all_the_same() -> None:
    code, said = crash(prepare="os.close(2)")
    assert (code, said) == (-signal.SIGSEGV, "")
