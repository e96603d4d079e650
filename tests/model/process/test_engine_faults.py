"""What the host's side does when the engine's process fails, tried with an engine that fails as it is told to.

The process, the channel and the rebuild are the real ones. What fails for one request alone:
tests/model/process/test_fault_isolation.py; tests/robustness/test_engine_death.py has the real engine
too.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import psutil
import pytest

from lmi.model.process.client import REBUILD_PAUSES_S, EngineClient

from ...kit.api.errors import MemoryShortError, StartError, UnavailableError
from ...kit.api.options import AdapterOptions, typed_settings
from ...kit.api.types import Delta, EngineEvent, Failed, Generation
from ...kit.paths import ENGINE_FAULTS

pytestmark = pytest.mark.processes

LONG = 60.0

Make = Callable[..., EngineClient]
LogRequests = Literal["false", "summary", "true"]


@pytest.fixture
def starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that says what each start does."""
    file = tmp_path / "starts"
    file.touch()
    monkeypatch.setenv("LMI_TEST_STARTS", str(file))
    monkeypatch.syspath_prepend(str(ENGINE_FAULTS))
    return file


@pytest.fixture
def make(starts: Path) -> Iterator[Make]:
    """Makes engines, which end with the test."""
    del starts
    made: list[EngineClient] = []

    def make(
        stall: float = 0.0, log_requests: LogRequests = "false", adapters: bool = False, **arguments: Any
    ) -> EngineClient:
        settings = typed_settings(
            model_id="a-hub/id",
            engine_stall_timeout=stall,
            log_requests=log_requests,
            adapters=AdapterOptions(enable_lora=adapters),
        )
        engine = EngineClient(settings, **arguments)
        made.append(engine)
        return engine

    yield make
    for engine in made:
        engine.close()


class Asked:
    """A generation and what has come of it."""

    def __init__(self, engine: EngineClient, prompt: str) -> None:
        self.events: queue.Queue[EngineEvent] = queue.Queue()
        self.ticket = engine.submit(Generation(request_id="r", prompt=prompt), self.events.put)

    def end(self, timeout: float = LONG) -> EngineEvent:
        """Its last event."""
        while True:
            event = self.events.get(timeout=timeout)
            if isinstance(event, Failed) or (isinstance(event, Delta) and event.finish):
                return event

    def failure(self) -> str:
        """The message that it failed with."""
        event = self.end()
        assert isinstance(event, Failed)
        return event.message

    def begun(self) -> None:
        """Waits for its first event."""
        self.events.get(timeout=LONG)


def answered(engine: EngineClient) -> bool:
    """Whether a request is answered well; False where it is refused or fails."""
    try:
        return isinstance(Asked(engine, "hello").end(), Delta)
    except UnavailableError:
        return False


def eventually(condition: Callable[[], bool], timeout: float = LONG) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come about in time"
        time.sleep(0.01)


def refusal(engine: EngineClient) -> str:
    """Why a request is refused now."""
    with pytest.raises(UnavailableError) as caught:
        Asked(engine, "hello")
    return caught.value.message


@pytest.mark.parametrize(
    ("fault", "said"),
    [("no memory in step", "the engine failed: out of memory: 1 TiB was asked for"), ("crash in step", "SIGSEGV")],
)
def test_what_ends_a_step_ends_all_in_flight_and_the_engine_comes_back(make: Make, fault: str, said: str) -> None:
    engine = make()
    engine.start()
    first = engine.process_id
    others = [Asked(engine, "endless") for _ in range(5)]
    for other in others:
        other.begun()
    culprit = Asked(engine, fault)
    for asked in (culprit, *others):
        assert said in asked.failure()
    assert engine.running == 0
    eventually(lambda: answered(engine))
    assert engine.process_id != first


@pytest.mark.parametrize("asked", ["false", "summary", "true"])
def test_what_a_request_says_is_in_its_log_only_where_that_is_asked_for(
    make: Make, asked: LogRequests, capfd: pytest.CaptureFixture[str]
) -> None:
    engine = make(log_requests=asked)
    engine.start()
    assert "zqxmark" in Asked(engine, "fault in prepare: zqxmark").failure()
    engine.close()
    logged = capfd.readouterr().err
    assert "request r: generation 1 failed before it started" in logged
    assert ("zqxmark" in logged) is (asked == "true")


def test_a_crash_says_where_it_was(make: Make, capfd: pytest.CaptureFixture[str]) -> None:
    """By Python's handler, whatever the engine has loaded: another one's may never come to an end."""
    engine = make()
    engine.start()
    assert "SIGSEGV" in Asked(engine, "crash in step").failure()
    engine.close()
    said = capfd.readouterr().err
    assert "Fatal Python error: Segmentation fault" in said
    assert "in step" in said


