"""One death of the engine behind DJL: all in flight is told, so are new requests, and it comes back by itself.

tests/robustness/test_engine_death.py has the other processes, moments and hosts.
"""

from __future__ import annotations

import asyncio
import signal

import pytest

from ..kit.faults.kills import alive, ask, end, family, in_flight, well
from ..kit.hosts.host import Host, client, engine_process, eventually

pytestmark = [pytest.mark.engine, pytest.mark.djl, pytest.mark.contract, pytest.mark.anyio]


@pytest.mark.parametrize("host", ["rolling"], indirect=True)
async def test_the_engine_is_killed_in_mid_stream(host: Host) -> None:
    async with client(host) as http:

        async def served() -> bool:
            await asyncio.sleep(0.2)
            return well(await ask(http))

        worker, engine = host.worker_pid, engine_process(host)
        gone = family(engine)
        flight = await in_flight(http, "stream")
        end(engine, signal.SIGKILL)
        answers = await asyncio.gather(*flight.tasks)
        assert len(answers) == 5
        for answer in answers:
            assert "the engine's process ended by signal SIGKILL" in answer.error, answer
        for streamed in flight.streams:
            assert streamed.documents[-1]["details"]["finish_reason"] == "error"
        refused = await ask(http)
        assert (refused.status_code, well(refused)) != (200, False), refused.text
        await eventually(served, 240.0)
    assert host.worker_pid == worker
    assert engine_process(host).pid != engine.pid
    assert not alive(gone)
