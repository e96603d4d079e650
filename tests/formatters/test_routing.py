"""`route=PATH` in the custom attributes: every path of every dialect from every other one, and what is no such path."""

from __future__ import annotations

import json
from typing import Any

from lmi.formatters import DIALECTS, Dialect, ParsedRequest, Request, Response, detect, receive, refusal
from lmi.formatters.routing import misrouted, routed

from ..kit.api.dialects import named, route_of
from ..kit.api.errors import NotFoundError, OverloadedError, PayloadError, RequestError
from ..kit.api.handler import attributes_of
from ..kit.api.options import typed_settings
from ..kit.api.types import Route
from ..kit.rows import each_row

azure, minimal, openai, responses, tgi = map(named, ("azure", "minimal", "openai", "responses", "tgi"))

SETTINGS = typed_settings()
VERSION = "api-version=2024-05-01-preview"
ASK = [{"role": "user", "content": "Hello"}]

OWN = [(known, route) for known in DIALECTS for route in known.routes]


def asked(attributes: str, **request: Any) -> Request:
    headers = [("X-Amzn-SageMaker-Custom-Attributes", attributes)]
    return Request(b"", **{"attributes": attributes_of(headers), **request})


@each_row(("dialect", "route"), OWN, ids=[f"{known.name}{route.path}" for known, route in OWN])
def test_every_route_is_found_from_the_one_path(dialect: Dialect, route: Route) -> None:
    name = f"{route.path}?{VERSION}" if route.query else route.path
    if route.methods == ("DELETE",):
        name = f"DELETE {name}"
    request = routed(asked(f"trace=a; route={name}"))
    assert request.way is not None
    assert (request.way.dialect, request.way.route) == (dialect, route)
    assert request.path == route.path
    # As a request that comes on that path, by a method that it has.
    assert request.method in route.methods
    assert route_of(request) == (dialect, route)
    assert detect({}, request, typed_settings(dialect="lmi")) is dialect
    assert routed(request) is request


@each_row(
    ("attributes", "request_", "path", "dialect"),
    [
        ("dialect=tgi", {}, "/invocations", None),
        ("route=", {}, "/invocations", None),
        ("route=/invocations", {}, "/invocations", None),
        ("route=/invocations", {"path": "/v1/completions"}, "/invocations", None),
        ("route=/invocations;dialect=openai", {}, "/invocations", None),
        (f"route=/invocations?{VERSION}", {}, "/invocations", azure),
        ("route=/v1/completions", {"path": "/generate"}, "/v1/completions", openai),
        ("route=/v1/completions;dialect=openai", {}, "/v1/completions", openai),
        ("Route = /v1/completions", {}, "/v1/completions", openai),
        ("route=/chat/completions", {}, "/chat/completions", minimal),
        (f"route=/chat/completions?{VERSION}", {}, "/chat/completions", azure),
        ("route=/chat/completions", {"query": {"api-version": "1"}}, "/chat/completions", azure),
        # Whose it is the request says: neither needs the query.
        ("route=/chat/completions;dialect=azure", {}, "/chat/completions", azure),
        ("route=/info;dialect=azure", {}, "/info", azure),
        ("route=/info", {}, "/info", tgi),
        ("route=/v1/responses/resp_1", {}, "/v1/responses/resp_1", responses),
        ("route=GET /v1/models", {}, "/v1/models", openai),
        ("route=DELETE /v1/responses/resp_1", {}, "/v1/responses/resp_1", responses),
        ("route=/v1/models/owner/name", {}, "/v1/models/owner/name", openai),
        ("route=/v1/models/a%20b%3Fc", {}, "/v1/models/a b?c", openai),
        ("", {"path": "/v1/models/name", "method": "GET"}, "/v1/models/name", openai),
        ("", {"path": "/v1/models/name"}, "/v1/models/name", None),
        ("route=/", {}, "/", tgi),
        ("", {"path": "/generate"}, "/generate", tgi),
    ],
)
def test_what_goes_first(attributes: str, request_: dict[str, Any], path: str, dialect: Dialect | None) -> None:
    request = routed(asked(attributes, **request_))
    assert (request.path, request.way and request.way.dialect) == (path, dialect)


def test_the_query_is_the_routes_beside_the_requests() -> None:
    request = routed(asked(f"route=/chat/completions?{VERSION}&a=", query={"adapter": "x", "a": "1"}))
    assert request.query == {"adapter": "x", "api-version": "2024-05-01-preview", "a": ""}


def test_a_header_of_that_name_is_the_attribute() -> None:
    """Behind DJL one cannot be told from the other."""
    request = Request(b"", attributes=attributes_of([("route", "/generate")]))
    assert routed(request).path == "/generate"


