"""vLLM as a backend: runs in the engine's process, on vLLM 0.23.0 (the LMI container's) and later.

    Generation --prepare--> prompt ids, SamplingParams --add--> one vLLM request for each sequence
    RequestOutput --step--> ids --text/outputs.py, text/detokenizer.py--> Started, Delta

vLLM is asked for token ids only (`detokenize=False`): text, stop strings and each token's exact piece are made by
Detokenizer, once instead of twice. n sequences are n requests with seeds of their own, which is what vLLM makes of them
too; so a stop string ends one of them without touching the others.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from ..engine import EngineInfo, EngineStats
from ..errors import GenerationError, LmiError, ParameterError, RequestError
from ..events import Delta, Event, Failed, Finish, Token
from ..generation import Generation
from ..media.images import Image
from ..options import Settings
from ..search.beam_run import BeamTexts
from ..text.outputs import OutputReader, SequenceText
from ..text.parsers import Splitter, split
from ..text.sequences import Group
from ..text.tokenizer import Tokenizer
from .beam import BeamRuns
from .chat import ChatRenderer
from .internals import engine_request, keep_chosen_only, reject_transfer
from .prompt import refused
from .requests import Prepared, Requests
from .sampling import LIMITS
from .start import client_errors, eos_ids, start_vllm
from .trial import try_out
from .typical import Typical

if TYPE_CHECKING:
    from vllm import SamplingParams

__all__ = ["VllmEngine"]

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Sequence:
    """One sequence of a generation: one vLLM request."""

    name: str
    index: int
    group: Group[str]
    text: SequenceText
    splitter: Splitter | None
    guide_field: str | None


class VllmEngine:
    """A Backend (model/engine.py) on vLLM's LLMEngine."""

    limits: ClassVar[Mapping[str, str]] = LIMITS

    def __init__(self, settings: Settings) -> None:
        typical = Typical(settings)
        self._longest = settings.limits.max_answer_bytes
        self._llm, self._stats = start_vllm(settings, typical)
        import vllm

        self._client_errors = client_errors()
        model_config, tokenizer = self._llm.model_config, self._llm.get_tokenizer()
        self._by_priority = self._llm.vllm_config.scheduler_config.policy == "priority"
        self._connected = self._llm.vllm_config.kv_transfer_config is not None
        text_side, ends = Tokenizer(tokenizer), eos_ids(model_config, tokenizer)
        self._reader = OutputReader(text_side, ends)
        self._beams = BeamRuns(self._llm, BeamTexts(self._reader, text_side, ends))
        self._chat = ChatRenderer(self._llm, settings)
        self._requests = Requests(self._llm, settings, self._chat, self._beams, typical)
        self._sequences: dict[str, _Sequence] = {}
        self._groups: dict[int, Group[str]] = {}
        self._rejected: deque[tuple[str, dict[str, Any]]] = deque()
        """Of refused requests, whose prompts have been computed elsewhere: a name, and what the connector is told."""
        context, images = model_config.max_model_len, self._chat.images.limit
        self._info = EngineInfo(engine="vllm", version=vllm.__version__, context=context, images=images)
        try_out(self)

    @property
    def info(self) -> EngineInfo:
        """Version and context length."""
        return self._info

    @property
    def busy(self) -> bool:
        """Whether there is anything to do in a step."""
        return bool(self._sequences or self._rejected) or self._beams.busy

    def prepare(self, number: int, generation: Generation, images: Sequence[Image] = ()) -> Prepared:
        """Tokenizes and checks; raises RequestError."""
        try:
            return self._requests.prepare(number, generation, images)
        except RequestError:
            transfer = generation.kv_transfer_params
            if self._connected and transfer and transfer.get("do_remote_prefill"):
                self._rejected.append((f"{number}.rejected", transfer))
            raise

    def tokens(self, prepared: Prepared) -> int:
        """Of all sequences: the prompt's, and those that may be generated."""
        return prepared.tokens

    def prompt_text(self, prepared: Prepared) -> str:
        """What was tokenized, special tokens included; where that were token ids, what they stand for."""
        return prepared.prompt.get("prompt") or self._reader.prompt_text(prepared.prompt_ids)

    def add(self, prepared: Prepared) -> None:
        """Starts the sequences; raises RequestError, having started none."""
        if prepared.beams is not None:
            try:
                self._beams.add(prepared.beams)
            except self._client_errors as error:
                raise refused(error) from error
            return
        self._groups[prepared.number] = Group.of(
            prepared.number, prepared.prompt_ids, prepared.generation, self._reader, self._longest
        )
        try:
            self._add_sequences(prepared)
        except BaseException:
            self.abort([prepared.number])
            raise

    def _add_sequences(self, prepared: Prepared) -> None:
        generation, group = prepared.generation, self._groups[prepared.number]
        sampling = msgspec.structs.replace(generation.sampling, skip_special_tokens=prepared.skip_special_tokens)
        for index, (params, splitter) in enumerate(zip(prepared.params, prepared.splitters, strict=True)):
            name = f"{prepared.number}.{index}"
            keep_tokens = generation.tokens or splitter is not None
            text = self._reader.text(sampling, prepared.prompt_ids, keep_tokens, generation.token_bytes)
            try:
                prompt = self._input(name, prepared, params)
                added: str = self._llm.add_request(
                    request_id=name, prompt=prompt, params=params, priority=self._priority(generation)
                )
            except self._client_errors as error:
                raise refused(error, prepared.guide_field) from error
            group.running.add(name)
            self._sequences[name] = _Sequence(name, index, group, text, splitter, prepared.guide_field)
            if sampling.logprobs == 0:
                keep_chosen_only(self._llm, added)

    def abort(self, numbers: Sequence[int]) -> None:
        """Ends generations; those that have ended already are ignored."""
        self._beams.abort(numbers)
        for number in numbers:
            if (group := self._groups.pop(number, None)) is not None:
                self._drop(group)

    def step(self) -> list[tuple[int, Event]]:
        """One step of vLLM; raises when vLLM has failed."""
        events: list[tuple[int, Event]] = []
        stopped: list[str] = []
        while self._rejected:
            reject_transfer(self._llm, *self._rejected.popleft())
        if not (self._sequences or self._beams.busy):
            # With nothing to do vLLM's step may wait for ever.
            return events
        for output in self._llm.step():
            sequence = self._sequences.get(output.request_id)
            if sequence is None:
                events += self._beams.read(output)
                continue
            number = sequence.group.number
            try:
                new = self._advance(sequence, output, stopped)
                if sequence.group.started:
                    events += [(number, event) for event in new]
                else:
                    sequence.group.held += new
            except SystemExit:
                raise
            except BaseException as error:  # libraries in Rust panic with one
                if not isinstance(error, RequestError):
                    log.exception("request %s: generation %d failed", sequence.group.request_id, number)
                if not isinstance(error, LmiError):
                    error = GenerationError(f"the response could not be decoded: {error}")
                self.abort([number])
                events.append((number, Failed.of(error)))
        if stopped:
            self._llm.abort_request(stopped)
        return events

    def stats(self) -> EngineStats:
        """How busy vLLM's scheduler is."""
        return self._stats.now()

    def close(self) -> None:
        """Ends vLLM's own processes."""
        self._llm.engine_core.shutdown()

    def _input(self, name: str, prepared: Prepared, params: SamplingParams) -> Any:
        """What vLLM is given: the prompt, or its own request where vLLM must know that no reasoning comes."""
        if not prepared.guided_at_once:
            return prepared.prompt
        return engine_request(self._llm, name, prepared.prompt, params, self._priority(prepared.generation))

    def _priority(self, generation: Generation) -> int:
        return generation.priority if self._by_priority else 0

    def _advance(self, sequence: _Sequence, output: Any, stopped: list[str]) -> list[Event]:
        """What is new of one sequence. Adds it to `stopped` where it has ended and vLLM does not know yet."""
        group = sequence.group
        text = sequence.text.stream
        completion = output.outputs[0]
        events: list[Event] = []
        if not group.started and sequence.index == 0:
            group.started = True
            events.append(self._reader.started(group.prompt_ids, output, group.echo, group.prompt_logprobs))
            events += group.held
        self._reader.read(sequence.text, completion)
        reason = completion.finish_reason
        group.grow(len(completion.token_ids))
        if reason is None and text.stop is None:
            if group.stream:
                delta = self._delta(sequence, *text.take(), None)
                if delta.text or delta.tokens or delta.reasoning or delta.calls:
                    events.append(delta)
            return events
        if reason == "error" and (field := sequence.guide_field) and not self._connected:
            # What can be read may still allow no text at all (a rule that is made of itself), or none from here on.
            raise ParameterError(f"{field}: no token of the model matches it", field)
        if reason == "error":
            raise GenerationError("the engine failed while generating")
        if reason is None:
            stopped.append(sequence.name)
        self._forget(sequence)
        new, tokens = text.finish()
        ended, stop = self._reader.finish_reason(text.stop, reason, completion.stop_reason)
        # vLLM's own form: lists, numbers, strings.
        transfer = msgspec.to_builtins(output.kv_transfer_params, str_keys=True)
        finish = Finish(
            ended, stop, text.count, sequence.text.cumulative, last=not group.running, kv_transfer_params=transfer
        )
        events.append(self._delta(sequence, new, tokens, finish))
        return events

    def _delta(self, sequence: _Sequence, text: str, tokens: tuple[Token, ...], finish: Finish | None) -> Delta:
        """What is new of a sequence, split where it is the answer to a conversation that is to be."""
        return split(sequence.splitter, Delta(sequence.index, text, tokens, finish), shown=sequence.group.tokens)

    def _forget(self, sequence: _Sequence) -> None:
        """Removes a sequence that has ended, and its generation with the last one."""
        del self._sequences[sequence.name]
        group = sequence.group
        group.running.discard(sequence.name)
        if not group.running:
            self._groups.pop(group.number, None)

    def _drop(self, group: Group[str]) -> None:
        """Ends what still runs of a generation."""
        names = list(group.running)
        group.running.clear()
        for name in names:
            del self._sequences[name]
        if names:
            self._llm.abort_request(names)
