"""What the chaos test would say of answers that are wrong: fed by hand, without a host."""

from __future__ import annotations

import pytest

from ..kit.api.dialects import GENERATING
from ..kit.djl.lockout import locked_out
from .answers import Seen
from .cases import KINDS, pool
from .storm import Fault, Outcome, Result, Storm
from .wire import End, Got

LINE = '{"token": {"id": %d, "text": "%s", "log_prob": -0.1}%s}\n'
LAST = ', "generated_text": "%s two", "details": {"finish_reason": "length", "generated_tokens": 2, "inputs": "%s"}'


def storm() -> Storm:
    """One whose first case is LMI's stream, with an answer of two tokens."""
    (case,) = pool(1, "server", ["LMI stream"])
    made = Storm(0, [case], seed=1, clients=1)
    made.expected[0] = Seen(
        f"{case.mark} two", ((1, " one"), (2, " two")), "length", (("generated", 2), ("input", 0)), (case.mark,)
    )
    return made


def stream(mark: str, *, ids: tuple[int, int] = (1, 2), end: bool = True) -> bytes:
    last = LAST % (mark, mark) if end else ""
    return (LINE % (ids[0], " one", "") + LINE % (ids[1], " two", last)).encode()


def judged(body: bytes, status: int = 200, end: End = "whole") -> tuple[Result, str]:
    made = storm()
    return made.judge(made.cases[0], Got(0.0, 1.0, status, {}, body, end))


MINE = pool(1, "server")[0].mark
OTHER = pool(2, "server")[1].mark
ERROR = b'{"error": "the engine is gone", "code": 424}\n'
FIRST = stream(MINE).splitlines(keepends=True)[0]


def test_every_dialect_is_asked() -> None:
    assert {kind.dialect for kind in KINDS.values()} == {known.name for known in GENERATING}


@pytest.mark.parametrize(
    ("body", "result", "said"),
    [
        (stream(MINE), "good", ""),
        (stream(MINE, ids=(1, 3)), "wrong", "expected"),
        (stream(OTHER), "wrong", OTHER),
        (stream(MINE, end=False), "wrong", "details"),
        (FIRST, "wrong", "details"),
        (FIRST + FIRST + stream(MINE), "wrong", "4 lines of 2 tokens"),
        (b"", "wrong", "empty"),
        (stream(MINE)[:-4], "wrong", "JSONDecodeError"),
        (FIRST + ERROR, "error", "the engine is gone"),
        (FIRST + b'{"code":500,"message":"Batch inference failed"}', "error", "Batch inference failed"),
    ],
)
def test_a_stream(body: bytes, result: Result, said: str) -> None:
    found, why = judged(body)
    assert (found, said in why) == (result, True), why


AZURE = b'{"error":"Too Many Requests","message":"96 requests are open","status":429}'


def test_statuses_and_ends() -> None:
    assert judged(AZURE, 429) == ("error", "96 requests are open")
    assert judged(b'{"error":{"message":"no","type":"x"}}', 400) == ("error", "no")
    assert judged(ERROR, 424) == ("error", "the engine is gone")
    assert judged(b"Internal Server Error", 500)[0] == "wrong"
    assert judged(b"Service Unavailable", 503) == ("error", "Service Unavailable")
    assert judged(b"Service Unavailable", 500)[0] == "wrong"
    assert judged(FIRST, end="cut") == ("cut", "")
    assert judged(FIRST, end="left") == ("left", "")
    assert judged(stream(OTHER), end="left")[0] == "wrong"


async def _strike() -> None:
    raise AssertionError("nothing is to be done")


@pytest.mark.parametrize(
    ("result", "said", "during", "after"),
    [
        ("good", "", True, True),
        ("left", "", True, True),
        ("refused", "no", True, True),
        ("error", "the engine is being rebuilt", True, False),
        ("error", "96 requests are open, expected fewer than 96 (option.max_queued_requests)", True, True),
        ("cut", "", True, False),
        ("wrong", "", False, False),
        ("hang", "", False, False),
        ("accepted", "", False, False),
    ],
)
def test_what_a_fault_excuses(result: Result, said: str, during: bool, after: bool) -> None:
    """An error, or a connection that is closed: while the fault lasts. Nothing else, and at no other time."""
    for sent, allowed in ((9.0, during), (21.0, after)):
        made = storm()
        made.faults = [Fault("a fault", 0.0, _strike, began=10.0, ended=20.0)]
        made.outcomes = [Outcome("client", "ask", "LMI stream", result, Got(sent, sent + 2), said)]
        assert (made.wrong() == []) == allowed, sent


def test_what_a_host_that_is_locked_forgets() -> None:
    """One request, that which was being handed over when the fault struck."""

    def wrong(locked: bool, *sent: float, status: int = 0) -> int:
        made = storm()
        made.faults = [Fault("the worker is killed", 0.0, _strike, began=10.0, ended=40.0, locked=locked)]
        made.outcomes = [Outcome("client", "ask", "Azure", "hang", Got(when, when + 180, status)) for when in sent]
        return len(made.wrong())

    assert wrong(True, 9.9) == wrong(True, 10.5) == 0
    assert wrong(False, 9.9) == wrong(True, 4.0) == wrong(True, 12.0) == 1
    assert wrong(True, 9.8, 9.9) == 1
    # An answer that has begun is closed in the end, by DJL too.
    assert wrong(True, 9.9, status=200) == 1


LOCKED = """\
"Thread-5" #133 daemon prio=5 waiting for monitor entry
\tat ai.djl.python.engine.PyProcess.stopPythonProcess(PyProcess.java:323)
\t- waiting to lock <0x00000000e7356d90> (a ai.djl.python.engine.PyProcess)
\tat ai.djl.python.engine.PyProcess.restartPythonWorkerAsyncMode(PyProcess.java:153)

"worker" #5305 daemon prio=10 in Object.wait()
\tat ai.djl.python.engine.Connection.disconnect(Connection.java:388)
\tat ai.djl.python.engine.PyProcess.stopPythonProcess(PyProcess.java:346)
\t- locked <0x00000000e7356d90> (a ai.djl.python.engine.PyProcess)
"""
"""As Java 17 prints it, in extracts."""


def test_threads_that_lock_each_other_out() -> None:
    assert locked_out(LOCKED)
    # Another worker's; or one that only waits until the connection is closed.
    assert not locked_out(LOCKED.replace("e7356d90", "e7000000", 1))
    assert not locked_out(LOCKED.partition("\n\n")[2])
