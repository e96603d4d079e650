"""The management API of adapters on the local server, with an engine that says what it is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from ...kit.adapters import LLAMA, write_adapter
from ...kit.api.errors import LmiError, NoSlotError, UnavailableError
from ...kit.api.handler import Access, Service, application, started_service
from ...kit.api.types import Delta, EngineEvent, Finish, Started, Token
from ...kit.user_code.engine import ScriptedEngine
from ...kit.waiting import until_async

pytestmark = pytest.mark.anyio

KEY = "a key"
ALIAS = "X-Amzn-SageMaker-Adapter-Alias"
HELLO: list[EngineEvent] = [Started(1), Delta(0, "Hello", finish=Finish("eos", generated_tokens=1))]
NAMES = frozenset({"local"})


class Server:
    """A model directory that is served."""

    def __init__(self, folder: Path, http: httpx.AsyncClient, service: Service, engine: ScriptedEngine) -> None:
        self.folder = folder
        self.http = http
        self.service = service
        self.engine = engine

    def adapter(self, name: str, **config: Any) -> str:
        """An adapter's folder, beside the model directory."""
        return str(write_adapter(self.folder.parent / name, LLAMA, **config))

    async def register(self, name: str, source: str | None = None, **more: Any) -> httpx.Response:
        """By the query."""
        params = {"name": name, "src": source or self.adapter(name), **more}
        return await self.http.post("/adapters", params=params)

    async def ask(self, name: str, **more: Any) -> httpx.Response:
        return await self.http.post("/invocations", json={"inputs": "Hi", "adapters": name, **more})

    async def listed(self) -> list[str]:
        answer = await self.http.get("/adapters")
        return [one["name"] for one in answer.json()["adapters"]]

    def kept(self) -> set[str]:
        """What the next start would have."""
        file = self.folder / ".lmi" / "adapters.json"
        return set(json.loads(file.read_text())) if file.exists() else set()


def model_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir(exist_ok=True)
    folder.joinpath("config.json").write_text(json.dumps(LLAMA))
    return folder


@asynccontextmanager
async def serving(tmp_path: Path, access: Access | None = None, **options: str) -> AsyncIterator[Server]:
    folder, engine = model_dir(tmp_path), ScriptedEngine()
    engine.submit_then = [*HELLO]
    service = started_service(engine, folder, **{"enable_lora": "true", **options})
    app = application(service, access or Access())
    http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://local")
    try:
        async with app.router.lifespan_context(app), http:
            yield Server(folder, http, service, engine)
    finally:
        service.close()


def fault(answer: httpx.Response) -> tuple[int, str]:
    """Status and message of an error, which must be in DJL Serving's form."""
    body = answer.json()
    assert list(body) == ["code", "type", "message"]
    assert (answer.headers["content-type"], body["code"]) == ("application/json", answer.status_code)
    return answer.status_code, body["message"]


# --- What can be done ---


@pytest.mark.parametrize(
    ("place", "name"), [("/adapters", "a/update"), ("/models/model/adapters", "org/a"), ("/models/llama/adapters", "a")]
)
async def test_the_life_of_an_adapter(tmp_path: Path, place: str, name: str) -> None:
    async with serving(tmp_path, served_model_name="llama") as server:
        http, source = server.http, server.adapter("a")
        shown = {"name": name, "src": source, "preload": True, "pin": False}
        registered = await http.post(place, params={"name": name, "src": source})
        assert (registered.status_code, registered.json()) == (200, {"status": f"Adapter {name} registered"})
        assert (await http.get(place)).json() == {"adapters": [shown]}
        assert (await http.get(f"{place}/{name}")).json() == shown
        assert (await http.head(f"{place}/{name}")).status_code == 200
        assert (await server.ask(name)).json() == {"generated_text": "Hello"}
        assert server.engine.generations[-1].adapter == f"{name}#1"

        updated = await http.post(f"{place}/{name}/update", params={"pin": "true"})
        assert (updated.status_code, updated.json()) == (200, {"status": f"Adapter {name} updated"})
        assert (await http.get(f"{place}/{name}")).json() == {**shown, "pin": True}
        assert server.engine.adapters.registered[f"{name}#1"].pin

        gone = await http.delete(f"{place}/{name}")
        assert (gone.status_code, gone.json()) == (200, {"status": f"Adapter {name} unregistered"})
        assert (await http.get(place)).json() == {"adapters": []}
        assert fault(await http.get(f"{place}/{name}")) == (404, f"The adapter {name} was not found")
        assert (await server.ask(name)).status_code == 424
        assert server.engine.adapters.registered == {}


