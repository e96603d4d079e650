"""vLLM as a backend: runs in the engine's process, on vLLM 0.23.0 (the LMI container's) and later.

    Generation --prepare--> prompt ids, SamplingParams --add--> one vLLM request for each sequence
    RequestOutput --step--> ids --TextStream--> Started, Delta

vLLM is asked for token ids only (`detokenize=False`): text, stop strings and each token's exact piece are made by TextStream, once
instead of twice. n sequences are n requests with seeds of their own, which is what vLLM makes of them too; so a stop string ends
one of them without touching the others.
"""

from __future__ import annotations

import logging
import math
import multiprocessing
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait as wait_for_any
from typing import TYPE_CHECKING, Any

from .engine import EngineInfo
from .errors import ContextError, GenerationError, LmiError, ParameterError
from .events import LOWEST_LOGPROB, Delta, Event, Failed, Finish, FinishReason, Started, Token, TopToken
from .generation import Generation, Sampling
from .options import Settings
from .text import TextStream
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from vllm import RequestOutput, SamplingParams
    from vllm.outputs import CompletionOutput

__all__ = ["VllmEngine"]

log = logging.getLogger(__name__)

_SAMPLING_FIELDS = (
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
    running: set[str] = field(default_factory=set[str])
    started: bool = False


@dataclass(slots=True)
class _Sequence:
    """One sequence of a generation: one vLLM request."""

    group: _Group
    index: int
    text: TextStream
    stream: bool
    include_stop: bool
    logprobs: int | None
    cumulative: float = 0.0


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
        self._sampling_params = SamplingParams
        self._client_errors = _client_errors()
        config = self._llm.model_config
        self._model_config = config
        self._defaults: dict[str, Any] = dict(config.get_diff_sampling_param())
        self._tokenizer = Tokenizer(self._llm.get_tokenizer())
        self._eos_ids = _eos_ids(config, self._llm.get_tokenizer())
        self._sequences: dict[str, _Sequence] = {}
        self._groups: dict[int, _Group] = {}
        self._info = EngineInfo(engine="vllm", version=vllm.__version__, context=config.max_model_len)
        _end_with(set(multiprocessing.active_children()) - before)

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
            room = self._info.context - len(ids)
            if room < 1 or not ids:
                raise ContextError(
                    f"{generation.prompt_field}: expected a prompt of 1 to {self._info.context - 1} tokens (the model's context is "
                    f"{self._info.context}), got {len(ids)} tokens",
                    generation.prompt_field,
                )
            wanted = room if sampling.max_tokens is None else sampling.max_tokens
            if wanted > room and generation.overflow == "refuse":
                raise ContextError(
                    f"{generation.prompt_field}: {len(ids)} prompt tokens and {wanted} tokens to generate exceed the model's context "
                    f"of {self._info.context} tokens",
                    generation.prompt_field,
                )
            shared = self._shared_params(sampling, min(wanted, room), generation.stream or bool(sampling.stop))
            params = [self._sampling_params(**shared, seed=_seed(sampling, index)) for index in range(sampling.n)]
        except self._client_errors as error:
            raise ParameterError(str(error), getattr(error, "parameter", None)) from error
        return _Prepared(number, generation, prompt, ids, params)

    def add(self, prepared: _Prepared) -> None:
        """Starts the sequences; raises RequestError, having started none."""
        generation = prepared.generation
        sampling = generation.sampling
        group = _Group(prepared.number, prepared.prompt_ids)
        for index, params in enumerate(prepared.params):
            name = f"{prepared.number}.{index}"
            try:
                self._llm.add_request(request_id=name, prompt=prepared.prompt, params=params)
            except self._client_errors as error:
                self._drop(group)
                raise ParameterError(str(error), getattr(error, "parameter", None)) from error
            group.running.add(name)
            decode = self._tokenizer.stream(
                prepared.prompt_ids, sampling.skip_special_tokens, sampling.spaces_between_special_tokens
            )
            text = TextStream(
                decode,
                stops=sampling.stop,
                include_stop=sampling.include_stop,
                min_tokens=sampling.min_tokens,
                keep_tokens=generation.tokens,
            )
            self._sequences[name] = _Sequence(
                group, index, text, generation.stream, sampling.include_stop, sampling.logprobs
            )
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
            name: str = output.request_id
            sequence = self._sequences.get(name)
            if sequence is None:
                continue
            try:
                self._advance(name, sequence, output, events, stopped)
            except Exception as error:
                log.exception("generation %d failed", sequence.group.number)
                reason = error if isinstance(error, LmiError) else GenerationError(f"the answer could not be decoded: {error}")
                self._groups.pop(sequence.group.number, None)
                self._drop(sequence.group)
                events.append((sequence.group.number, Failed.of(reason)))
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
        truncate = generation.sampling.truncate
        # No limit here: vLLM's message for a long prompt would not name the client's field.
        tokenize = TokenizeParams(max_total_tokens=None, truncate_prompt_tokens=truncate, truncation_side="left")
        parsed = parse_model_prompt(self._model_config, given)
        (prompt,) = self._llm.renderer.render_cmpl([parsed], tokenize)
        return prompt, list(prompt["prompt_token_ids"])

    def _shared_params(self, sampling: Sampling, max_tokens: int, step_by_step: bool) -> dict[str, Any]:
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
            "skip_special_tokens": sampling.skip_special_tokens,
            "output_kind": RequestOutputKind.DELTA if step_by_step else RequestOutputKind.FINAL_ONLY,
        }
        for name in _SAMPLING_FIELDS:
            value = getattr(sampling, name)
            if value is None:
                value = self._defaults.get(name)
            if value is not None:
                arguments[name] = value
        return arguments

    def _advance(
        self, name: str, sequence: _Sequence, output: RequestOutput, events: list[tuple[int, Event]], stopped: list[str]
    ) -> None:
        """Turns one sequence's output into events; names it in `stopped` where vLLM does not know yet that it has ended."""
        group = sequence.group
        completion = output.outputs[0]
        if not group.started:
            group.started = True
            events.append((group.number, self._started(group, output)))
        self._read_tokens(sequence, completion)
        text = sequence.text
        reason = completion.finish_reason
        if text.stop is None and reason is None:
            if sequence.stream:
                new, tokens = text.take()
                if new or tokens:
                    events.append((group.number, Delta(sequence.index, new, tokens)))
            return
        if reason == "error":
            raise GenerationError("the engine failed while generating")
        if reason is None:
            stopped.append(name)
        self._forget(name, sequence)
        new, tokens = text.finish()
        ended, stop = self._how(text.stop, reason, completion.stop_reason)
        cumulative = sequence.cumulative if sequence.logprobs is not None else None
        finish = Finish(ended, stop, text.count, cumulative, not group.running)
        events.append((group.number, Delta(sequence.index, new, tokens, finish)))

    def _started(self, group: _Group, output: RequestOutput) -> Started:
        prefill: tuple[Token, ...] = ()
        if output.prompt_logprobs:
            prefill = self._prefill(group.prompt_ids, output.prompt_logprobs)
        return Started(len(group.prompt_ids), output.num_cached_tokens or 0, prefill)

    def _read_tokens(self, sequence: _Sequence, completion: CompletionOutput) -> None:
        """Adds the new tokens to the sequence's text."""
        ids = completion.token_ids
        text = sequence.text
        # The token that ended the sequence (end of sequence, a stop token id) has no text, unless stops are to be shown.
        hide_last = completion.finish_reason == "stop" and not sequence.include_stop
        if sequence.logprobs is None:
            for position, token_id in enumerate(ids, 1):
                hidden = hide_last and position == len(ids)
                if text.push(token_id, special=token_id in self._tokenizer.special_ids, hidden=hidden):
                    return
            return
        # Without new ids vLLM 0.23 repeats the whole history of log-probabilities.
        entries = completion.logprobs if ids and completion.logprobs else ()
        for position, (token_id, entry) in enumerate(zip(ids, entries, strict=True), 1):
            logprob = _finite(entry[token_id].logprob)
            sequence.cumulative += logprob
            hidden = hide_last and position == len(ids)
            special = token_id in self._tokenizer.special_ids
            top = self._top(entry, sequence.logprobs) if sequence.logprobs else ()
            raw = self._tokenizer.raw(token_id) if sequence.logprobs else b""
            if text.push(token_id, logprob, special, top, raw, hidden=hidden):
                return

    def _top(self, entry: Any, wanted: int) -> tuple[TopToken, ...]:
        """The `wanted` most likely tokens of a position."""
        best = sorted(entry.items(), key=lambda item: item[1].logprob, reverse=True)[:wanted]
        return tuple(
            TopToken(token_id, self._tokenizer.piece(token_id), _finite(logprob.logprob), self._tokenizer.raw(token_id))
            for token_id, logprob in best
        )

    def _prefill(self, ids: list[int], logprobs: Sequence[Any]) -> tuple[Token, ...]:
        """The prompt's tokens; the first has no log-probability."""
        decode = self._tokenizer.stream([], False, True)
        tokens: list[Token] = []
        for token_id, entry in zip(ids, logprobs, strict=True):
            logprob = _finite(entry[token_id].logprob) if entry else None
            tokens.append(Token(token_id, decode(token_id), logprob, token_id in self._tokenizer.special_ids))
        return tuple(tokens)

    def _how(self, found: str | None, reason: str | None, stop: str | int | None) -> tuple[FinishReason, str | int | None]:
        """Why a sequence ended. A stop string goes before what vLLM saw in the same step."""
        if found is not None:
            return "stop", found
        if reason == "stop":
            # A second end-of-sequence id of the model's generation_config is reported like a stop token id.
            return ("eos", None) if stop is None or stop in self._eos_ids else ("stop", stop)
        if reason == "length":
            return "length", None
        if reason == "repetition":
            return "stop", None
        return "abort", None

    def _forget(self, name: str, sequence: _Sequence) -> None:
        """Removes a sequence that has ended, and its generation with the last one."""
        del self._sequences[name]
        sequence.group.running.discard(name)
        if not sequence.group.running:
            self._groups.pop(sequence.group.number, None)

    def _drop(self, group: _Group) -> None:
        """Ends what still runs of a generation."""
        names = list(group.running)
        for name in names:
            self._sequences.pop(name, None)
        group.running.clear()
        if names:
            self._llm.abort_request(names)


