"""What vLLM's core is sent, and what becomes of what it sends where a CPU's core sends it otherwise."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import socket
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ...kit.api.engine import RESPONSE_TOKEN as TOKEN
from ...kit.api.engine import Channel, EngineLoop, ToEngine, vllm_core
from ...kit.api.options import MediaRules, make_settings
from ...kit.api.types import (
    Beams,
    Delta,
    EngineEvent,
    Failed,
    Generation,
    Prefill,
    Sampling,
    Settings,
    Started,
    StructuredOutput,
)
from ...kit.engines.spoken_for import engine_spoken_for
from ...kit.hosts.host import model_directory

pytestmark = [pytest.mark.engine, pytest.mark.anyio]


@pytest.fixture
def settings(demo_model: Path, tmp_path: Path) -> Settings:
    return make_settings(model_directory(demo_model, tmp_path / "model", {}))


def asked(prompt: Any = "Hi", *, stream: bool = True, echo: bool = False, **sampling: Any) -> Generation:
    chosen = Sampling(**{"temperature": 0.0, "max_tokens": 5, **sampling})
    return Generation(request_id="r", prompt=prompt, sampling=chosen, stream=stream, echo=echo)


async def add(engine: Any, number: int, one: Generation) -> None:
    engine.add(number, engine.prepare(number, one))
    await asyncio.sleep(0)


def output(name: str, *tokens: int, ended: bool = False, **more: Any) -> Any:
    from vllm.v1.engine import EngineCoreOutput, FinishReason

    return EngineCoreOutput(name, [*tokens], finish_reason=FinishReason.LENGTH if ended else None, **more)


def likely(number: int, width: int) -> Any:
    """Log-probabilities of so many tokens, as the sampler has them: the chosen one first, then the likeliest."""
    import torch
    from vllm.v1.outputs import LogprobsTensors

    torch.manual_seed(number)
    ids = torch.randint(5, 600, (number, width), dtype=torch.int32)
    return LogprobsTensors(ids, -torch.rand(number, width) * 9, torch.randint(1, 600, (number,), dtype=torch.int32))


def of_prompt(ids: list[int], width: int) -> Any:
    """Those of a prompt: of each token but the first."""
    tensors = likely(len(ids) - 1, width)
    for row, token in enumerate(ids[1:]):
        tensors.logprob_token_ids[row, 0] = token
    return tensors


async def whole(engine: Any) -> list[EngineEvent]:
    """All events, until nothing is left to be read."""
    events: list[EngineEvent] = []
    while engine.busy:
        events += [event for _, event in await asyncio.wait_for(engine.receive(), 60)]
    return events


async def test_no_request_of_another_process_has_a_requests_name(settings: Settings) -> None:
    """Each engine numbers its requests from 1, and stores of KV caches that they share know requests by name."""
    names: list[str] = []
    for _ in range(2):
        engine, client = engine_spoken_for(settings)
        await add(engine, 1, asked(n=3, temperature=1.0))
        await add(engine, 2, asked(beams=Beams(width=2), stream=False))
        names += [request.request_id for request in client.requests]
        engine.abort([1, 2])
        await asyncio.sleep(0)
        assert sorted(client.aborted) == sorted(names[-4:])
        engine.close()
    assert len(names) == 8
    assert len({*names}) == 8


@pytest.mark.parametrize("echo", [False, True], ids=["prompt_logprobs", "echo"])
async def test_a_prompt_of_one_token_has_it_though_the_core_sends_nothing(settings: Settings, echo: bool) -> None:
    """Model runner V2 sends no tensors then, V1 empty ones: vLLM's own server has a list with null either way."""
    from vllm.v1.engine.logprobs import LogprobsProcessor
    from vllm.v1.outputs import LogprobsTensors

    engine, client = engine_spoken_for(settings)
    seen: list[list[EngineEvent]] = []
    for number, tensors in enumerate((None, LogprobsTensors.empty_cpu(0, 4)), 1):
        await add(engine, number, asked((9,), prompt_logprobs=3, echo=echo))
        theirs: Any = LogprobsProcessor.from_new_request(None, client.requests[-1])
        sent = output(client.requests[-1].request_id, 7, ended=True, new_prompt_logprobs_tensors=tensors)
        theirs.update_from_output(sent)
        client.say(sent)
        seen.append(await whole(engine))
        assert [*theirs.prompt_logprobs] == [None]
    engine.close()
    assert seen[0] == seen[1]
    started = seen[0][0]
    assert isinstance(started, Started)
    assert [(token.id, token.logprob, token.top) for token in started.prefill] == [(9, None, ())]
    assert started.ranks == (None,)
    assert started.text == ("".join(token.text for token in started.prefill) if echo else "")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_what_vllms_own_decoder_reads_is_the_same(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    """Log-probabilities, where they are not left as they come (core_outputs.py: leave_rows)."""
    seen: list[list[EngineEvent]] = []
    for _ in range(2):
        engine, client = engine_spoken_for(settings)
        for number, wanted in enumerate((None, 0, 4)):
            one = asked(logprobs=wanted, max_tokens=9, stream=stream)
            await add(engine, number, msgspec.structs.replace(one, tokens=True))
        for step in range(3):
            rows = likely(3, 7)
            for request in client.requests:
                told = None if request.sampling_params.logprobs is None else rows.tolists()
                ids = map(int, rows.logprob_token_ids[:, 0])
                client.say(output(request.request_id, *ids, ended=step == 2, new_logprobs=told))
        seen.append(await whole(engine))
        engine.close()
        monkeypatch.setattr(vllm_core, "leave_rows", lambda _: None)
    assert seen[0] == seen[1]
    tokens = [token for event in seen[0] if isinstance(event, Delta) for token in event.tokens]
    assert {(token.logprob is None, len(token.top)) for token in tokens} == {(True, 0), (False, 0), (False, 4)}


async def test_all_of_a_search_goes_to_the_copy_that_has_its_prefixes(settings: Settings) -> None:
    """Which one vLLM's client chooses for its first request; others are spread as it sees fit."""
    engine, client = engine_spoken_for(settings)
    await add(engine, 1, asked(beams=Beams(width=2), max_tokens=4, stream=False))
    await add(engine, 2, asked())
    (first, other) = client.requests
    assert (first.data_parallel_rank, other.data_parallel_rank) == (None, None)
    done = 0
    while new := client.requests[done:]:
        done += len(new)
        for request in new:
            if request is not other:
                rows = likely(1, request.sampling_params.logprobs + 1).tolists()
                client.say(output(request.request_id, 7, ended=True, new_logprobs=rows), copy=3)
                # What others send in between does not mislead it.
                client.say(output(other.request_id, 8), copy=1)
                await engine.receive()
                await engine.receive()
        await asyncio.sleep(0)
    assert len(client.requests) > 4
    assert {request.data_parallel_rank for request in client.requests[2:]} == {3}
    engine.close()


@pytest.mark.parametrize("length", [1, 40, 700])
@pytest.mark.parametrize("width", [0, 4])
async def test_a_prompt_in_pieces_is_what_it_is_in_one(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, length: int, width: int
) -> None:
    """And before all else of its generation, whatever comes meanwhile; of several sequences too."""
    ids = [5 + place % 600 for place in range(length)]
    seen: list[list[EngineEvent]] = []
    for piece in (64, 10**9):
        monkeypatch.setattr("lmi.model.vllm.sequences.group.PIECE", piece)
        engine, client = engine_spoken_for(settings)
        await add(engine, 1, asked(tuple(ids), prompt_logprobs=width, echo=True, n=2, temperature=1.0))
        first, second = (request.request_id for request in client.requests)
        client.say(output(second, 8))
        client.say(output(first, 7, new_prompt_logprobs_tensors=of_prompt(ids, 1 + width)))
        for token in range(10, 13):
            client.say(output(first, token), output(second, token))
        client.say(output(first, 20, ended=True), output(second, 21, ended=True))
        seen.append(await whole(engine))
        engine.close()
    pieces = [event for event in seen[0] if isinstance(event, Prefill)]
    assert seen[0][: len(pieces)] == pieces
    assert bool(pieces) is (length * (1 + width) > 64)
    assert all(len(piece.tokens) * (1 + width) <= 64 + width for piece in pieces)
    started, *rest = seen[0][len(pieces) :]
    assert isinstance(started, Started)
    expected = seen[1][0]
    assert isinstance(expected, Started)
    tokens = [token for piece in pieces for token in piece.tokens]
    ranks = [rank for piece in pieces for rank in piece.ranks]
    assert (*tokens, *started.prefill) == expected.prefill
    assert (*ranks, *started.ranks) == expected.ranks
    assert [token.id for token in expected.prefill] == ids
    assert (started.text, started.prompt_tokens) == (expected.text, length)
    assert rest == seen[1][1:]
    assert all(isinstance(event, Delta) for event in rest)


@pytest.mark.parametrize(
    ("sampling", "tokens"),
    [
        ({}, 100 + 5),
        ({"n": 3, "temperature": 1.0}, 3 * (100 + 5)),
        ({"prompt_logprobs": 0}, 100 + 5 + 100),
        ({"prompt_logprobs": 20}, 100 + 5 + 21 * 100),
        ({"prompt_logprobs": 20, "n": 3, "temperature": 1.0}, 3 * (100 + 5) + 21 * 100),
    ],
)
async def test_a_prompt_counts_by_what_is_read_of_it(settings: Settings, sampling: Any, tokens: int) -> None:
    """option.max_tokens_in_flight."""
    engine, _ = engine_spoken_for(settings)
    assert engine.tokens(engine.prepare(1, asked((5,) * 100, **sampling))) == tokens
    engine.close()


@pytest.mark.parametrize("width", [0, 5])
async def test_an_answer_that_becomes_too_long_ends_on_its_way(demo_model: Path, tmp_path: Path, width: int) -> None:
    """At option.max_answer_bytes it is complete; beyond, no token more is made than shows it."""
    tokens, n = 30, 4
    folder = model_directory(demo_model, tmp_path / "model", {})
    for allowed in (tokens, tokens // 2):
        most = n * allowed * (1 + width) * TOKEN
        engine, client = engine_spoken_for(make_settings(folder, max_answer_bytes=str(most)))
        one = asked(stream=False, n=n, temperature=1.0, max_tokens=tokens, ignore_eos=True, logprobs=width)
        await add(engine, 1, msgspec.structs.replace(one, tokens=True))
        names = [request.request_id for request in client.requests]
        events: list[EngineEvent] = []
        told = 0
        while engine.busy:
            told += 1
            rows = likely(1, 1 + width).tolists()
            ids = [int(rows.logprob_token_ids[0][0])]
            client.say(*(output(name, *ids, ended=told == tokens, new_logprobs=rows) for name in names))
            events += [event for _, event in await engine.receive()]
        await asyncio.sleep(0)
        if allowed == tokens:
            assert [len(event.tokens) for event in events if isinstance(event, Delta)] == [tokens] * n
            assert client.aborted == []
        else:
            failed = events[-1]
            assert isinstance(failed, Failed)
            assert (failed.kind, "option.max_answer_bytes" in failed.message) == ("ParameterError", True)
            assert not any(isinstance(event, Delta) for event in events)
            assert sorted(client.aborted) == sorted(names)
            assert told == allowed + 1
        engine.close()


async def test_one_that_is_ended_while_its_prompt_is_read_is_forgotten(settings: Settings) -> None:
    engine, client = engine_spoken_for(settings)
    ids = [5 + place % 600 for place in range(1000)]
    await add(engine, 1, asked(tuple(ids), prompt_logprobs=9))
    client.say(output(client.requests[0].request_id, 7, new_prompt_logprobs_tensors=of_prompt(ids, 10)))
    await engine.receive()
    assert engine.busy
    engine.abort([1])
    events = await whole(engine)
    assert not any(isinstance(event, Started | Delta | Failed) for event in events)
    engine.close()


async def test_a_fault_while_a_prompt_is_read_ends_its_generation(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """Here a token whose log-probability is not there."""
    engine, client = engine_spoken_for(settings)
    ids = [9, 10, 11]
    await add(engine, 1, asked(tuple(ids), prompt_logprobs=2))
    name = client.requests[0].request_id
    client.say(output(name, 7, new_prompt_logprobs_tensors=of_prompt([9, 10], 3)))
    client.say(output(name, 8))
    (failed,) = await whole(engine)
    assert isinstance(failed, Failed)
    assert failed.kind == "GenerationError"
    assert failed.message.startswith("the response could not be decoded: ")
    assert "request r: generation 1 failed" in caplog.text
    await asyncio.sleep(0)
    assert client.aborted == [name]
    engine.close()


async def test_one_that_the_core_gives_up_while_its_prompt_is_read_has_its_error(settings: Settings) -> None:
    from vllm.v1.engine import FinishReason

    engine, client = engine_spoken_for(settings)
    ids = [5 + place % 600 for place in range(1000)]
    guide = StructuredOutput(regex="a+", field="the_field")
    await add(engine, 1, asked(tuple(ids), prompt_logprobs=9, structured_output=guide))
    name = client.requests[0].request_id
    client.say(output(name, 7, new_prompt_logprobs_tensors=of_prompt(ids, 10)))
    failed = output(name, 8)
    failed.finish_reason = FinishReason.ERROR
    client.say(failed)
    *pieces, last = await whole(engine)
    assert all(isinstance(event, Prefill) for event in pieces)
    assert isinstance(last, Failed)
    engine.close()


@pytest.mark.timing
async def test_a_long_prompt_does_not_hold_up_the_loop(
    demo_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """47,000 tokens with 20 log-probabilities each, beside a stream: nothing on the loop waits for more than 50 ms."""
    monkeypatch.setenv("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "1")
    folder = model_directory(demo_model, tmp_path / "model", {})
    engine, client = engine_spoken_for(make_settings(folder, max_model_len="49152"))
    # As the engine's process begins to serve (model/heap.py).
    gc.collect()
    gc.freeze()
    ours, theirs = socket.socketpair()
    host = threading.Thread(target=_drain, args=(theirs,))
    host.start()
    loop = EngineLoop(Channel[ToEngine](ours, ToEngine), engine, MediaRules())
    begun, receive = asyncio.Event(), engine.receive

    async def watched() -> Any:
        events = await receive()
        if any(number == 1 and isinstance(event, Started) for number, event in events):
            begun.set()
        return events

    monkeypatch.setattr(engine, "receive", watched)
    monkeypatch.setattr("lmi.model.process.engine_loop.end_with_host", lambda: None)
    serving = asyncio.create_task(loop.run())
    gaps = Gaps()
    watching = asyncio.create_task(gaps.watch())
    try:
        ids = [5 + place % 600 for place in range(47_000)]
        prepared = await asyncio.to_thread(engine.prepare, 1, asked(tuple(ids), prompt_logprobs=20, echo=True))
        tensors = of_prompt(ids, 21)
        await add(engine, 2, asked("Count up.", max_tokens=2000))
        stream, steps = client.requests[0].request_id, itertools.count()
        client.say(output(stream, 5))
        await asyncio.sleep(0.5)
        gaps.longest = 0.0
        engine.add(1, prepared)
        await asyncio.sleep(0)
        name = client.requests[1].request_id
        sent = client.encoded(output(name, 7, new_prompt_logprobs_tensors=tensors))
        gaps.longest = 0.0
        client.outputs_queue.put_nowait(sent)
        while not begun.is_set():
            client.say(output(stream, 5 + next(steps) % 600))
            await asyncio.sleep(0.01)
        assert next(steps) > 20, "the stream goes on"
        assert gaps.longest < 0.05, gaps.longest
    finally:
        gc.unfreeze()
        for task in (serving, watching):
            task.cancel()
        ours.shutdown(socket.SHUT_RDWR)
        host.join(10)
        ours.close()
        theirs.close()
        engine.close()


class Gaps:
    """How long its event loop did not come round at most, in seconds, without the time in which the machine ran others
    and neither the loop's thread nor the one that reads prompts.
    """

    longest = 0.0

    async def watch(self) -> None:
        waited, last = _waited(), time.monotonic()
        while True:
            await asyncio.sleep(0.001)
            before, waited, now = waited, _waited(), time.monotonic()
            self.longest, last = max(self.longest, now - last - (waited - before)), now


def _waited() -> float:
    """Seconds that the two threads could have run and did not, as Linux counts them for each."""
    reading = (thread.native_id for thread in threading.enumerate() if thread.name.startswith("lmi-aside"))
    files = [Path(f"/proc/self/task/{thread}/schedstat") for thread in (threading.get_native_id(), *reading)]
    return sum(int(file.read_text().split()[1]) for file in files if file.exists()) / 1e9


def _drain(sock: socket.socket) -> None:
    """Reads what the host would, and drops it."""
    buffer = bytearray(1 << 20)
    with contextlib.suppress(OSError):
        while sock.recv_into(buffer):
            pass
