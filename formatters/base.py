"""What every dialect is made of: a request in, a parsed request out, and an encoder that turns events into records.

    Request --detect--> Dialect --parse--> ParsedRequest(generations, reply)
    Event, Event, ... --reply.feed--> record, record, ...

Nothing here does I/O, so that the rolling batch, the async mode and the local server share it, and tests feed it by
hand.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ..model.errors import LmiError
from ..model.events import Event
from ..model.former_names import former_names
from ..model.generation import Generation
from .client_fields import ClientFields
from .records import JSON, JSON_LINES, SSE, encode, event_record, line_record, named_record
from .response_store import ResponseStore
from .sessions import SESSION_HEADER, Session

__all__ = [
    "ATTRIBUTES_HEADER",
    "INVOCATIONS",
    "JSON",
    "JSON_LINES",
    "SSE",
    "ParsedRequest",
    "Payload",
    "Request",
    "Response",
    "ResponseEncoder",
    "attributes_of",
    "encode",
    "event_record",
    "line_record",
    "named_record",
    "named_session",
    "request_id_of",
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
    form: tuple[tuple[str, bytes], ...] | None = None
    """The parts of a form, where the host has taken it apart: there is no body then."""
    session: Session | None = None
    """The one that its header names, or that was made for it."""
    responses: ResponseStore | None = None
    """Where responses are kept; None: nowhere (option.response_store)."""
    way: Any = None
    """Where it leads, a Way (routing.py, `routed`); None: nobody has looked yet."""


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


def request_id_of(given: str | None) -> str:
    """A request's id: the one that came with it, or a new one where that could not stand in a header and in a log."""
    return given if given and _REQUEST_ID.fullmatch(given) else str(uuid.uuid4())


_REQUEST_ID = re.compile(r"[\w.:/+=@,;~-]{1,128}", re.ASCII)


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


DIALECT = f"{__package__}.dialect"
FORMER_NAMES = {
    "Answer": "Response",
    "Call": "ParsedRequest",
    "Described": f"{DIALECT}:OpenApi",
    "Format": f"{DIALECT}:Dialect",
    "Reply": "ResponseEncoder",
}
HERE_BEFORE = {name: f"{DIALECT}:{name}" for name in ("Dialect", "DialectShape", "OpenApi", "Route")}
if not TYPE_CHECKING:  # or type checkers would accept any name
    __getattr__ = former_names(__name__, FORMER_NAMES | HERE_BEFORE)
