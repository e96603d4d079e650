"""Whom the local server answers: web pages by Host, Origin and Sec-Fetch-Site; by which path and method. No sockets."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from starlette.routing import Route as HttpRoute
from starlette.testclient import TestClient

from lmi.handler.server.access import Access, allowed_names, allowed_origins

from ...kit.api.dialects import DIALECTS
from ...kit.api.errors import ForbiddenError, OptionError
from ...kit.api.handler import Service, application, started_service
from ...kit.rows import each_row
from ...kit.user_code.engine import ScriptedEngine

LAPTOP = allowed_names(["127.0.0.1"], [])
NAMED = allowed_names(["127.0.0.1"], ["model.example", "fd00::7"])

OURS = [
    "localhost", "localhost:8080", "LocalHost:8080", "localhost.", "localhost.:8080", "a.localhost:1", "127.0.0.1",
    "127.0.0.1:8080", "127.8.9.10:80", "[::1]", "[::1]:8080", "[::ffff:127.0.0.1]:80", "localhost:",
]  # fmt: skip
OTHERS = [
    "rebound.example", "rebound.example:8080", "localhost.example", "notlocalhost", "127.0.0.1.example",
    "10.0.0.1:8080", "0.0.0.0:8080", "[::2]:80", "", ":8080", "localhost:8080@rebound.example", "localhost:80:80",
    "[::1]rebound.example", "127.0.0.1, rebound.example", "localhost rebound.example", "[rebound.example]",
    "model.example:8080",
]  # fmt: skip


def refused(names: frozenset[str] | None, **headers: str) -> str | None:
    """Which header a request is refused for."""
    refusal = Access(names=names).refusal({name.replace("_", "-"): value for name, value in headers.items()})
    return None if refusal is None else refusal.param


@each_row("host", OURS)
def test_loopbacks_names_are_ours(host: str) -> None:
    assert refused(LAPTOP, host=host) is None
    assert refused(LAPTOP, host="localhost", origin=f"http://{host}") is None
    assert refused(NAMED, host=host) is None


@each_row("host", OTHERS)
def test_others_are_not(host: str) -> None:
    """The host's name of a page that had it resolved to this machine, and what only looks like ours."""
    assert refused(LAPTOP, host=host) == "Host"
    assert refused(LAPTOP, host="localhost", origin=f"https://{host}") == "Origin"
    assert refused(None, host=host, origin=f"https://{host}", sec_fetch_site="cross-site") is None


@each_row("host", ["model.example", "Model.Example:443", "[fd00::7]:8080", "[FD00::7]"])
def test_names_that_are_given_are_ours(host: str) -> None:
    assert refused(NAMED, host=host) is None
    assert refused(NAMED, host="localhost", origin=f"https://{host}") is None
    assert refused(LAPTOP, host=host) == "Host"


REQUESTS: dict[str, tuple[dict[str, str], str | None]] = {
    "curl": ({"host": "localhost:8080"}, None),
    "HTTP/1.0": ({}, None),
    "a page of ours": (
        {"host": "localhost:8080", "origin": "http://localhost:8080", "sec_fetch_site": "same-origin"}, None,
    ),
    "an image of ours": ({"host": "localhost:8080", "sec_fetch_site": "same-origin"}, None),
    "a page of another server on this machine": (
        {"host": "127.0.0.1:8080", "origin": "http://localhost:3000", "sec_fetch_site": "cross-site"}, None,
    ),
    "typed into the address bar": ({"host": "localhost:8080", "sec_fetch_site": "none"}, None),
    "an editor with a browser inside": ({"host": "localhost", "origin": "vscode-webview://1a2b"}, None),
    "a browser's extension": (
        {"host": "localhost", "origin": "chrome-extension://abc", "sec_fetch_site": "none"}, None,
    ),
    "another site's page": (
        {"host": "localhost:8080", "origin": "https://other.example", "sec_fetch_site": "cross-site"}, "Origin",
    ),
    "an old browser's": ({"host": "localhost:8080", "origin": "https://other.example"}, "Origin"),
    "a page in a sandbox": ({"host": "localhost:8080", "origin": "null"}, "Origin"),
    "another site's image, link or frame": (
        {"host": "localhost:8080", "sec_fetch_site": "cross-site"}, "Sec-Fetch-Site",
    ),
    "a page that had its name resolved to this machine": (
        {"host": "rebound.example", "origin": "http://rebound.example", "sec_fetch_site": "same-origin"}, "Host",
    ),
}  # fmt: skip


