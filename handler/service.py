"""A model that is being served: its settings, its engine, and requests coming in. Hosts are loops around it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TypeVar

from msgspec.structs import replace as replace_fields

from ..formatters import (
    CANCEL,
    KIND,
    Dialect,
    Request,
    control_of,
    refusal,
)
from ..model.engine import Engine, EngineInfo, Listener
from ..model.errors import (
    GenerationError,
    LmiError,
    OptionError,
    OverloadedError,
    UnavailableError,
)
from ..model.log import show_content
from ..model.options import Settings
from ..model.options.environment.reading import naming
from ..model.process.client import EngineClient
from .adapters.registry import Registry
from .admission import Admission
from .exchange import Exchange
from .opening import Opener
from .response_store import response_store
from .sessions.requests import Sessions
from .telemetry.metrics import Metrics
from .telemetry.request_log import RequestLog
from .threads.sweeper import Watch
from .user_code.adapter_code import load_adapter_code
from .user_code.extensions import NO_FORMATTERS, Extensions, HostFormatters, load_extensions

__all__ = ["Service"]

log = logging.getLogger(__name__)

T = TypeVar("T")

NOTHING_GIVEN: Mapping[str, str] = MappingProxyType({})


class Service:
    """Opens an exchange for each request."""

    def __init__(
        self,
        settings: Settings,
        engine: Engine | None = None,
        *,
        host_formatters: HostFormatters = NO_FORMATTERS,
        given: Mapping[str, str] = NOTHING_GIVEN,
    ) -> None:
        """`given`: the options as they were given, without `option.`, which model.py's handle is told."""
        self.settings = settings
        self._given = given
        self.engine = engine or EngineClient(settings)
        self.admission = Admission(settings, self.engine)
        self.adapters: Registry | None = None
        """Where the options have adapters, from the start on."""
        self.sessions = Sessions(settings)
        self.responses = response_store(settings.responses)
        self._info: EngineInfo
        self.metrics = Metrics(RequestLog(settings.log_requests))
        self.stopping = False
        """Whether the server is about to end; then nothing new is taken."""
        self.engine.listen(self.metrics.tick)
        self._host_formatters = host_formatters
        self.extensions: Extensions | None = None
        """The user's, from the end of the start on."""
        self._listeners: list[Listener] = []
        self.opener = Opener(self, self._notify)
        self._watch: Watch | None = None

    @property
    def dialects(self) -> tuple[Dialect, ...]:
        """The user's own, which are asked before ours."""
        return self.extensions.dialects if self.extensions else ()

    def start(self) -> EngineInfo:
        """Loads user code and brings the engine up; raises StartError."""
        with naming(self.settings.sources):
            return self._start()

    def _start(self) -> EngineInfo:
        begun = time.monotonic()
        if self.settings.parallel.follows:
            rank = self.settings.parallel.node_rank
            raise OptionError.of("node_rank", "here run lmi follow", expected="0, the leader", given=rank)
        extensions = load_extensions(self.settings, self._host_formatters)
        extensions.control = self.opener.control
        if self.settings.adapters.enable_lora:
            load_code = partial(load_adapter_code, self.settings, extensions.workers)
            self.adapters = extensions.adapters = Registry(self.settings, self.engine, load_code)
        # Beside the engine's start, for a tokenizer takes its time too.
        preparing = extensions.workers.call(extensions.prepare) if extensions.input else None
        try:
            self.sessions.start()
            if extensions.handler is not None:
                extensions.workers.call(partial(extensions.handler.start, self._given)).result()
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
            self.sessions.close()
            raise
        self.extensions = extensions
        self.metrics.loops.append(extensions.workers.event_loop)
        show_content(self.settings.log_requests == "true")
        self._watch = Watch(self.admission.sweep, extensions.workers.sweep)
        self._watch.start()
        log.info("ready after %.1f s", time.monotonic() - begun)
        return self.info

    @property
    def info(self) -> EngineInfo:
        """The engine's, with the adapters that are registered now, in the order in which they were."""
        if self.adapters is None:
            return self._info
        adapters = sorted((entry.adapter for entry in self.adapters.registered()), key=lambda one: one.number)
        return replace_fields(self._info, adapters=tuple(adapters))

    @property
    def healthy(self) -> bool:
        """Whether a request would be served now."""
        return self.engine.healthy and not self.stopping

    @property
    def why_unhealthy(self) -> str:
        """Why a request would not be served now; of several hosts it names the one that is gone."""
        return "the server is shutting down" if self.stopping else self.engine.down_reason

    def open(
        self, request: Request, on_news: Callable[[Exchange], None] | None = None, *, batched: bool = False
    ) -> Exchange:
        """The exchange of a request: under way, or ended with a refusal or an answer that needs no engine.

        Never waits, for the engine or for user code. Raises nothing that one request can cause: hosts open several
        together; `batched`: it shares its answer with others (a dynamic batch), and what it asks for must allow that.
        """
        try:
            return self.opener.open(request, on_news, batched=batched)
        except Exception as error:
            log.exception("request %s could not be opened", request.request_id)
            return self.refuse(request, GenerationError(f"the request failed: {type(error).__name__}"))

    def refuse(self, request: Request, error: LmiError) -> Exchange:
        """The exchange of a request that a host refuses by itself."""
        return self.opener.answered(refusal(error, request, self.settings), request)

    def refusal(self, request: Request) -> LmiError | None:
        """Why the request cannot be taken on now, if it cannot, whatever is in its body."""
        return UnavailableError("the server is shutting down") if self.stopping else self.admission.refusal(request)

    def takes_anyway(self, request: Request, refused: LmiError) -> bool:
        """Whether a request is taken on though it is to be refused, for it ends another one."""
        return isinstance(refused, OverloadedError) and (control_of(request) or {}).get(KIND) == CANCEL

    def listen(self, listener: Listener) -> None:
        """Calls `listener` when exchanges may have new records.

        That is after each step of the engine, where its sinks are called (Engine.read_on), and after user code has run,
        on the thread that it ran on.
        """
        self._listeners.append(listener)
        self.engine.listen(listener)

    async def run_user_code(self, work: Callable[[], T]) -> T:
        """The result of `work`, which may be user code and runs on a thread: the event loop is not blocked."""
        if self.extensions is None:
            return work()
        return await asyncio.wrap_future(self.extensions.workers.call(work))

    def stop(self) -> None:
        """Accepts no new requests from now on; running ones continue."""
        self.stopping = True

    def close(self) -> None:
        """Ends the engine, and each request that is open with UnavailableError."""
        self.stopping = True
        self.admission.expire_all(UnavailableError(self.why_unhealthy))
        if self._watch is not None:
            self._watch.close()
        self.engine.close()
        if self.extensions is not None:
            self.extensions.workers.close()
        self.opener.close()
        if self.adapters is not None:
            self.adapters.close()
        self.sessions.close()

    def _notify(self) -> None:
        for listener in self._listeners:
            try:
                listener()
            except Exception:  # noqa: PERF203 - the next one is to be called all the same
                log.exception("a listener failed")
