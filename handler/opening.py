"""What becomes of a request, once it is here: an answer at once, or an exchange.

request --open--> a CANCEL's answer, handle of model.py, a page, a refusal, or: receive --> Exchange
                  at once, or later on a thread:  user code, a large body, a session, an adapter that is being loaded
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
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
from ..formatters.base import Route
from ..formatters.response_store import ResponseStore
from ..formatters.routing import well_routed
from ..model.engine import Engine, EngineInfo
from ..model.errors import LmiError, RequestError
from ..model.options import Settings
from .adapters.registry import Registry
from .admission import Admission
from .control import Controller
from .exchange import Exchange
from .sessions.requests import Receive, Sessions, named_session
from .telemetry.metrics import RequestStats
from .threads.deferred import Deferred, Prepared
from .threads.pool import Workers
from .user_code.custom_handler import CustomHandler, Relayed
from .user_code.extensions import Extensions

__all__ = ["Opener", "readable"]


class _Service(Protocol):
    """What is needed of a Service."""

    settings: Settings
    engine: Engine
    admission: Admission
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


def readable(request: Request) -> Request:
    """The request with a small body decoded. What is large, or cannot be decoded, is left to Opener's thread."""
    if len(request.body) <= LARGE:
        with suppress(RequestError):
            return decoded(request, LARGE)
    return request


