"""Messages over a real pair of sockets: however they are cut, and wherever they are received."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

from ...kit.api.engine import Channel, LoopReading, Scrape, ToEngine

T = TypeVar("T")

SIZES = (0, 1, 100, 300_000, 7, 1 << 21, 262_144, 3, 262_135, 9)
"""Of messages, in bytes: some are longer than what is read at a time, and one is as long."""


class Pair(NamedTuple):
    """Both ends."""

    raw: socket.socket
    """Sends bytes as they are."""
    ours: Channel[ToEngine]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    made = Pair(theirs, Channel(ours, ToEngine))
    yield made
    made.ours.close()
    theirs.close()


def encoded(sizes: tuple[int, ...]) -> bytes:
    """Messages of such sizes, as the other side sends them."""
    ours, theirs = socket.socketpair()

    def send() -> None:
        channel: Channel[ToEngine] = Channel(ours, ToEngine)
        for size in sizes:
            channel.send(Scrape("a" * size))
        channel.close()

    sending = threading.Thread(target=send)
    with theirs:
        sending.start()
        data = b"".join(iter(lambda: theirs.recv(1 << 20), b""))
        sending.join()
    return data


def sent(pair: Pair, data: bytes, size: int) -> threading.Thread:
    """A thread that sends the data in pieces of up to so many bytes, and closes its end."""

    def send() -> None:
        sizes, at = random.Random(size), 0
        while at < len(data):
            step = sizes.randint(1, size)
            pair.raw.sendall(data[at : at + step])
            at += step
        pair.raw.shutdown(socket.SHUT_WR)

    sending = threading.Thread(target=send)
    sending.start()
    return sending


def on_thread(pair: Pair) -> list[Any]:
    messages: list[Any] = []
    while (message := pair.ours.receive()) is not None:
        messages.append(message)
    return messages


async def reading_on_loop(pair: Pair) -> list[Any]:
    messages: list[Any] = []

    def take(message: Any) -> bool:
        messages.append(message)
        return True

    loop = asyncio.get_running_loop()
    assert await loop.run_in_executor(None, LoopReading(loop, pair.ours, take).run) is True
    return messages


def on_loop(pair: Pair) -> list[Any]:
    return asyncio.run(asyncio.wait_for(reading_on_loop(pair), 60))


def on_uvloop(pair: Pair) -> list[Any]:
    """The local server's loop."""
    return on_loop_of(pytest.importorskip("uvloop").new_event_loop(), reading_on_loop(pair))


