"""`route=PATH` where requests are opened: pages without an engine's step, those of users on their threads, refusals."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from ..kit.api.dialects import routing
from ..kit.api.handler import Exchange, Service, application, attributes_of, started_service
from ..kit.api.types import Delta, Finish, Request, Started
from ..kit.paths import USER_CODE
from ..kit.user_code.engine import ScriptedEngine
from ..kit.waiting import until

CUSTOM = "X-Amzn-SageMaker-Custom-Attributes"
END = Finish("eos", generated_tokens=1)
HELLO = (Started(1), Delta(0, "Hello", finish=END))


@pytest.fixture
def engine() -> ScriptedEngine:
    engine = ScriptedEngine()
    engine.submit_then = list(HELLO)
    return engine


@pytest.fixture
def service(engine: ScriptedEngine, tmp_path: Path) -> Iterator[Service]:
    shutil.copy(USER_CODE / "toy.py", tmp_path)
    before = list(sys.path)
    service = started_service(engine, tmp_path, output_formatter="toy:Toy")
    yield service
    service.close()
    sys.path[:] = before
    sys.modules.pop("toy", None)


def opened(service: Service, attributes: str, body: Any = None) -> tuple[int, Any]:
    """Status and body of what becomes of a request at /invocations, as any host opens it."""
    request = Request(
        b"" if body is None else json.dumps(body).encode(), attributes=attributes_of([(CUSTOM, attributes)])
    )
    found = service.open(request)
    until(lambda: found.finished)
    return found.call.reply.status, json.loads(b"".join(found.records))


def test_pages(service: Service) -> None:
    status, answer = opened(service, "route=/v1/models")
    assert (status, answer["object"]) == (200, "list")
    assert opened(service, "route=/info")[1]["version"] == "0"
    assert opened(service, "route=/info?api-version=2024-05-01")[1]["model_type"] == "chat_completion"
    assert opened(service, "route=/embeddings?api-version=2024-05-01")[0] == 404
    (only,) = answer["data"]
    assert opened(service, f"route=/v1/models/{only['id']}") == (200, only)
    # Whatever is in the body.
    assert opened(service, "route=/v1/models", {"inputs": "a"}) == (200, answer)


def test_pages_of_users(service: Service) -> None:
    assert opened(service, "route=/toy/about") == (200, {"engine": "scripted"})
    status, answer = opened(service, "route=/toy/about?raise")
    assert status >= 400
    assert "page of /toy/about raised RuntimeError: no page" in json.dumps(answer)


def test_pages_are_there_while_nothing_is_taken_on(service: Service) -> None:
    """As on their own paths of the local server."""
    service.stop()
    assert opened(service, "route=/v1/models")[0] == 200
    assert (
        opened(service, "route=/v1/completions", {"prompt": "a"})[1]["error"]["message"]
        == "the server is shutting down"
    )


def test_generations(service: Service) -> None:
    assert opened(service, "route=/v1/completions", {"prompt": "a"})[1]["choices"][0]["text"] == "Hello"
    assert opened(service, "route=/generate", {"inputs": "a"}) == (200, {"generated_text": "Hello"})
    assert opened(service, "route=/toy", {"say": "a"}) == (200, {"said": "Hello"})


def test_a_route_of_a_user_may_read_bodies_in_its_own_way(service: Service, engine: ScriptedEngine) -> None:
    assert opened(service, "route=/toy/loud", {"say": "a"}) == (200, {"said": "Hello"})
    assert engine.generations[-1].prompt == "A"
    status, answer = opened(service, "route=/toy/loud", {"say": "a", "raise": True})
    assert (status, "parse of /toy/loud raised RuntimeError: hoarse" in json.dumps(answer)) == (500, True)


def test_what_is_no_route(service: Service) -> None:
    for attributes, code, said in (
        ("route=/v1/nothing", 404, "route: expected one of /invocations, /toy, /toy/about, /toy/loud, "),
        ("route=/toy;dialect=lmi", 400, "dialect: expected toy, whose route /toy is, got 'lmi'"),
    ):
        status, answer = opened(service, attributes, {"messages": []})
        assert (status, list(answer), answer["code"]) == (code, ["error", "code"], code)
        assert answer["error"].startswith(said)


@pytest.mark.parametrize("path", ["/invocations", "/predictions/x", "/v1/chat/completions"])
def test_on_the_local_server(service: Service, path: str) -> None:
    with TestClient(application(service)) as http:

        def post(attributes: str, body: Any) -> Any:
            return http.post(path, json=body, headers={CUSTOM: attributes})

        assert post("route=/v1/models", None).json()["object"] == "list"
        assert post("route=/toy/about", None).json() == {"engine": "scripted"}
        assert post("route=/generate", {"inputs": "a"}).json() == {"generated_text": "Hello"}
        streamed = post("route=/chat/sse", {"model": "m", "messages": [{"role": "user", "content": "a"}]})
        assert streamed.headers["content-type"].startswith("text/event-stream")
        unknown = post("route=/v1/nothing", {"inputs": "a"})
        assert (unknown.status_code, list(unknown.json())) == (404, ["error", "code"])
        # What is refused before it is opened has the route's form.
        service.stop()
        assert post("route=/generate", {"inputs": "a"}).json()["error"] == "the server is shutting down"


def test_a_path_that_ends_in_a_name(service: Service) -> None:
    """Which may have slashes, as models' names do; without one it is the path of the list."""
    with TestClient(application(service)) as http:
        listed = http.get("/v1/models").json()
        name = listed["data"][0]["id"]
        assert http.get(f"/v1/models/{quote(name, safe='')}").json() == listed["data"][0]
        unknown = http.get("/v1/models/owner/name")
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
        assert http.get("/v1/models/").json() == listed
        assert http.post("/v1/models/a", json={}).status_code == 405


def test_a_page_of_the_users_is_refused_where_nothing_new_is_taken(service: Service) -> None:
    """It would wait for one of their threads, of which there are as many as requests."""
    service.stop()
    status, answer = opened(service, f"route={page_of_the_users(service)}")
    assert status == opened(service, "", {"inputs": "Hi"})[0] >= 400
    assert "shutting down" in str(answer)
    assert opened(service, "route=/v1/models")[0] == 200


def test_files_of_sessions_are_for_other_threads_whatever_the_dialect(service: Service) -> None:
    """Where there is a dialect of the user's too, which is not asked."""
    for attributes in ({}, {"dialect": "openai"}):
        found = service.open(Request(b'{"requestType": "NEW_SESSION"}', attributes=attributes))
        assert isinstance(found, Exchange)


def page_of_the_users(service: Service) -> str:
    return next(route.path for dialect in service.dialects for route in dialect.routes if route.page)


@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}), ("/invocations", {"inputs": "a"}),
     ("/toy", {"say": "a"}), ("/v1/models", None), ("/invocations", {"nothing": 1})],
)  # fmt: skip
def test_a_request_is_routed_once(
    service: Service, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any] | None
) -> None:
    """By whichever host; refusals, pages and what reads the body go by the same way."""
    found: list[str] = []
    known = routing.route_of

    def counted(request: Request, *more: Any) -> Any:
        found.append(request.path)
        return known(request, *more)

    monkeypatch.setattr(routing, "route_of", counted)
    request = Request(json.dumps(body).encode() if body else b"", path=path, method="POST" if body else "GET")
    exchange = service.open(request)
    until(lambda: exchange.finished)
    assert found == [path]
    with TestClient(application(service)) as http:
        http.request(request.method, path, json=body)
    assert found == [path] * 2
