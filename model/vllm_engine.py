"""vLLM as a backend: runs in the engine's process, on vLLM 0.23.0 (the LMI container's) and later.

    Generation --prepare--> prompt ids, SamplingParams --add--> one vLLM request for each sequence
    RequestOutput --step--> ids --vllm_outputs.py, text.py--> Started, Delta

vLLM is asked for token ids only (`detokenize=False`): text, stop strings and each token's exact piece are made by
TextStream, once instead of twice. n sequences are n requests with seeds of their own, which is what vLLM makes of them
too; so a stop string ends one of them without touching the others.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait as wait_for_any
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any

from .engine import EngineInfo
from .errors import ContextError, GenerationError, LmiError, ParameterError
from .events import Delta, Event, Failed, Finish
from .generation import Generation, Sampling
from .options import Settings
from .tokenizer import Tokenizer
from .vllm_outputs import OutputReader, SequenceText

if TYPE_CHECKING:
    from vllm import SamplingParams

__all__ = ["VllmEngine"]

log = logging.getLogger(__name__)

DEFAULTED = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
)
"""Fields of Sampling whose None means the model's generation_config; vLLM has the same names for them."""


@dataclass(slots=True)
class _Prepared:
    """A generation, ready to be added."""

    number: int
    generation: Generation
    prompt: Any
    prompt_ids: list[int]
    params: list[SamplingParams]


@dataclass(slots=True)
class _Group:
    """The sequences of one generation."""

    number: int
    prompt_ids: list[int]
    stream: bool
    running: set[str] = field(default_factory=set[str])
    started: bool = False


@dataclass(slots=True)
class _Sequence:
    """One sequence of a generation: one vLLM request."""

    name: str
    index: int
    group: _Group
    text: SequenceText


