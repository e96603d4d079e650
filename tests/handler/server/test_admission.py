"""Who is let in, and by which path, without a socket."""

from __future__ import annotations

import httpx
import pytest

from lmi.handler.server.access import Access
from lmi.handler.server.app import application

from ...kit.api.handler import started_service
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
