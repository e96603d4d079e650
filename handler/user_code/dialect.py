"""A user's own dialect: an object of the shape of formatters.base.DialectShape, made safe to stand beside ours.

    module, class or object --dialect_of--> UserDialect: every call guarded, everything it gives checked

Its code may raise, or give what it may not: the request fails, with an error that names the function.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import Any, cast

import msgspec

from ...formatters import DIALECTS, Dialect, ParsedRequest, Request, Response, Route, fallback
from ...formatters.base import Payload, ResponseEncoder
from ...formatters.client_fields import ClientFields
from ...formatters.dialect import UNDESCRIBED, DialectShape, OpenApi, own_response
from ...model.engine import EngineInfo
from ...model.errors import LmiError, OptionError, UserCodeError
from ...model.events import Event
from ...model.generation import Generation
from ...model.options import Settings
from ..threads.pool import Workers
from .former_fields import with_former
from .loading import Function, kind_of, shown
from .safe_reply import GuardedEncoder, plain_error_line

__all__ = ["UserDialect", "dialect_of", "looks_like_dialect"]

log = logging.getLogger(__name__)

FORMER_NAMES = {"MARK": "BODY_FIELD", "DESCRIBED": "OPENAPI"}
FUNCTIONS = ("matches", "parse", "refuse")
TEXTS = ("NAME", "BODY_FIELD")
SHAPE = (*TEXTS, "ROUTES", *FUNCTIONS)
ARGUMENTS = 3
"""Of `matches` and `parse`; `refuse` takes one more."""
REPLY = ("status", "content_type", "headers", "failure", "finished", "feed")


def looks_like_dialect(found: object) -> bool:
    """Whether it is meant for a dialect: a module, or something that has part of a dialect's shape."""
    return isinstance(found, ModuleType) or any(hasattr(found, name) for name in SHAPE)


def dialect_of(found: object, label: str, workers: Workers, taken: tuple[Dialect, ...] = ()) -> UserDialect:
    """`found`, or an instance of it if it is a class, as a dialect; raises OptionError, which names what is missing."""
    if isinstance(found, type):
        try:
            found = found()
        except BaseException as error:
            raise OptionError(f"{label}: {shown(error)}", "output_formatter") from error
    _take_former_names(found)
    faults = _faults(found)
    if faults:
        raise OptionError(f"{label} is not a dialect: {'; '.join(faults)}", "output_formatter")
    shape = cast(DialectShape, found)
    if any(other.name == shape.NAME for other in (*taken, *DIALECTS)):
        raise OptionError(f"{label}: there is a dialect named {shape.NAME} already", "output_formatter")
    return _Guard(shape, workers).dialect(shape)


def _described(shape: DialectShape) -> tuple[OpenApi, ...]:
    """What a user's dialect says of requests that are detected by their bodies."""
    given = getattr(shape, "OPENAPI", None)
    return given if isinstance(given, tuple) and all(isinstance(one, OpenApi) for one in given) else (UNDESCRIBED,)


def _take_former_names(found: object) -> None:
    """Gives `found` today's names of constants that it has by the names that they had before."""
    for former, name in FORMER_NAMES.items():
        if hasattr(found, former) and not hasattr(found, name):
            log.warning("%s of a dialect is now called %s; the old name still works", former, name)
            setattr(found, name, getattr(found, former))


def _faults(found: object) -> list[str]:
    missing = [name for name in SHAPE if not hasattr(found, name)]
    faults = [f"it has no {', '.join(missing)}"] if missing else []
    for name in TEXTS:
        value = getattr(found, name, "there")
        # A dialect that is selected by its path alone has no such field.
        if not isinstance(value, str) or not (value or name == "BODY_FIELD"):
            faults.append(f"{name}: expected a non-empty string, got {value!r}")
    routes = getattr(found, "ROUTES", ())
    if not isinstance(routes, tuple) or not all(isinstance(route, Route) for route in routes):
        faults.append(f"ROUTES: expected a tuple of lmi.formatters.Route, got {routes!r}")
    there = [name for name in FUNCTIONS if hasattr(found, name)]
    return faults + [fault for name in there if (fault := _signature_fault(getattr(found, name), name))]


def _signature_fault(function: object, name: str) -> str | None:
    count = ARGUMENTS + (name == "refuse")
    if not callable(function):
        return f"{name}: expected a function, got {kind_of(function)}"
    if inspect.iscoroutinefunction(function):
        return f"{name}: expected a plain function, got a coroutine function"
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        expected = "(error, payload, request, settings)" if name == "refuse" else "(payload, request, settings)"
        return f"{name}: expected {name}{expected}, got {name}{inspect.signature(function)}"
    except ValueError:
        # Functions of extension modules may have no signature.
        return None
    return None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UserDialect(Dialect):
    """A Dialect whose functions are the user's."""


