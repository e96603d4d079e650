"""vLLM without a model: everything of it and of ours that costs time a token but the core, which is only acted.

    StandInCore.get_output_async --bytes, decoded as vLLM's client does--> Core.receive -> VllmEngine.receive -> events

Each request gets the tokens of one fixed text, so many a step, with log-probabilities where it asks for them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from itertools import count
from pathlib import Path
from typing import Any, TypeVar, cast

from lmi.model.options import Settings, load_settings
from lmi.model.vllm.engine import VllmEngine

from ..demo.model import question

__all__ = ["StandInCore", "backend", "now", "settings_of"]

OPTIONS = {"dtype": "fp32", "max_model_len": "2048", "enforce_eager": "true", "max_rolling_batch_size": "256"}

Result = TypeVar("Result")


def now(call: Coroutine[Any, Any, Result]) -> Result:
    """What a coroutine that waits for nothing returns, without the time that an event loop takes."""
    try:
        call.send(None)
    except StopIteration as end:
        return cast(Result, end.value)
    raise AssertionError("it waits")


class StandInCore:
    """What is asked of vLLM's asynchronous client. `spent` is the CPU time of what the core does, in nanoseconds."""

    def __init__(self, tokens: Sequence[int]) -> None:
        import numpy as np
        from vllm.v1.engine import EngineCoreOutputs
        from vllm.v1.outputs import LogprobsLists
        from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

        self.per_step = 1
        self.spent = 0
        self.tokens = list(tokens)
        self._at: dict[str, int] = {}
        self._requests: dict[str, Any] = {}
        self._encoder, self.decoder = MsgpackEncoder(), MsgpackDecoder(EngineCoreOutputs)
        # As the sampler makes them: for each token its id, its log-probability, its rank.
        ids = np.array(self.tokens, dtype=np.int32).reshape(-1, 1)
        values = np.linspace(-0.001, -7.0, len(self.tokens), dtype=np.float32).reshape(-1, 1)
        self._logprobs = LogprobsLists(ids, values, np.ones(len(self.tokens), dtype=np.int32), None)

    async def get_output_async(self) -> Any:
        """One step's outputs."""
        begun = time.thread_time_ns()
        sent = self._encoder.encode(self._step())
        self.spent += time.thread_time_ns() - begun
        return self.decoder.decode(sent)

    def _step(self) -> Any:
        from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, FinishReason

        outputs: list[Any] = []
        for name, request in list(self._requests.items()):
            at = self._at[name]
            most = request.sampling_params.max_tokens
            size = min(self.per_step, most - at)
            place = at % (len(self.tokens) - self.per_step)
            output = EngineCoreOutput(name, self.tokens[place : place + size])
            if request.sampling_params.logprobs is not None:
                output.new_logprobs = self._logprobs.slice_request(place, size)
            self._at[name] = at + size
            if at + size == most:
                output.finish_reason = FinishReason.LENGTH
                del self._requests[name], self._at[name]
            outputs.append(output)
        return EngineCoreOutputs(outputs=outputs, timestamp=1.0)

    async def add_request_async(self, request: Any) -> None:
        self._requests[request.request_id] = request
        self._at[request.request_id] = 0

    async def abort_requests_async(self, names: Sequence[str]) -> None:
        for name in names:
            self._requests.pop(name, None)
            self._at.pop(name, None)

    async def get_supported_tasks_async(self) -> tuple[str, ...]:
        return ("generate",)

    def shutdown(self) -> None: ...


def settings_of(model_dir: Path, **options: str) -> Settings:
    """The settings of the demo model."""
    return load_settings(model_dir, environment={}, overrides={**OPTIONS, **options})


def backend(settings: Settings) -> tuple[VllmEngine, StandInCore]:
    """A backend on vLLM's core, and what acts for that. Requests are sent at once, without a loop."""
    from transformers import AutoTokenizer
    from vllm.v1.engine import core_client

    tokenizer: Any = AutoTokenizer.from_pretrained(settings.model_id)
    tokens = cast(list[int], tokenizer.encode(question("long").answer, add_special_tokens=False))
    core = StandInCore(tokens)
    clients: Any = core_client.EngineCoreClient
    real = clients.make_async_mp_client
    clients.make_async_mp_client = staticmethod(lambda **_: core)

    async def start() -> VllmEngine:
        made = VllmEngine(settings)
        at_once: Any = now
        made._core._send = at_once  # type: ignore[method-assign]
        await made.begin()
        return made

    try:
        made = asyncio.run(start())
    finally:
        clients.make_async_mp_client = staticmethod(real)
    return made, core


numbers = count(1)
