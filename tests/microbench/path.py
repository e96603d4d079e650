"""The way of a token from the engine's output to the host, in one thread, stage by stage.

    StandInCore -> vLLM's decoder -> VllmEngine.receive -> Channel -> EngineClient -> Exchange, Reply -> RollingBatch
    -> Output

All parts are the real ones but the core. Times are CPU times of the thread, so that other load on the machine slows
the measuring and does not change what it finds, as far as caches allow.
"""

from __future__ import annotations

import gc
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from lmi.formatters import Request
from lmi.handler.djl.modes.rolling_batch import RollingBatch
from lmi.handler.service import Service
from lmi.model.engine import Listener, Sink
from lmi.model.generation import Generation
from lmi.model.options import Settings
from lmi.model.process.channel import Channel
from lmi.model.process.child import EngineChild
from lmi.model.process.client import EngineClient
from lmi.model.process.messages import FromEngine, Step, ToEngine

from ..bench.workloads import ALL, WORKLOADS, prompts
from .standin import StandInCore, backend, now, numbers, settings_of

__all__ = ["BODIES", "KINDS", "OURS", "TokenPath", "ours", "quiet", "requests_of"]

SEQUENCES = 64
TOKENS = 100

Make = Callable[[str, int], dict[str, Any]]

BODIES: dict[str, tuple[Make, str]] = {
    **{workload.name: (workload.body, "/invocations") for workload in WORKLOADS},
    "TGI stream": (
        lambda text, n: {"inputs": text, "parameters": {"max_new_tokens": n, "ignore_eos_token": True}},
        "/generate_stream",
    ),
}
"""Of each kind of request that is measured its body, given a prompt and a number of tokens, and its path."""
KINDS = {**{workload.name: (workload.body, "/invocations") for workload in ALL}, **BODIES}
"""Of those, too, that need a parser of tool calls or of reasoning."""

OURS = ("text and tokens", "wire encode", "wire decode", "replies", "rolling batch")
"""The stages that are our Python: after the engine's output object, before the host's send."""


@contextmanager
def quiet() -> Iterator[None]:
    """Nothing is searched for garbage meanwhile."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class _Engine(EngineClient):
    """The engine's two sides in this thread: what they say goes over a real socket pair."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.backend, self.core = backend(settings)
        ours, theirs = socket.socketpair()
        self.host: Channel[FromEngine] = Channel(ours, FromEngine)
        self.engine: Channel[ToEngine] = Channel(theirs, ToEngine)
        self.link = cast(EngineChild, SimpleNamespace(sinks={}, served=False))

    def submit(self, generation: Generation, sink: Sink) -> int:
        number = next(numbers)
        self.backend.add(number, self.backend.prepare(number, generation))
        self.link.sinks[number] = sink
        return number

    def abort(self, tickets: Sequence[int]) -> None:
        """Nothing is to be ended early."""

    @property
    def listeners(self) -> list[Listener]:
        """Of what has come."""
        return self._dispatcher.listeners

    def hand_out(self, step: Step) -> None:
        """What the engine's thread does with a step."""
        self._dispatcher.step(step, self.link)

    def close(self) -> None:
        self.host.close()
        self.engine.close()


class TokenPath:
    """A host in rolling batch over a stand-in core. `stages` has nanoseconds of CPU time since `reset`."""

    def __init__(self, model_dir: Path, **options: str) -> None:
        self.settings = settings_of(model_dir, **options)
        self.engine = _Engine(self.settings)
        self.service = Service(self.settings, self.engine)
        # Nothing to wait for: everything is in this thread.
        self.rolling = RollingBatch(self.service, poll_timeout=0.0)
        self.stages: dict[str, int] = {}
        self.tokens = 0
        self._items: list[Any] = []
        self._vllm = 0
        core: Any = self.engine.core
        get_output = core.get_output_async

        async def timed() -> Any:
            begun = time.thread_time_ns()
            outputs = await get_output()
            self._vllm += time.thread_time_ns() - begun
            return outputs

        core.get_output_async = timed

    @property
    def core(self) -> StandInCore:
        """What acts for the model."""
        return self.engine.core

    def reset(self) -> None:
        """Forgets what has been measured."""
        self.stages = {}
        self.tokens = 0

    def open(self, kind: str, sequences: int = SEQUENCES, tokens: int = TOKENS) -> None:
        """Starts so many requests for so many tokens each."""
        requests = requests_of(kind, sequences, tokens)
        begun = time.thread_time_ns()
        frames = self.rolling.step(requests)
        self._add("opening a request", time.thread_time_ns() - begun)
        assert not any(frame.last for frame in frames), frames
        self._items = [None] * sequences
        self.tokens += sequences * tokens

    def run(self, output: Callable[[list[Any]], object] = len) -> bytes:
        """To the end of all requests; `output` takes each step's frames. Returns what the first one was sent."""
        first: list[bytes] = []
        cpu = time.thread_time_ns
        items = self._items
        while items:
            self.pump()
            # As often as Java would call: each call hands out one record of each request.
            while True:
                begun = cpu()
                frames = self.rolling.step(items)
                called = cpu()
                output(frames)
                self._add("rolling batch", called - begun)
                self._add("output", cpu() - called)
                first.append(frames[0].data)
                items = [item for item, frame in zip(items, frames, strict=True) if not frame.last]
                if not items or not any(entry.exchange.records for entry in self.rolling._open):
                    break
        self._items = items
        return b"".join(first)

    def pump(self) -> None:
        """One step of the engine, as far as the records that it brings."""
        engine = self.engine
        cpu = time.thread_time_ns
        start = cpu()
        core, vllm = self.core.spent, self._vllm
        events = now(engine.backend.receive()) if engine.backend.busy else []
        stepped = cpu()
        core, vllm = self.core.spent - core, self._vllm - vllm
        self._add("engine core, acted", core)
        self._add("vLLM's decoding", vllm - core)
        self._add("text and tokens", stepped - start - vllm)
        if events:
            engine.engine.send(Step(events))
            sent = cpu()
            step = engine.host.receive()
            received = cpu()
            assert isinstance(step, Step)
            engine.hand_out(step)
            self._add("wire encode", sent - stepped)
            self._add("wire decode", received - sent)
            self._add("replies", cpu() - received)

    def _add(self, stage: str, spent: int) -> None:
        self.stages[stage] = self.stages.get(stage, 0) + spent

    @property
    def costs(self) -> dict[str, float]:
        """Microseconds a token of each stage."""
        return {stage: spent / 1000 / self.tokens for stage, spent in self.stages.items()}

    def cost(self, kind: str, per_step: int = 1) -> dict[str, float]:
        """Microseconds a token of each stage, in one round."""
        self.reset()
        self.core.per_step = per_step
        self.open(kind)
        with quiet():
            self.run()
        self.core.per_step = 1
        return self.costs

    def close(self) -> None:
        self.engine.close()


def requests_of(kind: str, sequences: int, tokens: int) -> list[Request]:
    """So many requests for so many tokens each."""
    make, path = KINDS[kind]
    asked = prompts(sequences, next(numbers))
    return [Request(json.dumps(make(prompt, tokens)).encode(), path=path) for prompt in asked]


def ours(stages: Mapping[str, float]) -> float:
    """What of the stages is our Python."""
    return sum(stages.get(stage, 0.0) for stage in OURS)
