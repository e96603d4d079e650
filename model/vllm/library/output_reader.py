"""What the core sends, read from its socket on the event loop: one callback and one wake-up a step.

    the socket is readable --_read--> EngineCoreOutputs, EngineCoreOutputs, ... --next--> Core.receive
                           --a call's result--> the future of vLLM's client

vLLM's client (AsyncMPClient, process_outputs_socket) reads by pyzmq's futures, a task and a queue, which takes twice as
many turns of the event loop: with short steps more time than all that follows (docs/performance.md, Tried). This does
what it does. Where a client is not as it is known, or does more with outputs, vLLM's own way is taken.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any

from ...errors import StartError
from .parts import part

__all__ = ["OutputReader", "output_reader"]

log = logging.getLogger(__name__)


def output_reader(client: Any) -> OutputReader | None:
    """What reads for a client; None where that must be asked itself, with a line in the log where that is not known."""
    if f"{type(client).__module__}:{type(client).__name__}" != CLIENT:
        # With data parallelism it counts what has come of which copy.
        return None
    try:
        return OutputReader(client)
    except (AttributeError, TypeError, StartError) as error:
        log.warning("outputs are read by vLLM's client, which is slower: its socket cannot be read here (%s)", error)
        return None


class OutputReader:
    """Reads for one client, from when it is made; to be made on the event loop."""

    def __init__(self, client: Any) -> None:
        """Raises AttributeError, TypeError or StartError for a client that reads otherwise; nothing is changed then."""
        import zmq

        self._again: type[Exception] = zmq.Again
        self._not_waiting: int = zmq.NOBLOCK
        self._events: int = zmq.EVENTS
        self._readable = int(zmq.POLLIN)
        self._alive = client.resources.validate_alive
        self._decode = client.decoder.decode
        self._settle = part("vllm.v1.engine.core_client:_process_utility_output")
        self._results = client.utility_results
        self._socket: Any = zmq.Socket.shadow(client.resources.output_socket.underlying)
        self._loop = asyncio.get_running_loop()
        self._came: deque[Any] = deque()
        self._waiter: asyncio.Future[None] | None = None
        theirs = client.resources.output_queue_task
        if theirs is not None:
            theirs.cancel()
        # In the place of theirs, so that it is told when the sockets are closed.
        client.resources.output_queue_task = self._loop.create_task(self._until_closed())
        self._descriptor: int = self._socket.fileno()
        self._loop.add_reader(self._descriptor, self._read)
        self._loop.call_soon(self._read)

    def __len__(self) -> int:
        """How many have come and are not taken."""
        return len(self._came)

    async def next(self) -> Any:
        """The next EngineCoreOutputs; raises what vLLM raises where the core has ended."""
        while not self._came:
            self._waiter = self._loop.create_future()
            await self._waiter
        came = self._came.popleft()
        if isinstance(came, BaseException):
            raise came
        return came

    def put(self, outputs: Any) -> None:
        """Has `next` return outputs, behind what has come."""
        self._came.append(outputs)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _read(self) -> None:
        """All that is there: the socket tells of what comes after that, and of nothing else.

        Whether there is more is asked: to make pyzmq's exception takes longer than all else that is done here.
        """
        receive, not_waiting = self._socket.recv, self._not_waiting
        try:
            while True:
                frame = receive(not_waiting, False)
                frames = [frame]
                while frame.more:
                    frame = receive(not_waiting, False)
                    frames.append(frame)
                self._alive(frames)
                outputs = self._decode(frames)
                if outputs.utility_output:
                    self._settle(outputs.utility_output, self._results)
                elif outputs.outputs or outputs.scheduler_stats:
                    self.put(outputs)
                if not self._socket.get(self._events) & self._readable:
                    return
        except self._again:
            return
        except Exception as error:  # noqa: BLE001 - raised by `next`
            self._end(error)

    async def _until_closed(self) -> None:
        try:
            await self._loop.create_future()
        except asyncio.CancelledError:
            self._end(part("vllm.v1.engine.exceptions:EngineDeadError")())

    def _end(self, error: Exception) -> None:
        self._loop.remove_reader(self._descriptor)
        self.put(error)


CLIENT = "vllm.v1.engine.core_client:AsyncMPClient"
