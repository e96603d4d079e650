"""A request's session: by its header, or made and closed by requests of their own (formatters/control.py).

    header: an id    --> the request with its session, or the answer that refuses it
    header: NEW_SESSION --> a session is made; its headers come with the request's answer
    {"requestType": "NEW_SESSION"}, {"requestType": "CLOSE"} --> an answer

Texts and headers are djl_python's (session_utils); the header of a new session has two names, as SageMaker's own
library sends another one than the container. All of this reads and writes files. What a header names is found and made
by threads of the sessions' own, and the request waits without a thread (NotReadyError).
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ...formatters import SESSION_HEADER, NotReadyError, Request, Response, control_of, refusal
from ...formatters.base import ResponseEncoder, named_session
from ...formatters.control import NEW_SESSION
from ...model.errors import GenerationError, LmiError, OptionError, SessionError
from ...model.events import Event
from ...model.options import Settings
from .. import file_lock
from ..response_store import Kept, kept_of
from ..threads.pool import Workers
from ..threads.prepared import Prepared
from ..user_code.custom_handler import Relayed
from ..user_code.safe_reply import end_of_stream
from .s3 import Copy, copier
from .session import StoredSession
from .store import Store

__all__ = ["Find", "Sessions"]

log = logging.getLogger(__name__)

NEW_HEADER = "X-Amzn-SageMaker-New-Session-Id"
CLOSED_HEADER = "X-Amzn-SageMaker-Closed-Session-Id"
NOT_PARSED = "Input parsing failed"
SHARED_MEMORY = "/dev/shm"
THREADS = 2

Receive = Callable[[Request], Prepared | Relayed | Response]
Find = Callable[[str], StoredSession | None]
"""Gives the session of a header, or None for one that has expired and is served without; raises LmiError."""


class Sessions:
    """The sessions of one service."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        options = settings.sessions
        self.workers = Workers(THREADS, name="lmi-sessions")
        """For requests of sessions that are there."""
        self.changers = Workers(THREADS, name="lmi-sessions-lock")
        """For what waits for the lock of all sessions, which holds up nobody else."""
        self._settings = settings
        self._store = Store(
            _folder(settings),
            lifetime=options.sessions_expiration,
            max_number=options.sessions_max_number,
            max_bytes=options.sessions_max_bytes,
            clock=clock,
        )
        self._copy: Copy | None = None

    def start(self) -> None:
        """Makes what the options name and restores what is kept elsewhere; raises OptionError.

        Without such an option nothing is made until a request asks for a session.
        """
        options = self._settings.sessions
        if not options.enable_stateful_sessions:
            return
        if options.sessions_path is not None:
            try:
                self._store.prepare()
            except (OSError, SessionError) as error:
                raise OptionError.of("sessions_path", str(error)) from None
        if options.sessions_s3url is not None:
            self._copy = Copy(self._store, options.sessions_s3url, copier())
            self._copy.restore()
            self._copy.start()
            # DJL's worker just ends.
            atexit.register(self.close)

    def close(self) -> None:
        """Copies them to where they are kept, and ends the threads."""
        copy, self._copy = self._copy, None
        if copy is not None:
            atexit.unregister(self.close)
            copy.stop()
        self.workers.close()
        self.changers.close()

    def finding(self) -> Find:
        """Finds one request's session, or makes it; gives the same one whenever the request comes again.

        Never waits: raises NotReadyError until it is there.
        """
        asked: list[Future[StoredSession | None]] = []

        def found(named: str) -> StoredSession | None:
            if not asked:
                if named == NEW_SESSION:
                    until = time.monotonic() + file_lock.TIMEOUT_S
                    asked.append(self.changers.call(partial(self._store.create, until)))
                else:
                    asked.append(self.workers.call(partial(self._session, named)))
            (session,) = asked
            if not session.done():
                raise NotReadyError(session)
            return session.result()

        return found

    def receive(self, receive: Receive, request: Request, find: Find) -> Prepared | Relayed | Response:
        """What `receive` makes of a request whose header names a session. Raises nothing but NotReadyError.

        `find`: see `finding`; the same one where the request comes again, since it was not ready.
        """
        named = named_session(request)
        try:
            self._require_enabled(f"{SESSION_HEADER} header")
            session = find(named)
            if named == NEW_SESSION and session is not None:
                return self._in_new_session(receive, request, session)
            request = replace(request, session=session)
        except NotReadyError:
            raise
        except LmiError as error:
            message = f"{NOT_PARSED}: {error.message}"
            return refusal(SessionError(message, SESSION_HEADER), request, self._settings)
        except Exception as error:
            log.exception("request %s: its session could not be had", request.request_id)
            failure = GenerationError(f"the session could not be had: {type(error).__name__}")
            return refusal(failure, request, self._settings)
        return receive(request)

    def batch_error(self, request: Request) -> LmiError | None:
        """Why a request cannot be in a batch of several: it asks for a session by its header."""
        enabled = self._settings.sessions.enable_stateful_sessions
        if not enabled or named_session(request) != NEW_SESSION or control_of(request) is not None:
            return None
        batch = "a dynamic batch of several requests, whose responses have no headers"
        given = f"{SESSION_HEADER}: got {NEW_SESSION} in {batch}"
        expected = f'expected the body {{"requestType": "{NEW_SESSION}"}}, or rolling batch or async mode'
        return SessionError(f"{NOT_PARSED}: {given}: {expected}", SESSION_HEADER)

    def created(self) -> Response:
        """A session, for a request that asks for no more; raises SessionError."""
        self._require_enabled(NEW_SESSION)
        try:
            session = self._store.create()
        except SessionError as error:
            raise SessionError(f"Failed to create session: {error.message}") from None
        log.info("session created")
        return _told(f"Session {session.id} created", _headers_of_new(session))

    def closed(self, request: Request) -> Response:
        """The end of the session that the header names; raises SessionError."""
        self._require_enabled("CLOSE")
        named = named_session(request)
        try:
            if not named:
                raise SessionError("invalid session_id: None")
            self._store.close(named)
        except SessionError as error:
            raise SessionError(f"Failed to close session: {error.message}", SESSION_HEADER) from None
        log.info("session closed")
        return _told(f"Session {named} closed", {CLOSED_HEADER: named})

    def _require_enabled(self, what: str) -> None:
        if not self._settings.sessions.enable_stateful_sessions:
            message = f"invalid payload. stateful sessions not enabled, {what} not supported"
            raise SessionError(f"{message} (option.enable_stateful_sessions)")

    def _session(self, named: str) -> StoredSession | None:
        session, expired = self._store.find(named)
        if not expired:
            return session
        if not self._settings.sessions.sessions_serve_expired:
            raise SessionError(f"session expired: {named}")
        return None

    def _in_new_session(
        self, receive: Receive, request: Request, session: StoredSession
    ) -> Prepared | Relayed | Response:
        """A request with a session of its own, which stays if the request is not refused."""
        try:
            prepared = receive(replace(request, session=session))
        except NotReadyError:
            raise
        except BaseException:
            self._drop(session)
            raise
        headers = _headers_of_new(session)
        if not isinstance(prepared, Response):
            return replace(prepared, call=replace(prepared.call, reply=_WithHeaders(prepared.call.reply, headers)))
        if prepared.failure is None and prepared.status < 400:
            return replace(prepared, headers={**prepared.headers, **headers})
        self._drop(session)
        return prepared

    def _drop(self, session: StoredSession) -> None:
        def close() -> None:
            # Its request's own code may have closed it.
            with contextlib.suppress(SessionError):
                self._store.close(session.id)

        self.changers.call(close)


