"""What becomes of a request: in every case an exchange.

    request --routed--> --_plan--> who prepares it, and on which threads
            --refusal--> answered at once, or taken on
            --prepare--> Exchange, here;  Deferred, on a thread

Here is the host's thread, which serves all others: what reads much, waits or runs user code is for a thread. All bytes
count that must be read, those of stored responses too.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from ..formatters import (
    CANCEL,
    DIALECTS,
    KIND,
    LARGE,
    NO_ADAPTERS,
    Dialect,
    NotReadyError,
    ParsedRequest,
    Request,
    Response,
    control_of,
    decoded,
    ends_of,
    is_encoded,
    receive,
    refusal,
    routed,
)
from ..formatters.base import named_session
from ..formatters.coding import HEADER as CODING
from ..formatters.response_store import ResponseStore
from ..formatters.routing import ROUTE, way_of
from ..model.engine import Engine, EngineInfo
from ..model.errors import LmiError, RequestError
from ..model.options import Settings
from .adapters.registry import Registry
from .admission import Admission
from .control import Controller
from .exchange import Exchange
from .preparing import Preparations
from .response_store import SmallReads, TooLargeHereError
from .sessions.requests import Receive, Sessions
from .telemetry.metrics import Metrics, RequestStats
from .threads.deferred import Deferred
from .threads.pool import Workers
from .threads.prepared import Prepared
from .user_code.custom_handler import Relayed
from .user_code.extensions import Extensions

__all__ = ["Opener"]

OnNews = Callable[[Exchange], None]


class _Service(Protocol):
    """What is needed of a Service."""

    settings: Settings
    engine: Engine
    admission: Admission
    metrics: Metrics
    sessions: Sessions
    responses: ResponseStore | None
    adapters: Registry | None
    extensions: Extensions | None

    @property
    def dialects(self) -> tuple[Dialect, ...]: ...

    @property
    def info(self) -> EngineInfo: ...

    def refusal(self, request: Request) -> LmiError | None: ...

    def takes_anyway(self, request: Request, refused: LmiError) -> bool: ...


@dataclass(frozen=True, slots=True)
class _Plan:
    """Who finds out what a request asks for, and where."""

    prepare: Receive
    workers: Workers | None = None
    """None: here."""
    always: bool = False
    """Whether it is answered however much is open: it takes no time, and no part of the engine."""
    reads: bool = True
    """Whether the body is read."""


class Opener:
    """Opens the requests of one service.

    A large body is read on a thread of its own, one after another: the host's thread competes with one thread at most
    for the interpreter. So is one that is still encoded.
    """

    def __init__(self, service: _Service, notify: Callable[[], None]) -> None:
        """`notify` is called when an exchange has news that the engine did not bring."""
        self._service = service
        self._notify = notify
        self.control = Controller(service.settings, service.sessions, service.admission)
        self._others = Preparations(service, self.control)
        self._reader = Workers(1, name="lmi-bodies")

    def open(self, request: Request, on_news: OnNews | None, *, batched: bool = False) -> Exchange:
        """The exchange of a request, under way or ended."""
        service = self._service
        request = routed(_readable(request), service.dialects)
        meter = service.metrics.open(request)
        large = len(request.body) > LARGE or (CODING in request.headers and is_encoded(request))
        plan = self._plan(request, large=large)
        error = service.sessions.batch_error(request) if batched else None
        if error is None and not plan.always:
            error = service.refusal(request)
        if error is not None and not service.takes_anyway(request, error):
            return self.answered(refusal(error, request, service.settings), request, meter)
        if plan.workers is None:
            try:
                prepared = plan.prepare(self._reading_little(request))
            except TooLargeHereError:
                plan = self._plan(request, large=True, stored=True)
            except NotReadyError:
                plan = self._of_adapter()
            else:
                return self._opened(prepared, request, meter, on_news)
        return self._deferred(plan, request, meter, on_news)

    def _reading_little(self, request: Request) -> Request:
        """The request as it is read here, whatever is stored of what it names."""
        if (store := self._service.responses) is None:
            return request
        return replace(request, responses=SmallReads(store, LARGE - len(request.body)))

    def answered(self, answer: Response, request: Request, meter: RequestStats | None = None) -> Exchange:
        """The exchange of a request that has its answer already."""
        meter = meter or self._service.metrics.open(request)
        exchange = self._exchange(request, meter)
        exchange.answer(answer)
        return exchange

    def _exchange(
        self, request: Request, meter: RequestStats, on_news: OnNews | None = None, call: ParsedRequest | None = None
    ) -> Exchange:
        service = self._service
        return Exchange(
            service.engine,
            service.admission,
            meter=meter,
            notify=self._notify,
            call=call,
            request_id=request.request_id,
            on_news=on_news,
        )

    def _opened(
        self, prepared: Prepared | Relayed | Response, request: Request, meter: RequestStats, on_news: OnNews | None
    ) -> Exchange:
        """That of one that was prepared here."""
        if isinstance(prepared, Response):
            return self.answered(prepared, request, meter)
        exchange = self._exchange(request, meter, on_news, prepared.call)
        self._admit(exchange, meter)
        exchange.submit()
        return exchange

    def _deferred(self, plan: _Plan, request: Request, meter: RequestStats, on_news: OnNews | None) -> Deferred:
        """That of one which a thread prepares, which is asked for."""
        service, settings = self._service, self._service.settings
        assert plan.workers is not None
        request = replace(request, responses=service.responses)
        # Kept as long as the exchange.
        told = replace(request, body=ends_of(request.body)) if len(request.body) > LARGE else request
        exchange = Deferred(
            partial(self._others.decoded, plan.prepare, request)
            if plan.reads and is_encoded(request)
            else partial(plan.prepare, request),
            lambda error: refusal(error, told, settings),
            service.engine,
            service.admission,
            plan.workers,
            meter=meter,
            notify=self._notify,
            request_id=request.request_id,
            on_news=on_news,
        )
        self._admit(exchange, meter)
        exchange.begin()
        return exchange

    def _admit(self, exchange: Exchange, meter: RequestStats) -> None:
        meter.admit()
        self._service.admission.admit(exchange)

    def _plan(self, request: Request, *, large: bool, stored: bool = False) -> _Plan:
        """`large`: what must be read of it is more than is read here; `stored`: what it names, and not its body."""
        service, extensions = self._service, self._service.extensions
        asked = control_of(request)
        if asked is not None and asked[KIND] == CANCEL:
            # Here: what it ends may have every thread of user code.
            return _Plan(self._others.cancelled)
        way = way_of(request)
        page = way.route is not None and way.route.page is not None
        # What comes on a page's own path is no request for the model: no handle is asked, and no limit holds.
        on_its_path = page and ROUTE not in request.attributes
        if extensions is not None and extensions.handler is not None and not on_its_path:
            return _Plan(self._others.asking_first(extensions.handler, extensions), extensions.workers)
        if way.error is not None:
            return _Plan(self._others.misrouted, always=True)
        if page and (extensions is None or way.dialect in DIALECTS):
            return _Plan(self._others.page, self._reader if stored else None, always=True, reads=False)
        if page:
            assert extensions is not None
            return _Plan(self._others.page, extensions.workers, always=on_its_path)
        of_session = bool(named_session(request)) or asked is not None
        prepare: Receive = self._receive
        workers = self._reader if large else None
        # What a dialect of the user's may take is for its threads.
        if (
            extensions is not None
            and (asked is None or extensions.dialects)
            and self._runs_user_code(extensions, request, later=large or of_session)
        ):
            prepare, workers = extensions.receive, extensions.workers
        elif of_session and not large:
            workers = service.sessions.workers if asked is None else service.sessions.changers
        return _Plan(prepare if workers is None else partial(self._others.in_session(), prepare), workers)

    def _of_adapter(self) -> _Plan:
        """For one that names an adapter which is being loaded: it may bring user code."""
        extensions = self._service.extensions
        if extensions is None:
            return _Plan(self._receive, self._reader)
        return _Plan(extensions.receive, extensions.workers)

    def _runs_user_code(self, extensions: Extensions, request: Request, *, later: bool) -> bool:
        """Whether user code may run for a request; `later`: it is read on another thread.

        Then an adapter that it names may be loaded meanwhile, and bring user code.
        """
        if not extensions.any and extensions.adapters is None:
            return False
        return extensions.applies_to(request) or (later and self._service.settings.adapters.lora_cache_dir is not None)

    def _receive(self, request: Request) -> Prepared | Response:
        """What a request asks for that no user code applies to."""
        service = self._service
        adapters = service.adapters or NO_ADAPTERS
        call = receive(request, service.settings, service.dialects, adapters=adapters, control=self.control)
        return Prepared(call, on_threads=False) if isinstance(call, ParsedRequest) else call

    def close(self) -> None:
        """Ends the thread."""
        self._reader.close()


def _readable(request: Request) -> Request:
    """The request with a small body decoded. What is large, or cannot be decoded, is left to the reader's thread."""
    if CODING in request.headers and len(request.body) <= LARGE:
        with suppress(RequestError):
            return decoded(request, LARGE)
    return request
