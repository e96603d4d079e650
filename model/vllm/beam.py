"""Beam search on vLLM, which has none in its core: each step of each live prefix is a vLLM request of one token.

    BeamSearch.live --start--> requests --outputs of vLLM's steps--> read --all there--> advance, and so on
    BeamSearch.complete --OutputSequence.whole--> Delta, Delta, ...

The prefix cache makes such a request cheap: of its prompt only the last block is computed again. Without it searches
are refused. Searches and ordinary requests share vLLM's steps, and none waits for another.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import GenerationError
from ..events import Delta, EngineEvent, Failed
from ..generation import Beams
from ..search.beam import BeamSearch, Hypothesis, Step, candidates_needed
from ..search.beam_stops import Stops
from ..text.answers.splitting import AnswerSplitter
from .aside import Aside
from .core import Core
from .core_outputs import Prompt, entries, prompt_of
from .request.beams import BeamLimits
from .request.prepared import Prepared
from .sequences.group import SequenceGroup
from .sequences.pace import Pace
from .sequences.sequence import OutputSequence

__all__ = ["BeamRuns"]

log = logging.getLogger(__name__)


@dataclass(slots=True)
class BeamRun:
    """The search of one generation, and its vLLM requests."""

    group: SequenceGroup
    splitters: Sequence[AnswerSplitter | None]
    first: Any
    """An EngineCoreRequest of the prompt, which others are copies of."""
    search: BeamSearch
    candidates: int
    """How many of the likeliest tokens the search gets for each prefix."""
    requests: int = 0
    """How many there have been."""
    waiting: dict[str, int] = field(default_factory=dict[str, int])
    """Those that run: each one's place in the search's `live`."""
    steps: dict[int, Step] = field(default_factory=dict[int, Step])
    copy: int | None = None
    """Which of several copies of the model (data parallelism) has the prefixes cached, once it has answered."""
    prompt: Prompt = field(default_factory=Prompt)
    """What the core has told of the prompt."""


class BeamRuns:
    """The searches that run on one engine."""

    def __init__(self, core: Core, limits: BeamLimits, aside: Aside) -> None:
        self._core = core
        self._limits = limits
        self._aside = aside
        self._runs: dict[int, BeamRun] = {}
        self._owners: dict[str, BeamRun] = {}

    @property
    def busy(self) -> bool:
        """Whether a search runs."""
        return bool(self._owners)

    def add(self, group: SequenceGroup, beams: Beams, prepared: Prepared) -> None:
        """Starts a search; raises what vLLM raises, having started nothing."""
        sampling, most = group.sampling, prepared.max_tokens
        ends = frozenset(sampling.stop_token_ids) | (frozenset() if sampling.ignore_eos else group.ends)
        stops = Stops(group.tokenizer, group.prompt_ids, sampling)
        search = BeamSearch(beams, most, min(sampling.min_tokens, most), ends, stops.follow)
        wanted = max(candidates_needed(beams, len(ends)), sampling.logprobs or 0)
        candidates = min(wanted, self._limits.most, self._limits.vocabulary)
        run = BeamRun(group, prepared.splitters, prepared.requests[0], search, candidates)
        self._start(run)
        self._runs[group.number] = run

    def abort(self, numbers: Sequence[int]) -> None:
        """Ends searches; others are ignored."""
        for number in numbers:
            if (run := self._runs.pop(number, None)) is not None:
                self._drop(run)

    def read(self, output: Any) -> list[tuple[int, EngineEvent]]:
        """What an EngineCoreOutput brings; nothing where it is not of a search."""
        run = self._owners.pop(output.request_id, None)
        if run is None:
            return []
        number = run.group.number
        try:
            return [(number, event) for event in self._advance(run, output)]
        except Exception as error:
            log.exception("request %s: its beam search failed", run.group.generation.request_id)
            self.abort([number])
            failure = error if isinstance(error, GenerationError) else GenerationError(f"beam search failed: {error}")
            return [(number, Failed.of(failure))]

    def _start(self, run: BeamRun) -> None:
        """One request for each live prefix."""
        from vllm import SamplingParams

        params = SamplingParams(
            temperature=0.0,
            max_tokens=1,
            ignore_eos=True,
            logprobs=run.candidates,
            prompt_logprobs=run.group.sampling.prompt_logprobs if run.requests == 0 else None,
            detokenize=False,
        )
        run.steps.clear()
        for place, prefix in enumerate(run.search.live):
            request = copy.copy(run.first)
            request.request_id = self._core.name(run.group.number, f"beam{run.requests}")
            request.sampling_params = params.clone()
            request.data_parallel_rank = run.copy
            request.prompt_token_ids = [*run.group.prompt_ids, *prefix.tokens]
            run.requests += 1
            self._core.add(request)
            run.waiting[request.request_id] = place
            self._owners[request.request_id] = run

    def _advance(self, run: BeamRun, output: Any) -> list[EngineEvent]:
        """Takes in one prefix's step, and with the last of them goes on."""
        place = run.waiting.pop(output.request_id)
        if str(output.finish_reason) not in {"length", "stop"} or output.new_logprobs is None:
            raise GenerationError(self._core.failure(output.request_id) or "the engine failed while generating")
        (entry,) = entries(output.new_logprobs, run.candidates)
        run.steps[place] = Step({token: known.logprob for token, known in entry.items()}, entry)
        search, group = run.search, run.group
        if place == 0 and not search.live[0].tokens:
            run.prompt = prompt_of(output, group.sampling.prompt_logprobs, len(group.prompt_ids))
            run.copy = self._core.copy
        if run.waiting:
            return []
        events: list[EngineEvent] = []
        if not search.live[0].tokens:
            begun = group.begin(run.prompt)
            if group.shows_prompt:
                self._aside.start(group.number, begun, group.generation.request_id)
            else:
                events += begun
        search.advance([run.steps[place] for place in range(len(search.live))])
        if not search.finished:
            self._start(run)
            return events
        del self._runs[group.number]
        return [*events, *_answer(run)]

    def _drop(self, run: BeamRun) -> None:
        names = list(run.waiting)
        run.waiting.clear()
        for name in names:
            self._owners.pop(name, None)
        if names:
            self._core.abort(names)


def _answer(run: BeamRun) -> list[Delta]:
    """The n best of a search that has finished."""
    n = run.group.sampling.n
    chosen, others = run.search.complete[:n], run.search.complete[n:]
    discarded = sum(len(other.prefix.tokens) for other in others)
    last = len(chosen) - 1
    return [
        _sequence(run, index, hypothesis, last=index == last, discarded_tokens=discarded if index == last else 0)
        for index, hypothesis in enumerate(chosen)
    ]


def _sequence(run: BeamRun, index: int, hypothesis: Hypothesis, **finish: Any) -> Delta:
    sequence = OutputSequence("", index, run.group, run.splitters[index], Pace(1))
    reason = "stop" if hypothesis.ending == "end" else "length"
    # A stop string that the text as a whole has not, though its end seemed to, is a stop all the same.
    ended = "repetition" if hypothesis.ending == "stop" else reason
    prefix = hypothesis.prefix
    return sequence.whole([*prefix.tokens], [step.note for step in prefix.steps], reason, ended, **finish)