class _Guard:
    """The functions of a user's dialect, guarded."""

    def __init__(self, shape: DialectShape, workers: Workers) -> None:
        self._name = shape.NAME
        self._workers = workers
        self._matches = self._function(shape.matches, "matches")
        self._parse = self._function(shape.parse, "parse")
        self._refuse = self._function(shape.refuse, "refuse")

    def dialect(self, shape: DialectShape) -> UserDialect:
        """The dialect that has them."""
        return UserDialect(
            name=shape.NAME,
            body_field=shape.BODY_FIELD,
            routes=tuple(self._guarded(route) for route in shape.ROUTES),
            openapi=_described(shape),
            names_model=False,
            matches=self.matches,
            marks=None,
            parse=self.parse,
            refuse=self.refuse,
            for_formatters=own_response,
            read_file=None,
        )

    def _guarded(self, route: Route) -> Route:
        """The route, its own parse and its page checked."""
        if route.parse is not None:
            route = replace(route, parse=partial(self._parsed, self._function(route.parse, f"parse of {route.path}")))
        if route.page is None:
            return route
        page = self._function(route.page, f"page of {route.path}")

        def checked(request: Request, settings: Settings, info: EngineInfo) -> Response:
            answer = page(request, settings, info)
            if not isinstance(answer, Response) or not isinstance(answer.body, bytes):
                raise page.refuse(answer, "a Response with a body of bytes")
            return answer

        return replace(route, page=checked)

    def _function(self, function: Callable[..., Any], name: str) -> Function:
        return Function(function, f"dialect {self._name}: {name}", self._workers)

    def matches(self, payload: Payload, request: Request, settings: Settings) -> bool:
        """Whether the body is this dialect's; raises UserCodeError."""
        return bool(self._matches(payload, request, settings))

    def parse(self, payload: Payload, request: Request, settings: Settings) -> ParsedRequest:
        """The call, with a reply that cannot fail; raises RequestError or UserCodeError."""
        return self._parsed(self._parse, payload, request, settings)

    def _parsed(self, parse: Function, payload: Payload, request: Request, settings: Settings) -> ParsedRequest:
        call = parse(payload, request, settings)
        if not isinstance(call, ParsedRequest):
            raise parse.refuse(call, "a ParsedRequest")
        generations = tuple(_checked(parse, generation) for generation in call.generations)
        if not generations:
            raise UserCodeError(f"{parse.name} returned a ParsedRequest without a generation")
        if not isinstance(call.fields, ClientFields):
            raise parse.refuse(call.fields, "a ParsedRequest whose fields are ClientFields")
        missing = [name for name in REPLY if not hasattr(call.reply, name)]
        if missing:
            raise UserCodeError(f"{parse.name} returned a ParsedRequest whose reply has no {', '.join(missing)}")
        feed = self._function(call.reply.feed, f"{type(call.reply).__name__}.feed")
        reply = UserEncoder(call.reply, feed, lambda error: self.refuse(error, payload, request, settings))
        fields = with_former(call.fields, generations, self._name)
        return ParsedRequest(generations, reply, fields=fields, responses=call.responses)

    def refuse(self, error: LmiError, payload: Payload | None, request: Request, settings: Settings) -> Response:
        """The response for `error`, in a plain form if user code fails."""
        try:
            answer = self._refuse(error, payload, request, settings)
            if not isinstance(answer, Response) or not isinstance(answer.body, bytes):
                raise self._refuse.refuse(answer, "a Response with a body of bytes")
        except LmiError as failure:
            return fallback(settings).refuse(failure, None, request, settings)
        return answer


class UserEncoder(GuardedEncoder):
    """A reply of the user's."""

    def __init__(self, inner: ResponseEncoder, feed: Function, refuse: Callable[[LmiError], Response]) -> None:
        super().__init__(inner, refuse)
        self._feed = feed

    def end_of_stream(self, error: LmiError) -> list[bytes]:
        """The dialect's own words are user code."""
        self.finished, self.failure = True, error
        return plain_error_line(error)

    def _records(self, event: Event, prompt: int) -> Iterator[bytes]:
        records: Any = self._feed(event, prompt)
        if not isinstance(records, list) or not all(isinstance(record, bytes) for record in records):
            raise self._feed.refuse(records, "a list of bytes")
        inner = self._inner
        self.status, self.content_type, self.headers = _head(inner, self._feed)
        self.finished, self.failure = bool(inner.finished), inner.failure
        return filter(None, records)


def _head(inner: Any, feed: Function) -> tuple[int, str, Mapping[str, str]]:
    """Status, content type and headers, which hosts read later, on threads that user code must not fail on."""
    status, content_type, headers = inner.status, inner.content_type, dict(inner.headers)
    if not isinstance(status, int) or not isinstance(content_type, str):
        raise UserCodeError(f"{feed.name}: expected an int for status and a str for content_type of the reply")
    if not all(isinstance(text, str) for pair in headers.items() for text in pair):
        raise UserCodeError(f"{feed.name}: expected headers of the reply that are strings")
    return status, content_type, headers


_decode = msgspec.msgpack.Decoder(Generation).decode
"""Made here, once: where two threads are the first to ask msgspec for a type, one of them may crash or never return."""


def _checked(parse: Function, generation: object) -> Generation:
    """What would not survive the way to the engine's process must not be sent there: others use it too."""
    if not isinstance(generation, Generation):
        raise parse.refuse(generation, "a ParsedRequest of Generations")
    try:
        return _decode(msgspec.msgpack.encode(generation))
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
        raise UserCodeError(f"{parse.name} returned a wrong Generation: {error}") from None
