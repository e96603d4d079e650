"""Which path of a dialect's a request is on: the one that it came on, or that its attribute `route` names.

    request --routed--> the same as if it had come on that path, with its Way

A host with one path, as SageMaker's /invocations, so reaches every route: `route=/v1/completions` in the custom
attributes, as AWS's images of vLLM take it, encoded as a URL is. A query may follow:
`route=/info?api-version=2024-05-01`. The method is the route's own, where a path has several the one that stands before
it: `route=DELETE /v1/responses/resp_1`. What goes first: `route`, then `dialect`, the path, the body; a `dialect` that
has no such path is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import parse_qsl, unquote

from ..model.errors import NotFoundError, PayloadError, RequestError
from .base import INVOCATIONS, Request, Response, encode
from .dialect import Dialect, Route, Way
from .table import DIALECTS

__all__ = ["INVOCATIONS", "ROUTE", "Found", "as_given", "misrouted", "route_of", "routed", "way_of"]

Found = tuple[Dialect, Route]

ROUTE = "route"
"""The attribute, in lower case."""


def route_of(request: Request, user_dialects: Sequence[Dialect] = ()) -> Found | None:
    """The dialect that has a route of its own for the request's path, and the route."""
    taking = [(known, route) for known in user_dialects for route in known.routes if route.takes(request)]
    for found in _ours(request.path):
        if request.method in found[1].methods and _asks_for(found[1], request):
            taking.append(found)  # noqa: PERF401 - most requests have one
    return min(taking, key=_by_query, default=None)


EVERY: list[Found] = [(known, route) for known in DIALECTS for route in known.routes]
"""Our dialects' routes."""
VARIABLE = sorted((found for found in EVERY if found[1].variable), key=lambda found: -len(found[1].path))
"""Those of which a part varies, the most special first: /v1/responses/{id}/cancel before /v1/responses/{id}."""
FIXED: dict[str, list[Found]] = {}
"""The others, by their paths."""
for _found in EVERY:
    if not _found[1].variable:
        FIXED.setdefault(_found[1].path, []).append(_found)


def _ours(path: str) -> list[Found]:
    """Those of our routes that have a path."""
    if (fixed := FIXED.get(path)) is not None:
        return fixed
    there = [found for found in VARIABLE if found[1].has(path)]
    return [found for found in there if found[1].path == there[0][1].path]


def _by_query(found: Found) -> bool:
    return found[1].query is None


def routed(request: Request, user_dialects: Sequence[Dialect] = ()) -> Request:
    """The request with its `way`, as if it had come on the path that it names; the same one where it has a way already.

    One that names a route which is not there, or a dialect which does not have it, is on every dialect's path.
    """
    if request.way is not None:
        return request
    given = request.attributes.get(ROUTE)
    if not given:
        found = route_of(request, user_dialects)
        return replace(request, way=Way(found[0], found[1]) if found else ANY)
    try:
        named = _named(given, request, user_dialects)
    except RequestError as error:
        named = replace(request, path=INVOCATIONS, way=Way(error=error))
    before = {name: getattr(request, name) for name in ("path", "method", "query", "attributes")}
    return replace(named, way=replace(named.way, given=before))


def as_given(request: Request) -> Request:
    """The request as it came, whatever route it names."""
    return replace(request, **way_of(request).given)


ANY = Way()
"""Any dialect's: the body says which."""


def way_of(request: Request, user_dialects: Sequence[Dialect] = ()) -> Way:
    """The request's way, of one that may not have been routed yet."""
    way: Way = request.way or routed(request, user_dialects).way
    return way


def _named(given: str, request: Request, user_dialects: Sequence[Dialect]) -> Request:
    """Raises NotFoundError for a path that no dialect has, PayloadError for a dialect that is named too and does not
    have it.
    """
    method, path, query = _parts(given)
    request = replace(request, path=path, query={**request.query, **dict(parse_qsl(query, keep_blank_values=True))})
    there = [(known, one) for known in user_dialects for one in known.routes if one.has(path)] + _ours(path)
    named = request.attributes.get("dialect")
    # A dialect that is named needs no query to be told from another.
    taking = [one for one in there if (_asks_for(one[1], request) if not named else named == one[0].name)]
    taking = [one for one in taking if not method or method in one[1].methods]
    if path == INVOCATIONS and not taking:
        # Any dialect's, in whichever way the request says it.
        return replace(request, method="POST", way=ANY)
    if not taking:
        raise _unknown(given, named, there, user_dialects)
    dialect, route = min(taking, key=_by_query)
    method = method or ("POST" if "POST" in route.methods else route.methods[0])
    attributes = {**request.attributes, "dialect": dialect.name}
    return replace(request, method=method, attributes=attributes, way=Way(dialect, route))


METHODS = ("GET", "POST", "DELETE")


def _parts(given: str) -> tuple[str, str, str]:
    """The method, which may be empty, the path and the query."""
    method, _, rest = given.partition(" ")
    if method not in METHODS:
        method, rest = "", given
    path, _, query = rest.partition("?")
    return method, unquote(path), query


def _asks_for(route: Route, request: Request) -> bool:
    return route.query is None or route.query in request.query


def _unknown(given: str, named: str | None, there: Sequence[Found], user_dialects: Sequence[Dialect]) -> RequestError:
    if named and there:
        names = " or ".join(dict.fromkeys(known.name for known, _ in there))
        return PayloadError.of("dialect", named, f"{names}, whose route {given} is")
    every = [route for known in (*user_dialects, *DIALECTS) for route in known.routes]
    paths = dict.fromkeys([INVOCATIONS, *(one.path + (f"?{one.query}=..." if one.query else "") for one in every)])
    separated = " (custom attributes are separated by semicolons)" if "," in given else ""
    return NotFoundError.of(ROUTE, given, "one of " + ", ".join(paths) + separated)


def misrouted(error: RequestError) -> Response:
    """The answer to a request that names a route which is not there: no dialect's form, but that of DJL Serving."""
    return Response(encode({"error": error.message, "code": error.status}), error.status, failure=error)
