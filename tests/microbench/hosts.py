"""What the hosts cost a token, in one thread: DJL's rolling batch and async mode, and the local server.

Sockets are replaced by ones into which everything goes: what the kernel does is no Python.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from ..kit.djl.hosting import djl_python_path
from .path import SEQUENCES, TOKENS, TokenPath, quiet, requests_of
from .standin import numbers

__all__ = ["async_mode", "hop", "local_server", "rolling_batch"]


class Null:
    """A socket into which everything goes."""

    def __init__(self) -> None:
        self.sent = 0

    def sendall(self, data: bytes) -> None:
        self.sent += len(data)


def use_djl_python() -> None:
    """Makes `djl_python` importable: from the jar of the engine that the tests run."""
    jar = str(djl_python_path())
    if jar not in sys.path:
        sys.path.append(jar)


def rolling_batch(path: TokenPath, kind: str) -> dict[str, float]:
    """Microseconds a token of what DJL's rolling batch adds, djl_python's own stages with it."""
    use_djl_python()
    from djl_python import Input

    from lmi.handler.djl.convert import BatchOutput, requests_of_batch
    from lmi.handler.djl.reading import replace_reader

    assert replace_reader()

    sink = Null()
    built = 0

    def output(frames: list[Any]) -> None:
        nonlocal built
        begun = time.thread_time_ns()
        made = BatchOutput(frames)
        built += time.thread_time_ns() - begun
        made.send(sink)

    path.reset()
    path.open(kind)
    with quiet():
        path.run(output)
    sent = path.stages["output"] - built

    # What Java says of requests that run: no properties, no data, no seed (RollingBatch.run, Request.getSeed).
    given = [(f"batch_{index:03d}.data", b"") for index in range(SEQUENCES)]
    ours, theirs = socket.socketpair()
    message = _message({"batch_size": str(SEQUENCES)}, given)
    read = parsed = 0
    for _ in range(TOKENS):
        ours.sendall(message)
        inputs = Input()
        begun = time.thread_time_ns()
        inputs.read(theirs)
        came = time.thread_time_ns()
        items = requests_of_batch(inputs)
        read, parsed = read + came - begun, parsed + time.thread_time_ns() - came
        assert items == [None] * SEQUENCES
    ours.close()
    theirs.close()
    tokens = SEQUENCES * TOKENS * 1000
    return {
        "reading the input": read / tokens,
        "input to requests": parsed / tokens,
        "frames to output": built / tokens,
        "writing the output": sent / tokens,
    }


def _message(properties: dict[str, str], content: Sequence[tuple[str, bytes]]) -> bytes:
    """An Input as Java writes it (djl_python.inputs)."""

    def counted(text: bytes) -> bytes:
        return len(text).to_bytes(4, "big") + text

    parts = [len(properties).to_bytes(2, "big")]
    parts += [counted(text.encode()) for pair in properties.items() for text in pair]
    parts.append(len(content).to_bytes(2, "big"))
    parts += [counted(key.encode()) + counted(value) for key, value in content]
    return b"".join(parts)


def async_mode(path: TokenPath, kind: str) -> dict[str, float]:
    """Microseconds a token of the event loop and the courier, which writes whole messages."""
    from lmi.handler.djl.modes.async_mode import AsyncBatcher

    sink = Null()

    async def serve() -> None:
        courier = AsyncBatcher(path.service)

        async def one(request: Any) -> None:
            async for message in courier.messages(request, str(next(numbers))):
                sink.sendall(message)
                courier.sent()

        tasks = [asyncio.ensure_future(one(request)) for request in requests_of(kind, SEQUENCES, TOKENS)]
        await _pumped(path, tasks)

    return {"event loop, courier": _on_a_loop(path, serve)}


async def _pumped(path: TokenPath, tasks: Sequence[asyncio.Future[None]]) -> None:
    """Steps until all tasks are done; starts the clock once they are all under way."""
    await asyncio.sleep(0.01)
    path.reset()
    path.tokens = SEQUENCES * TOKENS
    begun = time.thread_time_ns()
    for _ in range(2 * TOKENS):
        if all(task.done() for task in tasks):
            break
        path.pump()
        # Words from another thread, wake-ups, and what comes of these.
        for _ in range(8):
            await asyncio.sleep(0)
    assert all(task.done() for task in tasks), "the answers have no end"
    path.stages["loop"] = time.thread_time_ns() - begun - sum(path.stages.values())
    await asyncio.gather(*tasks)


def _on_a_loop(path: TokenPath, serve: Callable[[], Any]) -> float:
    import uvloop

    listeners = [*path.engine.listeners]
    try:
        with quiet():
            uvloop.run(serve())
    finally:
        path.engine.listeners[:] = listeners
    return path.costs["loop"]


class _Transport(asyncio.Transport):
    """A connection whose other side reads everything at once and keeps nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = asyncio.get_running_loop().create_future()

    def write(self, data: Any) -> None:
        if bytes(data[-5:]) == b"0\r\n\r\n":
            self.ended.set_result(None)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Addresses."""
        return ("127.0.0.1", 1) if name in ("sockname", "peername") else default

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0


def local_server(path: TokenPath, kind: str) -> dict[str, float]:
    """Microseconds a token of the event loop, Starlette and uvicorn."""
    from uvicorn.server import ServerState

    from lmi.handler.server.access import Access
    from lmi.handler.server.run import http_server

    async def serve() -> None:
        config = http_server(path.service, [], access=Access(), grace=1.0).config
        config.lifespan = "off"
        config.load()
        app: Any = config.app
        async with _lifespan(app):
            transports: list[_Transport] = []
            for request in requests_of(kind, SEQUENCES, TOKENS):
                protocol: Any = config.http_protocol_class(config=config, server_state=ServerState(), app_state={})  # type: ignore[call-arg]
                transports.append(_Transport())
                protocol.connection_made(transports[-1])
                head = f"POST {request.path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                length = f"Content-Length: {len(request.body)}\r\n\r\n"
                protocol.data_received((head + length).encode() + request.body)

            await _pumped(path, [transport.ended for transport in transports])

    return {"event loop, Starlette, uvicorn": _on_a_loop(path, serve)}


@asynccontextmanager
async def _lifespan(app: Any) -> AsyncIterator[None]:
    async with app.router.lifespan_context(app):
        yield


def hop(messages: int = 2000) -> float:
    """Microseconds of CPU, in all threads, that djl_python's async engine takes to send one message."""
    use_djl_python()
    from djl_python.python_async_engine import PythonAsyncEngine

    async def run() -> float:
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        class Message:
            def __init__(self, last: bool) -> None:
                self.last = last

            def send(self, _: Any) -> None:
                if self.last:
                    loop.call_soon_threadsafe(ended.set)

        engine = PythonAsyncEngine.__new__(PythonAsyncEngine)
        engine.output_queue, engine.loop, engine.cl_socket = asyncio.Queue(), loop, Null()

        def send() -> None:
            # It goes on until its loop is gone.
            with suppress(Exception):
                engine.send_responses()

        threading.Thread(target=send, daemon=True).start()
        begun = time.process_time_ns()
        for number in range(messages):
            await engine.output_queue.put(Message(number == messages - 1))
            await asyncio.sleep(0)
        await ended.wait()
        spent = time.process_time_ns() - begun
        await asyncio.sleep(0.1)  # until the thread waits for the next one, which is cancelled with the loop
        return spent / 1000 / messages

    return asyncio.run(run())
