"""A client that leaves ends its user code, on every host that learns of it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from ...kit.api.handler import AsyncBatcher, AsyncService, RollingBatch, Service
from ...kit.api.types import Request
from ...kit.user_code.service import HI, MakeScripted
from ...kit.waiting import until, until_async

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
        await until_async(calls)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        await messages.aclose()

    asyncio.run(run())


def server(service: Service) -> None:
    """The connection is closed."""

    async def run() -> None:
        with AsyncService(service).open(Request(HI)):
            await until_async(calls)

    asyncio.run(run())


def cancelled(service: Service) -> None:
    service.open(Request(HI, request_id="a" * 16))
    until(calls)
    service.open(Request(b'{"requestType": "CANCEL", "request_id": "aaaaaaaaaaaaaaaa"}'))


@pytest.mark.parametrize("leave", [rolling, asynchronous, server, cancelled])
def test_it_ends_user_code(scripted: MakeScripted, leave: Callable[[Service], None]) -> None:
    place = scripted({"waiting_guard.py": WAITS}, content_filter="waiting_guard:judge")
    leave(place.service)
    until(lambda: calls() == ["called", "cancelled"])
    until(lambda: place.service.admission.open == 0)
    assert place.engine.generations == []
    assert place.service.metrics.in_flight == 0