def _folder(settings: Settings) -> Path:
    if (given := settings.sessions.sessions_path) is not None:
        return Path(settings.model_dir, given).resolve()
    shared = os.access(SHARED_MEMORY, os.W_OK)
    return Path(SHARED_MEMORY if shared else tempfile.gettempdir(), "djl_sessions")


def _headers_of_new(session: StoredSession) -> dict[str, str]:
    value = f"{session.id}; Expires={time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(session.expires))}"
    return {SESSION_HEADER: value, NEW_HEADER: value}


def _told(result: str, headers: Mapping[str, str]) -> Response:
    # As djl_python writes it, blanks and the end of the line included.
    return Response(json.dumps({"result": result}).encode() + b"\n", headers=headers)


@dataclass(frozen=True, slots=True)
class _WithHeaders:
    """An encoder whose answer has further headers."""

    inner: ResponseEncoder
    further: Mapping[str, str]

    @property
    def status(self) -> int:
        return self.inner.status

    @property
    def content_type(self) -> str:
        return self.inner.content_type

    @property
    def headers(self) -> Mapping[str, str]:
        return {**self.inner.headers, **self.further}

    @property
    def failure(self) -> LmiError | None:
        return self.inner.failure

    @property
    def finished(self) -> bool:
        return self.inner.finished

    @property
    def kept(self) -> Kept | None:
        return kept_of(self.inner)

    def feed(self, event: Event, prompt: int = 0) -> list[bytes]:
        return self.inner.feed(event, prompt)

    def end_of_stream(self, error: LmiError) -> list[bytes]:
        return end_of_stream(self.inner, error)