@pytest.mark.parametrize("fault", ["stuck in step", "stuck in prepare"])
def test_an_engine_that_makes_no_step_is_killed_and_rebuilt(make: Make, fault: str) -> None:
    engine = make(stall=1.0)
    engine.start()
    first = engine.process_id
    assert "made no step for 1 s (option.engine_stall_timeout)" in Asked(engine, fault).failure()
    eventually(lambda: answered(engine))
    assert engine.process_id != first


def test_a_stopped_process_is_killed_and_rebuilt(make: Make) -> None:
    engine = make(stall=1.0)
    engine.start()
    first = engine.process_id
    assert first is not None
    running = Asked(engine, "endless")
    running.begun()
    os.kill(first, signal.SIGSTOP)
    late = Asked(engine, "hello")
    assert "made no step" in running.failure()
    assert "made no step" in late.failure()
    eventually(lambda: answered(engine))


@pytest.mark.parametrize("prompt", ["many steps that bring nothing", "slow prepare"])
def test_an_engine_at_work_is_left_alone(make: Make, prompt: str) -> None:
    """However long nothing comes of it: of a long prompt, say. What takes long to prepare has as long as a step."""
    engine = make(stall=4.0)
    engine.start()
    first = engine.process_id
    asked = Asked(engine, prompt)
    time.sleep(5.5)
    events = [asked.events.get() for _ in range(asked.events.qsize())]
    assert not any(isinstance(event, Failed) for event in events)
    assert answered(engine)
    assert engine.process_id == first


def test_an_engine_without_adapters_does_not_start_with_them(make: Make) -> None:
    with pytest.raises(StartError, match=r"^option\.enable_lora: vllm has no adapters$"):
        make(adapters=True).start()


def test_without_a_limit_nothing_is_watched(make: Make) -> None:
    engine = make(stall=0.0)
    engine.start()
    asked = Asked(engine, "stuck in step")
    with pytest.raises(queue.Empty):
        asked.end(timeout=1.5)
    assert engine.healthy


@pytest.mark.timing
def test_submitting_never_waits_for_a_stopped_engine(make: Make) -> None:
    """More than a socket holds: the rest is sent by a thread, in order, once there is room."""
    engine = make()
    engine.start()
    assert engine.process_id is not None
    os.kill(engine.process_id, signal.SIGSTOP)
    began = time.monotonic()
    asked = [Asked(engine, f"{number}: " + "x" * 200_000) for number in range(50)]
    aborted = asked[10]
    engine.abort([aborted.ticket])
    assert time.monotonic() - began < 5
    os.kill(engine.process_id, signal.SIGCONT)
    assert all(isinstance(one.end(), Delta) for one in asked if one is not aborted)
    assert aborted.events.empty()