def misroute(attributes: str) -> RequestError:
    """Why a request is on no route."""
    request = routed(asked(attributes))
    assert request.path == "/invocations"
    assert request.way is not None
    error = request.way.error
    assert isinstance(error, RequestError)
    return error


SEPARATED = "(custom attributes are separated by semicolons)"
EVERY = (
    "/invocations, /chat/completions?api-version=..., /invocations?api-version=..., /info?api-version=..., "
    "/completions?api-version=..., /embeddings?api-version=..., /images/embeddings?api-version=..., "
    "/images/generations?api-version=..., /rerank, /v1/rerank, /v2/rerank, /score, /v1/score, /classify, /predict, "
    "/generate, /generate_stream, /, /info, /v1/messages, /v1/messages/count_tokens, /v1/responses, "
    "/v1/responses/input_tokens, /v1/responses/{id}, /v1/responses/{id}/input_items, /v1/responses/{id}/cancel, "
    "/v1/responses/compact, /v1/chat/completions, /v1/completions, /v1/embeddings, /v1/models, /v1/models/{id}, "
    "/version, /chat/completions, /chat/sse, /tokenize, /detokenize, /v1/audio/transcriptions, /v1/audio/translations"
)


@each_row(
    ("attributes", "error"),
    [
        ("route=/v1/nothing", f"route: expected one of {EVERY}, got '/v1/nothing'"),
        ("route=/v1/completions/", f"route: expected one of {EVERY}, got '/v1/completions/'"),
        ("route=/embeddings", f"route: expected one of {EVERY}, got '/embeddings'"),
        ("route=DELETE /v1/models", f"route: expected one of {EVERY}, got 'DELETE /v1/models'"),
        (
            "route=/generate,dialect=tgi",
            f"route: expected one of {EVERY} {SEPARATED}, got '/generate,dialect=tgi'",
        ),
    ],
)
def test_a_path_that_no_dialect_has(attributes: str, error: str) -> None:
    found = misroute(attributes)
    assert isinstance(found, NotFoundError)
    assert found.message == error
    answer = misrouted(found)
    assert (answer.status, json.loads(answer.body)) == (404, {"error": found.message, "code": 404})


@each_row(
    ("attributes", "error"),
    [
        ("route=/generate;dialect=openai", "dialect: expected tgi, whose route /generate is, got 'openai'"),
        ("route=/info;dialect=lmi", "dialect: expected azure or tgi, whose route /info is, got 'lmi'"),
        ("route=/v1/models;dialect=odd", "dialect: expected openai, whose route /v1/models is, got 'odd'"),
    ],
)
def test_a_dialect_that_contradicts(attributes: str, error: str) -> None:
    found = misroute(attributes)
    assert isinstance(found, PayloadError)
    assert (found.message, misrouted(found).status) == (error, 400)


@each_row(("body", "dialect"), [({"inputs": "a"}, "lmi"), ({"messages": ASK}, "openai")], ids=str)
def test_a_host_that_refuses_it_early_tells_by_the_body(body: dict[str, Any], dialect: str) -> None:
    request = Request(json.dumps(body).encode(), attributes={"route": "/v1/nothing"}, path="/generate")
    assert refusal(OverloadedError("full"), request, SETTINGS).dialect == dialect


def test_a_host_that_refuses_it_early_tells_by_the_route() -> None:
    request = asked("route=/generate")
    answer = refusal(OverloadedError("full"), Request(b"{}", attributes=request.attributes), SETTINGS)
    assert (answer.dialect, list(json.loads(answer.body))) == ("tgi", ["error", "error_type"])


def test_a_route_behind_a_comma_is_not_overlooked() -> None:
    answer = receive(Request(b'{"inputs": "a"}', attributes={"trace": "abc,route=/generate"}), SETTINGS)
    assert isinstance(answer, Response)
    assert "expected a semicolon before route" in answer.body.decode()


@each_row(
    ("route", "body"),
    [
        ("/v1/chat/completions", {"messages": ASK, "prompt": "not read"}),
        ("/v1/completions", {"prompt": "Hello", "messages": ASK}),
        ("/generate", {"inputs": "Hello", "stream": True}),
        ("/generate_stream", {"inputs": "Hello"}),
        ("/chat/sse", {"model": "m", "messages": ASK}),
        ("/chat/completions", {"model": "m", "messages": ASK}),
        (f"/chat/completions?{VERSION}", {"messages": ASK}),
    ],
)
def test_the_dialect_reads_it_as_on_its_path(route: str, body: dict[str, Any]) -> None:
    request = routed(Request(json.dumps(body).encode(), attributes={"route": route}))
    call = receive(request, SETTINGS)
    assert isinstance(call, ParsedRequest), call
    assert request.way is not None
    assert request.way.dialect is not None
    assert call.dialect == request.way.dialect.name
    assert call.generations[0].stream == (route in ("/generate_stream", "/chat/sse"))
