"""A user's dialect in one file: `{"shout": text}` to `{"shouted": TEXT}`, with a route, documents and refusals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from lmi.handler.api import (
    JSON,
    ClientFields,
    Delta,
    Event,
    Failed,
    Generation,
    LmiError,
    OpenApi,
    ParsedRequest,
    PayloadError,
    Request,
    Response,
    Route,
    encode,
)


class Shouted(msgspec.Struct):
    """The answer."""

    shouted: str


class Hushed(msgspec.Struct):
    """An error."""

    hushed: str


def request_schema(settings: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"shout": {"type": "string"}}, "required": ["shout"]}


@dataclass
class ShoutEncoder:
    """The answer in the making."""

    status: int = 200
    content_type: str = JSON
    headers: dict[str, str] = field(default_factory=dict[str, str])
    failure: LmiError | None = None
    finished: bool = False
    text: str = ""

    def feed(self, event: Event, prompt: int = 0) -> list[bytes]:
        if isinstance(event, Failed):
            self.finished, self.failure, self.status = True, event.error, event.error.status
            return [encode(Hushed(event.error.message))]
        if isinstance(event, Delta):
            self.text += event.text
            self.finished = event.finish is not None
        return [encode(Shouted(self.text.upper()))] if self.finished else []


class Shout:
    NAME = "shout"
    BODY_FIELD = "shout"
    OPENAPI = (OpenApi("The text, louder", request_schema, {JSON: (Shouted,)}, {JSON: (Hushed,)}),)
    ROUTES = (Route("/shout", described=OPENAPI[0]),)

    def matches(self, payload: dict[str, Any], request: Request, settings: Any) -> bool:
        return "shout" in payload

    def parse(self, payload: dict[str, Any], request: Request, settings: Any) -> ParsedRequest:
        text = payload.get("shout")
        if not isinstance(text, str):
            raise PayloadError.of("shout", text, "a string")
        return ParsedRequest(
            (Generation(request_id=request.request_id, prompt=text),),
            ShoutEncoder(),
            fields=ClientFields({"prompt": "shout"}),
        )

    def refuse(self, error: LmiError, payload: dict[str, Any] | None, request: Request, settings: Any) -> Response:
        return Response(encode(Hushed(error.message)), error.status, failure=error)