class Opener:
    """Opens the requests of one service.

    A large body is read on a thread of its own, one after another: the host's thread, which serves all others, competes
    with one thread at most for the interpreter. So is one that is still encoded.
    """

    def __init__(self, service: _Service, notify: Callable[[], None]) -> None:
        """`notify` is called when an exchange has news that the engine did not bring."""
        self._service = service
        self._notify = notify
        self.control = Controller(service.settings, service.sessions, service.admission)
        self._reader = Workers(1, name="lmi-bodies")

    def open(
        self, request: Request, on_news: Callable[[Exchange], None] | None, meter: RequestStats
    ) -> Exchange | Response:
        """The exchange of a request, not begun; or its answer, which may be a refusal."""
        service = self._service
        if service.responses is not None:
            request = replace(request, responses=service.responses)
        later = partial(self._deferred, meter=meter, on_news=on_news)
        extensions = service.extensions
        asked = control_of(request)
        if asked is not None and asked[KIND] == CANCEL:
            return self._cancelled(request)
        if extensions is not None and extensions.handler is not None:
            if (refused := self._refused(request)) is not None:
                return refused
            ask, in_session = _once(extensions.handler), self._in_session()
            if extensions.handler.takes_session:
                asked_first = partial(in_session, partial(self._handled, ask, extensions.receive))
            else:
                # It may keep sessions of its own, whose ids are none of ours.
                asked_first = partial(self._handled, ask, partial(in_session, extensions.receive))
            return later(asked_first, request, extensions.workers)
        try:
            request, found = routed(request, service.dialects)
        except RequestError as error:
            return misrouted(error)
        ours = found is None or extensions is None or found[0] in DIALECTS
        if found and found[1].page and ours:
            return self._page(found, request)
        if (refused := self._refused(request)) is not None:
            return refused
        if found and found[1].page and extensions is not None:
            return later(partial(self._page, found), request, extensions.workers)
        large = len(request.body) > LARGE or is_encoded(request)
        of_session = bool(named_session(request)) or asked is not None
        prepare: Receive = self._receive
        workers = self._reader
        # What a dialect of the user's may take is for its threads.
        if (asked is None or service.dialects) and self._runs_user_code(request, later=large or of_session):
            assert extensions is not None
            prepare, workers = extensions.receive, extensions.workers
        elif of_session and not large:
            workers = service.sessions.workers if asked is None else service.sessions.changers
        elif not large:
            try:
                call = self._call(request)
            except NotReadyError:
                # The adapter may bring user code.
                if extensions is not None:
                    prepare, workers = extensions.receive, extensions.workers
            else:
                if isinstance(call, Response):
                    return call
                exchange = partial(Exchange, call, service.engine, service.admission)
                return exchange(meter=meter, request_id=request.request_id, on_news=on_news)
        return later(partial(self._in_session(), prepare), request, workers)

    def _runs_user_code(self, request: Request, *, later: bool) -> bool:
        """Whether user code may run for a request; `later`: it is read on another thread.

        Then an adapter that it names may be loaded meanwhile, and bring user code.
        """
        extensions, by_name = self._service.extensions, self._service.settings.adapters.lora_cache_dir is not None
        return extensions is not None and (extensions.applies_to(request) or (later and by_name))

    def _refused(self, request: Request) -> Response | None:
        """The answer to a request that cannot be taken on now."""
        error = self._service.refusal(request)
        if error is None or self._service.takes_anyway(request, error):
            return None
        return refusal(error, request, self._service.settings)

    def _in_session(self) -> Callable[[Receive, Request], Prepared | Relayed | Response]:
        """What a Receive makes of a request, with the session that it names."""
        sessions = self._service.sessions
        find = sessions.finding()

        def received(prepare: Receive, request: Request) -> Prepared | Relayed | Response:
            _, found = well_routed(request, self._service.dialects)
            if not named_session(request) or control_of(request) is not None or (found and found[1].page):
                return prepare(request)
            return sessions.receive(prepare, request, find)

        return received

    def _deferred(
        self,
        prepare: Receive,
        request: Request,
        workers: Workers,
        *,
        meter: RequestStats,
        on_news: Callable[[Exchange], None] | None,
    ) -> Deferred:
        # Kept as long as the exchange.
        told = replace(request, body=ends_of(request.body)) if len(request.body) > LARGE else request
        return Deferred(
            partial(self._decoded, prepare, request) if is_encoded(request) else partial(prepare, request),
            lambda error: refusal(error, told, self._service.settings),
            self._service.engine,
            self._service.admission,
            workers,
            meter=meter,
            request_id=request.request_id,
            on_news=on_news,
            notify=self._notify,
        )

    def _decoded(self, prepare: Receive, request: Request) -> Prepared | Relayed | Response:
        """What `prepare` makes of the request with its body decoded."""
        settings = self._service.settings
        try:
            return prepare(decoded(request, settings.limits.max_body_bytes))
        except RequestError as error:
            return refusal(error, request, settings)

    def _cancelled(self, request: Request) -> Response:
        """The answer to a CANCEL, at once: what it ends may have every thread of user code."""
        if (refused := self._refused(request)) is not None:
            return refused
        settings = self._service.settings
        try:
            return replace(self.control.answer(read_body(request), request), dialect=fallback(settings).name)
        except LmiError as error:
            return refusal(error, request, settings)

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
        try:
            request, found = routed(request, self._service.dialects)
        except RequestError as error:
            return misrouted(error)
        if found and found[1].page:
            return self._page(found, request)
        return then(request)

    def _page(self, found: tuple[Dialect, Route], request: Request) -> Response:
        """An answer without the engine; of a user's dialect it is user code."""
        dialect, page = found[0], found[1].page
        assert page is not None
        try:
            return replace(page(request, self._service.settings, self._service.info), dialect=dialect.name)
        except LmiError as error:
            return refusal(error, request, self._service.settings)

    def _receive(self, request: Request) -> Prepared | Response:
        """What a request asks for that no user code applies to."""
        call = self._call(request)
        return call if isinstance(call, Response) else Prepared(call, runs_user_code=False)

    def _call(self, request: Request) -> ParsedRequest | Response:
        adapters = self._service.adapters or NO_ADAPTERS
        return receive(request, self._service.settings, self._service.dialects, adapters=adapters, control=self.control)

    def close(self) -> None:
        """Ends the thread."""
        self._reader.close()


def _once(handler: CustomHandler) -> Callable[[Request], Response | Relayed | None]:
    """Its answer, but None where it has been asked: a request may come again, when it has waited for an adapter."""
    left = [handler.answer]
    return lambda request: left.pop()(request) if left else None
