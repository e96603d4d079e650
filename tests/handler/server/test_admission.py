"""Who is let in, by which path and by which method, without a socket."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest
from starlette.routing import Route as HttpRoute
from starlette.testclient import TestClient

from lmi.handler.server.access import Access
from lmi.handler.server.app import application

from ...kit.api.dialects import DIALECTS
from ...kit.api.handler import Service, started_service
from ...kit.user_code.engine import ScriptedEngine

KEY = "a key"
PATHS = ["/invocations", "/v1/chat/completions", "/generate", "/metrics", "/openapi.json"]


def client(key: str | None) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(application(started_service(ScriptedEngine()), Access(key)))
    return httpx.AsyncClient(transport=transport, base_url="http://local")


@pytest.mark.anyio
@pytest.mark.parametrize("path", PATHS)
async def test_a_401_says_how_to_authenticate(path: str) -> None:
    """RFC 9110, 11.6.1."""
    async with client(KEY) as http:
        answer = await (http.get(path) if path in PATHS[-2:] else http.post(path, json={}))
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


@pytest.mark.anyio
async def test_an_empty_key_lets_nobody_in() -> None:
    async with client("") as http:
        assert (await http.get("/v1/models")).status_code == 401


@pytest.mark.anyio
async def test_the_path_is_not_taken_from_the_host_header() -> None:
    """Some versions of Starlette put a request's URL together from it."""
    async with client(None) as http:
        answer = await http.get("/v1/models", headers={"host": "local/ping?"})
    assert answer.json()["object"] == "list"


# HEAD: of pages it is GET without the body; what starts a generation it does not start.

REQUEST = {"request": json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}]})}
GENERATING = {route.path for dialect in DIALECTS for route in dialect.ROUTES if not route.page}


@pytest.fixture
def service() -> Iterator[Service]:
    made = started_service(ScriptedEngine())
    yield made
    made.close()


def test_a_head_starts_no_generation(service: Service) -> None:
    application_ = application(service)
    with TestClient(application_) as http:
        paths = [
            route.path
            for route in application_.routes
            if isinstance(route, HttpRoute) and "HEAD" in (route.methods or ()) and route.path in GENERATING
        ]
        assert paths == ["/chat/sse"]
        for path in paths:
            for query in ({}, REQUEST):
                answer = http.head(path, params=query)
                assert (answer.status_code, answer.headers["allow"], answer.content) == (405, "GET, POST", b"")
    assert isinstance(service.engine, ScriptedEngine)
    assert service.engine.generations == []


def test_a_head_of_a_page_is_its_get(service: Service) -> None:
    with TestClient(application(service)) as http:
        for path in ("/ping", "/v1/models", "/info"):
            got, head = http.get(path), http.head(path)
            assert head.status_code == got.status_code == 200
            assert head.headers["content-length"] == got.headers["content-length"]
            assert head.content == b""