@each_row("who", REQUESTS)
def test_who_asks(who: str) -> None:
    headers, why = REQUESTS[who]
    assert refused(LAPTOP, **headers) == why
    assert refused(None, **headers) is None


@each_row(
    ("addresses", "given", "names"),
    [
        (["127.0.0.1"], [], frozenset[str]()),
        (["127.0.0.1", "::1"], [], frozenset[str]()),
        (["::1"], ["A.example:8080", "[fd00::7]"], frozenset({"a.example", "fd00::7"})),
        (["0.0.0.0"], [], None),
        (["::"], [], None),
        (["192.0.2.1"], ["a.example"], frozenset({"a.example"})),
        (["127.0.0.1"], ["a.example", "*"], None),
        (["0.0.0.0"], ["*"], None),
    ],
)
def test_names_of_a_server(addresses: list[str], given: list[str], names: frozenset[str] | None) -> None:
    """Bound to loopback it takes loopback's names, elsewhere any, unless it is told which."""
    assert allowed_names(addresses, given) == names


@each_row("given", ["", "http://a.example", "a.example/path", "a b", "a.example:http"])
def test_what_is_no_name(given: str) -> None:
    with pytest.raises(OptionError, match="--allowed-host"):
        allowed_names(["127.0.0.1"], [given])


AZURE = "?api-version=2024-05-01-preview"
ROUTES: dict[str, tuple[str, Any, Any]] = {
    "lmi": ("/invocations", {"inputs": "Hi"}, {"error", "code"}),
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}, {"error"}),
    "tgi": ("/generate", {"inputs": "Hi"}, {"error", "error_type"}),
    "azure": (f"/chat/completions{AZURE}", {"messages": []}, {"code", "error", "message", "param", "status"}),
    "minimal": ("/chat/completions", {"model": "any", "messages": []}, {"error"}),
}
PAGES = ["/v1/models", "/info", "/metrics", "/openapi.json"]


@contextlib.asynccontextmanager
async def served(
    engine: ScriptedEngine, access: Access, base_url: str, **headers: str
) -> AsyncIterator[httpx.AsyncClient]:
    app = application(started_service(engine), access)
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url=base_url, headers=headers) as http,
    ):
        yield http


def client(engine: ScriptedEngine) -> contextlib.AbstractAsyncContextManager[httpx.AsyncClient]:
    access = Access("a key", LAPTOP)
    return served(engine, access, "http://rebound.example:8080", Authorization="Bearer a key")


@each_row("route", ROUTES)
async def test_it_is_told_in_the_dialects_form(route: str) -> None:
    path, body, fields = ROUTES[route]
    engine = ScriptedEngine()
    async with client(engine) as http:
        answer = await http.post(path, json=body)
    assert answer.status_code == 403
    assert "www-authenticate" not in answer.headers
    assert set(answer.json()) == fields
    assert "Host: expected localhost, another name of the loopback interface, or " in answer.text
    assert "got 'rebound.example:8080'" in answer.text
    assert engine.generations == []


@each_row("path", PAGES)
async def test_pages_are_not_for_others_either(path: str) -> None:
    async with client(ScriptedEngine()) as http:
        answer = await http.get(path)
        assert answer.status_code == 403
        assert "Host: expected localhost" in answer.text
        assert (await http.get(path, headers={"Host": "localhost"})).status_code == 200


@pytest.mark.anyio
async def test_a_get_of_another_page_generates_nothing() -> None:
    """An image whose address is a request to the minimal dialect."""
    engine = ScriptedEngine()
    asked = {"request": '{"model": "any", "messages": [{"role": "user", "content": "Hi"}]}'}
    async with client(engine) as http:
        headers = {"Host": "localhost:8080", "Sec-Fetch-Site": "cross-site"}
        answer = await http.get("/chat/sse", params=asked, headers=headers)
    assert answer.text.startswith("event: error\ndata: ")
    assert "Sec-Fetch-Site: expected none, same-origin or same-site, got 'cross-site'" in answer.text
    assert engine.generations == []


@each_row("path", ["/ping", "/health"])
async def test_probes_ask_by_any_name(path: str) -> None:
    async with client(ScriptedEngine()) as http:
        answer = await http.get(path, headers={"Origin": "https://other.example", "Authorization": ""})
    assert answer.status_code == 200


