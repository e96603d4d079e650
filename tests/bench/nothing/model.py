"""DJL's handler that does nothing: what comes goes to engine.py, which makes the frames."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import subprocess
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import msgspec
from djl_python import Output

from lmi.model.options import settings_of
from tests.bench.nothing.frames import EMPTY, output

LENGTH = struct.Struct(">I")
FRAMES = msgspec.msgpack.Decoder(list[tuple[int, bytes, bool]])
CALL_S = 0.005
"""Seconds that a call of a rolling batch waits for news."""


class Engine:
    """engine.py's process and the thread that hears it."""

    def __init__(self, properties: dict[str, Any]) -> None:
        plain = {name: str(value) for name, value in properties.items()}
        settings = settings_of(plain, model_dir=plain["model_dir"], environment=os.environ)
        ours, theirs = socket.socketpair()
        self._socket = ours
        self._numbers = count()
        with theirs:
            command = [sys.executable, "-m", "tests.bench.nothing.engine", str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        self._send(msgspec.msgpack.encode(settings))
        self.receive()

    def begin(self, body: bytes) -> int:
        """Starts an answer and returns its number."""
        number = next(self._numbers)
        self._send(msgspec.msgpack.encode((number, body)))
        return number

    def receive(self) -> list[tuple[int, bytes, bool]]:
        """What a step brought: whose, the frame, and whether it is its last one."""
        (size,) = LENGTH.unpack(self._read(4))
        return FRAMES.decode(self._read(size))

    def _send(self, message: bytes) -> None:
        self._socket.sendall(LENGTH.pack(len(message)) + message)

    def _read(self, size: int) -> bytes:
        data = self._socket.recv(size, socket.MSG_WAITALL)
        if len(data) < size:
            # The engine has ended.
            os._exit(1)
        return data


class Rolling:
    """Java calls again and again with all that are open, in its order."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._open: list[int] = []
        self._ready: dict[int, deque[tuple[bytes, bool]]] = {}
        self._news = threading.Condition()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            frames = self._engine.receive()
            with self._news:
                for number, frame, last in frames:
                    self._ready[number].append((frame, last))
                self._news.notify()

    def step(self, inputs: Any) -> Output:
        """One frame of each."""
        bodies = [
            bytes(value)
            for key, value in zip(inputs.content.get_keys(), inputs.content.get_values(), strict=True)
            if key.endswith(".data")
        ]
        for body in bodies[len(self._open) :]:
            with self._news:
                number = self._engine.begin(body)
                self._ready[number] = deque()
            self._open.append(number)
        with self._news:
            if not any(self._ready[number] for number in self._open):
                self._news.wait(CALL_S)
            said = [self._ready[number].popleft() if self._ready[number] else (EMPTY, False) for number in self._open]
        result = Output()
        for frame, _ in said:
            result.content.add(value=frame)
        ended = {number for number, (_, last) in zip(self._open, said, strict=True) if last}
        self._open = [number for number in self._open if number not in ended]
        for number in ended:
            del self._ready[number]
        return result


class Message:
    """As djl_python's async engine takes an Output."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def add_property(self, name: str, value: str) -> None: ...

    def send(self, to: Any) -> None:
        to.sendall(self._data)


class Async:
    """Java awaits each request; the first one's generator, which never ends, brings what all have to say."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._ids: dict[int, str] = {}
        self._messages: asyncio.Queue[bytes] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._carried = False
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            frames = self._engine.receive()
            outputs: list[bytes] = []
            with self._lock:
                for number, frame, last in frames:
                    tracking_id = self._ids.pop(number) if last else self._ids[number]
                    outputs.append(output({"request_tracking_id": tracking_id}, frame))
            self._loop.call_soon_threadsafe(self._messages.put_nowait, b"".join(outputs))

    async def messages(self, inputs: Any) -> AsyncIterator[Message]:
        with self._lock:
            number = self._engine.begin(bytes(inputs.get_as_bytes()))
            self._ids[number] = str(inputs.get_property("request_tracking_id"))
        if self._carried:
            return
        self._carried = True
        while True:
            yield Message(await self._messages.get())


engine: Engine
rolling: Rolling | None = None
concurrent: Async | None = None


def handle(inputs: Any) -> Any:
    """Called by DJL; as a coroutine function in async mode."""
    global engine, rolling
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        if inputs.is_empty():
            engine = Engine(inputs.get_properties())
            return None
        if rolling is None:
            rolling = Rolling(engine)
        return rolling.step(inputs)
    return _handle(inputs)


async def _handle(inputs: Any) -> Any:
    global engine, concurrent
    if inputs.is_empty():
        engine = await asyncio.to_thread(Engine, inputs.get_properties())
        return None
    if concurrent is None:
        concurrent = Async(engine)
    return concurrent.messages(inputs)
