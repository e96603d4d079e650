"""Frames of a request, as rolling batch and async mode take them while the engine's thread is at it."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from lmi.handler.djl.frames import NOTHING, Frame, frame_of_exchange

from ...kit.api.errors import UnavailableError
from ...kit.api.handler import Exchange, started_service
from ...kit.api.types import Delta, Failed, Finish, Request, Started, Token
from ...kit.rows import each_row
from ...kit.user_code.engine import ScriptedEngine


def opened(body: bytes, on_news: Callable[[Exchange], None] | None = None) -> tuple[ScriptedEngine, Exchange]:
    engine = ScriptedEngine()
    service = started_service(engine)
    exchange = service.open(Request(body), on_news)
    return engine, exchange


@each_row("merge", [False, True])
@each_row("stream", ["true", "false"])
def test_an_error_is_no_record_of_an_answer_that_goes_on(stream: str, merge: bool) -> None:
    """However the host's look at it falls between the error's record and the word that it was the last."""
    engine, exchange = opened(b'{"inputs": "Hi", "stream": %s}' % stream.encode())
    engine.say(0, Failed.of(UnavailableError("gone")))
    assert len(exchange.records) == 1
    exchange.finished = False
    assert frame_of_exchange(exchange, first=True, merge=merge) is NOTHING
    exchange.finished = True
    frame = frame_of_exchange(exchange, first=True, merge=merge)
    assert frame.last
    assert (frame.data, frame.failure, frame.code) == (b"", exchange.failure, 424)
    assert not exchange.records


def test_the_last_record_comes_with_the_end() -> None:
    """A whole answer is one frame, so that the host can tell its length."""
    seen: list[tuple[bool, int]] = []
    engine, exchange = opened(b'{"inputs": "Hi"}', lambda one: seen.append((one.finished, len(one.records))))
    engine.say(0, Started(3), Delta(0, "Hello", (), Finish("eos", None, 1, -0.5)))
    assert seen[-1] == (True, 1)
    assert frame_of_exchange(exchange, first=True, merge=False).last


def test_a_whole_answer_waits_for_its_end() -> None:
    """Seen between its record and its end it would be a chunk, of an answer without a length."""
    _, exchange = opened(b'{"inputs": "Hi"}')
    exchange.records.append(b"a")
    assert frame_of_exchange(exchange, first=True, merge=False) is NOTHING
    exchange.records.append(b"b")
    exchange.finished = True
    frame = frame_of_exchange(exchange, first=True, merge=False)
    assert (frame.data, frame.last) == (b"ab", True)


@each_row("merge", [False, True])
def test_a_streams_last_frame_is_empty(merge: bool) -> None:
    """DJL's reader of a stream may miss the last chunk: it is told of the end before the chunk is there."""
    engine, exchange = opened(b'{"inputs": "Hi", "stream": true}')
    engine.say(0, Started(3), Delta(0, "Hello", (Token(7, "Hello", -0.5),)))
    first = frame_of_exchange(exchange, first=True, merge=merge)
    engine.say(0, Delta(0, "!", (Token(8, "!", -0.5),), Finish("length", None, 2, -1.0)))
    second = frame_of_exchange(exchange, first=False, merge=merge)
    third = frame_of_exchange(exchange, first=False, merge=merge)
    assert [frame.last for frame in (first, second, third)] == [False, False, True]
    assert b'"text":"Hello"' in first.data
    assert b'"text":"!"' in second.data
    assert third.data == b""


@pytest.mark.parametrize("merge", [False, True])
def test_nothing_is_lost_that_comes_while_a_frame_is_made(merge: bool) -> None:
    """As if the engine's thread put a record there between any two instructions of the host's."""
    engine, exchange = opened(b'{"inputs": "Hi", "stream": true}')
    engine.say(0, Started(3))
    tokens = 1000
    left = iter(range(tokens, 0, -1))
    traced = {inspect.getfile(Frame), inspect.getfile(Exchange)}

    def meanwhile(frame: FrameType, event: str, _: object) -> Any:
        frame.f_trace_opcodes = frame.f_code.co_filename in traced
        if event == "opcode" and (number := next(left, 0)):
            end = Finish("length", None, tokens, -1.0) if number == 1 else None
            engine.say(0, Delta(0, "x", (Token(number, "x", -0.5),), end))
        return meanwhile

    sent: list[Frame] = []
    before = sys.gettrace()
    # Python 3.12 has such events only if a frame wants them by now.
    sys._getframe().f_trace_opcodes = True
    sys.settrace(meanwhile)
    try:
        while not (sent and sent[-1].last):
            if (frame := frame_of_exchange(exchange, first=not sent, merge=merge)) is not NOTHING:
                sent.append(frame)
    finally:
        sys.settrace(before)
    assert [int(number) for number in re.findall(rb'"id":([0-9]+)', b"".join(frame.data for frame in sent))] == [
        *range(tokens, 0, -1)
    ]
