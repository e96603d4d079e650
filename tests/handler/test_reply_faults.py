"""A fault of ours in a reply ends its request with an error, and nothing else. On the way of every host:
tests/handler/test_fault_isolation.py.

Such faults cannot be brought about by a request, so that replies are broken by hand.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lmi.handler.exchange import Exchange

from ..kit.api.dialects import SAMPLING
from ..kit.api.handler import started_service
from ..kit.api.types import Delta, Event, Failed, Finish, Request, ResponseEncoder, Started, Token
from ..kit.rows import each_row
from ..kit.user_code.engine import ScriptedEngine

END = Finish("eos", generated_tokens=2)
FAULT = "the output formatter failed: 'a fault'"
BODIES: dict[str, Any] = {
    "lmi": {"inputs": "Hi"},
    "dynamic": {"inputs": "Hi"},
    "tgi": {"inputs": "Hi"},
    "chat": {"messages": [{"role": "user", "content": "Hi"}]},
    "completions": {"prompt": "Hi"},
    "several prompts": {"prompt": ["Hi", "Ho"]},
    "minimal": {"model": "a", "messages": [{"role": "user", "content": "Hi"}]},
    "azure": {"messages": [{"role": "user", "content": "Hi"}]},
    "anthropic": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5},
    "responses": {"input": "Hi"},
    "transcription": {"file": "UklGRg=="},
}
DIALECTS = {"chat": "openai", "completions": "openai", "several prompts": "openai"}


class Broken:
    """A reply that is at fault at an event, and at all after it if it `cannot_tell`."""

    def __init__(self, reply: ResponseEncoder, at: int, *, cannot_tell: bool) -> None:
        self._reply = reply
        self._left = at
        self._cannot_tell = cannot_tell

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reply, name)

    def feed(self, event: Event, prompt: int = 0) -> list[bytes]:
        self._left -= 1
        if self._left == -1 or (self._left < 0 and self._cannot_tell):
            raise KeyError("a fault")
        return self._reply.feed(event, prompt)


class Place:
    """A service on an engine that says what it is told; the first request's reply is broken."""

    def __init__(self, folder: Path, at: int, *, cannot_tell: bool = False, **options: str) -> None:
        self.engine = ScriptedEngine()
        self.service = started_service(self.engine, folder, **options)
        self.opened: list[Exchange] = []
        opening = self.service.opener.open

        def breaking(
            request: Request, on_news: Callable[[Exchange], None] | None, *, batched: bool = False
        ) -> Exchange:
            exchange = opening(request, on_news, batched=batched)
            if not self.opened:
                broken: Any = Broken(exchange.call.reply, at, cannot_tell=cannot_tell)
                exchange.call = type(exchange.call)(exchange.call.generations, broken, exchange.call.dialect)
            self.opened.append(exchange)
            return exchange

        self.service.opener.open = breaking  # type: ignore[method-assign]

    def answer(self, *tickets: int) -> None:
        """Two tokens for each."""
        for ticket in tickets:
            self.engine.say(ticket, Started(1), Delta(0, "a", (Token(1, "a", -0.5),)))
        for ticket in tickets:
            self.engine.say(ticket, Delta(0, "b", (Token(2, "b", -0.5),), END))

    def nothing_is_left(self) -> None:
        assert not self.engine.sinks
        assert self.service.admission.open == 0
        assert self.service.metrics.in_flight == 0


def asked(kind: str = "lmi", **more: Any) -> Request:
    return Request(json.dumps({**BODIES[kind], **more}).encode(), attributes={"dialect": DIALECTS.get(kind, kind)})


@each_row("at", [0, 1, 2], ids=["start", "first token", "last token"])
@each_row("stream", [False, True], ids=["whole", "streamed"])
@each_row("kind", BODIES)
def test_the_request_ends_with_an_error_of_its_dialect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, stream: bool, at: int
) -> None:
    assert {DIALECTS.get(kind, kind) for kind in BODIES} == {known.name for known in SAMPLING}
    caplog.clear()
    made = Place(tmp_path, at)
    broken, other = made.service.open(asked(kind, stream=stream)), made.service.open(asked(stream=stream))
    assert isinstance(broken, Exchange)
    assert isinstance(other, Exchange)
    tickets = len(broken.call.generations)
    made.answer(0, tickets)
    assert broken.finished
    assert b"a fault" in b"".join(broken.records)
    assert broken.failure is not None
    assert broken.failure.message == FAULT
    assert (broken.call.reply.status >= 400) is (not stream or at < 2)
    # The last event had ended the generation by itself; otherwise it is aborted, and so are its request's others.
    assert made.engine.aborted == [*range(int(at == 2), tickets)]
    assert "the formatter failed" in caplog.text
    assert b'"b"' in other.records[-1] or b'"ab"' in other.records[-1]
    assert other.failure is None
    made.nothing_is_left()


@each_row("at", [0, 1, 2])
def test_one_that_cannot_even_tell(tmp_path: Path, at: int) -> None:
    """Before its first record the error is told without the dialect; a stream that has begun breaks off."""
    made = Place(tmp_path, at, cannot_tell=True)
    broken, other = made.service.open(asked(stream=True)), made.service.open(asked(stream=True))
    made.answer(0, 1)
    assert isinstance(broken, Exchange)
    assert isinstance(other, Exchange)
    assert broken.finished
    assert made.engine.aborted == ([0] if at < 2 else [])
    (record,) = broken.records
    if at < 2:
        assert json.loads(record) == {"error": FAULT, "code": 500}
        assert (broken.call.reply.status, broken.call.reply.content_type) == (500, "application/json")
        assert broken.failure is not None
    else:
        assert json.loads(record)["token"]["text"] == "a"
    assert len(other.records) == 2
    made.nothing_is_left()


def test_an_engines_error_after_the_fault_changes_nothing(tmp_path: Path) -> None:
    made = Place(tmp_path, 0)
    broken = made.service.open(asked(stream=True))
    assert isinstance(broken, Exchange)
    sink = made.engine.sinks[0]
    made.answer(0)
    records = list(broken.records)
    sink(Failed("GenerationError", "later"))
    assert list(broken.records) == records
