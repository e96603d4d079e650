"""When text gathers in the engine's process: by what a host uses of the cores. The host is the test's own process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest

from lmi.handler.djl.modes import gathering
from lmi.handler.djl.modes.gathering import Gathering

from ....kit.api.handler import AsyncBatcher, RollingBatch, started_service
from ....kit.api.types import Request
from ....kit.rows import each_row
from ....kit.user_code.engine import ScriptedEngine

WINDOW_S = 0.2


@pytest.fixture(autouse=True)
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "WINDOW_S", WINDOW_S)


def busy() -> None:
    """A window in which the host computes."""
    until = time.monotonic() + WINDOW_S * 1.2
    while time.monotonic() < until:
        pass


def idle() -> None:
    time.sleep(WINDOW_S * 1.2)


def pause() -> None:
    time.sleep(WINDOW_S * 2.5)


@each_row(
    ("windows", "asked"),
    [
        ([idle, idle], []),
        ([busy], [0.02]),
        ([busy] * 4, [0.02, 0.04]),
        ([busy, busy, idle, idle, idle], [0.02, 0.04, 0.02, 0.0]),
        ([busy, busy, pause], [0.02, 0.04, 0.0]),
    ],
    ids=["idle", "busy", "no longer than that", "idle again", "nothing ran"],
)
def test_text_gathers_while_the_host_takes_much_of_the_cores(
    windows: list[Callable[[], None]], asked: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    # However busy other tests keep the cores.
    monkeypatch.setattr(gathering, "BUSY", 0.05)
    engine = ScriptedEngine()
    looking = Gathering(engine, os.getpid())
    looking.look()
    for window in windows:
        window()
        looking.look()
    assert engine.gathered == asked


def test_a_host_that_is_gone_is_not_busy() -> None:
    engine = ScriptedEngine()
    looking = Gathering(engine, 2**22 + 1)
    for _ in range(3):
        looking.look()
        busy()
    assert engine.gathered == []


@each_row(("merge", "asked"), [("auto", [0.02]), ("true", [0.02]), ("false", [])])
@each_row("mode", ["rolling", "async"])
async def test_the_option_forbids_it(
    mode: str, merge: str, asked: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "BUSY", -1.0)
    engine = ScriptedEngine()
    service = started_service(engine, merge_records=merge)
    request = Request(b'{"inputs": "Hi", "stream": true}')
    if mode == "rolling":
        batch = RollingBatch(service, 0.0)
        batch.step([request])
        idle()
        batch.step([None])
    else:
        batcher = AsyncBatcher(service)
        batcher._collect()
        idle()
        batcher._collect()
    assert engine.gathered == asked
