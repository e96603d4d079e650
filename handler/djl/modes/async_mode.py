"""DJL's async mode: what all requests have to say after a step of the engine goes to Java in one write.

    engine's thread: Exchange._feed -> fresh;  Service.listen -> flush --one hop a step--> loop: one request's turn
    that request's generator: frames of every fresh request -> one message -> djl_python's sender -> the socket

djl_python sends what a request's generator yields by two hops between threads, which cost a hundred
microseconds of Python (python_async_engine.py: invoke_handler, send_responses). A frame carries its request's id,
though, so it need not come from that request's own generator: whoever's turn it is carries the others' along.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import AsyncIterator

from ....formatters import Request, Response
from ...exchange import Exchange
from ...service import Service
from ..frames import (
    MIN_AGE_S,
    NOTHING,
    Frame,
    frame_of_exchange,
    frame_of_fault,
    frame_of_response,
    start_of_output,
)
from .gathering import Gathering

__all__ = ["TRACKING_ID", "AsyncBatcher", "message_of_response"]

TRACKING_ID = "request_tracking_id"
"""The property by which Java knows whose a frame is (AsyncRequestManager)."""


class _Sender:
    """One request: what it has to say, and its generator's turn to carry."""

    __slots__ = ("due", "ended", "exchange", "start", "tracking_id", "turn")

    def __init__(self, tracking_id: str, due: float = 0.0) -> None:
        self.exchange: Exchange
        self.due = due
        """When an answer may go in one frame, by the event loop's clock."""
        self.tracking_id = tracking_id
        self.start = b""
        """What every frame but the first begins with."""
        self.turn = asyncio.Event()
        self.ended = False

    def output(self, frame: Frame) -> tuple[bytes, ...]:
        """A frame as djl_python would send it, to be joined."""
        if self.start:
            start = self.start
        else:
            start = start_of_output({**frame.headers, TRACKING_ID: self.tracking_id}, 1)
            self.start = start_of_output({TRACKING_ID: self.tracking_id}, 1)
        self.ended = frame.last
        return start, *frame.item()

    def early(self, now: float) -> bool:
        """Whether all of its answer is there already."""
        return not self.start and now < self.due and self.exchange.finished

    def outputs(self, merge: bool) -> list[bytes]:
        """Everything that is ready, to be joined. Raises nothing."""
        outputs: list[bytes] = []
        try:
            while not self.ended:
                frame = frame_of_exchange(self.exchange, first=not self.start, merge=merge)
                if frame is NOTHING:
                    break
                outputs += self.output(frame)
        except Exception as error:  # noqa: BLE001 - logged there
            outputs += self.output(frame_of_fault(self.exchange, error))
        return outputs


async def message_of_response(response: Response, tracking_id: str) -> bytes:
    """A short response to a request that has just come, as Java's socket takes it, when it may be sent."""
    await asyncio.sleep(MIN_AGE_S)
    return b"".join(_Sender(tracking_id).output(frame_of_response(response)))


class AsyncBatcher:
    """Opens requests on the running event loop and yields messages for Java's socket."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._merge = service.settings.merge_records == "true"
        self._gathering = None if service.settings.merge_records == "false" else Gathering(service.engine, os.getppid())
        self._loop = asyncio.get_running_loop()
        self._fresh: deque[_Sender] = deque()
        self._carrier: _Sender | None = None
        """Whose generator has the turn, until what it carries has been sent."""
        self._sent = asyncio.Event()
        service.metrics.loops.append(lambda: self._loop)
        service.listen(self._flush)

    async def messages(self, request: Request, tracking_id: str) -> AsyncIterator[bytes]:
        """Messages about this request and others, until this request's last frame is among those yielded by any.

        The caller calls `sent` once a message has gone; until then what comes gathers. Raises nothing that a request
        can cause: djl_python would swallow it and leave the client hanging.
        """
        sender = _Sender(tracking_id, self._loop.time() + MIN_AGE_S)
        opened = sender.exchange = self._service.open(request, lambda _: self._fresh.append(sender))
        if opened.finished:
            # Nobody has announced it.
            self._fresh.append(sender)
        self._give_turn()
        try:
            while not sender.ended:
                await sender.turn.wait()
                sender.turn.clear()
                if self._carrier is not sender:
                    continue  # another one has carried the last frame
                if message := self._collect():
                    self._sent.clear()
                    yield message
                    await self._sent.wait()
                self._hand_over()
        finally:
            # Closed early, it takes no turn any more.
            sender.ended = True
            if self._carrier is sender:
                self._hand_over()
            opened.abort()

    def sent(self) -> None:
        """On any thread: a message has been written."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._sent.set)

    def _flush(self) -> None:
        """On the engine's thread, after each step, or on one that user code has run on."""
        if self._fresh:
            # The loop may be closed already when the engine reports its end.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._give_turn)

    def _announce(self, sender: _Sender) -> None:
        """What it had to say too early may be said now."""
        self._fresh.append(sender)
        self._give_turn()

    def _give_turn(self) -> None:
        """Lets one of those that have news carry them, unless one does already."""
        fresh = self._fresh
        # Its last frame may have been carried after it was added here.
        while fresh and fresh[0].ended:
            fresh.popleft()
        if fresh and self._carrier is None:
            self._carrier = fresh[0]
            self._carrier.turn.set()

    def _hand_over(self) -> None:
        self._carrier = None
        self._give_turn()

    def _collect(self) -> bytes:
        """What every request has to say that has something to say."""
        if self._gathering is not None:
            self._gathering.look()
        outputs: list[bytes] = []
        now = self._loop.time()
        while self._fresh:
            sender = self._fresh.popleft()
            if sender.early(now):
                self._loop.call_at(sender.due, self._announce, sender)
                continue
            outputs += sender.outputs(self._merge)
            if sender.ended:
                sender.turn.set()
        return b"".join(outputs)
