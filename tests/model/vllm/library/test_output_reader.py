"""Outputs are read from the core's socket as vLLM's client reads them: over its own sockets, with its decoder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from ....kit.api.engine import output_reader

pytestmark = pytest.mark.engine


class Core:
    """What the core's end of the socket sends, and a client of vLLM's that has no core."""

    def __init__(self) -> None:
        import zmq
        import zmq.asyncio
        from vllm.v1.engine import EngineCoreOutputs
        from vllm.v1.engine.core_client import AsyncMPClient, BackgroundResources
        from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

        context = zmq.Context()
        theirs = zmq.asyncio.Context(context).socket(zmq.PULL)
        port = theirs.bind_to_random_port("tcp://127.0.0.1")
        self.sender = context.socket(zmq.PUSH)
        self.sender.connect(f"tcp://127.0.0.1:{port}")
        self._encoder = MsgpackEncoder()
        self._context = context
        client: Any = AsyncMPClient.__new__(AsyncMPClient)
        client.decoder = MsgpackDecoder(EngineCoreOutputs)
        client.utility_results = {}
        client.outputs_queue = asyncio.Queue()
        client.resources = BackgroundResources(ctx=context)
        client.resources.output_socket = theirs
        self.client = client

    def send(self, *names: str, **fields: Any) -> None:
        """A step in which each request of `names` has a token."""
        from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs

        outputs = [EngineCoreOutput(request_id=name, new_token_ids=[7]) for name in names]
        self.sender.send_multipart(self._encoder.encode(EngineCoreOutputs(outputs=outputs, **fields)))

    def say_dead(self) -> None:
        """What a core sends last that has failed."""
        from vllm.v1.engine.core import EngineCoreProc

        self.sender.send(EngineCoreProc.ENGINE_CORE_DEAD)

    def close(self) -> None:
        self.sender.close(0)
        self.client.resources.output_socket.close(0)
        self._context.term()


@asynccontextmanager
async def core() -> AsyncIterator[Core]:
    made = Core()
    try:
        yield made
    finally:
        made.close()


def on_loop(work: Callable[[Core], Any]) -> None:
    async def run() -> None:
        async with core() as made:
            await asyncio.wait_for(work(made), 20)

    asyncio.run(run())


def names(outputs: Any) -> list[str]:
    return [one.request_id for one in outputs.outputs]


def test_what_comes_is_read_in_order() -> None:
    async def work(core: Core) -> None:
        # It may be there before anybody reads, several steps at once, and later.
        core.send("a")
        core.send("b", "c")
        reader = output_reader(core.client)
        assert reader is not None
        assert [names(await reader.next()) for _ in range(2)] == [["a"], ["b", "c"]]
        later = asyncio.ensure_future(reader.next())
        await asyncio.sleep(0.05)
        assert not later.done()
        core.send("d")
        core.send()
        core.send("e")
        # A step that brought nothing is not told of.
        assert [names(await later), names(await reader.next())] == [["d"], ["e"]]
        reader.put(SimpleNamespace(outputs=[SimpleNamespace(request_id="ours")]))
        assert names(await reader.next()) == ["ours"]

    on_loop(work)


def test_the_result_of_a_call_goes_to_who_waits_for_it() -> None:
    async def work(core: Core) -> None:
        from vllm.v1.engine import UtilityOutput
        from vllm.v1.serial_utils import UtilityResult

        reader = output_reader(core.client)
        assert reader is not None
        results = core.client.utility_results
        results[5], results[6] = (asyncio.get_running_loop().create_future() for _ in range(2))
        kept = dict(results)
        core.send(utility_output=UtilityOutput(call_id=5, result=UtilityResult(["generate"])))
        core.send(utility_output=UtilityOutput(call_id=6, failure_message="no such adapter"))
        core.send("a")
        assert names(await reader.next()) == ["a"]
        assert await kept[5] == ["generate"]
        with pytest.raises(Exception, match="no such adapter"):
            await kept[6]
        assert results == {}

    on_loop(work)


async def _dead(core: Core) -> None:
    core.say_dead()


async def _closed(core: Core) -> None:
    # On the loop, as where the watch over the core finds that it has ended.
    core.client.resources.engine_manager = None
    core.client.resources()


@pytest.mark.parametrize("ends", [_dead, _closed])
def test_a_core_that_ends_is_told_of_behind_its_last_step(ends: Callable[[Core], Any]) -> None:
    async def work(core: Core) -> None:
        from vllm.v1.engine.exceptions import EngineDeadError

        reader = output_reader(core.client)
        assert reader is not None
        core.send("a")
        first = await reader.next()
        waiting = asyncio.ensure_future(reader.next())
        await asyncio.sleep(0)
        await ends(core)
        assert names(first) == ["a"]
        with pytest.raises(EngineDeadError):
            await waiting

    on_loop(work)


def test_what_cannot_be_decoded_ends_it() -> None:
    async def work(core: Core) -> None:
        reader = output_reader(core.client)
        assert reader is not None
        core.sender.send(b"\xc1")
        with pytest.raises(Exception, match="malformed"):
            await reader.next()

    on_loop(work)


def test_a_client_of_several_copies_reads_itself() -> None:
    async def work(core: Core) -> None:
        from vllm.v1.engine.core_client import DPAsyncMPClient

        core.client.__class__ = DPAsyncMPClient
        assert output_reader(core.client) is None

    on_loop(work)


def test_a_client_that_reads_otherwise_is_asked_itself(caplog: pytest.LogCaptureFixture) -> None:
    async def work(core: Core) -> None:
        task = asyncio.ensure_future(asyncio.sleep(60))
        core.client.resources.output_queue_task = task
        del core.client.utility_results
        assert output_reader(core.client) is None
        await asyncio.sleep(0)
        assert not task.cancelled()
        task.cancel()

    on_loop(work)
    (line,) = caplog.messages
    assert line.startswith("outputs are read by vLLM's client, which is slower: ")
