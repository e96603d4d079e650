"""vLLM without a model: everything of it and of ours that costs time a token but the core, which is only acted.

    StandInCore.get_output_async --bytes, decoded as vLLM's client does--> Core.receive -> VllmEngine.receive -> events

Each request gets the tokens of one fixed text or of its own prompt, so many a step, with log-probabilities where it
asks for them. In a process of its own, at a machine's pace: tests/kit/acted/.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import count, islice
from pathlib import Path
from typing import Any, TypeVar, cast

from lmi.model.options import Settings, load_settings
from lmi.model.vllm.engine import VllmEngine

from ..demo.model import question

__all__ = ["StandInCore", "backend", "client_is", "now", "settings_of"]

OPTIONS = {"dtype": "fp32", "max_model_len": "2048", "enforce_eager": "true", "max_rolling_batch_size": "256"}

Result = TypeVar("Result")


def now(call: Coroutine[Any, Any, Result]) -> Result:
    """What a coroutine that waits for nothing returns, without the time that an event loop takes."""
    try:
        call.send(None)
    except StopIteration as end:
        return cast(Result, end.value)
    raise AssertionError("it waits")


class _Said:
    """The tokens that a request gets, again and again, and their log-probabilities."""

    __slots__ = ("at", "logprobs", "most", "stops", "tokens")

    def __init__(self, tokens: Sequence[int], request: Any) -> None:
        self.tokens = tokens
        self.logprobs = _logprobs(tuple(tokens)) if request.sampling_params.logprobs is not None else None
        self.most: int = request.sampling_params.max_tokens
        self.stops = False
        self.at = 0


@lru_cache(maxsize=64)
def _logprobs(tokens: tuple[int, ...]) -> Any:
    """As the sampler makes them: for each token its id, its log-probability, its rank."""
    import numpy as np
    from vllm.v1.outputs import LogprobsLists

    ids = np.array(tokens, dtype=np.int32).reshape(-1, 1)
    values = np.linspace(-0.001, -7.0, len(tokens), dtype=np.float32).reshape(-1, 1)
    return LogprobsLists(ids, values, np.ones(len(tokens), dtype=np.int32), None)


class StandInCore:
    """What is asked of vLLM's asynchronous client. `spent` is the CPU time of what the core does, in nanoseconds."""

    def __init__(self, tokens: Sequence[int] = (), sequences: int | None = None) -> None:
        """`tokens`: of every answer; none: each has those of its own prompt. `sequences`: how many a step serves, those
        that came first; None: all of them.
        """
        from vllm.v1.engine import EngineCoreOutputs
        from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

        self.per_step = 1
        self.stops = False
        """Whether an answer ends with the last of its tokens, which is an end of sequence; else with max_tokens."""
        self.spent = 0
        self.tokens = list(tokens)
        self._sequences = sequences
        self.outputs_queue: asyncio.Queue[Any] = asyncio.Queue()
        """What wakes who waits for outputs (Core.wake); here nobody does for long."""
        self._said: dict[str, _Said] = {}
        self._encoder, self.decoder = MsgpackEncoder(), MsgpackDecoder(EngineCoreOutputs)

    @property
    def busy(self) -> bool:
        """Whether anything runs or waits."""
        return bool(self._said)

    async def get_output_async(self) -> Any:
        """One step's outputs; nothing, after a moment, where nothing runs."""
        if not self.busy:
            await asyncio.sleep(0.001)
        begun = time.thread_time_ns()
        sent = self.step()
        self.spent += time.thread_time_ns() - begun
        return self.decoder.decode(sent)

    def step(self) -> Any:
        """One step's outputs, as the core sends them."""
        from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, FinishReason

        outputs: list[Any] = []
        for name, said in list(islice(self._said.items(), self._sequences)):
            tokens, at = said.tokens, said.at
            size = min(self.per_step, said.most - at)
            place = at if said.stops else at % max(1, len(tokens) + 1 - self.per_step)
            output = EngineCoreOutput(name, list(tokens[place : place + size]))
            if said.logprobs is not None:
                output.new_logprobs = said.logprobs.slice_request(place, size)
            said.at += size
            if said.at == said.most:
                output.finish_reason = FinishReason.STOP if said.stops else FinishReason.LENGTH
                del self._said[name]
            outputs.append(output)
        return self._encoder.encode(EngineCoreOutputs(outputs=outputs, timestamp=1.0))

    def add(self, request: Any) -> None:
        said = self._said[request.request_id] = _Said(self.answer(request), request)
        if self.stops and len(said.tokens) <= said.most:
            said.stops, said.most = True, len(said.tokens)

    def answer(self, request: Any) -> Sequence[int]:
        """The tokens that a request gets."""
        return self.tokens or cast("Sequence[int]", request.prompt_token_ids)

    def abort(self, names: Sequence[str]) -> None:
        for name in names:
            self._said.pop(name, None)

    async def add_request_async(self, request: Any) -> None:
        self.add(request)

    async def abort_requests_async(self, names: Sequence[str]) -> None:
        self.abort(names)

    async def get_supported_tasks_async(self) -> tuple[str, ...]:
        return ("generate",)

    def shutdown(self) -> None: ...


def settings_of(model_dir: Path, **options: str) -> Settings:
    """The settings of the demo model."""
    return load_settings(model_dir, environment={}, overrides={**OPTIONS, **options})


def _send_now(sending: Coroutine[Any, Any, None], name: str | None = None) -> None:
    now(sending)


@contextmanager
def client_is(client: object) -> Iterator[None]:
    """vLLM takes it for the asynchronous client of its core."""
    from vllm.v1.engine import core_client

    clients: Any = core_client.EngineCoreClient
    real = clients.make_async_mp_client
    clients.make_async_mp_client = staticmethod(lambda executor_class, **_: client)
    try:
        yield
    finally:
        clients.make_async_mp_client = staticmethod(real)


def backend(settings: Settings) -> tuple[VllmEngine, StandInCore]:
    """A backend on vLLM's core, and what acts for that. Requests are sent at once, without a loop."""
    core = StandInCore()

    async def start() -> VllmEngine:
        made = VllmEngine(settings)
        made._core._send = _send_now  # type: ignore[method-assign]
        await made.begin()
        return made

    with client_is(core):
        made = asyncio.run(start())
    tokenizer: Any = made._core.get_tokenizer()
    core.tokens = cast(list[int], tokenizer.encode(question("long").answer, add_special_tokens=False))
    return made, core


numbers = count(1)