class VllmEngine:
    """A Backend (model/engine.py) on vLLM's LLMEngine."""

    def __init__(self, settings: Settings) -> None:
        _choose_processes()
        import vllm
        from vllm import EngineArgs, SamplingParams
        from vllm.v1.engine.llm_engine import LLMEngine

        from .vllm_options import engine_arguments

        before = set(multiprocessing.active_children())
        self._llm = LLMEngine.from_engine_args(EngineArgs(**engine_arguments(settings)))
        _end_with(set(multiprocessing.active_children()) - before)
        self._sampling_params = SamplingParams
        self._client_errors = _client_errors()
        self._model_config = self._llm.model_config
        self._defaults: dict[str, Any] = dict(self._model_config.get_diff_sampling_param())
        tokenizer = self._llm.get_tokenizer()
        self._reader = OutputReader(Tokenizer(tokenizer), _eos_ids(self._model_config, tokenizer))
        self._sequences: dict[str, _Sequence] = {}
        self._groups: dict[int, _Group] = {}
        self._info = EngineInfo(engine="vllm", version=vllm.__version__, context=self._model_config.max_model_len)

    @property
    def info(self) -> EngineInfo:
        """Version and context length."""
        return self._info

    @property
    def busy(self) -> bool:
        """Whether anything runs. Only then may `step` be called: with nothing to do, vLLM's waits for ever."""
        return bool(self._sequences)

    def prepare(self, number: int, generation: Generation) -> _Prepared:
        """Tokenizes and checks; raises RequestError."""
        sampling = generation.sampling
        try:
            prompt, ids = self._render(generation)
            max_tokens = self._room(generation, len(ids))
            arguments = self._arguments(sampling, max_tokens, step_by_step=generation.stream or bool(sampling.stop))
            params = [self._sampling_params(**arguments, seed=_seed(sampling, index)) for index in range(sampling.n)]
        except self._client_errors as error:
            raise _refused(error) from error
        return _Prepared(number, generation, prompt, ids, params)

    def add(self, prepared: _Prepared) -> None:
        """Starts the sequences; raises RequestError, having started none."""
        generation = prepared.generation
        group = _Group(prepared.number, prepared.prompt_ids, generation.stream)
        for index, params in enumerate(prepared.params):
            name = f"{prepared.number}.{index}"
            try:
                self._llm.add_request(request_id=name, prompt=prepared.prompt, params=params)
            except self._client_errors as error:
                self._drop(group)
                raise _refused(error) from error
            group.running.add(name)
            text = self._reader.text(generation.sampling, prepared.prompt_ids, generation.tokens)
            self._sequences[name] = _Sequence(name, index, group, text)
        self._groups[prepared.number] = group

    def abort(self, numbers: Sequence[int]) -> None:
        """Ends generations; those that have ended already are ignored."""
        for number in numbers:
            if (group := self._groups.pop(number, None)) is not None:
                self._drop(group)

    def step(self) -> list[tuple[int, Event]]:
        """One step of vLLM; raises when vLLM is beyond use."""
        events: list[tuple[int, Event]] = []
        stopped: list[str] = []
        for output in self._llm.step():
            sequence = self._sequences.get(output.request_id)
            if sequence is None:
                continue
            number = sequence.group.number
            try:
                events += [(number, event) for event in self._advance(sequence, output, stopped)]
            except Exception as error:
                log.exception("generation %d failed", number)
                if not isinstance(error, LmiError):
                    error = GenerationError(f"the answer could not be decoded: {error}")
                self.abort([number])
                events.append((number, Failed.of(error)))
        if stopped:
            self._llm.abort_request(stopped)
        return events

    def close(self) -> None:
        """Ends vLLM's own processes."""
        shutdown = getattr(self._llm.engine_core, "shutdown", None)
        if shutdown is not None:
            shutdown()

    def _render(self, generation: Generation) -> tuple[Any, list[int]]:
        """The prompt as vLLM takes it, and its token ids."""
        from vllm.renderers.inputs.preprocess import parse_model_prompt
        from vllm.renderers.params import TokenizeParams

        given: dict[str, Any]
        if isinstance(generation.prompt, str):
            given = {"prompt": generation.prompt}
        else:
            given = {"prompt_token_ids": list(generation.prompt)}
        # No limit here: vLLM's message for a long prompt would not name the client's field.
        truncate = generation.sampling.truncate
        tokenize = TokenizeParams(max_total_tokens=None, truncate_prompt_tokens=truncate, truncation_side="left")
        parsed = parse_model_prompt(self._model_config, given)
        rendered: list[Any] = self._llm.renderer.render_cmpl([parsed], tokenize)
        (prompt,) = rendered
        return prompt, list(prompt["prompt_token_ids"])

    def _room(self, generation: Generation, prompt_tokens: int) -> int:
        """How many tokens may be generated; raises ContextError."""
        field = generation.prompt_field
        context = self._info.context
        room = context - prompt_tokens
        if prompt_tokens < 1 or room < 1:
            raise ContextError(
                f"{field}: expected a prompt of 1 to {context - 1} tokens (the model's context is {context}), "
                f"got {prompt_tokens} tokens",
                field,
            )
        wanted = generation.sampling.max_tokens
        if wanted is not None and wanted > room and generation.overflow == "refuse":
            raise ContextError(
                f"{field}: {prompt_tokens} prompt tokens and {wanted} tokens to generate exceed the model's context "
                f"of {context} tokens",
                field,
            )
        return room if wanted is None else min(wanted, room)

    def _arguments(self, sampling: Sampling, max_tokens: int, *, step_by_step: bool) -> dict[str, Any]:
        """Arguments of SamplingParams, all but the seed."""
        from vllm.sampling_params import RequestOutputKind

        arguments: dict[str, Any] = {
            "max_tokens": max_tokens,
            "min_tokens": min(sampling.min_tokens, max_tokens),
            "stop_token_ids": list(sampling.stop_token_ids),
            "ignore_eos": sampling.ignore_eos,
            "logprobs": sampling.logprobs,
            "prompt_logprobs": sampling.prompt_logprobs,
            "logit_bias": sampling.logit_bias,
            "bad_words": list(sampling.bad_words),
            "detokenize": False,
            "output_kind": RequestOutputKind.DELTA if step_by_step else RequestOutputKind.FINAL_ONLY,
        }
        for name in DEFAULTED:
            value = getattr(sampling, name)
            if value is None:
                value = self._defaults.get(name)
            if value is not None:
                arguments[name] = value
        return arguments

    def _advance(self, sequence: _Sequence, output: Any, stopped: list[str]) -> list[Event]:
        """What is new of one sequence. Adds it to `stopped` where it has ended and vLLM does not know yet."""
        group = sequence.group
        text = sequence.text.stream
        completion = output.outputs[0]
        events: list[Event] = []
        if not group.started:
            group.started = True
            events.append(self._reader.started(group.prompt_ids, output))
        self._reader.read(sequence.text, completion)
        reason = completion.finish_reason
        if reason is None and text.stop is None:
            if group.stream:
                new, tokens = text.take()
                if new or tokens:
                    events.append(Delta(sequence.index, new, tokens))
            return events
        if reason == "error":
            raise GenerationError("the engine failed while generating")
        if reason is None:
            stopped.append(sequence.name)
        self._forget(sequence)
        new, tokens = text.finish()
        ended, stop = self._reader.how(text.stop, reason, completion.stop_reason)
        finish = Finish(ended, stop, text.count, sequence.text.cumulative, last=not group.running)
        events.append(Delta(sequence.index, new, tokens, finish))
        return events

    def _forget(self, sequence: _Sequence) -> None:
        """Removes a sequence that has ended, and its generation with the last one."""
        del self._sequences[sequence.name]
        group = sequence.group
        group.running.discard(sequence.name)
        if not group.running:
            self._groups.pop(group.number, None)

    def _drop(self, group: _Group) -> None:
        """Ends what still runs of a generation."""
        names = list(group.running)
        group.running.clear()
        for name in names:
            del self._sequences[name]
        if names:
            self._llm.abort_request(names)


def _choose_processes() -> None:
    """Where vLLM's core runs, unless the user's environment says.

    On a GPU vLLM's own default, a process beside this one: output is processed while the next step runs. On a CPU in
    this process: its cores are the model's already, and a hop less makes a single request several times faster.
    """
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")


def _end_with(children: set[BaseProcess]) -> None:
    """Ends this process with any of vLLM's: its client would wait for ever for the next step of a core that is gone."""
    if not children:
        return

    def watch() -> None:
        wait_for_any([child.sentinel for child in children])
        log.critical("a process of vLLM ended")
        os._exit(3)

    threading.Thread(target=watch, name="lmi-watch", daemon=True).start()


def _client_errors() -> tuple[type[Exception], ...]:
    """What vLLM raises for a bad request: from 0.32 on not a ValueError any more."""
    import vllm.exceptions

    later = getattr(vllm.exceptions, "VLLMClientError", None)
    return (ValueError, TypeError) if later is None else (ValueError, TypeError, later)


def _refused(error: Exception) -> ParameterError:
    """What vLLM found wrong with a request's values."""
    return ParameterError(str(error), getattr(error, "parameter", None))


def _eos_ids(config: Any, tokenizer: Any) -> frozenset[int]:
    """All token ids with which the model ends by itself."""
    given = config.try_get_generation_config().get("eos_token_id")
    ids = given if isinstance(given, list) else [given]
    return frozenset(token_id for token_id in (*ids, tokenizer.eos_token_id) if token_id is not None)


def _seed(sampling: Sampling, index: int) -> int | None:
    return None if sampling.seed is None else sampling.seed + index
