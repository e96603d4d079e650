"""The beam search of one generation, whatever engine runs it: how it begins, and what is answered.

Generation --begin--> BeamRun.search --an engine's steps (beam.py)--> complete --answer--> Delta, Delta, ...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..errors import UnsupportedError
from ..events import Delta, Event, Finish, Prefill, Started
from ..generation import Beams, Generation, Sampling
from ..text.outputs import OutputReader, Prompt
from ..text.parsers import Splitter, split_whole
from ..text.tokenizer import Tokenizer
from .beam import BeamSearch, Hypothesis, candidates_needed
from .beam_stops import Stops

__all__ = ["PATH", "BeamRun", "BeamTexts"]

PATH = "sampling.beams"
"""Of what is at fault where a search is refused."""


@dataclass(slots=True)
class BeamRun:
    """The search of one generation."""

    number: int
    generation: Generation
    sampling: Sampling
    """The generation's, with what its chat template asks for."""
    prompt_ids: list[int]
    splitters: Sequence[Splitter | None]
    search: BeamSearch
    candidates: int
    """How many of the likeliest tokens the search gets for each prefix."""


class BeamTexts:
    """What searches of one model need to know of text."""

    def __init__(self, reader: OutputReader, tokenizer: Tokenizer, eos_ids: frozenset[int]) -> None:
        self._reader = reader
        self._tokenizer = tokenizer
        self._eos_ids = eos_ids

    def begin(
        self,
        number: int,
        generation: Generation,
        sampling: Sampling,
        beams: Beams,
        prompt_ids: list[int],
        max_tokens: int,
        splitters: Sequence[Splitter | None],
    ) -> BeamRun:
        """A search that is ready to start; raises UnsupportedError where its answer is to be streamed."""
        if generation.stream:
            raise UnsupportedError(f"{PATH}: beam search is not supported with streaming", PATH)
        ends = frozenset(sampling.stop_token_ids) | (frozenset() if sampling.ignore_eos else self._eos_ids)
        stops = Stops(self._tokenizer, prompt_ids, sampling)
        search = BeamSearch(beams, max_tokens, min(sampling.min_tokens, max_tokens), ends, stops.follow)
        candidates = max(candidates_needed(beams, len(ends)), sampling.logprobs or 0)
        return BeamRun(number, generation, sampling, prompt_ids, splitters, search, candidates)

    def started(self, run: BeamRun, prompt: Prompt) -> Iterator[Prefill | Started]:
        """The first events, made one by one."""
        return self._reader.started(run.prompt_ids, prompt, run.generation.echo, run.sampling.prompt_logprobs or 0)

    def answer(self, run: BeamRun) -> list[Event]:
        """The n best of a search that has finished."""
        chosen, others = run.search.complete[: run.sampling.n], run.search.complete[run.sampling.n :]
        discarded = sum(len(other.prefix.tokens) for other in others)
        last = len(chosen) - 1
        return [
            self._delta(run, index, hypothesis, index == last, discarded if index == last else 0)
            for index, hypothesis in enumerate(chosen)
        ]

    def _delta(self, run: BeamRun, index: int, hypothesis: Hypothesis, last: bool, discarded: int) -> Delta:
        splitter = run.splitters[index]
        text = self._reader.text(run.sampling, run.prompt_ids, run.generation.tokens, run.generation.token_bytes)
        ids = hypothesis.prefix.tokens
        ended = "stop" if hypothesis.ending == "end" else "length"
        self._reader.read(text, list(ids), [step.note for step in hypothesis.prefix.steps], ended)
        new, tokens = text.stream.finish()
        # A stop string that the text as a whole has not, though its end seemed to, is a stop all the same.
        how = "repetition" if hypothesis.ending == "stop" else ended
        reason, stop = self._reader.finish_reason(text.stream.stop, how, ids[-1])
        finish = Finish(reason, stop, text.stream.count, text.cumulative, last=last, discarded_tokens=discarded)
        return split_whole(splitter, Delta(index, new, tokens, finish), list(ids[: text.stream.count]))
