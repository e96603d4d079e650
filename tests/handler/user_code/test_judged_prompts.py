"""Prompts that the engine renders for the content filter: its threads judge them, and the engine waits for none."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ...kit.api.errors import ContentFilterError, TimeLimitError, UserCodeError
from ...kit.api.types import Delta, Finish, Rendered, Started
from ...kit.user_code.service import MakeScripted, ScriptedService
from ...kit.waiting import until

TIMEOUT_S = 30.0
GUARD = """
import threading
began, go = threading.Event(), threading.Event()
calls = []
def judge(text, stage):
    calls.append((stage, text))
    if "slow" in text:
        began.set()
        assert go.wait(60)
    if "stop" in text:
        return "stop"
"""
CHAT = b'{"messages": [{"role": "user", "content": "Hi"}], "stream": %s}'
END = Delta(0, "Hello", finish=Finish("eos", generated_tokens=1))


def guard() -> Any:
    return sys.modules["guard_of_prompts"]


@pytest.fixture
def place(request: pytest.FixtureRequest, scripted: MakeScripted) -> Iterator[ScriptedService]:
    threads: str = getattr(request, "param", "1")
    options = {"content_filter": "guard_of_prompts:judge", "user_code_timeout": "50", "request_timeout": "40"}
    made = scripted({"guard_of_prompts.py": GUARD}, user_code_threads=threads, **options)
    yield made
    guard().go.set()
    until(lambda: made.workers.stuck == 0)


@pytest.mark.parametrize("stream", [b"false", b"true"])
def test_a_prompt_that_is_accepted_starts(place: ScriptedService, stream: bytes) -> None:
    exchange = place.open(CHAT % stream)
    place.submitted(1)
    assert place.engine.generations[0].held
    assert guard().calls == []
    place.engine.say(0, Rendered("<tools>f: fetches</tools> Hi"))
    until(lambda: place.engine.released == [0])
    assert guard().calls == [("prompt", "<tools>f: fetches</tools> Hi")]
    place.engine.say(0, Started(1), END)
    until(lambda: exchange.finished)
    assert exchange.failure is None
    assert b"Hello" in exchange.take_all()


@pytest.mark.parametrize("body", [b'{"prompt": "stop"}', CHAT % b"false"], ids=["text", "chat"])
def test_a_prompt_that_only_its_tokens_are_wanted_of_is_not_judged(place: ScriptedService, body: bytes) -> None:
    """The model never sees it."""
    exchange = place.open(body, attributes={"dialect": "tokens"})
    place.submitted(1)
    assert place.engine.generations[0].tokenize
    assert not place.engine.generations[0].held
    place.engine.say(0, Started(3, context=8), Delta(0, "", finish=Finish("length")))
    until(lambda: exchange.finished)
    assert exchange.take_all() == b'{"count":3,"max_model_len":8,"tokens":[],"token_strs":null}'
    assert guard().calls == []


@pytest.mark.parametrize("stream", [b"false", b"true"])
def test_a_prompt_that_is_flagged_never_starts(place: ScriptedService, stream: bytes) -> None:
    exchange = place.open(CHAT % stream)
    place.submitted(1)
    place.engine.say(0, Rendered("<tools>f: stop</tools> Hi"))
    until(lambda: exchange.finished)
    assert isinstance(exchange.failure, ContentFilterError)
    assert exchange.call.reply.status == 400
    assert b"messages: flagged by the content filter: stop" in exchange.take_all()
    until(lambda: place.engine.aborted == [0])
    assert place.engine.released == []


def test_one_prompt_of_several_that_is_flagged_ends_all_before_any_starts(place: ScriptedService) -> None:
    exchange = place.open(b'{"prompt": [[1, 2], [3, 4]], "stream": true}')
    place.submitted(2)
    place.engine.say(0, Rendered("a"))
    until(lambda: ("prompt", "a") in guard().calls)
    place.engine.say(1, Rendered("stop"))
    until(lambda: exchange.finished)
    assert b"prompt[1]: flagged by the content filter: stop" in exchange.take_all()
    until(lambda: sorted(place.engine.aborted) == [0, 1])
    assert place.engine.released == []


@pytest.mark.parametrize("place", ["2"], indirect=True)
def test_others_are_served_while_one_is_judged(place: ScriptedService) -> None:
    slow = place.open(CHAT % b"false")
    # Two threads work on them: whose generation has which number is certain only if one comes after the other.
    place.submitted(1)
    other = place.open(CHAT % b"false")
    place.submitted(2)
    # Returns at once: the engine's thread judges nothing.
    place.engine.say(0, Rendered("slow"))
    assert guard().began.wait(TIMEOUT_S)
    place.engine.say(1, Rendered("Hi"))
    until(lambda: place.engine.released == [1])
    place.engine.say(1, Started(1), END)
    until(lambda: other.finished)
    assert not slow.finished
    guard().go.set()
    until(lambda: place.engine.released == [1, 0])


def test_an_abort_while_it_is_judged(place: ScriptedService) -> None:
    exchange = place.open(CHAT % b"false")
    place.submitted(1)
    place.engine.say(0, Rendered("slow"))
    assert guard().began.wait(TIMEOUT_S)
    exchange.abort()
    assert place.engine.aborted == [0]
    guard().go.set()
    place.rest()
    assert place.engine.released == []
    assert place.service.admission.open == 0


@pytest.mark.parametrize(("seconds", "kind"), [(41.0, TimeLimitError), (51.0, UserCodeError)])
def test_time_runs_out_while_it_is_judged(place: ScriptedService, seconds: float, kind: type[Exception]) -> None:
    exchange = place.open(CHAT % b"false")
    place.submitted(1)
    place.engine.say(0, Rendered("slow"))
    assert guard().began.wait(TIMEOUT_S)
    now = time.monotonic() + seconds
    if kind is UserCodeError:
        place.workers.sweep(now)
    else:
        place.service.admission.sweep(now)
    assert exchange.finished
    assert isinstance(exchange.failure, kind)
    assert place.engine.aborted == [0]
    assert place.engine.released == []
