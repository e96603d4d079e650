"""The engine alone (../vllm_floor.py), whose answers are frames: `python -m tests.bench.nothing.engine FD`.

    FD: [number, body], ... --> AsyncLLM --> [[number, frame, last], ...] of each step

The first message is the Settings; an empty list comes once the engine is up. Messages are msgpack after their length.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import sys
from typing import Any

import msgspec

from lmi.model.options import Settings

from ..vllm_floor import Floor
from .frames import Writer, chat_stream, chat_whole, frame, lmi_stream, lmi_whole

__all__ = ["main"]

LENGTH = struct.Struct(">I")
WRITERS = {
    (False, True): lmi_stream,
    (False, False): lmi_whole,
    (True, True): chat_stream,
    (True, False): chat_whole,
}
"""By whether it is a conversation and whether it is streamed."""


class _Engine:
    """Answers what comes over the connection."""

    def __init__(self, floor: Floor, send: asyncio.StreamWriter) -> None:
        self._floor = floor
        self._send = send
        self._ready: list[tuple[int, bytes, bool]] = []
        self._running: set[asyncio.Task[None]] = set()

    def begin(self, number: int, body: bytes) -> None:
        """Starts to answer."""
        task = asyncio.create_task(self._answer(number, json.loads(body)))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _answer(self, number: int, body: dict[str, Any]) -> None:
        chat, stream = "messages" in body, bool(body.get("stream"))
        text = body["messages"][-1]["content"] if chat else body["inputs"]
        tokens = body["max_tokens"] if chat else body["parameters"]["max_new_tokens"]
        write: Writer = WRITERS[chat, stream]()
        async for result in self._floor.results(
            text, None, tokens, stream=stream, logprobs=stream and not chat, chat=chat
        ):
            if not self._ready:
                # After all requests that this step brought something.
                asyncio.get_running_loop().call_soon(self._flush)
            self._ready.append((number, frame(write(result), result.finished), result.finished))

    def _flush(self) -> None:
        message = msgspec.msgpack.encode(self._ready)
        self._ready = []
        self._send.write(LENGTH.pack(len(message)) + message)


async def _serve(connection: socket.socket) -> None:
    reader, writer = await asyncio.open_connection(sock=connection)

    async def receive() -> bytes:
        (size,) = LENGTH.unpack(await reader.readexactly(4))
        return await reader.readexactly(size)

    floor = Floor(msgspec.msgpack.decode(await receive(), type=Settings))
    engine = _Engine(floor, writer)
    try:
        ready = msgspec.msgpack.encode([])
        writer.write(LENGTH.pack(len(ready)) + ready)
        while True:
            number, body = msgspec.msgpack.decode(await receive(), type=tuple[int, bytes])
            engine.begin(number, body)
    except asyncio.IncompleteReadError:
        floor.close()


def main() -> None:
    """Serves until the worker has ended."""
    os.set_inheritable(int(sys.argv[1]), False)
    asyncio.run(_serve(socket.socket(fileno=int(sys.argv[1]))))


if __name__ == "__main__":
    main()
