"""HEAD: of pages it is GET without the body; what starts a generation it does not start."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from starlette.routing import Route as HttpRoute
from starlette.testclient import TestClient

from lmi.handler.server.app import application

from ...kit.api.dialects import DIALECTS
from ...kit.api.handler import Service, started_service
from ...kit.user_code.engine import ScriptedEngine

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
