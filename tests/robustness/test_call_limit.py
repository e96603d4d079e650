"""Dynamic batches that take longer than DJL's predict_timeout: they get an error, and the worker lives on.

The host is the real DJL engine, the engine one of a few lines that never ends where it is told to.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from ..kit.hosts.host import Host, client, directory_without_model, running
from ..kit.paths import ENGINE_FAULTS

pytestmark = [pytest.mark.once, pytest.mark.djl, pytest.mark.hosts, pytest.mark.anyio]

TIMEOUT = 5
ENDLESS = {"inputs": "endless"}
ANSWER = [{"generated_text": "an answer"}]
STREAM = {"model": "m", "prompt": "endless", "stream": True}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("limit")
    path = os.pathsep.join([str(ENGINE_FAULTS), os.environ.get("PYTHONPATH", "")]).strip(":")
    properties = {"option.predict_timeout": str(TIMEOUT), "retry_threshold": "10"}
    directory = directory_without_model(folder / "model")
    with running("dynamic", directory, folder / "log", properties, environment={"PYTHONPATH": path}) as host:
        yield host


async def test_a_batch_gets_an_error_and_the_worker_lives_on(host: Host) -> None:
    worker = host.worker_pid
    async with client(host) as http:
        endless, short = await asyncio.gather(http.post(ENDLESS), http.post({"inputs": "hello"}))
        assert "the request took longer than 4.5 seconds" in endless.text
        assert short.json() == ANSWER
        alone = await http.post(ENDLESS)
        assert (alone.status_code, "took longer than 4.5 seconds" in alone.text) == (424, True)
        assert (await http.post({"inputs": "hello"})).json() == ANSWER
    # Java restarts a worker that answers later than `predict_timeout`.
    assert host.worker_pid == worker
    assert "Restart python process" not in host.log_text()


async def test_a_stream_leaves_time_to_the_next_call(host: Host) -> None:
    """Alone it goes on for longer than `predict_timeout`. Java sends the next call long before the stream ends, and
    would end the worker."""
    worker = host.worker_pid
    async with client(host) as http:
        streaming = asyncio.create_task(http.stream(STREAM))
        await asyncio.sleep(TIMEOUT + 1)
        assert not streaming.done()
        second = await http.post({"inputs": "hello"})
        assert second.json() == ANSWER
        streamed = await streaming
        assert streamed.status == 200
        assert "the stream has ended since another request has waited for 2.25 seconds" in "".join(streamed.lines)
    assert host.worker_pid == worker
