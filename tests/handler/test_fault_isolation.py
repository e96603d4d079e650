"""Whatever of ours fails for a request, wherever: it ends, what it holds is given back, and others go on."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lmi.handler.exchange import Exchange

from ..kit.api.dialects import DIALECTS
from ..kit.api.handler import RollingBatch, Service, started_service
from ..kit.api.types import Delta, Finish, Request, Started, Token
from ..kit.user_code.engine import ScriptedEngine

END = Finish("eos", generated_tokens=2)
STREAM = Request(b'{"inputs": "Hi", "stream": true}')
FILTER = "def judge(text, stage):\n    return None\n"


def fail(*_: Any, **__: Any) -> Any:
    raise KeyError("a fault")


def failing_for(one: object, method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that fails for one of its objects."""
    return lambda self, *given, **named: fail() if self is one else method(self, *given, **named)


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("place", "user_code"),
    [*((place, user_code) for place in ("note", "end", "keep", "feed", "news") for user_code in (False, True)),
     ("listener", True)],
)  # fmt: skip
def test_a_fault_harms_its_own_request_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, place: str, user_code: bool
) -> None:
    """The metrics' notes and their end, the log's bytes, the encoder, the host's own part.

    Listeners of the engine's steps: tests/model/process/test_engine_faults.py.
    """
    (tmp_path / "model.py").write_text(FILTER)
    options = {"log_requests": "true", **({"content_filter": "model:judge"} if user_code else {})}
    engine = ScriptedEngine()
    service: Service = started_service(engine, tmp_path, **options)
    news: list[Exchange] = []
    if place == "listener":
        service.listen(fail)
        engine._listeners.remove(fail)
    bad = service.open(STREAM, fail if place == "news" else None)
    good = service.open(STREAM, news.append)
    assert isinstance(bad, Exchange)
    assert isinstance(good, Exchange)
    eventually(lambda: len(engine.sinks) == 2)
    if place in {"note", "end", "keep"}:
        stats = type(bad._meter)
        monkeypatch.setattr(stats, place, failing_for(bad._meter, getattr(stats, place)))
    if place == "feed":
        encoder = type(bad.call.reply)
        monkeypatch.setattr(encoder, place, failing_for(bad.call.reply, encoder.feed))
    for ticket in (0, 1):
        engine.say(ticket, Started(1), Delta(0, "a", (Token(1, "a", -0.5),)))
    for ticket in (0, 1):
        engine.say(ticket, Delta(0, "b", (Token(2, "b", -0.5),), END))
    eventually(lambda: bad.finished and good.finished)
    assert b'"generated_text":"ab"' in b"".join(good.records)
    assert good in news
    assert not engine.sinks
    assert service.admission.open == 0
    assert "a fault" in caplog.text


@pytest.mark.parametrize("user_code", [False, True])
@pytest.mark.parametrize("place", ["matches", "parse", "refuse"])
@pytest.mark.parametrize("name", ["lmi", "tgi", "dynamic", "openai", "azure", "minimal"])
def test_a_fault_of_a_dialect_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    name: str, place: str, user_code: bool,
) -> None:  # fmt: skip
    """Behind DJL an exception here would end the step of all, and leave its own client waiting."""
    (dialect,) = [one for one in DIALECTS if name == one.NAME]
    whole = getattr(dialect, place)

    def faulty(*given: Any) -> Any:
        return fail() if any(isinstance(one, Request) and one.request_id == "bad" for one in given) else whole(*given)

    monkeypatch.setattr(dialect, place, faulty)
    (tmp_path / "model.py").write_text(FILTER)
    options = {"content_filter": "model:judge"} if user_code else {}
    engine = ScriptedEngine()
    service: Service = started_service(engine, tmp_path, **options)
    # All dialects are asked about a body that is none of theirs, and all refuse it.
    attributes = {} if place == "matches" else {"dialect": name}
    body = b'{"inputs": "Hi"}' if place == "parse" else b'{"nothing": 1}'
    batch = RollingBatch(service)
    frames = batch.step([Request(body, attributes=attributes, request_id="bad"), STREAM])
    ended = [frames[0]]
    eventually(lambda: len(engine.sinks) == 1)
    engine.say(0, Started(1), Delta(0, "ab", (Token(1, "ab", -0.5),), END))
    good = [frames[1]]

    def both_ended() -> bool:
        running = [some for some in (ended, good) if not some[-1].last]
        for some, frame in zip(running, batch.step([None] * len(running)), strict=True):
            some.append(frame)
        return ended[-1].last and good[-1].last

    eventually(both_ended)
    assert b'"generated_text":"ab"' in b"".join(frame.data for frame in good)
    assert b"ab" not in b"".join(frame.data for frame in ended)
    assert "a fault" in caplog.text
    assert service.admission.open == 0
    service.close()
