"""transformers as a backend: for models that vLLM does not run, on a CPU or on GPUs.

    Generation --prepare--> prompt ids, a Chooser for each sequence --add--> rows of the rolling batch
    Row --step--> ids --text/outputs.py, text/detokenizer.py--> Started, Delta

What it does with each field of Sampling (tests/model/transformers/test_engine.py has an effect of each):

| field | |
| --- | --- |
| temperature, top_p, top_k, min_p, typical_p | as vLLM; typical_p as transformers |
| repetition_penalty, presence_penalty, frequency_penalty | as vLLM: the first counts the prompt, the others do not |
| best_of | as vLLM: so many sequences are asked of any engine, and ranked by model/search/best_of.py |
| seed, n | sequence i draws with seed + i, alone or in any batch; the prompt of n sequences is computed once |
| max_tokens, min_tokens, truncate | as vLLM |
| stop, include_stop, stop_token_ids, ignore_eos | as vLLM |
| skip_special_tokens, spaces_between_special_tokens | as vLLM |
| logprobs, prompt_logprobs | of the model's own logits, as vLLM's raw_logprobs; up to option.max_logprobs |
| logit_bias, bad_words | as vLLM |
| guide | by xgrammar; refused where it is not installed |
| beams | as vLLM, by the rules of transformers; up to option.max_rolling_batch_size, as each is a row |
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import msgspec

from ..engine import EngineInfo, EngineStats
from ..errors import GenerationError, LmiError, UnsupportedError
from ..events import Delta, Event, Failed, Finish, Token
from ..generation import Generation, Sampling
from ..media.images import Image
from ..options import Settings
from ..search.beam_run import BeamTexts
from ..text.outputs import Output, OutputReader, SequenceText
from ..text.parsers import Splitter, split
from ..text.sequences import Group
from ..text.tokenizer import Tokenizer
from .batch import Entry, Row
from .beam import BeamRuns
from .load import load
from .options import transformers_arguments
from .requests import Prepared, Requests
from .scheduler import Scheduler

__all__ = ["TransformersEngine"]

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Sequence:
    """One sequence of a generation: one row."""

    row: Row
    index: int
    group: Group[Row]
    text: SequenceText
    splitter: Splitter | None
    max_tokens: int
    eos_ids: frozenset[int]
    stop_ids: frozenset[int]
    at_once: bool
    """Whether tokens are read as they come, not all at the end."""
    ids: list[int] = field(default_factory=list[int])
    entries: list[Entry | None] = field(default_factory=list["Entry | None"])


class TransformersEngine:
    """A Backend (model/engine.py) on a transformers model."""

    limits: ClassVar[Mapping[str, str]] = {
        "beams": "up to `option.max_rolling_batch_size`, 32, as far as the cache holds them",
        "bad_words": "as on vLLM",
        "structured_output": "with xgrammar installed, else refused",
        "logit_bias": "tokens of the vocabulary",
        "stop_token_ids": "tokens of the vocabulary",
        "logprobs": "up to `option.max_logprobs`, 20",
        "prompt_logprobs": "up to `option.max_logprobs`, 20",
        "spaces_between_special_tokens": "with tokenizers that put spaces there",
        "kv_transfer_params": "no effect",
    }

    def __init__(self, settings: Settings) -> None:
        arguments = transformers_arguments(settings)
        import transformers

        transformers.utils.logging.disable_progress_bar()
        self._loaded = loaded = load(settings, arguments)
        self._requests = Requests(loaded, settings, arguments)
        tokenizer = Tokenizer(loaded.tokenizer)
        self._reader = OutputReader(tokenizer, loaded.eos_ids)
        self._rolling = Scheduler(
            loaded.forward,
            most=settings.max_rolling_batch_size,
            budget=loaded.budget,
            least=loaded.context,
            piece=arguments.max_num_batched_tokens if arguments.enable_chunked_prefill else loaded.context,
        )
        self._longest = settings.limits.max_answer_bytes
        texts = BeamTexts(self._reader, tokenizer, loaded.eos_ids)
        self._beams = BeamRuns(
            self._rolling, texts, most=settings.max_rolling_batch_size, budget=loaded.budget, words=loaded.words
        )
        self._sequences: dict[Row, _Sequence] = {}
        self._groups: dict[int, Group[Row]] = {}
        self._info = EngineInfo(engine="transformers", version=transformers.__version__, context=loaded.context)
        log.info(
            "%s on %s, a cache of %d tokens, sequences computed %s",
            type(loaded.forward.model).__name__,
            loaded.forward.device,
            loaded.budget,
            "together" if self._rolling.together else "one by one, as the model's cache is of a special kind",
        )

    @property
    def info(self) -> EngineInfo:
        """Version and context length."""
        return self._info

    @property
    def busy(self) -> bool:
        """Whether anything runs or waits."""
        return self._rolling.busy

    def prepare(self, number: int, generation: Generation, images: Sequence[Image] = ()) -> Prepared:
        """Tokenizes and checks; raises RequestError."""
        if images:
            raise UnsupportedError(f"{images[0].field}: the transformers engine takes text only", images[0].field)
        prepared = self._requests.prepare(number, generation)
        if (beams := generation.sampling.beams) is not None:
            prepared.search = self._beams.prepare(prepared, _sampling(prepared), beams)
        return prepared

    def tokens(self, prepared: Prepared) -> int:
        """Of all sequences: the prompt's, and those that may be generated."""
        beams = prepared.generation.sampling.beams
        width = beams.width if beams is not None else len(prepared.choosers)
        return (len(prepared.prompt_ids) + prepared.max_tokens) * width

    def add(self, prepared: Prepared) -> None:
        """Queues the sequences."""
        if prepared.search is not None:
            self._beams.add(prepared.search)
            return
        generation = prepared.generation
        sampling = _sampling(prepared)
        ids = prepared.prompt_ids
        group: Group[Row] = Group.of(prepared.number, ids, generation, self._reader, self._longest)
        for index, (chooser, splitter) in enumerate(zip(prepared.choosers, prepared.splitters, strict=True)):
            wanted = sampling.prompt_logprobs if index == 0 else None
            row = Row(prepared.number, group, list(ids), len(ids), chooser, wanted)
            self._sequences[row] = _Sequence(
                row,
                index,
                group,
                self._reader.text(sampling, ids, generation.tokens or splitter is not None, generation.token_bytes),
                splitter,
                prepared.max_tokens,
                frozenset() if sampling.ignore_eos else self._loaded.eos_ids,
                frozenset(sampling.stop_token_ids),
                generation.stream or bool(sampling.stop),
            )
            group.running.add(row)
            self._rolling.add(row)
        self._groups[prepared.number] = group

    def abort(self, numbers: Sequence[int]) -> None:
        """Ends generations; those that have ended already are ignored."""
        self._beams.abort(numbers)
        for number in numbers:
            if (group := self._groups.pop(number, None)) is not None:
                self._rolling.remove(group.running)
                for row in group.running:
                    del self._sequences[row]

    def step(self) -> list[tuple[int, Event]]:
        """One token for every running sequence; raises when the device is beyond use."""
        events: list[tuple[int, Event]] = []
        ended: list[Row] = []
        for row in self._rolling.step():
            sequence = self._sequences.get(row)
            if sequence is None:
                events += self._beams.read(row)
                continue
            number = sequence.group.number
            try:
                if row.error is not None:
                    raise row.error
                events += [(number, event) for event in self._advance(sequence, ended)]
            except Exception as error:
                if not isinstance(error, LmiError):
                    log.exception("request %s: generation %d failed", sequence.group.request_id, number)
                    error = GenerationError(f"the answer could not be decoded: {error}")
                self.abort([number])
                events.append((number, Failed.of(error)))
        if ended:
            self._rolling.remove(ended)
        return events

    def stats(self) -> EngineStats:
        """How busy the rolling batch is."""
        return self._rolling.stats()

    def close(self) -> None:
        """Everything ends with the process."""

    def _advance(self, sequence: _Sequence, ended: list[Row]) -> list[Event]:
        """What a sequence's new token brings. Adds its row to `ended` where it was the last one."""
        group, row, text = sequence.group, sequence.row, sequence.text.stream
        events: list[Event] = []
        if not group.started:
            group.started = True
            known = Output(prompt_logprobs=row.prefill)
            events.append(self._reader.started(group.prompt_ids, known, group.echo, group.prompt_logprobs))
        group.grow(1)
        sequence.ids.append(row.ids[-1])
        if row.entry is not None:
            sequence.entries.append(row.entry)
        reason, stop = self._end(sequence)
        if reason is None and not sequence.at_once:
            return events
        output = Output(sequence.ids, sequence.entries, reason)
        self._reader.read(sequence.text, output)
        sequence.ids, sequence.entries = [], []
        if reason is None and text.stop is None:
            if group.stream:
                delta = self._delta(sequence, *text.take(), None)
                if delta.text or delta.tokens or delta.reasoning or delta.calls:
                    events.append(delta)
            return events
        self._forget(sequence, ended)
        new, tokens = text.finish()
        how, found = self._reader.how(text.stop, reason, stop)
        finish = Finish(how, found, text.count, sequence.text.cumulative, last=not group.running)
        events.append(self._delta(sequence, new, tokens, finish))
        return events

    def _end(self, sequence: _Sequence) -> tuple[str | None, int | None]:
        """Whether the newest token ends the sequence, in vLLM's words: a reason, and the stop token id."""
        row = sequence.row
        token = row.ids[-1]
        if token in sequence.eos_ids:
            return "stop", None
        if token in sequence.stop_ids:
            return "stop", token
        guide = row.chooser.guide
        if guide is not None and guide.complete:
            return "stop", None
        return ("length", None) if len(row.ids) - row.prompt >= sequence.max_tokens else (None, None)

    def _delta(self, sequence: _Sequence, text: str, tokens: tuple[Token, ...], finish: Finish | None) -> Delta:
        """What is new of a sequence, split where it is the answer to a conversation that is to be."""
        return split(sequence.splitter, Delta(sequence.index, text, tokens, finish), shown=sequence.group.tokens)

    def _forget(self, sequence: _Sequence, ended: list[Row]) -> None:
        """Removes a sequence that has ended, and its generation with the last one."""
        ended.append(sequence.row)
        del self._sequences[sequence.row]
        group = sequence.group
        group.running.discard(sequence.row)
        if not group.running:
            self._groups.pop(group.number, None)


def _sampling(prepared: Prepared) -> Sampling:
    """The generation's, with what its chat template asks for."""
    sampling = prepared.generation.sampling
    return msgspec.structs.replace(sampling, skip_special_tokens=prepared.skip_special_tokens)
