"""vLLM as a backend: runs in the engine's process, on vLLM 0.23.0 (the LMI container's) and later.

    Generation --prepare--> EngineCoreRequest for each sequence --add--> vLLM's core
    EngineCoreOutput --receive--> ids --text/outputs.py, text/detokenizer.py--> Started, Delta

vLLM is asked for token ids only: text, stop strings and each token's exact piece are made by Detokenizer, once. n
sequences are n requests with seeds of their own, which is what vLLM makes of them too; so a stop string ends one of
them without touching the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec

from ..engine import EngineInfo, EngineStats
from ..errors import GenerationError, LmiError, ParameterError, RequestError
from ..events import Delta, Event, Failed, Finish, Token
from ..generation import Generation
from ..media.images import Image
from ..options import Settings
from ..search.beam_run import BeamTexts
from ..text.outputs import Output, OutputReader, SequenceText
from ..text.parsers import Splitter, split
from ..text.sequences import Group
from ..text.tokenizer import Tokenizer
from .beam import BeamRuns
from .core_outputs import chosen, entries, told
from .internals import rejected_transfer
from .request.chat import ChatRenderer
from .request.requests import Prepared, Requests
from .request.sampling import LIMITS
from .start import eos_ids, make_core, start
from .trial import try_out
from .typical import Typical

__all__ = ["VllmEngine"]

log = logging.getLogger(__name__)

WHOLE_INTERVAL = 256
"""Tokens of which an answer that is not streamed makes its text at once: cheaper than one by one."""

SPLIT_INTERVAL = 32
"""As WHOLE_INTERVAL, where it is taken apart: vLLM's parsers take up to 0.1 ms a token, and others wait meanwhile."""


@dataclass(slots=True)
class _Sequence:
    """One sequence of a generation: one vLLM request."""

    name: str
    index: int
    group: Group[str]
    text: SequenceText
    splitter: Splitter | None
    guide_field: str | None
    interval: int
    """After how many tokens its text is made, and sent where it is streamed."""
    searched: bool
    """Whether each token's text is made at once, as it may end the sequence."""
    begun: bool
    """Whether the first token, which is sent at once, has been."""
    new: int = 0
    """Tokens since the last Delta."""
    unread: list[Any] = field(default_factory=list[Any])
    """Outputs of which no text has been made."""
    parts: list[Delta] = field(default_factory=list[Delta])
    """What has been made of an answer that is not streamed."""


