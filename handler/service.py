"""A model that is being served: its settings, its engine, and requests coming in. Hosts are loops around it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from msgspec.structs import replace as replace_fields

from ..formatters import LARGE, NO_ADAPTERS, Dialect, NotReadyError, Request, Response, ends_of, receive, refusal
from ..model.engine import Engine, EngineInfo, Listener
from ..model.errors import GenerationError, LmiError, UnavailableError
from ..model.log import show_content
from ..model.options import Settings
from ..model.options.environment.reading import naming
from ..model.process.client import EngineClient
from .adapters.registry import Registry
from .admission import Admission
from .exchange import Exchange
from .sweeper import Watch
from .telemetry.metrics import Metrics, RequestStats
from .telemetry.request_log import RequestLog
from .user_code.adapter_code import load_adapter_code
from .user_code.deferred import Deferred, Prepared
from .user_code.extensions import NO_FORMATTERS, Extensions, HostFormatters, load_extensions
from .user_code.pool import Workers

__all__ = ["Service"]

log = logging.getLogger(__name__)

T = TypeVar("T")


class Service:
    """Opens an exchange for each request.

    A large body is read on a thread of its own, one after another: the host's thread, which serves all others, competes
    with one thread at most for the interpreter.
    """

    def __init__(
        self, settings: Settings, engine: Engine | None = None, *, host_formatters: HostFormatters = NO_FORMATTERS
    ) -> None:
        self.settings = settings
        self.engine = engine or EngineClient(settings)
        self.admission = Admission(settings, self.engine)
        self.adapters: Registry | None = None
        """Where the options have adapters, from the start on."""
        self._info: EngineInfo
        self.metrics = Metrics(RequestLog(settings.log_requests))
        self.stopping = False
        """Whether the server is about to end; then nothing new is taken."""
        self.engine.listen(self.metrics.tick)
        self._host_formatters = host_formatters
        self._extensions: Extensions | None = None
        self._reader = Workers(1, name="lmi-bodies")
        self._listeners: list[Listener] = []
        self._watch: Watch | None = None

    @property
    def dialects(self) -> tuple[Dialect, ...]:
        """The user's own, which are asked before ours."""
        return self._extensions.dialects if self._extensions else ()

    def start(self) -> EngineInfo:
        """Loads user code and brings the engine up; raises StartError."""
        with naming(self.settings.sources):
            return self._start()

    def _start(self) -> EngineInfo:
        begun = time.monotonic()
        extensions = load_extensions(self.settings, self._host_formatters)
        if self.settings.adapters.enable_lora:
            load_code = partial(load_adapter_code, self.settings, extensions.workers)
            self.adapters = extensions.adapters = Registry(self.settings, self.engine, load_code)
        # Beside the engine's start, for a tokenizer takes its time too.
        preparing = extensions.workers.call(extensions.prepare) if extensions.input else None
        try:
            if self.adapters is not None:
                self.adapters.find()
            self._info = self.engine.start()
            if self.adapters is not None:
                self.adapters.started()
            if preparing is not None:
                preparing.result()
        except BaseException:
            self.engine.close()
            extensions.workers.close()
            raise
        self._extensions = extensions
        self.metrics.loops.append(extensions.workers.event_loop)
        show_content(self.settings.log_requests == "true")
        self._watch = Watch(self.admission.sweep, extensions.workers.sweep)
        self._watch.start()
        log.info("ready after %.1f s", time.monotonic() - begun)
        return self.info

    @property
    def info(self) -> EngineInfo:
        """The engine's, with the adapters that are registered now."""
        if self.adapters is None:
            return self._info
        return replace_fields(self._info, adapters=tuple(entry.adapter for entry in self.adapters.registered()))

    @property
    def healthy(self) -> bool:
        """Whether a request would be served now."""
        return self.engine.healthy and not self.stopping

    def open(self, request: Request, on_news: Callable[[Exchange], None] | None = None) -> Exchange | Response:
        """Starts what the request asks for, or gives the answer that refuses it. Never waits for the engine.

        Nor for user code: a request that it applies to is always an exchange, whatever becomes of it. Raises nothing
        that one request can cause: hosts open several together.
        """
        try:
            return self._open_unguarded(request, on_news)
        except Exception as error:
            log.exception("request %s could not be opened", request.request_id)
            return refusal(GenerationError(f"the request failed: {type(error).__name__}"), request, self.settings)

    def _open_unguarded(self, request: Request, on_news: Callable[[Exchange], None] | None) -> Exchange | Response:
        meter = self.metrics.open(request)
        opened = self._open(request, on_news, meter)
        if isinstance(opened, Response):
            self.metrics.refused(request, opened)
            return opened
        self.metrics.count_opened()
        self.admission.admit(opened)
        try:
            opened.begin()
        except Exception as error:
            log.exception("request %s could not be submitted to the engine", request.request_id)
            opened.fail(GenerationError(f"the request could not be submitted to the engine: {type(error).__name__}"))
        return opened

    def refusal(self, request: Request) -> LmiError | None:
        """Why the request cannot be taken on now, if it cannot, whatever is in its body."""
        return UnavailableError("the server is shutting down") if self.stopping else self.admission.refusal(request)

    def _open(
        self, request: Request, on_news: Callable[[Exchange], None] | None, meter: RequestStats
    ) -> Exchange | Response:
        """The exchange of a request, not begun."""
        if (refused := self.refusal(request)) is not None:
            return refusal(refused, request, self.settings)
        name = request.request_id
        large = len(request.body) > LARGE
        if (extensions := self._extensions) is not None and extensions.applies_to(request):
            prepare, workers = extensions.receive, extensions.workers
        elif large:
            prepare, workers = self._receive, self._reader
        else:
            try:
                call = receive(request, self.settings, self.dialects, adapters=self.adapters or NO_ADAPTERS)
            except NotReadyError:
                prepare, workers = self._receive, self._reader
            else:
                if isinstance(call, Response):
                    return call
                return Exchange(call, self.engine, self.admission, meter=meter, request_id=name, on_news=on_news)
        # Kept as long as the exchange.
        told = replace(request, body=ends_of(request.body)) if large else request
        return Deferred(
            partial(prepare, request),
            lambda error: refusal(error, told, self.settings),
            self.engine,
            self.admission,
            workers,
            meter=meter,
            request_id=name,
            on_news=on_news,
            notify=self._notify,
        )

    def _receive(self, request: Request) -> Prepared | Response:
        """What a request asks for that no user code applies to."""
        call = receive(request, self.settings, self.dialects, adapters=self.adapters or NO_ADAPTERS)
        return call if isinstance(call, Response) else Prepared(call, runs_user_code=False)

    def listen(self, listener: Listener) -> None:
        """Calls `listener` when exchanges may have new records.

        That is after each step of the engine, on its thread, and after user code has run, on the thread that
        it ran on.
        """
        self._listeners.append(listener)
        self.engine.listen(listener)

    async def run_user_code(self, work: Callable[[], T]) -> T:
        """The result of `work`, which may be user code and runs on a thread: the event loop is not blocked."""
        if self._extensions is None:
            return work()
        return await asyncio.wrap_future(self._extensions.workers.call(work))

    def stop(self) -> None:
        """Accepts no new requests from now on; running ones continue."""
        self.stopping = True

    def close(self) -> None:
        """Ends the engine."""
        if self._watch is not None:
            self._watch.close()
        self.engine.close()
        if self._extensions is not None:
            self._extensions.workers.close()
        self._reader.close()
        if self.adapters is not None:
            self.adapters.close()

    def _notify(self) -> None:
        for listener in self._listeners:
            try:
                listener()
            except Exception:  # noqa: PERF203 - the next one is to be called all the same
                log.exception("a listener failed")
