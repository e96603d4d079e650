"""transformers as a backend: for models that vLLM does not run, on a CPU or on GPUs.

    Generation --prepare--> prompt ids, a Row for each sequence --add--> Batching, or Loops
    news of rows --step--> ids --text/outputs.py, text/detokenizer.py--> Started, Delta

Sequences run together by the library's continuous batching where it can run the model, else each in a loop of the
library's `generate`, side by side. Tokens are chosen by the library's logits processors (sampling.py).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from queue import Empty
from typing import Any, ClassVar

from ..engine import EngineInfo, EngineStats
from ..errors import GenerationError, LmiError, UnsupportedError
from ..events import Delta, Event, Failed, Finish, Started
from ..generation import Generation
from ..media.images import Image
from ..options import Settings
from ..text.outputs import OutputReader, Prompt, SequenceText
from ..text.prompt_tokens import told_tokens
from ..text.sequences import Group
from ..text.tokenizer import Tokenizer
from .load import load, runner
from .options import transformers_arguments
from .requests import Prepared, Requests
from .sampling import LogProb, Row

__all__ = ["TransformersEngine"]

log = logging.getLogger(__name__)

WAIT_S = 0.05
"""How long a step waits for news, and so a new request for a step to end, at most."""


@dataclass(slots=True)
class _Sequence:
    """One sequence of a generation: one row."""

    index: int
    group: Group[Row]
    text: SequenceText


class TransformersEngine:
    """A Backend (model/engine.py) on a transformers model."""

    limits: ClassVar[Mapping[str, str]] = {
        "beams": "refused",
        "bad_words": "as on vLLM",
        "structured_output": "with xgrammar installed, else refused; ends at an end of sequence, `ignore_eos` or not",
        "logit_bias": "tokens of the vocabulary",
        "stop_token_ids": "tokens of the vocabulary",
        "logprobs": "up to `option.max_logprobs`, 20",
        "prompt_logprobs": "up to `option.max_logprobs`, 20",
        "spaces_between_special_tokens": "with tokenizers that put spaces there",
        "kv_transfer_params": "no effect",
        "priority": "no effect",
    }

    def __init__(self, settings: Settings) -> None:
        arguments = transformers_arguments(settings)
        import transformers

        transformers.utils.logging.disable_progress_bar()
        self._loaded = loaded = load(settings, arguments)
        self._requests = Requests(loaded, settings, arguments)
        self._tokenizer = Tokenizer(loaded.tokenizer)
        self._reader = OutputReader(self._tokenizer, loaded.eos_ids)
        self._longest = settings.limits.max_answer_bytes
        self._most = settings.max_rolling_batch_size
        self._sequences: dict[Row, _Sequence] = {}
        self._prefill: dict[int, Sequence[Any]] = {}
        self._groups: dict[int, Group[Row]] = {}
        self._info = EngineInfo(engine="transformers", version=transformers.__version__, context=loaded.context)
        # The last: it may have started threads.
        self._runner = runner(loaded, settings, arguments)

    @property
    def info(self) -> EngineInfo:
        """Version and context length."""
        return self._info

    @property
    def busy(self) -> bool:
        """Whether anything runs or waits."""
        return bool(self._sequences)

    def prepare(self, number: int, generation: Generation, images: Sequence[Image] = ()) -> Prepared:
        """Tokenizes and checks; raises RequestError."""
        _refuse_images(images)
        return self._requests.prepare(number, generation, self._runner.alone)

    def tokenize(self, generation: Generation, images: Sequence[Image] = ()) -> Started:
        """The prompt's tokens; raises RequestError."""
        _refuse_images(images)
        ids = self._requests.prompt_ids(generation)
        return told_tokens(generation, ids, self._tokenizer, self._info.context)

    def tokens(self, prepared: Prepared) -> int:
        """Of all sequences: the prompt's, and those that may be generated."""
        return sum(row.prompt + row.max_tokens for row in prepared.rows)

    def prompt_text(self, prepared: Prepared) -> str:
        """What was tokenized, special tokens included; where that were token ids, what they stand for."""
        return prepared.text or self._reader.prompt_text(prepared.prompt_ids)

    def add(self, prepared: Prepared) -> None:
        """Queues the sequences."""
        generation, ids = prepared.generation, prepared.prompt_ids
        group: Group[Row] = Group.of(prepared.number, ids, generation, self._reader, self._longest)
        self._groups[prepared.number] = group
        self._prefill[prepared.number] = prepared.prefill
        for index, row in enumerate(prepared.rows):
            text = self._reader.text(generation.sampling, ids, generation.tokens, generation.token_bytes)
            self._sequences[row] = _Sequence(index, group, text)
            group.running.add(row)
            self._runner.add(row)

    def abort(self, numbers: Sequence[int]) -> None:
        """Ends generations; those that have ended already are ignored."""
        for number in numbers:
            if (group := self._groups.get(number)) is not None:
                for row in [*group.running]:
                    self._forget(row)

    def step(self) -> list[tuple[int, Event]]:
        """What the next tokens bring; raises when nothing can be computed any more."""
        self._runner.check()
        events: list[tuple[int, Event]] = []
        try:
            news = self._runner.news.get(timeout=WAIT_S)
            while not self._runner.news.empty():
                news += self._runner.news.get()
        except Empty:
            return events
        for row, token, entry, error in news:
            sequence = self._sequences.get(row)
            if sequence is None:
                continue
            number = sequence.group.number
            try:
                if error is not None:
                    raise error
                events += [(number, event) for event in self._advance(row, sequence, token, entry)]
            except Exception as fault:
                if not isinstance(fault, LmiError):
                    log.exception("request %s: generation %d failed", sequence.group.request_id, number)
                    fault = GenerationError(f"the response could not be decoded: {fault}")
                self.abort([number])
                events.append((number, Failed.of(fault)))
        return events

    def stats(self) -> EngineStats:
        """How many sequences run, and how much of the cache they need."""
        running = min(self._most, len(self._sequences))
        waiting = len(self._sequences) - running
        return EngineStats(running=running, waiting=waiting, cache_usage=self._runner.usage)

    def close(self) -> None:
        """Ends the threads."""
        self._runner.close()

    def _advance(self, row: Row, sequence: _Sequence, token: int, entry: dict[int, LogProb] | None) -> list[Event]:
        """What a sequence's new token brings."""
        group, text = sequence.group, sequence.text.stream
        events: list[Event] = []
        if not group.started:
            group.started = True
            known = Prompt(self._prefill[group.number])
            events.append(self._reader.started(group.prompt_ids, known, group.echo, group.prompt_logprobs))
        group.grow(1)
        reason = "stop" if token in row.ends else None
        # The row itself may be ahead of its news.
        if reason is None and text.count + 1 >= row.max_tokens:
            reason = "length"
        self._reader.read(sequence.text, [token], [entry] if entry is not None else [], reason)
        if reason is None and text.stop is None:
            if group.stream:
                delta = Delta(sequence.index, *text.take())
                if delta.text or delta.tokens:
                    events.append(delta)
            return events
        self._forget(row)
        new, tokens = text.finish()
        how, found = self._reader.finish_reason(text.stop, reason, None if token in self._loaded.eos_ids else token)
        finish = Finish(how, found, text.count, sequence.text.cumulative, last=not group.running)
        events.append(Delta(sequence.index, new, tokens, finish))
        return events

    def _forget(self, row: Row) -> None:
        """Ends a sequence, and its generation with the last one."""
        group = self._sequences.pop(row).group
        self._runner.end(row)
        group.running.discard(row)
        if not group.running:
            del self._groups[group.number], self._prefill[group.number]


def _refuse_images(images: Sequence[Image]) -> None:
    if images:
        raise UnsupportedError(f"{images[0].field}: the transformers engine takes text only", images[0].field)
