"""A client that leaves ends its user code, on every host that learns of it."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ...kit.api.handler import AsyncBatcher, AsyncService, RollingBatch, Service
from ...kit.api.types import Request
from ...kit.user_code.modules import forget
from ...kit.user_code.service import HI, ScriptedService

WAITS = """
import asyncio
calls = []
async def judge(text, stage):
    calls.append("called")
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        calls.append("cancelled")
        raise
"""


def calls() -> list[str]:
    known: list[str] = sys.modules["waiting_guard"].calls
    return known


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, calls()
        time.sleep(0.005)


async def until_called() -> None:
    while not calls():  # noqa: ASYNC110 - user code runs on a thread
        await asyncio.sleep(0.005)


def rolling(service: Service) -> None:
    """Java has forgotten all."""
    batch = RollingBatch(service)
    batch.step([Request(HI)])
    until(calls)
    batch.step([], reset=True)


def asynchronous(service: Service) -> None:
    """djl_python closes the request's generator."""

    async def run() -> None:
        batcher = AsyncBatcher(service)
        messages: Any = batcher.messages(Request(HI), "1")
        waiting = asyncio.ensure_future(anext(messages))
        await asyncio.wait_for(until_called(), 30)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        await messages.aclose()

    asyncio.run(run())


def server(service: Service) -> None:
    """The connection is closed."""

    async def run() -> None:
        with AsyncService(service).open(Request(HI)):
            await asyncio.wait_for(until_called(), 30)

    asyncio.run(run())


def cancelled(service: Service) -> None:
    service.open(Request(HI, request_id="a" * 16))
    until(calls)
    service.open(Request(b'{"requestType": "CANCEL", "request_id": "aaaaaaaaaaaaaaaa"}'))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedService]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    made = ScriptedService(tmp_path, {"waiting_guard.py": WAITS}, {"content_filter": "waiting_guard:judge"})
    yield made
    made.service.close()
    forget(tmp_path)


@pytest.mark.parametrize("leave", [rolling, asynchronous, server, cancelled])
def test_it_ends_user_code(place: ScriptedService, leave: Callable[[Service], None]) -> None:
    leave(place.service)
    until(lambda: calls() == ["called", "cancelled"])
    until(lambda: place.service.admission.open == 0)
    assert place.engine.generations == []
    assert place.service.metrics.in_flight == 0
