"""What a dialect is: how its requests are known, read and refused, its paths, and how /openapi.json describes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..model.engine import EngineInfo
from ..model.errors import LmiError, RequestError
from ..model.generation import Generation
from ..model.options import Settings
from .base import ParsedRequest, Payload, Request, Response, ResponseEncoder
from .records import JSON

__all__ = [
    "UNDESCRIBED",
    "Dialect",
    "DialectShape",
    "JsonSchema",
    "OpenApi",
    "Page",
    "Parse",
    "Route",
    "Way",
    "own_response",
    "variable_part",
]

Parse = Callable[[dict[str, Any], Request, Settings], ParsedRequest]
"""Makes what is to be generated of a body; raises RequestError."""

Page = Callable[[Request, Settings, EngineInfo], Response]
"""Answers a request without the engine: a list of models, say."""


JsonSchema = dict[str, Any]


def _generates(settings: Settings) -> bool:
    return not settings.pools


@dataclass(frozen=True, slots=True)
class OpenApi:
    """What is to be sent and what comes back, as the local server's /openapi.json describes it."""

    summary: str
    request: Callable[[Settings], JsonSchema] | None = None
    """The schema of the body; None: there is none."""
    answers: Mapping[str, tuple[Any, ...]] = field(default_factory=dict[str, "tuple[Any, ...]"])
    """By content type, what a body or a record of a stream may be: types that msgspec knows, or schemas; none: any."""
    errors: Mapping[str, tuple[Any, ...]] = field(default_factory=dict[str, "tuple[Any, ...]"])
    """The same for answers with another status than 200."""
    headers: Mapping[str, JsonSchema] = field(default_factory=dict[str, JsonSchema])
    """Headers that have a meaning here, all optional."""
    serves: Callable[[Settings], bool] = _generates
    """Whether it is for an endpoint with these settings, where the body decides the dialect."""
    query: Mapping[str, JsonSchema] = field(default_factory=dict[str, JsonSchema])
    """Parameters of the query, all optional; with them the body is too."""


@dataclass(frozen=True, slots=True)
class Route:
    """A path of the local server that is one dialect's own."""

    path: str
    """It may have a name in braces, which stands for a part that is not empty and may have slashes:
    `/v1/models/{id}`, `/v1/responses/{id}/cancel`."""
    methods: tuple[str, ...] = ("POST",)
    query: str | None = None
    """Only requests with this query parameter; such routes take precedence over those of the same path without one."""
    body: str | None = None
    """The query parameter that carries the body of a GET."""
    page: Page | None = None
    parse: Parse | None = None
    """What reads a body that comes on this path; None: the dialect's `parse`."""
    described: OpenApi | None = None

    def takes(self, request: Request) -> bool:
        """Whether the request is on this route."""
        if not self.has(request.path) or request.method not in self.methods:
            return False
        return self.query is None or self.query in request.query

    def has(self, path: str) -> bool:
        """Whether a path is this route's."""
        return path == self.path or bool(self.variable and variable_part(self.path, path))

    @property
    def variable(self) -> bool:
        """Whether a part of its path varies."""
        return "{" in self.path


def variable_part(pattern: str, path: str) -> str:
    """What stands in `path` in place of the name in braces of `pattern`, a Route's path; else nothing."""
    start, _, rest = pattern.partition("{")
    end = rest.partition("}")[2]
    there = path.startswith(start) and path.endswith(end) and len(path) > len(start) + len(end)
    return path[len(start) : len(path) - len(end)] if there else ""


@dataclass(frozen=True, slots=True)
class Way:
    """Where a request leads by its path, or by the route that it names."""

    dialect: Dialect | None = None
    route: Route | None = None
    """The dialect's; both are None where the body says which dialect it is."""
    error: RequestError | None = None
    """Why it leads nowhere: it names a route that is not there."""
    given: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Fields of the Request as they were, where it names a route by which they are others."""


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
    matches: Callable[[Payload, Request, Settings], bool] | None
    """Whether a body without an explicit dialect is this one's; asked where it has one of `marks`. None: it is."""
    parse: Callable[[Payload, Request, Settings], ParsedRequest]
    """The parsed request; raises RequestError."""
    refuse: Callable[[LmiError, Payload | None, Request, Settings], Response]
    """The response to a request that `parse` refused, or that could not be read (there is no body then)."""
    marks: frozenset[str] | None
    """The fields without any of which a body is not this one's; None: it may be anything."""
    for_formatters: Callable[[Generation, Settings], ResponseEncoder | None]
    """What output formatters of users get instead of the dialect's own response; None: that response."""
    read_file: Callable[[Request], Payload] | None
    """What reads a body that is a form or a file; None: its bodies are JSON."""


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


UNDESCRIBED = OpenApi("", lambda _: {"type": "object"}, {JSON: ()}, {JSON: ()})
"""For a dialect that has no description."""
