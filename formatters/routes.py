"""The paths of dialects: what is on one, and how /openapi.json describes it. Others import these from base.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..model.engine import EngineInfo
from ..model.errors import RequestError
from ..model.options import Settings
from .records import JSON

if TYPE_CHECKING:
    from .base import Dialect, ParsedRequest, Request, Response

__all__ = ["UNDESCRIBED", "JsonSchema", "OpenApi", "Page", "Route", "Way", "variable_part"]

Parse = Callable[[dict[str, Any], "Request", Settings], "ParsedRequest"]
"""Makes what is to be generated of a body; raises RequestError."""

Page = Callable[["Request", Settings, EngineInfo], "Response"]
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

    @property
    def page(self) -> Page | None:
        """What answers it without the engine."""
        return self.route.page if self.route else None


UNDESCRIBED = OpenApi("", lambda _: {"type": "object"}, {JSON: ()}, {JSON: ()})
"""For a dialect that has no description."""