async def test_they_are_listed_as_models_in_the_order_of_their_registration(tmp_path: Path) -> None:
    async with serving(tmp_path, served_model_name="llama") as server:
        for name in ("b", "org/c", "a"):
            await server.register(name, server.adapter(name.replace("/", "-")))
        listed = (await server.http.get("/v1/models")).json()["data"]
        assert [one["id"] for one in listed] == ["llama", "b", "org/c", "a"]
        assert [Path(one["root"]).name for one in listed] == ["model", "b", "org-c", "a"]
        assert (await server.http.get("/v1/models/org/c")).json() == listed[2]
        assert await server.listed() == ["a", "b", "org/c"]


async def test_by_a_json_body_the_answer_is_a_text(tmp_path: Path) -> None:
    """As plain vLLM images on SageMaker have it."""
    async with serving(tmp_path) as server:
        body = {"name": "a", "src": server.adapter("a"), "pin": True, "load_inplace": False}
        registered = await server.http.post("/adapters", json=body)
        assert (registered.status_code, registered.text) == (200, "Adapter a registered")
        assert registered.headers["content-type"] == "text/plain; charset=utf-8"
        assert (await server.http.get("/adapters/a")).json()["pin"] is True

        # Where the body says nothing the query does.
        body = {"name": "b", "src": None, "preload": "False"}
        params = {"name": "c", "src": server.adapter("b"), "preload": "true"}
        registered = await server.http.post("/adapters", params=params, json=body)
        assert registered.text == "Adapter b registered"
        assert (await server.http.get("/adapters/b")).json()["preload"] is False
        assert (await server.http.post("/adapters/b/update", json={"preload": True})).text == "Adapter b updated"
        assert (await server.http.get("/adapters/b")).json()["preload"] is True


@pytest.mark.parametrize("body", ["", " \n", "{}"])
async def test_a_body_that_says_nothing_is_none(tmp_path: Path, body: str) -> None:
    async with serving(tmp_path) as server:
        params = {"name": "a", "src": f"file://{server.adapter('a')}", "echooption": "x"}
        registered = await server.http.post("/adapters", params=params, content=body)
        assert registered.json() == {"status": "Adapter a registered"}
        assert (await server.http.get("/adapters/a")).json()["src"] == server.adapter("a")


