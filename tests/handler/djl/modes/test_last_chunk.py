"""A stream's last chunk reaches Java's reader in one read, however it reads what comes before."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lmi.handler.djl.modes.last_chunk import LastChunkApart

from ....kit.rows import each_row

LAST = b"\0" + bytes(4)


def chunk(data: bytes) -> bytes:
    """As djl_python.outputs writes it (`Output.send`)."""
    return b"\1" + len(data).to_bytes(4, "big") + data


@contextmanager
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The worker's end and Java's, as DJL Serving has them on Linux (Connection.java: epoll, domain sockets)."""
    worker, java = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with worker, java:
        yield worker, java


@each_row("size", range(64, 80))
def test_no_read_ends_within_it(size: int) -> None:
    reads: list[bytes] = []

    def read() -> None:
        while data := java.recv(size):
            reads.append(data)

    with connected() as (worker, java):
        reader = threading.Thread(target=read)
        to_host = LastChunkApart(worker)
        to_host.sendall(b"\0\xc8")
        for _ in range(50):
            to_host.sendall(chunk(b"record"))
        reader.start()
        to_host.sendall(LAST)
        worker.close()
        reader.join(10)
    assert b"".join(reads) == b"\0\xc8" + chunk(b"record") * 50 + LAST
    assert reads[-1] == LAST


def test_a_closed_connection_is_an_error() -> None:
    with connected() as (worker, java):
        to_host = LastChunkApart(worker)
        to_host.sendall(chunk(b"never read"))
        java.close()
        with pytest.raises(BrokenPipeError):
            to_host.sendall(LAST)