def on_loop_of(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    try:
        return loop.run_until_complete(asyncio.wait_for(work, 60))
    finally:
        loop.close()


def on_both(pair: Pair) -> list[Any]:
    """The loop is told to stop again and again, wherever it is in a message."""
    messages: list[Any] = []

    def take(message: Any) -> bool:
        messages.append(message)
        return True

    async def read() -> None:
        loop = asyncio.get_running_loop()
        while True:
            reading = LoopReading(loop, pair.ours, take)
            loop.call_later(0.001, reading.stop)
            if await loop.run_in_executor(None, reading.run):
                return
            message = await loop.run_in_executor(None, pair.ours.receive)
            if message is None:
                return
            messages.append(message)

    asyncio.run(asyncio.wait_for(read(), 60))
    return messages


@pytest.mark.parametrize("size", [5, 9000, 10_000_000])
@pytest.mark.parametrize("receive", [on_thread, on_loop, on_uvloop, on_both])
def test_messages_arrive_whole_and_in_order(pair: Pair, receive: Callable[[Pair], list[Any]], size: int) -> None:
    sizes = tuple(one for one in SIZES if size > 5 or one < 1000) * 2
    sending = sent(pair, encoded(sizes), size)
    messages = receive(pair)
    sending.join()
    assert [len(message.content_type) for message in messages] == [*sizes]


@pytest.mark.parametrize("library", ["asyncio", "uvloop"])
def test_what_the_other_side_has_no_room_for_is_sent_whole(pair: Pair, library: str) -> None:
    """While a loop reads here: uvloop makes the socket that it looks at one that does not wait, for senders, too."""
    theirs: Channel[ToEngine] = Channel(pair.raw, ToEngine)
    sizes = (1 << 22, 5, 1 << 21)

    async def read() -> list[int]:
        loop = asyncio.get_running_loop()
        reading = LoopReading(loop, pair.ours, lambda _: True)
        ended = loop.run_in_executor(None, reading.run)
        # It looks at the socket by now.
        await asyncio.sleep(0.1)
        for size in sizes:
            pair.ours.post(Scrape("a" * size))
        await asyncio.sleep(0.1)
        came = [await loop.run_in_executor(None, theirs.receive) for _ in sizes]
        reading.stop()
        assert await ended is False
        theirs.post(Scrape("b"))
        # The thread reads on as before.
        assert await loop.run_in_executor(None, pair.ours.receive) == Scrape("b")
        return [len(message.content_type) for message in came if isinstance(message, Scrape)]

    assert on_loop_of(pytest.importorskip(library).new_event_loop(), read()) == [*sizes]


def test_a_callback_of_the_loops_receives_what_has_come(pair: Pair) -> None:
    sizes: list[int] = []

    def take(message: Any) -> bool:
        sizes.append(len(message.content_type))
        return len(sizes) < 3

    async def read() -> bool:
        loop = asyncio.get_running_loop()
        reading = LoopReading(loop, pair.ours, take)
        reading.receive()
        over = loop.run_in_executor(None, reading.run)
        # It begins on the loop.
        await asyncio.sleep(0.05)
        pair.raw.sendall(encoded((5, 6)))
        reading.receive()
        assert sizes == [5, 6]
        pair.raw.sendall(encoded((7,)))
        reading.receive()
        assert sizes == [5, 6, 7]
        # It has ended with the last one.
        pair.raw.sendall(encoded((8,)))
        reading.receive()
        return await over

    assert asyncio.run(asyncio.wait_for(read(), 60)) is True
    assert sizes == [5, 6, 7]


def test_a_loop_does_not_wait_for_the_rest_of_a_message(pair: Pair) -> None:
    data = encoded((100_000,))

    async def read() -> list[int]:
        loop = asyncio.get_running_loop()
        sizes: list[int] = []

        def take(message: Any) -> bool:
            sizes.append(len(message.content_type))
            return False

        reading = loop.run_in_executor(None, LoopReading(loop, pair.ours, take).run)
        pair.raw.sendall(data[:-1])
        # The loop runs on.
        await asyncio.sleep(0.05)
        assert sizes == []
        pair.raw.sendall(data[-1:])
        assert await reading is True
        return sizes

    assert asyncio.run(asyncio.wait_for(read(), 60)) == [100_000]


def test_what_a_message_raises_ends_the_reading(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    pair.raw.sendall(encoded((1, 2)))

    async def read() -> bool:
        loop = asyncio.get_running_loop()

        def take(_: Any) -> bool:
            raise ZeroDivisionError

        return await loop.run_in_executor(None, LoopReading(loop, pair.ours, take).run)

    assert asyncio.run(asyncio.wait_for(read(), 60)) is True
    assert "reading from the engine's process failed" in caplog.text


def test_a_loop_that_is_closed_reads_nothing(pair: Pair) -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    reading = LoopReading(loop, pair.ours, lambda _: True)
    assert reading.run() is False
    reading.stop()


def test_a_receiver_is_not_woken_by_what_it_sends(pair: Pair) -> None:
    """What the other side reads wakes a socket's `recv`, without returning from it: the engine's process did so with
    each step.
    """
    thread = threading.Thread(target=pair.ours.receive, daemon=True)
    thread.start()
    time.sleep(0.1)
    status = Path(f"/proc/self/task/{thread.native_id}/status")
    if not status.exists():
        pytest.skip("the kernel does not tell how often a thread has been woken")

    def woken() -> int:
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["voluntary_ctxt_switches"])

    before = woken()
    for _ in range(200):
        pair.ours.post(Scrape("text/plain"))
        pair.raw.recv(1 << 16)
        time.sleep(0.0005)
    assert woken() - before < 20
    pair.raw.close()
    thread.join(10)
    assert not thread.is_alive()
