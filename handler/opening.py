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
    fallback,
    is_encoded,
    misrouted,
    read_body,
    receive,
    refusal,
    routed,
)
from ..formatters.base import Way, named_session
from ..formatters.response_store import ResponseStore
from ..model.engine import Engine, EngineInfo
from ..model.errors import LmiError, RequestError
from ..model.options import Settings
from .adapters.registry import Registry
from .admission import Admission
from .control import Controller
from .exchange import Exchange
from .response_store import SmallReads, TooLargeHereError
from .sessions.requests import Receive, Sessions
from .telemetry.metrics import Metrics, RequestStats
from .threads.deferred import Deferred, Prepared
from .threads.pool import Workers
from .user_code.custom_handler import CustomHandler, Relayed
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
        self._reader = Workers(1, name="lmi-bodies")

    def open(self, request: Request, on_news: OnNews | None, *, batched: bool = False) -> Exchange:
        """The exchange of a request, under way or ended."""
        service = self._service
        request = routed(_readable(request), service.dialects)
        meter = service.metrics.open(request)
        large = len(request.body) > LARGE or is_encoded(request)
        plan = self._plan(request, large=large)
        error = service.sessions.batch_error(request) if batched else None
        if error is None and not plan.always:
            error = service.refusal(request)
        if error is not None and not service.takes_anyway(request, error):
            return self.answered(refusal(error, request, service.settings), request, meter)
        if plan.workers is None:
            try:
                prepared = plan.prepare(replace(request, responses=SmallReads.of(service.responses, request.body)))
            except TooLargeHereError:
                plan = self._plan(request, large=True)
            except NotReadyError:
                plan = self._of_adapter()
            else:
                return self._opened(prepared, request, meter, on_news)
        return self._deferred(plan, request, meter, on_news)

    def answered(self, answer: Response, request: Request, meter: RequestStats | None = None) -> Exchange:
        """The exchange of a request that has its answer already."""
        meter = meter or self._service.metrics.open(request)
        exchange = self._exchange(request, meter, None)
        exchange.answer(answer)
        return exchange

    def _exchange(self, request: Request, meter: RequestStats, on_news: OnNews | None) -> Exchange:
        service = self._service
        return Exchange(
            service.engine,
            service.admission,
            meter=meter,
            notify=self._notify,
            request_id=request.request_id,
            on_news=on_news,
        )

    def _opened(
        self, prepared: Prepared | Relayed | Response, request: Request, meter: RequestStats, on_news: OnNews | None
    ) -> Exchange:
        """That of one that was prepared here."""
        if isinstance(prepared, Response):
            return self.answered(prepared, request, meter)
        exchange = self._exchange(request, meter, on_news)
        self._admit(exchange, meter)
        exchange.submit(prepared.call)
        return exchange

    def _deferred(self, plan: _Plan, request: Request, meter: RequestStats, on_news: OnNews | None) -> Deferred:
        """That of one which a thread prepares, which is asked for."""
        service, settings = self._service, self._service.settings
        assert plan.workers is not None
        request = replace(request, responses=service.responses)
        # Kept as long as the exchange.
        told = replace(request, body=ends_of(request.body)) if len(request.body) > LARGE else request
        exchange = Deferred(
            partial(self._decoded, plan.prepare, request) if is_encoded(request) else partial(plan.prepare, request),
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

    def _plan(self, request: Request, *, large: bool) -> _Plan:
        """`large`: what must be read of it is more than is read here."""
        service, extensions = self._service, self._service.extensions
        asked = control_of(request)
        if asked is not None and asked[KIND] == CANCEL:
            # Here: what it ends may have every thread of user code.
            return _Plan(self._cancelled)
        if extensions is not None and extensions.handler is not None:
            return _Plan(self._asking_first(extensions.handler, extensions), extensions.workers)
        way = _way_of(request)
        if way.error is not None:
            return _Plan(self._misrouted, always=True)
        if way.page is not None:
            if extensions is None or way.dialect in DIALECTS:
                return _Plan(self._page, self._reader if large else None, always=True)
            return _Plan(self._page, extensions.workers)
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
        return _Plan(prepare if workers is None else partial(self._in_session(), prepare), workers)

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

    def _in_session(self) -> Callable[[Receive, Request], Prepared | Relayed | Response]:
        """What a Receive makes of a request, with the session that it names."""
        sessions = self._service.sessions
        find = sessions.finding()

        def received(prepare: Receive, request: Request) -> Prepared | Relayed | Response:
            if not named_session(request) or control_of(request) is not None or _way_of(request).page:
                return prepare(request)
            return sessions.receive(prepare, request, find)

        return received

    def _asking_first(self, handler: CustomHandler, extensions: Extensions) -> Receive:
        """Model.py's handle is asked, and then what there would be without it."""
        ask, in_session = _once(handler), self._in_session()
        if handler.takes_session:
            return partial(in_session, partial(self._handled, ask, extensions.receive))
        # It may keep sessions of its own, whose ids are none of ours.
        return partial(self._handled, ask, partial(in_session, extensions.receive))

    def _handled(
        self, ask: Callable[[Request], Response | Relayed | None], then: Receive, request: Request
    ) -> Prepared | Relayed | Response:
        """What a request comes to that model.py's handle sees first."""
        try:
            answer = ask(request)
        except RequestError as error:
            return refusal(error, request, self._service.settings)
        if answer is not None:
            return answer
        way = _way_of(request)
        if way.error is not None:
            return misrouted(way.error)
        return self._page(request) if way.page else then(request)

    def _decoded(self, prepare: Receive, request: Request) -> Prepared | Relayed | Response:
        """What `prepare` makes of the request with its body decoded."""
        settings = self._service.settings
        try:
            return prepare(decoded(request, settings.limits.max_body_bytes))
        except RequestError as error:
            return refusal(error, request, settings)

    def _cancelled(self, request: Request) -> Response:
        """The answer to a CANCEL."""
        settings = self._service.settings
        try:
            return replace(self.control.answer(read_body(request), request), dialect=fallback(settings).name)
        except LmiError as error:
            return refusal(error, request, settings)

    def _misrouted(self, request: Request) -> Response:
        error = _way_of(request).error
        assert error is not None
        return misrouted(error)

    def _page(self, request: Request) -> Response:
        """An answer without the engine; of a user's dialect it is user code."""
        way = _way_of(request)
        assert way.page is not None
        assert way.dialect is not None
        try:
            return replace(way.page(request, self._service.settings, self._service.info), dialect=way.dialect.name)
        except LmiError as error:
            return refusal(error, request, self._service.settings)

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
    if len(request.body) <= LARGE:
        with suppress(RequestError):
            return decoded(request, LARGE)
    return request


def _way_of(request: Request) -> Way:
    way = request.way
    assert way is not None
    return way


def _once(handler: CustomHandler) -> Callable[[Request], Response | Relayed | None]:
    """Its answer, but None where it has been asked: a request may come again, when it has waited for an adapter."""
    left = [handler.answer]
    return lambda request: left.pop()(request) if left else None
