"""What this process and others write to a descriptor, taken line by line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from lmi.handler.commands.terminal.capture import Capture

from ....kit.hosts.local_server import until


@contextmanager
def descriptor() -> Iterator[tuple[int, int]]:
    """One that leads into a pipe, and the pipe's other end."""
    reading, writing = os.pipe()
    try:
        yield writing, reading
    finally:
        os.close(reading)
        os.close(writing)


def test_lines() -> None:
    """However they end and whatever pieces they come in; blank ones are left out."""
    taken: list[str] = []
    with descriptor() as (writing, reading):
        capture = Capture([writing], taken.append)
        for piece in (b"a\nb\rc\r\nd \n\n  \n\xff ", b"caf\xc3", b"\xa9\n"):
            os.write(writing, piece)
        capture.release()
        assert taken == ["a", "b", "c", "d", "\ufffd café"]
        os.write(writing, b"after")
        assert os.read(reading, 100) == b"after"


def test_all_that_was_written_before_is_taken() -> None:
    taken: list[str] = []
    with descriptor() as (writing, _):
        capture = Capture([writing], taken.append)
        for number in range(2000):
            os.write(writing, b"%d\n" % number)
        capture.release()
        assert taken == [str(number) for number in range(2000)]


def test_a_process_that_was_started_meanwhile() -> None:
    """It writes there to its end; the descriptor that was before is kept for whoever passes its lines on."""
    taken: list[str] = []
    with descriptor() as (writing, reading):
        capture = Capture([writing], taken.append)
        code = f"import os; input(); os.write({writing}, b'said late\\n')"
        with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, pass_fds=[writing]) as process:
            capture.release()
            process.communicate(b"\n")
        until(lambda: taken == ["said late"])
        os.write(capture.kept[writing], b"kept")
        assert os.read(reading, 100) == b"kept"