async def test_an_alias_is_what_messages_say(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        params = {"name": "ic-1", "src": server.adapter("a")}
        registered = await server.http.post("/adapters", params=params, headers={ALIAS: "poems"})
        assert registered.json() == {"status": "Adapter poems registered"}
        assert (await server.ask("poems")).status_code == (await server.ask("ic-1")).status_code == 200
        again = await server.http.post("/adapters", params=params, headers={ALIAS: "verses"})
        assert fault(again)[1].startswith("The adapter verses already exists.")
        updated = await server.http.post("/adapters/ic-1/update?pin=true")
        assert updated.json() == {"status": "Adapter poems updated"}
        missing = await server.http.get("/adapters/ic-2", headers={ALIAS: "prose"})
        assert fault(missing) == (404, "The adapter prose was not found")
        gone = await server.http.delete("/adapters/ic-1", headers={ALIAS: "verses"})
        assert gone.json() == {"status": "Adapter verses unregistered"}


@pytest.mark.parametrize("name", ["a\nb", "\n", "org/a\r\nb", "a\u2028b"])
async def test_a_name_may_have_a_line_break(tmp_path: Path, name: str) -> None:
    async with serving(tmp_path) as server:
        path = f"/adapters/{quote(name, safe='')}"
        for asked in (server.http.get(path), server.http.delete(path), server.http.post(f"{path}/update?pin=true")):
            status, message = fault(await asked)
            assert (status, message.startswith("The adapter ")) == (404, True)


async def test_pages(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        source = server.adapter("a")
        names = [f"a{number:03}" for number in range(105)]
        for name in names:
            assert (await server.register(name, source, preload="false")).status_code == 200

        async def page(**params: Any) -> tuple[list[str], str | None]:
            answer = (await server.http.get("/adapters", params=params)).json()
            return [one["name"] for one in answer["adapters"]], answer.get("nextPageToken")

        assert await page() == (names[:100], "100")
        assert await page(next_page_token="100") == (names[100:], None)
        assert await page(limit=5) == (names[:5], "5")
        assert await page(limit=2, next_page_token="103") == (names[103:], None)
        # As DJL Serving (ListPagination).
        assert await page(limit=0) == ([], "0")
        assert await page(limit=-1) == await page(limit=1000) == (names[:100], "100")
        assert await page(next_page_token="-7", limit=1) == (names[:1], "1")
        assert await page(next_page_token="1" + "0" * 99) == ([], None)


# --- What cannot ---


WRONG = [
    ("POST", "/adapters", (400, "The parameter name is required")),
    ("POST", "/adapters?name=&src=/", (400, "The parameter name is required")),
    ("POST", "/adapters?name=b", (400, "The parameter src is required")),
    ("POST", "/adapters?name=b&src=", (400, "The parameter src is required")),
    ("POST", "/adapters?name=b&src=s3://bucket/b", (400, "URL adapters are not currently supported")),
    ("POST", "/adapters?name=b&src=HTTP://[", (400, "URL adapters are not currently supported")),
    ("POST", "/adapters?name=b&src=/not/there", (404, "is not a valid path")),
    ("POST", "/adapters?name=b&src=file:///not/there", (404, "is not a valid path")),
    ("POST", "/adapters?name=b&src=file://[", (404, "is not a valid path")),
    ("POST", "/adapters?name=b&src=" + "/a" * 5000, (404, "is not a valid path")),
    ("POST", "/adapters?name=b&src=owner/name", (404, "Only local LoRA models are supported")),
    ("POST", "/adapters?name=b//c&src=/", (400, "name: expected 1 to 256 characters")),
    ("POST", "/adapters?name=..&src=/", (400, "name: expected 1 to 256 characters")),
    ("POST", "/adapters?name=b&src=/&pin=yes", (400, "pin: expected true or false, got 'yes'")),
    ("POST", "/adapters?name=b&src={b}&preload=false&pin=true", (400, "Can not set preload to false")),
    ("POST", "/adapters?name=a&src={b}", (409, "The adapter a already exists. If you want to replace it,")),
    ("POST", "/adapters?name=a&src={a}", (409, "The adapter a already exists. If you want to replace it,")),
    ("POST", "/models/x/adapters?name=b&src={b}", (404, "The model x was not found")),
    ("GET", "/models/x/adapters", (404, "The model x was not found")),
    ("GET", "/models/x/adapters/a", (404, "The model x was not found")),
    ("GET", "/adapters?limit=many", (400, "limit: expected an integer, got 'many'")),
    ("GET", "/adapters?next_page_token=a", (400, "next_page_token: expected an integer, got 'a'")),
    ("GET", "/adapters/b", (404, "The adapter b was not found")),
    ("DELETE", "/adapters/b", (404, "The adapter b was not found")),
    ("POST", "/adapters/b/update?pin=true", (404, "The adapter b was not found")),
    ("POST", "/adapters/a/update?src={b}", (400, "Updating adapter path is not supported.")),
    ("POST", "/adapters/a/update?src=/not/there", (404, "is not a valid path")),
    ("POST", "/adapters/a/update?pin=false", (400, "Unpinning adapter is not supported.")),
    ("POST", "/adapters/a/update?preload=false", (400, "Can not set preload to false")),
]


async def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        assert (await server.register("a", pin="true")).status_code == 200
        places = {name: server.adapter(name) for name in "ab"}
        for method, path, (expected, said) in WRONG:
            status, message = fault(await server.http.request(method, path.format(**places)))
            assert (status, said in message) == (expected, True), (path, message)
            assert await server.listed() == ["a"], path


UNREADABLE: list[tuple[bytes, str | None, tuple[int, str]]] = [
    (b"[]", None, (400, "expected a JSON object, but the body is an array")),
    (b'{"name": ', None, (400, "")),
    (b"\xff{}", None, (400, "")),
    (b'{"name": 5, "src": "/"}', None, (400, "name: expected a string, got 5")),
    (b'{"name": "b", "src": ["/"]}', None, (400, "src: expected a string, got ['/']")),
    (b'{"name": "b", "src": "/", "preload": 1}', None, (400, "preload: expected true or false, got 1")),
    (b'{"name": "b", "src": "/", "pin": {}}', None, (400, "pin: expected true or false, got {}")),
    (b'{"name": "b"}', "application/json", (400, "The parameter src is required")),
    (b'{"name": "b", "src": "/"}', "text/plain", (415, "Content-Type")),
    (b"name=b&src=/", "application/x-www-form-urlencoded", (415, "Content-Type")),
    (b"{" + b" " * (64 << 10) + b"}", None, (413, "the body: expected at most 65536 bytes")),
]


async def test_a_body_that_cannot_be_read(tmp_path: Path) -> None:
    async def pieces(content: bytes) -> AsyncIterator[bytes]:
        yield content[:10]
        yield content[10:]

    async with serving(tmp_path) as server:
        for content, kind, (expected, said) in UNREADABLE:
            headers = {"content-type": kind} if kind else {}
            for sent in (content, pieces(content)):
                status, message = fault(await server.http.post("/adapters", content=sent, headers=headers))
                assert (status, said in message) == (expected, True), (content[:60], message)
        assert await server.listed() == []


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_without_lora(tmp_path: Path, method: str) -> None:
    async with serving(tmp_path, enable_lora="false") as server:
        answer = await server.http.request(method, "/adapters", params={"name": "a", "src": "/"})
        assert fault(answer) == (400, "LoRA is not enabled (option.enable_lora)")
        # As DJL Serving: the model is looked for first.
        assert fault(await server.http.request(method, "/models/x/adapters"))[0] == 404


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (NoSlotError("3 adapters are pinned"), (507, "3 adapters are pinned")),
        (UnavailableError("the engine is being rebuilt"), (503, "the engine is being rebuilt")),
    ],
)
async def test_what_the_engine_says(tmp_path: Path, error: LmiError, expected: tuple[int, str]) -> None:
    async with serving(tmp_path) as server:
        assert (await server.register("b")).status_code == 200
        server.engine.adapters.errors = {"a": error, "b": error}
        for answer in (await server.register("a"), await server.http.post("/adapters/b/update?pin=true")):
            assert fault(answer) == expected
            assert answer.headers.get("retry-after") == ("10" if expected[0] == 503 else None)
        server.engine.adapters.errors = {}
        assert (await server.register("a")).status_code == 200


