"""Requests about sessions and about other requests, which need no engine (formatters/control.py).

CANCEL ends what runs under an id, which is the client's or ours (headers.py). DJL tells nobody that a client has gone.
"""

from __future__ import annotations

import json
import logging

from ..formatters import Request, Response
from ..formatters.base import Payload
from ..formatters.common.fields import handle_unknown_field
from ..formatters.control import CANCEL, CLOSE, KIND, KINDS, NEW_SESSION, REQUEST_ID
from ..model.errors import Fault, NotFoundError, PayloadError, RequestCancelledError
from ..model.options import Settings
from .admission import Admission
from .sessions.requests import NOT_PARSED, Sessions

__all__ = ["Controller", "cancel"]

log = logging.getLogger(__name__)

MIN_ID = 16
"""Characters: whoever guesses another's id could end their request."""
FIELDS = (KIND, REQUEST_ID)


class Controller:
    """A Control of one service."""

    def __init__(self, settings: Settings, sessions: Sessions, admission: Admission) -> None:
        self._settings = settings
        self._sessions = sessions
        self._admission = admission

    def answer(self, payload: Payload, request: Request) -> Response:
        """See Control."""
        kind = payload[KIND]
        if kind not in KINDS:
            expected = f"request type must be one of {', '.join(KINDS)}"
            raise PayloadError(f"{NOT_PARSED}: invalid payload. {expected}", KIND)
        for name in payload:
            if name not in FIELDS:
                handle_unknown_field(name, FIELDS, self._settings)
        if kind == NEW_SESSION:
            return self._sessions.created()
        if kind == CLOSE:
            return self._sessions.closed(request)
        assert kind == CANCEL
        return Response(json.dumps({"result": cancel(self._admission, payload.get(REQUEST_ID))}).encode() + b"\n")


def cancel(admission: Admission, request_id: object) -> str:
    """Ends the requests that run under an id, and says so; raises PayloadError, NotFoundError."""
    if not isinstance(request_id, str) or len(request_id) < MIN_ID:
        expected = f"the id of a request, of {MIN_ID} characters or more (no shorter one can be cancelled)"
        raise PayloadError.of(REQUEST_ID, request_id, expected)
    found = admission.named(request_id)
    if not found:
        raise NotFoundError.because(Fault(REQUEST_ID, f"no request {request_id[:128]} is running here"))
    for exchange in found:
        exchange.expire(RequestCancelledError(f"the request was cancelled ({CANCEL})"))
    log.info("request %s cancelled", request_id[:128])
    return f"Request {request_id} cancelled"
