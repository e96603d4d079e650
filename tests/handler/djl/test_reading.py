"""Java's messages, read from its socket: what djl_python's own reader makes of them, however they come."""

from __future__ import annotations

import importlib
import os
import random
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ...kit.djl.hosting import available, djl_python_path

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))

Message = tuple[dict[str, str], list[tuple[str | None, bytes]]]


def running(requests: int) -> list[tuple[str | None, bytes]]:
    """So many that run already."""
    return [(f"batch_{index:03d}.data", b"") for index in range(requests)]


RUNNING = running(100)
NEW: list[tuple[str | None, bytes]] = [("batch_100.data", b"{}"), ("batch_100.seed", b"1")]
MESSAGES: list[Message] = [
    ({"batch_size": "100"}, RUNNING),
    ({"batch_size": "101", "batch_100.requestId": "a"}, RUNNING + NEW),
    ({"batch_size": "100"}, [*RUNNING[:40], ("batch_040.data", b"x"), *RUNNING[41:]]),
    ({"batch_size": "100"}, RUNNING[1:]),
    ({"batch_size": "1002"}, running(1002)),
    ({"batch_size": "1", "batch_000.requestId": "ü" * 300, "handler": "handle"}, [("batch_000.data", b"{}")]),
    ({}, []),
    ({"request_tracking_id": "a"}, [("data", bytes(range(256)) * 4000), (None, b"x"), ("", b"")]),
    ({"request_tracking_id": "b"}, [("data", b"y" * 70_000)]),
]


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module; afterwards djl_python reads as it did."""
    monkeypatch.syspath_prepend(str(djl_python_path()))
    from djl_python import inputs

    # By the djl_python that there is now: another test may have forgotten the one that it was imported with.
    monkeypatch.delitem(sys.modules, "lmi.handler.djl.reading", raising=False)
    module = importlib.import_module("lmi.handler.djl.reading")
    monkeypatch.setattr(inputs.Input, "read", inputs.Input.read)
    return module


def encoded(message: Message) -> bytes:
    """As Java writes it (ai.djl.python 0.36.0, Connection.RequestEncoder)."""

    def text(value: str | None) -> bytes:
        return struct.pack(">i", -1) if value is None else struct.pack(">i", len(value.encode())) + value.encode()

    properties, content = message
    pairs = b"".join(text(name) + text(value) for name, value in properties.items())
    items = b"".join(text(key) + struct.pack(">i", len(value)) + value for key, value in content)
    return struct.pack(">h", len(properties)) + pairs + struct.pack(">h", len(content)) + items


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    """`data` in pieces of up to so many bytes."""
    sizes = random.Random(size)
    at = 0
    while at < len(data):
        step = sizes.randint(1, size)
        yield data[at : at + step]
        at += step


@pytest.fixture
def nothing() -> Iterator[int]:
    """A descriptor that can always be read."""
    with Path(os.devnull).open("rb") as file:
        yield file.fileno()


class Sent:
    """A socket that gives one piece a call."""

    def __init__(self, given: Iterator[bytes], descriptor: int) -> None:
        """`descriptor`: one that can always be read."""
        self._given = given
        self._rest = b""
        self.fileno = lambda: descriptor

    def recv(self, size: int) -> bytes:
        data = self._rest or next(self._given, b"")
        self._rest = data[size:]
        return data[:size]


@pytest.mark.parametrize("size", [3, 5000, 10_000_000])
def test_messages_are_read_as_djl_python_reads_them(reading: Any, nothing: int, size: int) -> None:
    """Cut anywhere, and several at once."""
    from djl_python import Input

    # A megabyte in pieces of three bytes says no more than 70 kB in them.
    messages = [one for one in MESSAGES if size > 3 or len(encoded(one)) < 100_000] * 2
    data = b"".join(map(encoded, messages))
    theirs, ours = Sent(pieces(data, size), nothing), Sent(pieces(data, size), nothing)
    for properties, content in messages:
        own, read = Input(), Input()
        own.read(theirs)
        reading.read(read, ours)
        assert read.get_properties() == own.get_properties() == properties
        assert read.content.get_keys() == own.content.get_keys() == [key for key, _ in content]
        assert read.content.get_values() == own.content.get_values() == [value for _, value in content]
        assert read.get_function_name() == own.get_function_name()
    with pytest.raises(ValueError, match="disconnected"):
        reading.read(Input(), ours)


def test_a_call_is_answered_before_the_next_one_comes(reading: Any) -> None:
    """Over a real socket: no more is waited for than a message has."""
    from djl_python import Input

    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(10)
        theirs.settimeout(10)

        def serve() -> None:
            for _ in MESSAGES:
                inputs = Input()
                reading.read(inputs, theirs)
                theirs.sendall(struct.pack(">h", inputs.content.size()))

        serving = threading.Thread(target=serve)
        serving.start()
        for message in MESSAGES:
            ours.sendall(encoded(message))
            assert ours.recv(2) == struct.pack(">h", len(message[1]))
        serving.join()


def test_the_reader_of_the_hosts_is_known(reading: Any) -> None:
    from djl_python import Input

    assert reading.replace_reader()
    assert Input.read is reading.read
    assert reading.replace_reader()


def test_another_reader_stays(reading: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    from djl_python import Input

    own = Input.read
    monkeypatch.setattr(sys.modules["djl_python.inputs"], "retrieve_int", lambda conn: 0)
    with caplog.at_level("INFO"):
        assert not reading.replace_reader()
    assert Input.read is own
    assert "left as it is" in caplog.text