class VllmEngine:
    """An AsyncBackend (model/engine.py) on vLLM's core."""

    limits: ClassVar[Mapping[str, str]] = LIMITS

    def __init__(self, settings: Settings) -> None:
        typical = Typical(settings)
        self._loop = asyncio.get_running_loop()
        self._longest = settings.limits.max_answer_bytes
        self._core = core = make_core(settings, typical)
        # Before the weights are loaded, which takes its time: options may name what vLLM does not have.
        self._chat = ChatRenderer(core, settings)
        start(core)
        import vllm

        model_config, tokenizer = core.model_config, core.get_tokenizer()
        self._connected = core.vllm_config.kv_transfer_config is not None
        self._interval: int = core.vllm_config.scheduler_config.stream_interval
        text_side, ends = Tokenizer(tokenizer), eos_ids(model_config, tokenizer)
        self._reader = OutputReader(text_side, ends)
        self._beams = BeamRuns(core, BeamTexts(self._reader, text_side, ends))
        self._requests = Requests(core, settings, self._chat, self._beams, typical)
        self._sequences: dict[str, _Sequence] = {}
        self._groups: dict[int, Group[str]] = {}
        context, images = model_config.max_model_len, self._chat.images.limit
        self._info = EngineInfo(engine="vllm", version=vllm.__version__, context=context, images=images)

    async def begin(self) -> None:
        """Tries a token; raises StartError."""
        await self._core.begin()
        await try_out(self)

    @property
    def info(self) -> EngineInfo:
        """Version and context length."""
        return self._info

    @property
    def busy(self) -> bool:
        """Whether anything runs."""
        return bool(self._sequences) or self._beams.busy

    def prepare(self, number: int, generation: Generation, images: Sequence[Image] = ()) -> Prepared:
        """Tokenizes and checks; raises RequestError."""
        try:
            return self._requests.prepare(number, generation, images)
        except RequestError:
            transfer = generation.kv_transfer_params
            if self._connected and transfer and transfer.get("do_remote_prefill"):
                # Its prompt has been computed elsewhere, and is kept there.
                rejected = rejected_transfer(f"{number}.rejected", transfer)
                self._loop.call_soon_threadsafe(self._core.add, rejected)
            raise

    def tokens(self, prepared: Prepared) -> int:
        """Of all sequences: the prompt's, and those that may be generated."""
        return prepared.tokens

    def prompt_text(self, prepared: Prepared) -> str:
        """What was tokenized, special tokens included; where that were token ids, what they stand for."""
        return prepared.prompt.get("prompt") or self._reader.prompt_text(prepared.prompt_ids)

    def add(self, number: int, prepared: Prepared) -> None:
        """Starts the sequences."""
        if prepared.beams is not None:
            self._beams.add(prepared.beams)
            return
        generation = prepared.generation
        group = self._groups[number] = Group.of(number, prepared.prompt_ids, generation, self._reader, self._longest)
        sampling = msgspec.structs.replace(generation.sampling, skip_special_tokens=prepared.skip_special_tokens)
        try:
            for index, (request, splitter) in enumerate(zip(prepared.requests, prepared.splitters, strict=True)):
                name = f"{number}.{index}"
                keep_tokens = generation.tokens or splitter is not None
                text = self._reader.text(sampling, prepared.prompt_ids, keep_tokens, generation.token_bytes)
                request.request_id = name
                self._core.add(request)
                group.running.add(name)
                interval = self._interval if group.stream else SPLIT_INTERVAL if splitter else WHOLE_INTERVAL
                searched, begun = bool(sampling.stop), not group.stream
                self._sequences[name] = _Sequence(
                    name, index, group, text, splitter, prepared.guide_field, interval, searched, begun
                )
        except BaseException:
            self.abort([number])
            raise

    def abort(self, numbers: Sequence[int]) -> None:
        """Ends generations; those that have ended already are ignored."""
        self._beams.abort(numbers)
        for number in numbers:
            if (group := self._groups.pop(number, None)) is not None:
                self._drop(group)

    async def receive(self) -> list[tuple[int, Event]]:
        """What a step of the core brought; raises when it has ended."""
        events: list[tuple[int, Event]] = []
        stopped: list[str] = []
        for output in await self._core.receive():
            sequence = self._sequences.get(output.request_id)
            if sequence is None:
                events += self._beams.read(output)
                continue
            group = sequence.group
            try:
                new = self._advance(sequence, output, stopped)
                if group.started:
                    events += [(group.number, event) for event in new]
                else:
                    group.held += new
            except SystemExit:
                raise
            except BaseException as error:  # libraries in Rust panic with one
                if not isinstance(error, RequestError):
                    log.exception("request %s: generation %d failed", group.request_id, group.number)
                if not isinstance(error, LmiError):
                    error = GenerationError(f"the response could not be decoded: {error}")
                self.abort([group.number])
                events.append((group.number, Failed.of(error)))
        if stopped:
            self._core.abort(stopped)
        return events

    def stats(self) -> EngineStats:
        """How busy vLLM's scheduler is."""
        return self._core.stats()

    def close(self) -> None:
        """Ends vLLM's own processes."""
        self._core.close()

    def _advance(self, sequence: _Sequence, output: Any, stopped: list[str]) -> list[Event]:
        """What is new of one sequence. Adds it to `stopped` where it has ended and vLLM does not know yet."""
        group = sequence.group
        text = sequence.text.stream
        events: list[Event] = []
        if not group.started and sequence.index == 0:
            group.started = True
            first = told(output, group.prompt_logprobs)
            events.append(self._reader.started(group.prompt_ids, first, group.echo, group.prompt_logprobs))
            events += group.held
        count = len(output.new_token_ids)
        group.grow(count)
        sequence.new += count
        sequence.unread.append(output)
        reason = None if output.finish_reason is None else str(output.finish_reason)
        due = sequence.new >= sequence.interval or not sequence.begun
        if reason is None and not due and not sequence.searched:
            return events
        self._read(sequence, reason)
        if reason is None and text.stop is None:
            if due:
                sequence.new, sequence.begun = 0, True
                delta = self._delta(sequence, *text.take(), None)
                if not group.stream:
                    sequence.parts.append(delta)
                elif delta.text or delta.tokens or delta.reasoning or delta.calls:
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
        ended, stop = self._reader.finish_reason(text.stop, reason, output.stop_reason)
        # vLLM's own form: lists, numbers, strings.
        transfer = msgspec.to_builtins(output.kv_transfer_params, str_keys=True)
        finish = Finish(
            ended, stop, text.count, sequence.text.cumulative, last=not group.running, kv_transfer_params=transfer
        )
        events.append(_joined([*sequence.parts, self._delta(sequence, new, tokens, finish)]))
        return events

    def _read(self, sequence: _Sequence, reason: str | None) -> None:
        """Makes text of what has not been read; `reason` is why it ended, if it has."""
        text, unread = sequence.text, sequence.unread
        if len(unread) == 1:
            (output,) = unread
            new = Output(output.new_token_ids, _logprobs(text, output), reason)
        else:
            ids = [token_id for output in unread for token_id in output.new_token_ids]
            new = Output(ids, [known for output in unread for known in _logprobs(text, output)], reason)
        unread.clear()
        self._reader.read(text, new)

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
            self._core.abort(names)


def _logprobs(text: SequenceText, output: Any) -> Sequence[Any]:
    """The log-probabilities of an output's tokens, as far as they are wanted."""
    if text.logprobs is None or (rows := output.new_logprobs) is None:
        return ()
    return entries(rows, text.logprobs) if text.logprobs else chosen(rows)


def _joined(parts: list[Delta]) -> Delta:
    """All that there is of a sequence, in one piece; the last part has its end."""
    if len(parts) == 1:
        return parts[0]
    return Delta(
        parts[-1].index,
        "".join(part.text for part in parts),
        tuple(token for part in parts for token in part.tokens),
        parts[-1].finish,
        "".join(part.reasoning for part in parts),
        tuple(call for part in parts for call in part.calls),
    )
