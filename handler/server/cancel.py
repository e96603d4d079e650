"""POST /cancel {"request_id": "..."}: ends a running request, as a body with `requestType` CANCEL does (control.py).

{"result": "Request ... cancelled"}    200
no such request is running             404
the id is too short, or is none        400
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response as HttpResponse

from ...formatters.base import JSON
from ...formatters.common.schemas import STRING, objects
from ...formatters.control import REQUEST_ID
from ...formatters.dialect import OpenApi
from ...model.errors import LmiError
from ..control import cancel
from ..service import Service
from .access import Access
from .body_reading import MAX_CALL, Bodies, EarlyResponse, fields_of, read_call
from .host_messages import AdapterFault, failure, json_answer
from .paths import HttpRoute

__all__ = ["OPENAPI", "cancel_route"]

PATH = "/cancel"


class Cancelled(msgspec.Struct, frozen=True):
    """What has been done."""

    result: str


def cancel_route(service: Service, access: Access, bodies: Bodies) -> HttpRoute:
    """The route of one service."""

    async def endpoint(http: HttpRequest) -> HttpResponse:
        try:
            if refused := access.refusal(http.headers):
                raise refused
            body = await read_call(http, bodies)
        except ClientDisconnect:
            # Nobody reads it.
            return HttpResponse(status_code=400)
        except LmiError as error:
            return EarlyResponse(failure(error), MAX_CALL)
        try:
            payload = fields_of(http, body)
            return json_answer(Cancelled(cancel(service.admission, payload.get(REQUEST_ID))))
        except LmiError as error:
            return failure(error)

    return HttpRoute(PATH, endpoint, methods=["POST"])


OPENAPI: Mapping[str, Mapping[str, OpenApi]] = {
    PATH: {
        "POST": OpenApi(
            "Ends a running request by its id, of 16 characters or more",
            lambda _: objects(**{REQUEST_ID: STRING}),
            {JSON: (Cancelled,)},
            {JSON: (AdapterFault,)},
        )
    }
}