def _choose_processes() -> None:
    """Where vLLM's core runs, unless the user's environment says.

    On a GPU vLLM's own default, a process beside this one, so that output is processed while the next step runs. On a CPU in this
    process: its cores are the model's already, and a hop less makes a single request several times faster.
    """
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")


def _end_with(children: set[multiprocessing.Process]) -> None:
    """Ends this process when one of vLLM's ends: its client would wait for ever for the next step of a core that was killed."""
    if not children:
        return

    def watch() -> None:
        wait_for_any([child.sentinel for child in children])
        log.critical("a process of vLLM ended")
        os._exit(3)

    threading.Thread(target=watch, name="lmi-watch", daemon=True).start()


def _client_errors() -> tuple[type[BaseException], ...]:
    """What vLLM raises for a bad request: from 0.32 on not a ValueError any more."""
    import vllm.exceptions

    later = getattr(vllm.exceptions, "VLLMClientError", None)
    return (ValueError, TypeError) if later is None else (ValueError, TypeError, later)


def _eos_ids(config: Any, tokenizer: Any) -> frozenset[int]:
    """All token ids with which the model ends by itself."""
    given = config.try_get_generation_config().get("eos_token_id")
    ids = given if isinstance(given, list) else [given]
    return frozenset(token_id for token_id in (*ids, tokenizer.eos_token_id) if token_id is not None)


def _seed(sampling: Sampling, index: int) -> int | None:
    return None if sampling.seed is None else sampling.seed + index


def _finite(logprob: float) -> float:
    """JSON has no infinity: LOWEST_LOGPROB stands for it."""
    return logprob if math.isfinite(logprob) and logprob > LOWEST_LOGPROB else LOWEST_LOGPROB
