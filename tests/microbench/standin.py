"""vLLM without a model: everything of it and of ours that costs time a token but the core, which is only acted.

    VllmEngine.step -> LLMEngine.step -> StandInCore.get_output -> OutputProcessor -> OutputReader -> events

Each request gets the tokens of one fixed text, so many a step, with log-probabilities where it asks for them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from lmi.model.options import Settings, load_settings
from lmi.model.vllm.engine import VllmEngine

from ..demo.model import question

__all__ = ["StandInCore", "backend", "settings_of"]

OPTIONS = {"dtype": "fp32", "max_model_len": "2048", "enforce_eager": "true", "max_rolling_batch_size": "256"}


class StandInCore:
    """What LLMEngine asks of its EngineCoreClient. `spent` is the CPU time in here, in nanoseconds."""

    def __init__(self, tokens: Sequence[int]) -> None:
        import numpy as np
        from vllm.v1.outputs import LogprobsLists

        self.per_step = 1
        self.spent = 0
        self._tokens = list(tokens)
        self._at: dict[str, int] = {}
        self._requests: dict[str, Any] = {}
        # As the sampler makes them: for each token its id, its log-probability, its rank.
        ids = np.array(self._tokens, dtype=np.int32).reshape(-1, 1)
        values = np.linspace(-0.001, -7.0, len(self._tokens), dtype=np.float32).reshape(-1, 1)
        self._logprobs = LogprobsLists(ids, values, np.ones(len(self._tokens), dtype=np.int32), None)

    def get_output(self) -> Any:
        """One step's outputs."""
        from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, FinishReason

        begun = time.thread_time_ns()
        outputs: list[Any] = []
        for name, request in list(self._requests.items()):
            at = self._at[name]
            most = request.sampling_params.max_tokens
            size = min(self.per_step, most - at)
            place = at % (len(self._tokens) - self.per_step)
            output = EngineCoreOutput(name, self._tokens[place : place + size])
            if request.sampling_params.logprobs is not None:
                output.new_logprobs = self._logprobs.slice_request(place, size)
            self._at[name] = at + size
            if at + size == most:
                output.finish_reason = FinishReason.LENGTH
                del self._requests[name], self._at[name]
            outputs.append(output)
        made = EngineCoreOutputs(outputs=outputs, timestamp=1.0)
        self.spent += time.thread_time_ns() - begun
        return made

    def add_request(self, request: Any) -> None:
        self._requests[request.request_id] = request
        self._at[request.request_id] = 0

    def abort_requests(self, names: Sequence[str]) -> None:
        for name in names:
            self._requests.pop(name, None)
            self._at.pop(name, None)

    def get_supported_tasks(self) -> tuple[str, ...]:
        return ("generate",)

    def collective_rpc(self, *_: Any) -> list[Any]:
        """There are no workers."""
        return []

    def reset_mm_cache(self) -> None: ...

    def shutdown(self) -> None: ...

    @property
    def engine_core(self) -> Any:
        """The core itself and what executes its model, where they are in this process."""
        return self

    model_executor = None
    scheduler = SimpleNamespace(
        running=[], get_num_unfinished_requests=lambda: 0, kv_cache_manager=SimpleNamespace(usage=0.0)
    )


def settings_of(model_dir: Path, **options: str) -> Settings:
    """The settings of the demo model."""
    return load_settings(model_dir, environment={}, overrides={**OPTIONS, **options})


def backend(settings: Settings) -> tuple[VllmEngine, StandInCore]:
    """A backend on vLLM's LLMEngine, and the core that acts for the model."""
    from transformers import AutoTokenizer
    from vllm.v1.engine import core_client

    tokenizer: Any = AutoTokenizer.from_pretrained(settings.model_id)
    tokens = cast(list[int], tokenizer.encode(question("long").answer, add_special_tokens=False))
    core = StandInCore(tokens)
    clients: Any = core_client.EngineCoreClient
    real = clients.make_client
    # Whatever it is asked for: in this process or not, with statistics or without.
    clients.make_client = staticmethod(lambda **_: core)
    try:
        return VllmEngine(settings), core
    finally:
        clients.make_client = staticmethod(real)


numbers = count(1)
