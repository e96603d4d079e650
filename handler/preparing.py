"""What a request comes to that is no plain generation: a page, CANCEL, a session, an encoded body, model.py's handle.

Each is a Receive, or makes one: it gives what to generate, or the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

from ..formatters import (
    Request,
    Response,
    control_of,
    decoded,
    fallback,
    misrouted,
    read_body,
    refusal,
)
from ..formatters.base import named_session
from ..formatters.dialect import Page
from ..formatters.routing import as_given, way_of
from ..model.engine import EngineInfo
from ..model.errors import LmiError, RequestError
from ..model.options import Settings
from .admission import longest_body
from .control import Controller
from .sessions.requests import Receive, Sessions
from .threads.prepared import Prepared
from .user_code.custom_handler import CustomHandler, Relayed
from .user_code.extensions import Extensions

__all__ = ["Preparations"]


class _Service(Protocol):
    """What is needed of a Service."""

    settings: Settings
    sessions: Sessions

    @property
    def info(self) -> EngineInfo: ...


class Preparations:
    """Those of one service."""

    def __init__(self, service: _Service, control: Controller) -> None:
        self._service = service
        self._control = control

    def in_session(self) -> Callable[[Receive, Request], Prepared | Relayed | Response]:
        """What a Receive makes of a request, with the session that it names."""
        sessions = self._service.sessions
        find = sessions.finding()

        def received(prepare: Receive, request: Request) -> Prepared | Relayed | Response:
            if not named_session(request) or control_of(request) is not None or _page_of(request):
                return prepare(request)
            return sessions.receive(prepare, request, find)

        return received

    def asking_first(self, handler: CustomHandler, extensions: Extensions) -> Receive:
        """Model.py's handle is asked, and then what there would be without it."""
        ask, in_session = _once(handler), self.in_session()
        if handler.takes_session:
            return partial(in_session, partial(self._handled, ask, extensions.receive))
        # It may keep sessions of its own, whose ids are none of ours.
        return partial(self._handled, ask, partial(in_session, extensions.receive))

    def _handled(
        self, ask: Callable[[Request], Response | Relayed | None], then: Receive, request: Request
    ) -> Prepared | Relayed | Response:
        """What a request comes to that model.py's handle sees first."""
        try:
            answer = ask(as_given(request))
        except RequestError as error:
            return refusal(error, request, self._service.settings)
        if answer is not None:
            return answer
        way = way_of(request)
        if way.error is not None:
            return misrouted(way.error)
        return self.page(request) if _page_of(request) else then(request)

    def decoded(self, prepare: Receive, request: Request) -> Prepared | Relayed | Response:
        """What `prepare` makes of the request with its body decoded."""
        settings = self._service.settings
        try:
            return prepare(decoded(request, longest_body(settings, request.headers)))
        except RequestError as error:
            return refusal(error, request, settings)

    def cancelled(self, request: Request) -> Response:
        """The answer to a CANCEL."""
        settings = self._service.settings
        try:
            return replace(self._control.answer(read_body(request), request), dialect=fallback(settings).name)
        except LmiError as error:
            return refusal(error, request, settings)

    def misrouted(self, request: Request) -> Response:
        error = way_of(request).error
        assert error is not None
        return misrouted(error)

    def page(self, request: Request) -> Response:
        """An answer without the engine; of a user's dialect it is user code."""
        way = way_of(request)
        page = _page_of(request)
        assert page is not None
        assert way.dialect is not None
        try:
            return replace(page(request, self._service.settings, self._service.info), dialect=way.dialect.name)
        except LmiError as error:
            return refusal(error, request, self._service.settings)


def _once(handler: CustomHandler) -> Callable[[Request], Response | Relayed | None]:
    """Its answer, but None where it has been asked: a request may come again, when it has waited for an adapter."""
    left = [handler.answer]
    return lambda request: left.pop()(request) if left else None


def _page_of(request: Request) -> Page | None:
    """What answers a request without the engine, on its route."""
    route = way_of(request).route
    return route.page if route else None
