"""vLLM as a backend: runs in the engine's process, of every version that version.py names.

    Generation --prepare--> EngineCoreRequest for each sequence --add--> vLLM's core
    EngineCoreOutput --receive--> sequence.py --> Started, Delta

n sequences are n requests with seeds of their own, which is what vLLM makes of them too; so a stop string ends one of
them without touching the others.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from ..engine import EngineInfo, EngineStats
from ..errors import GenerationError, LmiError, RequestError
from ..events import EngineEvent, Event, Failed, Started
from ..generation import Conversation, Generation
from ..media.parts import MediaFile
from ..options import Settings
from ..text.prompt_tokens import told_tokens
from .adapters import VllmAdapters, no_adapter
from .aside import Aside
from .beam import BeamRuns
from .configured import configured
from .core_outputs import prompt_of
from .guides.faults import fault
from .languages import Detections
from .library.internals import rejected_transfer
from .mistral.tokens import tokens_of
from .request.beams import BeamLimits
from .request.prepared import Prepared
from .request.requests import Requests
from .request.sampling import LIMITS
from .sequences.group import SequenceGroup
from .sequences.pace import Overdue, Pace
from .sequences.sequence import GuidedSequence, OutputSequence
from .setup.cache_room import tell_room
from .start import start
from .stats.tracing import tracing
from .trial import try_out

__all__ = ["VllmEngine"]

log = logging.getLogger(__name__)


class VllmEngine:
    """An AsyncBackend (model/backend.py) on vLLM's core."""

    limits: ClassVar[Mapping[str, str]] = LIMITS

    def __init__(self, settings: Settings) -> None:
        self._loop = asyncio.get_running_loop()
        self._longest = settings.limits.max_answer_bytes
        # Before the weights are loaded, which takes its time: options may name what vLLM does not have.
        found = configured(settings)
        self._core, self._chat = found.core, found.chat
        core = self._core
        self._tracing = tracing(core.vllm_config)
        start(core, settings)
        tell_room(settings, core.vllm_config)
        # A start may choose the context.
        self._info = found.info
        self._connected = core.vllm_config.kv_transfer_config is not None
        interval: int = core.vllm_config.scheduler_config.stream_interval
        self._token_pace, self._text_pace = Pace(interval), Pace(interval)
        self._tokenizer, self._ends = tokens_of(core.get_tokenizer()), core.end_ids()
        self._aside = Aside(core.wake, self.abort)
        beams = BeamLimits(core)
        self._beams = BeamRuns(core, beams, self._aside)
        self.adapters = VllmAdapters(core) if settings.adapters.enable_lora else None
        adapter = no_adapter if self.adapters is None else self.adapters.request
        self._requests = Requests(core, settings, self._chat, beams, found.typical, adapter, found.writer)
        self._detections = Detections(core, self._aside, self._requests.told, self.add)
        self._sequences: dict[str, OutputSequence] = {}
        self._groups: dict[int, SequenceGroup] = {}
        self._overdue = Overdue(self._loop, core.wake)

    async def begin(self) -> None:
        """Tries a token; raises StartError."""
        self._chat.media.warm_up()
        await self._core.begin()
        await try_out(self, transcribed=self._requests.trial if self._info.transcribes else None)

    @property
    def info(self) -> EngineInfo:
        """Version and context length."""
        return self._info

    @property
    def busy(self) -> bool:
        """Whether anything runs."""
        return bool(self._sequences) or self._beams.busy or self._detections.busy or self._aside.busy

    def prepare(self, number: int, generation: Generation, images: Sequence[MediaFile] = ()) -> Prepared:
        """Tokenizes and checks; raises RequestError."""
        try:
            return self._requests.prepare(number, generation, images)
        except RequestError:
            transfer = generation.kv_transfer_params
            if self._connected and transfer and transfer.get("do_remote_prefill"):
                # Its prompt has been computed elsewhere, and is kept there.
                rejected = rejected_transfer(self._core.name(number, "rejected"), transfer)
                self._loop.call_soon_threadsafe(self._core.add, rejected)
            raise

    def knows(self, conversation: Conversation) -> bool:
        """Whether another one that differs in its messages alone has been prepared, and no guide was to be made."""
        return self._requests.knows(conversation)

    def tokenize(self, generation: Generation, images: Sequence[MediaFile] = ()) -> Started:
        """The prompt's tokens; raises RequestError."""
        ids = self._requests.prompt_ids(generation, images)
        return told_tokens(generation, ids, self._tokenizer, self._info.context)

    def tokens(self, prepared: Prepared) -> int:
        """Of all sequences: the prompt's, and those that may be generated."""
        return prepared.tokens

    def prompt_text(self, prepared: Prepared) -> str:
        """What was tokenized, special tokens included; where that were token ids, what they stand for."""
        return prepared.prompt.get("prompt") or self._tokenizer.joined(prepared.prompt_ids)

    def add(self, number: int, prepared: Prepared) -> None:
        """Starts the sequences."""
        generation = prepared.generation
        if prepared.heard is not None:
            self._detections.add(number, prepared)
            return
        if self._core.lacks_images(prepared.requests[0]):
            self._make_again(number, prepared)
            return
        group = SequenceGroup(
            number, generation, prepared.sampling, prepared.prompt_ids, self._tokenizer, self._ends, self._longest,
            prepared.guide, prepared.recording, sum(file.seconds for file in prepared.images),
        )  # fmt: skip
        if (beams := generation.sampling.beams) is not None:
            self._beams.add(group, beams, prepared)
            return
        self._groups[number] = group
        kind = OutputSequence if prepared.guide is None else GuidedSequence
        pace = self._token_pace if generation.tokens else self._text_pace
        try:
            for index, (request, splitter) in enumerate(zip(prepared.requests, prepared.splitters, strict=True)):
                name = request.request_id = self._core.name(number, index)
                self._core.add(request)
                if self._tracing is not None:
                    self._tracing.begin(name, generation, len(prepared.prompt_ids), request.arrival_time)
                group.running.add(name)
                self._sequences[name] = kind(name, index, group, splitter, pace)
        except BaseException:
            self.abort([number])
            raise

    def _make_again(self, number: int, prepared: Prepared) -> None:
        """Prepares a generation anew, with its images, and starts it then."""
        again = partial(self._requests.prepare, number, prepared.generation, prepared.images, whole=True)
        self._aside.make(number, again, prepared.generation.request_id, partial(self.add, number))

    def abort(self, numbers: Sequence[int]) -> None:
        """Ends generations; those that have ended already are ignored."""
        self._beams.abort(numbers)
        self._detections.abort(numbers)
        self._aside.drop(numbers)
        for number in numbers:
            if (group := self._groups.pop(number, None)) is not None:
                self._drop(group)

    def gather(self, seconds: float) -> None:
        """Of streams that show no single tokens."""
        self._text_pace.gather_s = seconds

    async def receive(self) -> list[tuple[int, EngineEvent]]:
        """What a step of the core brought; raises when it has ended."""
        events: list[tuple[int, EngineEvent]] = []
        first: list[tuple[int, EngineEvent]] = []
        stopped: list[str] = []
        outputs = await self._core.receive()
        pace = self._text_pace
        took = pace.step(time.monotonic())
        if self._overdue.take():
            events += self._tell_overdue()
        if pace.gather_s and outputs:
            # Not by steps that take about as long as text gathers, which bring more of it.
            self._overdue.wait(min(2 * took, pace.gather_s))
        for output in outputs:
            sequence = self._sequences.get(output.request_id)
            if sequence is None:
                events += self._beams.read(output) or self._detections.read(output)
                continue
            group = sequence.group
            try:
                if output.finish_reason is None and group.started and not sequence.searched:
                    # Most outputs: nothing begins or ends here.
                    if (delta := sequence.grow(output)) is not None:
                        events.append((group.number, delta))
                    continue
                begun = group.started
                new = self._advance(sequence, output, stopped)
                if group.started:
                    # vLLM lists last what has just begun: its first tokens go before the next ones of others.
                    (events if begun else first).extend((group.number, event) for event in new)
                else:
                    group.held += new
            except SystemExit:
                raise
            except BaseException as error:  # noqa: BLE001 - libraries in Rust panic with one
                events.append(self._failed(sequence, error))
        if stopped:
            self._core.abort(stopped)
        events = first + events
        return self._aside.merge(events) if self._aside.busy else events

    def _tell_overdue(self) -> Iterator[tuple[int, EngineEvent]]:
        """What has gathered of streams for long enough."""
        now, next_one = self._text_pace.now, math.inf
        for name in [*self._sequences]:
            sequence = self._sequences.get(name)
            if sequence is None or (until := sequence.held_until) is None:
                # Another one of its generation has just failed, or nothing is held of it.
                continue
            if until > now:
                next_one = min(next_one, until)
                continue
            group = sequence.group
            try:
                delta = sequence.overdue()
            except SystemExit:
                raise
            except BaseException as error:  # noqa: BLE001 - as in `receive`
                yield self._failed(sequence, error)
                continue
            if delta is not None and group.started:
                yield group.number, delta
            elif delta is not None:
                group.held.append(delta)
        if next_one < math.inf:
            self._overdue.wait(next_one - now)

    def _failed(self, sequence: OutputSequence, error: BaseException) -> tuple[int, Failed]:
        """Ends the generation of a sequence whose output cannot be taken."""
        group = sequence.group
        if not isinstance(error, RequestError):
            request_id = group.generation.request_id
            log.error("request %s: generation %d failed", request_id, group.number, exc_info=error)
        if not isinstance(error, LmiError):
            error = GenerationError(f"the response could not be decoded: {error}")
        self.abort([group.number])
        if self._tracing is not None:
            self._tracing.drop(sequence.name)
        return group.number, Failed.of(error)

    def stats(self) -> EngineStats:
        """How busy vLLM's scheduler is."""
        return self._core.stats()

    def metrics(self, content_type: str) -> bytes:
        """vLLM's own."""
        return self._core.metrics(content_type)

    def close(self) -> None:
        """Ends vLLM's own processes."""
        self._aside.close()
        self._core.close()
        if self._tracing is not None:
            self._tracing.close()

    def _advance(self, sequence: OutputSequence, output: Any, stopped: list[str]) -> list[EngineEvent]:
        """What an output brings with which something may begin or end.

        Adds the sequence to `stopped` where it has ended and vLLM does not know yet.
        """
        group = sequence.group
        events: list[EngineEvent] = []
        if str(output.finish_reason) == "error":
            return self._fail(sequence, output)
        if not group.started and sequence.index == 0:
            group.started = True
            begun = group.begin(prompt_of(output, group.sampling.prompt_logprobs, len(group.prompt_ids)))
            if group.shows_prompt:
                self._aside.start(group.number, begun, group.generation.request_id)
            else:
                events += begun
            events += group.held
        reason = None if output.finish_reason is None else str(output.finish_reason)
        if reason is None:
            if (delta := sequence.grow(output)) is not None:
                events.append(delta)
            if not sequence.stopped:
                return events
            stopped.append(sequence.name)
        self._forget(sequence)
        last = sequence.end(output, reason)
        if self._tracing is not None and last.finish is not None:
            self._tracing.end(sequence.name, last.finish)
        events.append(last)
        return events

    def _fail(self, sequence: OutputSequence, output: Any) -> list[EngineEvent]:
        """Ends the generation of a sequence that the core has given up, or never had; raises why, if that is known
        already.
        """
        if unsent := self._core.failure(sequence.name):
            raise GenerationError(unsent)
        if not output.new_token_ids:
            self._core.distrust_images()
        guide = sequence.group.guide
        if guide is None or not isinstance(sequence, GuidedSequence):
            raise GenerationError("the engine failed while generating")
        number, taken = sequence.group.number, sequence.taken
        self.abort([number])

        def failed() -> Iterator[Event]:
            yield Failed.of(fault(guide, output, taken, self._tokenizer.raw, self._ends))

        self._aside.start(number, failed(), sequence.group.generation.request_id)
        return []

    def _forget(self, sequence: OutputSequence) -> None:
        """Removes a sequence that has ended, and its generation with the last one."""
        del self._sequences[sequence.name]
        group = sequence.group
        group.running.discard(sequence.name)
        if not group.running:
            self._groups.pop(group.number, None)

    def _drop(self, group: SequenceGroup) -> None:
        """Ends what still runs of a generation."""
        names = list(group.running)
        group.running.clear()
        for name in names:
            del self._sequences[name]
            if self._tracing is not None:
                self._tracing.drop(name)
        if names:
            self._core.abort(names)
