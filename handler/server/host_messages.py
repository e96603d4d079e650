"""What comes and goes in the management API of adapters (adapters.py): parameters, answers, and what is told of both.

Parameters are the query's, as DJL Serving has them, or the fields of a JSON object in the body, as plain vLLM images
do. To the first the answer is DJL Serving's, {"status": "Adapter a registered"}, to the second the text alone. Errors
are in DJL Serving's form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import Response as HttpResponse

from ...formatters import Response
from ...formatters.base import JSON, JsonSchema, OpenApi, encode
from ...formatters.common.schemas import STRING, objects
from ...model.errors import AdapterError, LmiError, ParameterError, PayloadError
from ..headers import headers_of
from .body_reading import fields_of

__all__ = ["OPENAPI", "PLACES", "AdapterList", "AdapterShown", "Call", "failure", "json_answer"]

ALIAS_HEADER = "X-Amzn-SageMaker-Adapter-Alias"
"""What messages are to call the adapter."""
TEXT = "text/plain"


class AdapterShown(msgspec.Struct, frozen=True):
    """What is told of an adapter (DescribeAdapterResponse)."""

    name: str
    src: str
    preload: bool
    pin: bool


class AdapterList(msgspec.Struct, frozen=True, rename="camel"):
    """Some of them (ListAdaptersResponse)."""

    adapters: list[AdapterShown]
    next_page_token: str | msgspec.UnsetType = msgspec.UNSET
    """Where the next ones begin, if there are more."""


class AdapterStatus(msgspec.Struct, frozen=True):
    """What has been done (StatusResponse)."""

    status: str


class AdapterFault(msgspec.Struct, frozen=True):
    """Why it has not been (ErrorResponse)."""

    code: int
    type: str
    message: str


class Call:
    """A request of the API."""

    def __init__(self, http: HttpRequest, body: bytes) -> None:
        """Raises RequestError for a body that is no JSON object."""
        self._query = http.query_params
        self._fields: Mapping[str, Any] = _fields(http, body)
        self.model: str | None = http.path_params.get("model")
        self.name: str = http.path_params.get("name", "")
        """The adapter's in the path."""
        self.alias = http.headers.get(ALIAS_HEADER) or None

    def text(self, name: str) -> str:
        """A parameter; empty where it is not given. Raises PayloadError."""
        given = self._given(name)
        if isinstance(given, str):
            return given
        raise PayloadError.of(name, given, "a string")

    def required(self, name: str) -> str:
        """A parameter that must be given; raises PayloadError, with DJL Serving's words."""
        if given := self.text(name):
            return given
        raise PayloadError(f"The parameter {name} is required", name)

    def switch(self, name: str) -> bool | None:
        """A parameter that is true or false; None where it is not given. Raises ParameterError."""
        given = self._given(name)
        if isinstance(given, bool):
            return given
        if isinstance(given, str) and given.lower() in {"", "true", "false"}:
            return given.lower() == "true" if given else None
        raise ParameterError.of(name, given, "true or false")

    def number(self, name: str, default: int) -> int:
        """A parameter of the query that is an integer; raises ParameterError."""
        given = self._query.get(name) or str(default)
        try:
            return int(given)
        except ValueError:
            raise ParameterError.of(name, given, "an integer") from None

    def shown(self, name: str) -> str:
        """What messages call the adapter `name`."""
        return self.alias or name

    def done(self, message: str) -> HttpResponse:
        """The answer where something has been done."""
        return HttpResponse(message, media_type=TEXT) if self._fields else json_answer(AdapterStatus(message))

    def _given(self, name: str) -> Any:
        given = self._fields.get(name)
        return self._query.get(name, "") if given is None else given


def _fields(http: HttpRequest, body: bytes) -> Mapping[str, Any]:
    return fields_of(http, body) if body.strip() else {}


def json_answer(value: msgspec.Struct) -> HttpResponse:
    """The answer that is `value`."""
    return HttpResponse(encode(value), media_type=JSON)


def failure(error: LmiError) -> HttpResponse:
    """The answer that is an error, with the name of Java's class for one of its status (NettyUtils.sendError).

    What is wrong with an adapter is 400, as in vLLM's images: 424 is for requests that name it.
    """
    status = 400 if error.status == AdapterError.status else error.status
    body = encode(AdapterFault(status, JAVA_NAMES.get(status, "BadRequestException"), error.message))
    return HttpResponse(body, status, headers_of(Response(body, status, failure=error)))


JAVA_NAMES = {409: "IllegalArgumentException", 503: "WlmException"}


# --- What /openapi.json tells ---

BOOLEAN: JsonSchema = {"type": "boolean"}
PARAMETERS: dict[str, JsonSchema] = {"name": STRING, "src": STRING, "preload": BOOLEAN, "pin": BOOLEAN}
CHANGES: dict[str, JsonSchema] = {name: PARAMETERS[name] for name in ("src", "preload", "pin")}
PAGES: dict[str, JsonSchema] = {"limit": {"type": "integer"}, "next_page_token": {"type": "integer"}}
ALIAS: dict[str, JsonSchema] = {ALIAS_HEADER: STRING}
DONE = {JSON: (AdapterStatus,), TEXT: (STRING,)}
FAULTS = {JSON: (AdapterFault,)}

_LIST = OpenApi("The adapters that are registered", answers={JSON: (AdapterList,)}, errors=FAULTS, query=PAGES)
_REGISTER = OpenApi(
    "Registers an adapter, of the folder src; returns when it is loaded",
    lambda _: objects(**PARAMETERS), DONE, FAULTS, ALIAS, query=PARAMETERS,
)  # fmt: skip
_DESCRIBE = OpenApi("An adapter", answers={JSON: (AdapterShown,)}, errors=FAULTS, headers=ALIAS)
_UNREGISTER = OpenApi("Takes an adapter away from later requests", None, {JSON: (AdapterStatus,)}, FAULTS, ALIAS)
_UPDATE = OpenApi(
    "Loads an adapter that was not to be, or pins it",
    lambda _: objects(**CHANGES), DONE, FAULTS, ALIAS, query=CHANGES,
)  # fmt: skip

PLACES = ("/adapters", "/models/{model}/adapters")
OPENAPI: Mapping[str, Mapping[str, OpenApi]] = {
    f"{place}{path}": methods
    for place in PLACES
    for path, methods in {
        "": {"GET": _LIST, "POST": _REGISTER},
        "/{name}": {"GET": _DESCRIBE, "DELETE": _UNREGISTER},
        "/{name}/update": {"POST": _UPDATE},
    }.items()
}
"""By path and method."""
