"""What every dialect is made of: a request in, a parsed request out, and an encoder that turns events into records.

    Request --detect--> Dialect --parse--> ParsedRequest(generations, reply)
    Event, Event, ... --reply.feed--> record, record, ...

Nothing here does I/O, so that the rolling batch, the async mode and the local server share it, and tests feed it by
hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ..model.errors import LmiError
from ..model.events import Event
from ..model.former_names import former_names
from ..model.generation import Generation
from ..model.options import Settings
from .client_fields import ClientFields
from .records import JSON, JSON_LINES, SSE, encode, event_record, line_record, named_record
from .response_store import ResponseStore
from .routes import UNDESCRIBED, JsonSchema, OpenApi, Page, Route, Way, variable_part
from .sessions import SESSION_HEADER, Session

__all__ = [
    "ATTRIBUTES_HEADER",
    "INVOCATIONS",
    "JSON",
    "JSON_LINES",
    "SSE",
    "UNDESCRIBED",
    "Dialect",
    "DialectShape",
    "JsonSchema",
    "OpenApi",
    "Page",
    "ParsedRequest",
    "Payload",
    "Request",
    "Response",
    "ResponseEncoder",
    "Route",
    "Way",
    "attributes_of",
    "encode",
    "event_record",
    "line_record",
    "named_record",
    "named_session",
    "own_response",
    "variable_part",
]

INVOCATIONS = "/invocations"
"""The path of every dialect, and the only one of SageMaker's runtime API."""

Payload = dict[str, Any]
"""A request's body, decoded."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request as a host received it."""

    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """By lower-case name."""
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    attributes: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers, and the pairs of X-Amzn-SageMaker-Custom-Attributes, by name and by lower-case name: behind DJL Serving
    one cannot be told from the other."""
    path: str = INVOCATIONS
    method: str = "POST"
    request_id: str = ""
    session: Session | None = None
    """The one that its header names, or that was made for it."""
    responses: ResponseStore | None = None
    """Where responses are kept; None: nowhere (option.response_store)."""
    way: Way | None = None
    """Where it leads (routing.py, `routed`); None: nobody has looked yet."""


ATTRIBUTES_HEADER = "x-amzn-sagemaker-custom-attributes"
"""What `invoke_endpoint(CustomAttributes=...)` sends, in lower case."""


def attributes_of(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """A request's attributes: its headers, and the pairs `k=v;k=v` of its custom attributes, by name and by lower-case
    name. What comes later goes first.

    That is what DJL Serving makes of headers (RequestParser.parseRequest, 0.36): properties, of which no handler can
    tell any more how they came. What is no pair is left out.
    """
    attributes: dict[str, str] = {}
    for header, text in headers:
        if header.lower() == ATTRIBUTES_HEADER:
            pairs = (pair.partition("=") for pair in text.split(";"))
            found = {name.strip(): value.strip() for name, separator, value in pairs if separator}
        else:
            found = {header: text}
        attributes |= found
        attributes |= {name.lower(): value for name, value in found.items()}
    return attributes


def named_session(request: Request) -> str:
    """What the session header says, or empty; a custom attribute is the same, as behind DJL Serving."""
    return request.attributes.get(_SESSION) or request.headers.get(_SESSION, "")


_SESSION = SESSION_HEADER.lower()


@dataclass(frozen=True, slots=True)
class Response:
    """A complete response, made without the engine."""

    body: bytes
    status: int = 200
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    failure: LmiError | None = None
    """The error in it, for hosts that must render it in a form of their own."""
    dialect: str = ""
    """Its name, where `receive` or `refusal` gave the answer."""


class ResponseEncoder(Protocol):
    """Encodes the response to one request. All of a request's state is in its encoder."""

    @property
    def status(self) -> int:
        """The HTTP status; final once `feed` has returned the first record."""
        ...

    @property
    def content_type(self) -> str:
        """Final once `feed` has returned the first record, like `headers`."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Further headers."""
        ...

    @property
    def failure(self) -> LmiError | None:
        """The error that ended the request, for hosts that must render it in a form of their own."""
        ...

    @property
    def finished(self) -> bool:
        """Whether `feed` has returned the last record; later events are not to be fed."""
        ...

    def feed(self, event: Event, prompt: int = 0) -> list[bytes]:
        """The records that `event` of generation number `prompt` completes, none of them empty.

        A record is what must not be split: a JSON line, a server-sent event, a whole body. The records of a
        request, joined, are its body, whatever the split of tokens into events.
        """
        ...


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """A request that was understood: what to generate, and what to make of it."""

    generations: tuple[Generation, ...]
    reply: ResponseEncoder
    dialect: str = ""
    """Its name, where `receive` made the call."""
    stream: bool | None = None
    """Whether the client gets a stream, where that is not what its generations say."""
    fields: ClientFields = field(default_factory=ClientFields)
    """What the client calls what the engine may find wrong with its generations."""
    responses: ResponseStore | None = None
    """Where the response goes that its encoder has to be kept at its end (response_store.py)."""

    @property
    def streamed(self) -> bool:
        """Whether the client gets a stream."""
        return any(generation.stream for generation in self.generations) if self.stream is None else self.stream


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dialect:
    """A dialect: how its requests are known, read and refused. All of ours are in table.py."""

    name: str
    """What `option.dialect` and the request attribute `dialect` call it."""
    body_field: str
    """The field of the body that `matches` goes by, named in the error when no dialect matches, or empty."""
    routes: tuple[Route, ...]
    """The paths that select this dialect, before the body is read."""
    openapi: tuple[OpenApi, ...]
    """What describes requests that are detected by their bodies."""
    names_model: bool
    """Whether the body's `model` may name an adapter."""
    matches: Callable[[Payload, Request, Settings], bool]
    """Whether a body without an explicit dialect is this one's."""
    parse: Callable[[Payload, Request, Settings], ParsedRequest]
    """The parsed request; raises RequestError."""
    refuse: Callable[[LmiError, Payload | None, Request, Settings], Response]
    """The response to a request that `parse` refused, or that could not be read (there is no body then)."""
    for_formatters: Callable[[Generation, Settings], ResponseEncoder | None]
    """What output formatters of users get instead of the dialect's own response; None: that response."""


def own_response(generation: Generation, settings: Settings) -> None:
    """For `for_formatters`: output formatters of users get the dialect's own response."""


class DialectShape(Protocol):
    """What a dialect of a user's own has: a module, a class or an object with these names.

    `OPENAPI: tuple[OpenApi, ...]` may describe requests that are detected by their bodies.
    """

    NAME: str
    """What `option.dialect` and the request attribute `dialect` call it."""
    BODY_FIELD: str
    """The field of the body that `matches` goes by, named in the error when no dialect matches, or empty."""
    ROUTES: tuple[Route, ...]
    """The paths that select this dialect, before the body is read."""

    def matches(self, payload: Payload, request: Request, settings: Settings) -> bool:
        """Whether a body without an explicit dialect is this one's."""
        ...

    def parse(self, payload: Payload, request: Request, settings: Settings) -> ParsedRequest:
        """The parsed request; raises RequestError."""
        ...

    def refuse(self, error: LmiError, payload: Payload | None, request: Request, settings: Settings) -> Response:
        """The response to a request that `parse` refused, or that could not be read (`payload` is None then)."""
        ...


FORMER_NAMES = {
    "Answer": "Response",
    "Call": "ParsedRequest",
    "Described": "OpenApi",
    "Format": "Dialect",
    "Reply": "ResponseEncoder",
}
if not TYPE_CHECKING:  # or type checkers would accept any name
    __getattr__ = former_names(__name__, FORMER_NAMES)
