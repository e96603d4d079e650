"""The watch over vLLM's processes, with others in their place: which one ended is said, core or worker.

this test --> the engine's process --fork--> a core --fork--> a worker
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess

import psutil
import pytest

from lmi.model.vllm.watch import killed, processes, started

from ...kit.paths import ROOT

PROCESSES = """
import multiprocessing, os, subprocess, sys, threading, time
from lmi.model.log_filters import configure
from lmi.model.process.ending.output_tail import OutputTail
from lmi.model.vllm.watch import end_with, processes

configure(own_process=True)
fork = multiprocessing.get_context("fork")

def sleep():
    time.sleep(600)

def core(up):
    worker = fork.Process(target=sleep)
    worker.start()
    if "compiler" in sys.argv:
        compiler = subprocess.Popen(["sleep", "600"])
        threading.Thread(target=compiler.wait).start()
    up.set()
    # As vLLM's: the end of a worker is noticed late.
    time.sleep(600)

up, closing = fork.Event(), threading.Event()
before = processes()
with OutputTail() as output:
    child = fork.Process(target=core, args=(up,), name="EngineCore")
    child.start()
    up.wait(30)
if "closing" in sys.argv:
    closing.set()
end_with(processes() - before, output, closing)
print("ready", flush=True)
for thread in threading.enumerate():
    if thread.name == "lmi-watch":
        thread.join()
print("watched", flush=True)
time.sleep(600)
"""


def engine(*arguments: str) -> tuple[subprocess.Popen[str], psutil.Process, psutil.Process]:
    """The engine's process, the core and the worker."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROCESSES, *arguments], cwd=ROOT, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    (core,) = psutil.Process(process.pid).children()
    worker = core.children()[0]
    return process, core, worker


def ended(process: subprocess.Popen[str]) -> str:
    """What it says as it ends, long before the core would."""
    process.wait(60)
    os.killpg(process.pid, signal.SIGKILL)
    _, told = process.communicate()
    assert process.returncode == 3
    return told


@pytest.mark.parametrize("victim", ["core", "worker"])
def test_which_one_ended_is_said(victim: str) -> None:
    process, core, worker = engine()
    (core if victim == "core" else worker).kill()
    said = "EngineCore ended by signal SIGKILL" if victim == "core" else f"worker {worker.pid} ended"
    assert f"vLLM's process {said}" in ended(process)
    assert not processes()


def test_what_is_meant_to_end_ends_nothing_else() -> None:
    process, core, _ = engine("closing")
    core.kill()
    assert process.stdout is not None
    assert process.stdout.readline() == "watched\n"
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def test_what_a_core_has_compiled_with_may_end() -> None:
    process, core, worker = engine("compiler")
    (compiler,) = set(core.children()) - {worker}
    compiler.kill()
    compiler.wait(60)
    worker.kill()
    told = ended(process)
    assert f"worker {worker.pid} ended" in told
    assert str(compiler.pid) not in told


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_is_started_meanwhile_is_known_after_its_end() -> None:
    fork = multiprocessing.get_context("fork")

    def failing(found: set[BaseProcess]) -> None:
        child, other = (fork.Process(target=time.sleep, args=(60,), name=name) for name in ("EngineCore_DP0", "other"))
        for one in (child, other):
            one.start()
        until(lambda: len(found) == 2)
        os.kill(child.pid or 0, signal.SIGKILL)
        other.terminate()
        child.join()
        raise RuntimeError("no start")

    with pytest.raises(RuntimeError, match="no start"), started() as found:
        failing(found)
    assert {one.name for one in found} == {"EngineCore_DP0", "other"}
    # As vLLM itself ends the others.
    assert killed(found) == "vLLM's process EngineCore_DP0 ended by signal SIGKILL"


def test_what_is_started_and_runs_is_what_is_known_then() -> None:
    fork = multiprocessing.get_context("fork")
    with started() as found:
        left = fork.Process(target=time.sleep, args=(60,))
        left.start()
        until(lambda: left in found)
        left.kill()
        left.join()
        running = fork.Process(target=time.sleep, args=(60,))
        running.start()
    assert found == {running}
    assert killed(found) == ""
    running.kill()
    running.join()
