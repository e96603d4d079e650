"""What runs in the engine's process: one event loop, which hands requests to the engine and its events to the host.

    intake thread    messages from the host --> prepare.py's threads --> Prepared
    event loop       Prepared --> add;   Abort --> abort;   receive --> one Step message      (AsyncBackend)

Nothing on the loop waits for the engine's steps, nor for the host, nor for a prompt that takes long.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from ..adapters.adapter import Adapter, AdapterLoader
from ..adapters.residents import Residents
from ..backend import AsyncBackend, Backend
from ..engine import EngineStats
from ..errors import AdapterError, ErrorMessage, GenerationError, LmiError, OverloadedError, RequestError
from ..events import Delta, EngineEvent, Failed, Finish, Rendered, Started
from ..log import RequestIds
from ..options.media_rules import MediaRules
from .channel import Channel
from .ending.exit import end_with_host
from .messages import (
    ENCODE_ERRORS,
    Abort,
    AdapterOutcome,
    Add,
    BadMessage,
    Gather,
    Release,
    RemoveAdapter,
    Scrape,
    Scraped,
    SetAdapter,
    Stats,
    Step,
    ToEngine,
    sendable,
)
from .prepare import RequestPreparer
from .stepper import Stepper
from .token_budget import TokenBudget

__all__ = ["EngineLoop"]

log = logging.getLogger(__name__)

BEAT_S = 1.0
"""Seconds between two messages about how busy the engine is, and after which one that makes steps sends a message."""
IDLE_BEAT_S = 30.0
"""The same, at most, for one that has nothing to do: requests may still be in preparation."""


class EngineLoop:
    """Drives one backend for the host at the other end of `channel`."""

    def __init__(
        self,
        channel: Channel[ToEngine],
        backend: AsyncBackend | Backend,
        rules: MediaRules,
        max_tokens: int | None = None,
        stall_timeout: float = 0.0,
    ) -> None:
        """`stall_timeout` is `Settings.engine_stall_timeout`. To be made on the event loop."""
        self._channel = channel
        stepped = cast(Backend, backend) if hasattr(backend, "step") else None
        self._metrics: Callable[[str], bytes] | None = getattr(backend, "metrics", None)
        self._gather: Callable[[float], None] | None = getattr(backend, "gather", None)
        self._backend = cast(AsyncBackend, backend) if stepped is None else Stepper(stepped, self._tell_refused)
        self._loop = asyncio.get_running_loop()
        self._idle_beat = min(IDLE_BEAT_S, stall_timeout / 4) or IDLE_BEAT_S
        self._preparer = RequestPreparer(self._backend, rules, stall_timeout, self._ready, self._tell, self._refuse)
        self._held: dict[int, Any] = {}
        """What is prepared and waits for its Release."""
        self._token_budget = None if max_tokens is None else TokenBudget(max_tokens)
        loader: AdapterLoader | None = getattr(backend, "adapters", None)
        self._residents = None if loader is None else Residents(loader, self._tell_outcome)
        self._request_ids = RequestIds()
        self._host_gone = asyncio.Event()
        self._intake_failed: asyncio.Future[None] = self._loop.create_future()
        self._steps = 0
        """How often the engine has brought something, if only that it made a step."""

    async def begin(self, adapters: Sequence[Adapter] = ()) -> dict[str, LmiError]:
        """What is left of the engine's start, with these adapters; raises as that does.

        Returns what kept adapters from being loaded, by key.
        """
        await self._backend.begin()
        return await self._residents.start(adapters) if self._residents is not None else {}

    async def run(self) -> None:
        """Serves until the host is gone; raises what the backend raises when it has failed."""
        threading.Thread(target=self._take_all_in, name="lmi-intake", daemon=True).start()
        works = (self._read(), self._beat(), self._host_gone.wait(), self._intake_failed)
        tasks = [asyncio.ensure_future(work) for work in works]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        for task in done:
            task.result()

    # On the event loop.

    async def _read(self) -> None:
        """Passes on what the engine brings, for as long as it lives."""
        while True:
            events: list[tuple[int, EngineEvent]] = [*await self._backend.receive()]
            self._steps += 1
            if self._token_budget is not None:
                self._token_budget.release_ended(events)
            if self._residents is not None:
                self._residents.release_ended(events)
            if events:
                self._send(events)

    async def _beat(self) -> None:
        """Tells the host that the engine lives, and how busy it is, while it makes steps or has nothing to do."""
        steps, idle_for, told_idle = 0, 0.0, True
        while True:
            await asyncio.sleep(BEAT_S)
            busy = self._backend.busy
            idle_for = 0.0 if busy else idle_for + BEAT_S
            if busy and self._steps != steps:
                steps, told_idle = self._steps, False
                self._post(Stats(self._with_adapters(self._backend.stats())))
            elif not busy and (not told_idle or idle_for >= self._idle_beat) and self._preparer.alive():
                idle_for, told_idle = 0.0, True
                self._post(Stats(self._with_adapters(EngineStats())))

    def _with_adapters(self, stats: EngineStats) -> EngineStats:
        return stats if self._residents is None else self._residents.with_figures(stats)

    def _begin(self, number: int, prepared: Any) -> None:
        """Starts what is prepared, once its adapter is there."""
        if self._residents is not None and self._residents.uses_adapter(number):
            self._residents.begin(
                number, partial(self._start, number, prepared), partial(self._tell_refused, number)
            )  # fmt: skip
        else:
            self._start(number, prepared)

    def _start(self, number: int, prepared: Any) -> None:
        try:
            if self._token_budget is not None:
                self._token_budget.admit(number, self._backend.tokens(prepared))
            self._backend.add(number, prepared)
        except SystemExit:
            raise
        except BaseException as error:  # noqa: BLE001 - logged there; libraries in Rust panic with one
            if self._token_budget is not None:
                self._token_budget.drop((number,))
            self._tell_refused(number, error)

    def _abort(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._held.pop(number, None)
        self._end(numbers)

    def _release(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            if number in self._held:
                self._begin(number, self._held.pop(number))

    def _hold(self, number: int, prepared: Any, prompt: str) -> None:
        self._held[number] = prepared
        self._send([(number, Rendered(prompt))])

    def _tell_tokens(self, number: int, started: Started) -> None:
        """All that comes of a prompt whose tokens alone are wanted."""
        if self._residents is not None:
            self._residents.end((number,))
        self._send([(number, started), (number, Delta(0, "", finish=Finish("length")))])

    def _tell_refused(self, number: int, error: BaseException) -> None:
        if self._residents is not None:
            self._residents.end((number,))
        if not isinstance(error, RequestError | OverloadedError | AdapterError):
            request_id = self._request_ids[number]
            log.error("request %s: generation %d failed before it started", request_id, number, exc_info=error)
        if not isinstance(error, LmiError):
            error = GenerationError(f"the engine refused the request: {error}")
        self._send([(number, Failed.of(error))])

    def _send(self, events: list[tuple[int, EngineEvent]]) -> None:
        """Sends what came. A generation whose event cannot be encoded fails alone."""
        try:
            self._post(Step(events))
        except ENCODE_ERRORS:
            events, failed = sendable(events)
            for number, error in failed.items():
                log.error(
                    "request %s: generation %d: its output cannot be sent",
                    self._request_ids[number], number, exc_info=error,
                )  # fmt: skip
            self._end(tuple(failed))
            self._post(Step(events))

    def _post(self, message: Step | Stats | AdapterOutcome | Scraped) -> None:
        try:
            self._channel.post(message)
        except OSError:
            self._host_gone.set()

    def _end(self, numbers: Sequence[int]) -> None:
        """Ends generations without a further event."""
        self._backend.abort(numbers)
        if self._token_budget is not None:
            self._token_budget.drop(numbers)
        if self._residents is not None:
            self._residents.end(numbers)

    def _tell_outcome(self, key: str, error: LmiError | None) -> None:
        self._post(AdapterOutcome(key, None if error is None else ErrorMessage.of(error)))

    # On other threads.

    def _take_all_in(self) -> None:
        """The intake thread. Where it fails, nothing that the host sends would be read any more: so the loop ends."""
        try:
            self._take_in()
        except BaseException as error:  # noqa: BLE001 - raised by `run`
            self._call(self._intake_failed.set_exception, error)

    def _take_in(self) -> None:
        """A request that fails here fails alone."""
        while (message := self._channel.receive()) is not None:
            if isinstance(message, Add):
                self._request_ids.add(message.number, message.generation.request_id)
                if self._residents is not None and (key := message.generation.adapter) is not None:
                    self._call(self._residents.enter, message.number, key)
                self._preparer.take(message.number, message.generation)
            elif isinstance(message, Release):
                self._call(self._release, message.numbers)
            elif isinstance(message, Gather):
                if self._gather is not None:
                    self._call(self._gather, message.seconds)
            elif isinstance(message, SetAdapter):
                if self._residents is not None:
                    self._call(self._residents.set, message.adapter)
            elif isinstance(message, RemoveAdapter):
                if self._residents is not None:
                    self._call(self._residents.remove, message.key)
            elif isinstance(message, Scrape):
                self._call(self._post, Scraped(message.content_type, self._scrape(message.content_type)))
            elif isinstance(message, BadMessage):
                if message.number is None:
                    log.error("a message of the host's cannot be decoded: %s", message.error)
                else:
                    self._request_ids.add(message.number, message.request_id)
                    self._refuse(message.number, message.error)
            elif isinstance(message, Abort):
                # Behind all that was ready before, which may be what it ends; nothing of it becomes ready after.
                self._preparer.drop(message.numbers)
                self._call(self._abort, message.numbers)
        self._call(self._host_gone.set)
        end_with_host()

    def _scrape(self, content_type: str) -> bytes:
        """The backend's metrics: some milliseconds that no step is to wait for."""
        try:
            return self._metrics(content_type) if self._metrics is not None else b""
        except Exception:
            log.exception("the engine's metrics cannot be told")
            return b""

    def _ready(self, number: int, prepared: Any, prompt: str | None = None) -> None:
        """Takes what is prepared; where its prompt's text is wanted, it is held back."""
        if prompt is None:
            self._call(self._begin, number, prepared)
        else:
            self._call(self._hold, number, prepared, prompt)

    def _tell(self, number: int, started: Started) -> None:
        self._call(self._tell_tokens, number, started)

    def _refuse(self, number: int, error: BaseException) -> None:
        self._call(self._tell_refused, number, error)

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        # Where the loop is closed already, the process is about to end.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)