async def test_a_server_that_ends_takes_nothing_new(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        await server.register("a")
        server.service.stop()
        for answer in (await server.register("b"), await server.http.post("/adapters/a/update?pin=true")):
            assert fault(answer) == (503, "the server is shutting down")
        assert await server.listed() == ["a"]


# --- Who may ---

ROUTES = [
    ("GET", "/adapters"), ("POST", "/adapters?name=b&src={b}"), ("GET", "/adapters/a"), ("DELETE", "/adapters/a"),
    ("POST", "/adapters/a/update?pin=true"), ("POST", "/models/model/adapters?name=b&src={b}"),
]  # fmt: skip


async def test_neither_strangers_nor_web_pages_may(tmp_path: Path) -> None:
    key = {"authorization": f"Bearer {KEY}"}
    strange: tuple[dict[str, str], ...] = ({}, {"authorization": "Bearer wrong"}, {"api-key": ""})
    pages: tuple[dict[str, str], ...] = (
        {"host": "rebound.example"},
        {"origin": "https://other.example"},
        {"sec-fetch-site": "cross-site"},
    )
    async with serving(tmp_path, Access(KEY, NAMES)) as server:
        source = server.adapter("b")
        await server.http.post("/adapters", params={"name": "a", "src": server.adapter("a")}, headers=key)
        for method, path in ROUTES:
            for headers in (*strange, *pages):
                answer = await server.http.request(method, path.format(b=source), headers=headers)
                assert fault(answer)[0] == (403 if headers in pages else 401)
                assert headers in pages or answer.headers["www-authenticate"] == "Bearer"
        assert [*server.engine.adapters.registered] == ["a#1"]
        assert (await server.http.request("DELETE", "/adapters/a", headers=key)).status_code == 200


# --- At the same time ---


async def test_a_request_waits_for_a_registration_under_way(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        server.engine.adapters.held = held = Future[None]()
        registering = asyncio.create_task(server.register("a"))
        await until_async(lambda: server.engine.adapters.registered)
        asking = asyncio.create_task(server.ask("a"))
        assert (await server.ask("")).json() == {"generated_text": "Hello"}
        assert await server.listed() == ["a"]
        assert fault(await server.register("a"))[0] == 409
        assert not registering.done()
        assert not asking.done()
        held.set_result(None)
        assert (await registering).json() == {"status": "Adapter a registered"}
        assert (await asking).json() == {"generated_text": "Hello"}
        assert [one.adapter for one in server.engine.generations] == [None, "a#1"]


async def test_more_registrations_than_a_pool_has_threads(tmp_path: Path) -> None:
    """None is lost, and those that want less than that are not held up."""
    async with serving(tmp_path) as server:
        server.engine.adapters.held = held = Future[None]()
        source, names = server.adapter("a"), {f"a{number}" for number in range(50)}
        registering = [asyncio.create_task(server.register(name, source)) for name in names]
        await until_async(lambda: len(server.engine.adapters.registered) >= 30)
        assert set(await server.listed()) == names
        assert (await server.http.delete("/adapters/a7")).status_code == 200
        assert (await server.ask("")).status_code == 200
        held.set_result(None)
        assert {answer.status_code for answer in await asyncio.gather(*registering)} == {200}
        assert set(await server.listed()) == names - {"a7"}
        assert {one.name for one in server.engine.adapters.registered.values()} == names - {"a7"}


async def test_a_stream_outlives_its_adapters_name(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        await server.register("a")
        server.engine.submit_then = []
        streaming = asyncio.create_task(server.ask("a", stream=True))
        await until_async(lambda: server.engine.generations)
        server.engine.say(0, Started(1), Delta(0, "Hel", (Token(1, "Hel", -0.5),)))
        assert (await server.http.delete("/adapters/a")).json() == {"status": "Adapter a unregistered"}
        assert (await server.ask("a")).status_code == 424
        finish = Finish("eos", generated_tokens=2, cumulative_logprob=-1.0)
        server.engine.say(0, Delta(0, "lo", (Token(2, "lo", -0.5),), finish))
        answer = await streaming
        texts = [json.loads(line)["token"]["text"] for line in answer.text.splitlines()]
        assert (answer.status_code, "".join(texts)) == (200, "Hello")
        assert server.engine.aborted == []


# --- What is there from the start ---


async def test_what_a_start_found_in_the_registry_file_may_be_registered_again(tmp_path: Path) -> None:
    """Scripts register what they need after each start; what they say counts."""
    async with serving(tmp_path) as server:
        await server.register("a")
        assert server.kept() == {"a"}
    async with serving(tmp_path) as server:
        assert await server.listed() == ["a"]
        assert (await server.register("a", server.adapter("b"), pin="true")).status_code == 200
        shown = (await server.http.get("/adapters/a")).json()
        assert (shown["src"], shown["pin"]) == (server.adapter("b"), True)
        assert fault(await server.register("a"))[0] == 409