def test_the_key_is_asked_for_of_those_who_may_ask() -> None:
    access = Access("a key", LAPTOP)
    assert isinstance(access.refusal({"host": "rebound.example"}), ForbiddenError)
    refusal = access.refusal({"host": "localhost"})
    assert refusal is not None
    assert refusal.status == 401
    # As OpenAI's, Azure's and Anthropic's clients have it.
    for name, value in (("authorization", "Bearer {}"), ("api-key", "{}"), ("x-api-key", "{}")):
        assert access.refusal({"host": "localhost", name: value.format("a key")}) is None
        assert access.refusal({"host": "localhost", name: value.format("another")}) is refusal


# --- By which path and by which method ---

KEY = "a key"
PATHS = ["/invocations", "/v1/chat/completions", "/generate", "/metrics", "/openapi.json"]


def keyed(key: str | None) -> contextlib.AbstractAsyncContextManager[httpx.AsyncClient]:
    return served(ScriptedEngine(), Access(key), "http://local")


@each_row("path", PATHS)
async def test_a_401_says_how_to_authenticate(path: str) -> None:
    """RFC 9110, 11.6.1."""
    async with keyed(KEY) as http:
        answer = await (http.get(path) if path in PATHS[-2:] else http.post(path, json={}))
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


@pytest.mark.anyio
async def test_without_the_key_azures_and_the_minimal_form() -> None:
    version = {"api-version": "2024-05-01-preview"}
    async with keyed(KEY) as http:
        refused = [
            await http.post("/chat/completions", params=version, json={}),
            await http.get("/info", params=version),
        ]
        for answer in refused:
            assert (answer.status_code, answer.headers["x-ms-error-code"]) == (401, "unauthorized")
            assert list(answer.json()) == ["error", "message", "status"]
        whole = await http.post("/chat/completions", json={})
        line = await http.post("/chat/completions", json={"stream": True})
        assert (whole.status_code, list(whole.json())) == (401, ["error"])
        assert (line.status_code, list(line.json())) == (401, ["error", "done"])
        for events in (await http.post("/chat/sse", json={}), await http.get("/chat/sse", params={"request": "{}"})):
            assert events.text.startswith("event: error\ndata: ")
            assert events.text.endswith("\n\ndata: [END]\n\n")


SENT = {
    # What clients make of a key that is not ASCII: curl, aiohttp and Anthropic's client, and then requests and urllib.
    "utf-8": ["clé", "voilà", "ключ", "鍵", "a key"],
    "latin-1": ["clé", "voilà", "a key"],
}


@each_row("header", ["Authorization: Bearer ", "authorization: bearer  ", "api-key: ", "x-api-key: "])
@each_row(("encoding", "key"), [(encoding, key) for encoding, keys in SENT.items() for key in keys])
async def test_a_key_as_clients_send_it(encoding: str, key: str, header: str) -> None:
    name, _, scheme = header.partition(": ")
    async with keyed(key) as http:
        for given, status in ((key, 200), (f"{key}x", 401), (key[:-1], 401), ("ÿ", 401), (f"{key}\xa0", 401)):
            headers = [(name.encode(), f"{scheme}{given}".encode(encoding))]
            assert (await http.get("/v1/models", headers=headers)).status_code == status, given


@pytest.mark.anyio
async def test_a_key_of_the_environment_that_is_no_utf8() -> None:
    """Its bytes are the key, as a shell has them."""
    async with keyed(os.fsdecode(b"cl\xe9")) as http:
        for given, status in ((b"cl\xe9", 200), ("clé".encode(), 401), (b"cl", 401)):
            assert (await http.get("/v1/models", headers=[(b"api-key", given)])).status_code == status


@pytest.mark.anyio
async def test_an_empty_key_lets_nobody_in() -> None:
    async with keyed("") as http:
        assert (await http.get("/v1/models")).status_code == 401


@pytest.mark.anyio
async def test_the_path_is_not_taken_from_the_host_header() -> None:
    """Some versions of Starlette put a request's URL together from it."""
    async with keyed(None) as http:
        answer = await http.get("/v1/models", headers={"host": "local/ping?"})
    assert answer.json()["object"] == "list"


# HEAD: of pages it is GET without the body; what starts a generation it does not start.

