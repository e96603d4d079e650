"""vLLM, all of it but the core: a process in the core's place has no model, and the pace of the machine it acts.

    engine's process: VllmEngine --> ActedClient --socket--> act: StandInCore, a step every STEP_S seconds
                                               <--socket--

The processes, and what they send each other, are those of a GPU; each request gets the tokens of its own prompt, again
and again, so that one answer cannot be taken for another's. A step brings one token of each of SEQUENCES requests, and
what is beyond them waits: 512 of them every 10.24 ms are 50,000 tokens a second.
"""

from __future__ import annotations

import asyncio
import importlib
import multiprocessing
import os
import pickle
import select
import signal
import socket
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any

from lmi.model.options import Settings
from lmi.model.vllm.engine import VllmEngine
from tests.microbench.standin import StandInCore

__all__ = ["acted_engine"]

STEP_S = float(os.environ.get("LMI_TEST_STEP_S", "0.002"))
"""Seconds that a step takes, however many sequences it serves."""
SEQUENCES = int(os.environ.get("LMI_TEST_SEQUENCES", "256"))
"""The most sequences that it serves."""
HEAD = struct.Struct(">cI")
"""Of a message: what it is, ADD, ABORT or OUTPUTS, and how many bytes follow."""
ADD, ABORT, OUTPUTS = b"a", b"e", b"o"
MANY = 64 << 20


def acted_engine(settings: Settings) -> VllmEngine:
    """A backend, as BACKENDS has them."""
    return engine_on(lambda: StandInCore(sequences=SEQUENCES), settings)


def engine_on(core: Callable[[], StandInCore], settings: Settings) -> VllmEngine:
    """vLLM on what `core` makes, in a process of its own."""
    from vllm.v1.engine import core_client

    clients: Any = core_client.EngineCoreClient
    clients.make_async_mp_client = staticmethod(lambda executor_class, **_: ActedClient(core))
    return VllmEngine(settings)


class ActedClient:
    """In the place of vLLM's asynchronous client; starts the process."""

    def __init__(self, core: Callable[[], StandInCore]) -> None:
        from vllm.v1.engine import EngineCoreOutputs
        from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

        self._encoder, self.decoder = MsgpackEncoder(), MsgpackDecoder(EngineCoreOutputs)
        ours, theirs = socket.socketpair()
        fork = multiprocessing.get_context("fork")
        self._process = fork.Process(target=act, args=(core, theirs, ours), name="ActedCore", daemon=True)
        self._process.start()
        theirs.close()
        self._socket = ours
        self.outputs_queue: asyncio.Queue[Any] = asyncio.Queue()
        """As of vLLM's client: what has come, and what is to wake who waits."""
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self._reading: asyncio.Task[None]

    async def get_supported_tasks_async(self) -> tuple[str, ...]:
        self._reader, self._writer = await asyncio.open_connection(sock=self._socket, limit=MANY)
        self._reading = asyncio.create_task(self._read())
        return ("generate",)

    async def add_request_async(self, request: Any) -> None:
        parts: list[Any] = [*self._encoder.encode(request)]  # an image's are buffers of their own
        self._send(ADD, pickle.dumps([bytes(part) for part in parts]))

    async def abort_requests_async(self, names: Sequence[str]) -> None:
        self._send(ABORT, "\n".join(names).encode())

    async def get_output_async(self) -> Any:
        outputs = await self.outputs_queue.get()
        if isinstance(outputs, Exception):
            raise outputs
        return outputs

    async def _read(self) -> None:
        try:
            while True:
                _, size = HEAD.unpack(await self._reader.readexactly(HEAD.size))
                self.outputs_queue.put_nowait(self.decoder.decode([await self._reader.readexactly(size)]))
        except (OSError, asyncio.IncompleteReadError) as error:
            self.outputs_queue.put_nowait(error)

    def shutdown(self) -> None:
        self._process.terminate()
        self._process.join()

    def _send(self, kind: bytes, data: Any) -> None:
        self._writer.write(HEAD.pack(kind, len(data)) + data)


def act(made: Callable[[], StandInCore], connection: socket.socket, others: socket.socket) -> None:
    """The process: makes steps of the core until the other end, of which `others` is a copy, is closed."""
    from vllm.v1.engine import EngineCoreRequest
    from vllm.v1.serial_utils import MsgpackDecoder

    others.close()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # By this vLLM's core is known among processes.
    importlib.import_module("setproctitle").setproctitle("VLLM::ActedCore")
    core, decoder = made(), MsgpackDecoder(EngineCoreRequest)
    received = bytearray()
    due = 0.0
    while True:
        wait = max(0.0, due - time.monotonic()) if core.busy else None
        while select.select([connection], [], [], wait)[0]:
            if not (data := connection.recv(1 << 20)):
                return
            received += data
            wait = 0.0
        for kind, message in _messages(received):
            if kind == ADD:
                core.add(decoder.decode(pickle.loads(message)))
            else:
                core.abort(message.decode().split("\n"))
        now = time.monotonic()
        if core.busy and now >= due:
            # A machine that is late is not faster afterwards.
            due = max(due, now - STEP_S) + STEP_S
            (outputs,) = core.step()
            connection.sendall(HEAD.pack(OUTPUTS, len(outputs)) + outputs)


def _messages(received: bytearray) -> list[tuple[bytes, bytes]]:
    """Takes all that are whole."""
    found: list[tuple[bytes, bytes]] = []
    at = 0
    while len(received) - at >= HEAD.size:
        kind, size = HEAD.unpack_from(received, at)
        end = at + HEAD.size + size
        if end > len(received):
            break
        found.append((kind, bytes(received[at + HEAD.size : end])))
        at = end
    del received[:at]
    return found
