"""A whole answer has a Content-Length on every host, however slowly its end comes behind its only record."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
from starlette.testclient import TestClient

from ..kit.api.handler import Exchange, PlainBatch, Service, Whole, application, started_service
from ..kit.api.types import Delta, Finish, Request, Started
from ..kit.user_code.engine import ScriptedEngine

BODY = b'{"inputs": "Hi"}'
ANSWER = b'{"generated_text":"Hello"}'


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> ScriptedEngine:
    """Says Hello to the first request, on a thread of its own; hosts see the record before the end."""
    engine = ScriptedEngine()
    end = Exchange._end

    def slow(exchange: Exchange, records: Sequence[bytes] = (), *, aborted: bool = False) -> None:
        exchange.records.extend(records)
        assert exchange._on_news is not None
        exchange._on_news(exchange)
        engine.say(-1)
        time.sleep(0.1)
        end(exchange, aborted=aborted)

    monkeypatch.setattr(Exchange, "_end", slow)

    def talk() -> None:
        while not engine.generations:
            time.sleep(0.002)
        time.sleep(0.05)
        engine.say(0, Started(1), Delta(0, "Hello", finish=Finish("eos", generated_tokens=1)))

    threading.Thread(target=talk, daemon=True).start()
    return engine


@pytest.fixture
def service(engine: ScriptedEngine) -> Service:
    return started_service(engine)


def test_on_the_local_server(service: Service) -> None:
    with TestClient(application(service)) as http:
        answer: Any = http.post("/invocations", content=BODY)
    assert (answer.content, answer.headers["content-length"]) == (ANSWER, str(len(ANSWER)))


def test_alone_in_a_dynamic_batch(service: Service) -> None:
    answer = PlainBatch(service).answer(Request(BODY))
    assert isinstance(answer, Whole)
    assert answer.body == ANSWER