REQUEST = {"request": json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}]})}
GENERATING = {route.path for dialect in DIALECTS for route in dialect.routes if not route.page}


@pytest.fixture
def service() -> Iterator[Service]:
    made = started_service(ScriptedEngine())
    yield made
    made.close()


def test_a_head_starts_no_generation(service: Service) -> None:
    application_ = application(service, playground=False)
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


# --- CORS: pages of origins that are named ---

APP, OTHER = "https://app.example", "https://other.example"
ORIGINS = {
    APP: APP, "HTTPS://App.Example": APP, "https://app.example:443": APP, "http://app.example:80": "http://app.example",
    "http://10.0.0.7:8080": "http://10.0.0.7:8080", "http://[fd00::7]:80": "http://[fd00::7]",
    "chrome-extension://abc": "chrome-extension://abc", "*": "*",
}  # fmt: skip
NO_ORIGINS = [
    "",
    "null",
    "app.example",
    "https://",
    "https://app.example/",
    "https://a.example,https://b.example",
    "**",
]


@each_row("given", ORIGINS)
def test_an_origin_is_as_browsers_write_it(given: str) -> None:
    assert allowed_origins([given]) == {ORIGINS[given]}


@each_row("given", NO_ORIGINS)
def test_what_is_no_origin(given: str) -> None:
    with pytest.raises(OptionError, match=r"--allowed-origin .*: expected a page's scheme, name and port, as https://"):
        allowed_origins([APP, given])


def of_pages(*origins: str) -> contextlib.AbstractAsyncContextManager[httpx.AsyncClient]:
    """A server with a key, whose address is a loopback one."""
    return served(ScriptedEngine(), Access(KEY, LAPTOP, allowed_origins(origins)), "http://localhost:8080")


MARK = "access-control-allow-origin"
ASKING: list[tuple[list[str], str, int, str | None]] = [
    ([APP], APP, 200, APP), ([OTHER, APP], APP, 200, APP), ([APP], OTHER, 403, None), ([], APP, 403, None),
    (["*"], APP, 200, "*"), ([APP], "https://app.example:8443", 403, None), ([APP], "http://app.example", 403, None),
    ([APP], "https://app.example.other.example", 403, None), ([APP], "null", 403, None),
    ([APP], "http://localhost:3000", 200, None),
]  # fmt: skip


@each_row(("origins", "origin", "status", "told"), ASKING)
async def test_which_pages_may_read_the_answer(origins: list[str], origin: str, status: int, told: str | None) -> None:
    """Whatever the answer is; and none with what the browser knows of its user."""
    async with of_pages(*origins) as http:
        headers = {"Origin": origin, "Sec-Fetch-Site": "cross-site", "Authorization": f"Bearer {KEY}"}
        answer = await http.get("/v1/models", headers=headers)
        assert (answer.status_code, answer.headers.get(MARK)) == (status, told)
        refused = await http.post("/v1/chat/completions", json={}, headers={**headers, "Authorization": ""})
        assert (refused.status_code, refused.headers.get(MARK)) == (401 if status == 200 else status, told)
        for one in (answer, refused):
            assert "access-control-allow-credentials" not in one.headers
            # A cache is not to give one page's to another.
            assert told in (None, "*") or one.headers["vary"] == "Origin"


@each_row("path", ["/v1/chat/completions", "/nothing"])
@each_row(("origins", "origin", "told"), [(origins, origin, told) for origins, origin, _, told in ASKING])
async def test_what_browsers_ask_before(origins: list[str], origin: str, told: str | None, path: str) -> None:
    """A preflight: without the key, which no browser sends there."""
    async with of_pages(*origins) as http:
        asked = {
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type",
        }
        answer = await http.options(path, headers={"Origin": origin, **asked})
        assert answer.headers.get(MARK) == told
        assert (answer.status_code == 200) == (told is not None)
        if told is not None:
            assert answer.headers["access-control-allow-headers"] == "authorization,content-type"
            assert "POST" in answer.headers["access-control-allow-methods"]
        assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.anyio
async def test_a_page_that_is_named_asks_by_a_name_of_the_server_s() -> None:
    async with of_pages(APP) as http:
        headers = {"Origin": APP, "Host": "rebound.example", "Authorization": f"Bearer {KEY}"}
        assert (await http.get("/v1/models", headers=headers)).status_code == 403
