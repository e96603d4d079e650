"""How long Java waits for a start and for a call, and since when a call waits."""

from __future__ import annotations

import socket

import pytest

from lmi.handler.djl.modes.call_limit import NextCall, call_limit, start_limit

from ....kit.rows import each_row


@each_row(
    ("option", "variable", "limit"),
    [
        ("", "", 108),
        ("60", "", 54),
        ("60", "240", 54),
        ("", "240", 216),
        ("0", "240", 216),
        ("soon", "", 108),
        ("soon", "later", 108),
        ("", "0", 108),
    ],
)
def test_the_limit_is_nine_tenths_of_javas(option: str, variable: str, limit: float) -> None:
    """PyEnv.getPredictTimeout: the option, else the variable, else 120."""
    options = {"predict_timeout": option} if option else {}
    assert call_limit(options, {"PREDICT_TIMEOUT": variable} if variable else {}) == pytest.approx(limit)


@each_row(("option", "variable", "limit"), [("", "", 230), ("1200", "600", 1190), ("", "600", 590), ("10", "", 8)])
def test_a_start_has_nearly_javas_time(option: str, variable: str, limit: float) -> None:
    """PyEnv.getModelLoadingTimeout."""
    options = {"model_loading_timeout": option} if option else {}
    assert start_limit(options, {"MODEL_LOADING_TIMEOUT": variable} if variable else {}) == pytest.approx(limit)


def test_a_call_that_is_not_seen_to_wait_begins_when_it_is_taken() -> None:
    call = NextCall()
    java, worker = socket.socketpair()
    with java, worker:
        call.look()
        call.watch(worker)
        call.look()
        seen = [call.since]
        java.send(b"call")
        call.look()
        seen.append(call.since)
        call.look()
        seen += [call.since, call.take()]
        call.look()
        seen.append(call.since)
        assert seen == [None, seen[1], seen[1], seen[1], None]
        assert seen[1] is not None
        assert call.take() >= seen[1]