def test_a_stopped_engine_can_be_closed(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmi.model.process.child.EXIT_TIMEOUT_S", 1.0)
    engine = make()
    engine.start()
    process = psutil.Process(engine.process_id)
    process.suspend()
    engine.close()
    assert not process.is_running()


@pytest.mark.parametrize(
    ("start", "said"),
    [
        ("fail the weights are bad", "the engine could not start: the weights are bad"),
        ("kill", "the engine's process ended by signal SIGKILL before the engine was ready"),
    ],
)
def test_a_first_start_that_fails_says_why_and_is_not_tried_again(
    make: Make, starts: Path, start: str, said: str
) -> None:
    starts.write_text(f"{start}\n")
    engine = make()
    with pytest.raises(StartError) as caught:
        engine.start()
    assert caught.value.message == said
    assert not engine.healthy
    assert starts.read_text() == ""


def test_too_little_memory_at_start_is_507(make: Make, starts: Path) -> None:
    starts.write_text("short the weights need 3 GiB\n")
    with pytest.raises(MemoryShortError, match="the weights need 3 GiB") as caught:
        make().start()
    assert caught.value.status == 507


def test_an_engine_that_dies_while_it_is_rebuilt_is_tried_again(make: Make, starts: Path) -> None:
    starts.write_text("up\nkill\nfail there is no device\nshort no room\nup\n")
    engine = make(pauses=[0.01])
    engine.start()
    assert "SIGSEGV" in Asked(engine, "crash in step").failure()
    eventually(lambda: answered(engine))
    assert starts.read_text() == ""


def test_an_engine_that_cannot_be_rebuilt_is_given_up_with_the_cause(make: Make, starts: Path) -> None:
    starts.write_text("up\n" + "fail there is no device\n" * 5)
    engine = make(pauses=[0.01], tries=3)
    given_up: list[str] = []
    engine.given_up = given_up.append
    engine.start()
    Asked(engine, "crash in step").failure()
    said = "the engine could not be rebuilt: the engine could not start: there is no device"
    eventually(lambda: refusal(engine) == said)
    assert not engine.healthy
    eventually(lambda: given_up == [said])
    # Two are left: it is not tried for ever.
    assert starts.read_text().count("fail") == 2


@pytest.mark.timing
def test_while_it_is_rebuilt_requests_are_told_so_at_once(make: Make, starts: Path) -> None:
    starts.write_text("up\nsleep 3\n")
    engine = make()
    engine.start()
    Asked(engine, "crash in step").failure()
    began = time.monotonic()
    for _ in range(100):
        assert refusal(engine) == "the engine's process ended by signal SIGSEGV; it is being rebuilt, try again later"
    assert time.monotonic() - began < 2
    assert not engine.healthy
    eventually(lambda: answered(engine))
    assert engine.healthy


def test_a_rebuild_that_takes_too_long_is_a_failed_try(
    make: Make, starts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmi.model.process.client.REBUILD_TIMEOUT_S", 8.0)
    monkeypatch.setattr("lmi.model.process.client.REBUILD_FACTOR", 0.0)
    starts.write_text("up\nsleep 3600\nup\n")
    engine = make(pauses=[0.0])
    engine.start()
    Asked(engine, "crash in step").failure()
    eventually(lambda: answered(engine))
    assert starts.read_text() == ""


def test_pauses_grow_while_engines_are_of_no_use_and_begin_anew_after_one_that_was(make: Make) -> None:
    """An engine that answered comes back at once after its tenth death too; one that never did makes them longer."""
    waited: list[float] = []

    class Noting(EngineClient):
        def pause(self, seconds: float) -> bool:
            waited.append(seconds)
            return False

    engine = Noting(typed_settings(model_id="a-hub/id", engine_stall_timeout=0))
    try:
        engine.start()
        for _ in range(3):
            eventually(lambda: answered(engine))
            kill(engine)
        assert waited == [0, 0, 0]
        for _ in range(4):
            kill(engine)
        eventually(lambda: answered(engine))
        assert waited[3:] == list(REBUILD_PAUSES_S[1:5])
        kill(engine)
        assert waited[7:] == [0]
    finally:
        engine.close()


def kill(engine: EngineClient) -> None:
    """Kills the engine's process and waits for the next one."""
    before = engine.process_id
    assert before is not None
    os.kill(before, signal.SIGKILL)
    eventually(lambda: engine.process_id not in (None, before))


@pytest.mark.parametrize("moment", ["starting", "running"])
def test_the_engine_ends_with_its_host(starts: Path, temporary: Path, moment: str) -> None:
    """Killed while its engine starts, or while it runs: no process is left, and no folder."""
    if moment == "starting":
        starts.write_text("sleep 3600\n")
    code = (
        "from lmi.model.options import Settings; from lmi.model.process.client import EngineClient; import time\n"
        "engine = EngineClient(Settings(model_dir='/m', model_id='a-hub/id', model_name='m')); engine.start()\n"
        "print('up', flush=True); time.sleep(3600)\n"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ENGINE_FAULTS), *sys.path]),
        "TMPDIR": str(temporary),
    }
    host = psutil.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE)
    try:
        if moment == "running":
            assert host.stdout.readline() == b"up\n"
        else:
            eventually(lambda: starts.read_text() == "" and len(host.children()) == 1)
        (engine,) = host.children()
        assert len(list(temporary.iterdir())) == 1
    finally:
        host.kill()
        host.wait()
        host.stdout.close()
    eventually(lambda: not engine.is_running() or engine.status() == psutil.STATUS_ZOMBIE, 10)
    eventually(lambda: not list(temporary.iterdir()), 10)


def test_no_two_threads_tell_at_once(make: Make) -> None:
    """Neither sinks nor listeners: what they feed is one request's, or counts what a step brings."""
    engine = make()
    engine.start()
    told: list[str] = []
    inside = threading.Event()
    go = threading.Event()

    def slow(event: EngineEvent) -> None:
        if isinstance(event, Delta) and not inside.is_set():
            inside.set()
            assert go.wait(LONG)
            told.append("slow")

    engine.submit(Generation(request_id="r", prompt="hello"), slow)
    assert inside.wait(LONG)
    engine.listen(lambda: told.append("listener"))
    failed = Failed.of(UnavailableError("too late"))
    others = [threading.Thread(target=engine.deliver, args=(lambda _: told.append("told"), failed)) for _ in range(2)]
    for thread in others:
        thread.start()
    time.sleep(0.2)
    assert told == []
    go.set()
    for thread in others:
        thread.join(LONG)
    # The step's own listeners come before anybody else.
    assert told[:2] == ["slow", "listener"]
    assert "told" in told
