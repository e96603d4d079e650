"""Beam search on vLLM, which has none in its core: each step of each live prefix is a vLLM request of one token.

    BeamRun.search.live --start--> requests --outputs of vLLM's steps--> read --all there--> search.advance, and so on

The prefix cache makes such a request cheap: of its prompt only the last block is computed again. Without it searches
are refused. Searches and ordinary requests share vLLM's steps, and none waits for another.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import GenerationError, ParameterError, UnsupportedError
from ..events import EngineEvent, Failed
from ..generation import Beams, Generation, Sampling
from ..search.beam import Step
from ..search.beam_run import PATH, BeamRun, BeamTexts
from ..text.outputs import Prompt
from ..text.parsers import Splitter
from .aside import Aside
from .core import Core
from .core_outputs import entries, told

__all__ = ["BeamRuns", "VllmRun"]

log = logging.getLogger(__name__)


@dataclass(slots=True)
class VllmRun:
    """The search of one generation, and its vLLM requests."""

    beam: BeamRun
    first: Any
    """An EngineCoreRequest of the prompt, which others are copies of."""
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

    def __init__(self, core: Core, texts: BeamTexts, aside: Aside) -> None:
        self._core = core
        self._aside = aside
        self._texts = texts
        self._vocabulary: int = core.model_config.get_vocab_size()
        most = core.model_config.max_logprobs
        self._most: int = self._vocabulary if most < 0 else most
        self._prefixes_cached: bool = core.vllm_config.cache_config.enable_prefix_caching
        self._runs: dict[int, VllmRun] = {}
        self._owners: dict[str, VllmRun] = {}

    @property
    def busy(self) -> bool:
        """Whether a search runs."""
        return bool(self._owners)

    def prepare(
        self,
        number: int,
        generation: Generation,
        sampling: Sampling,
        beams: Beams,
        first: Any,
        prompt_ids: list[int],
        max_tokens: int,
        splitters: Sequence[Splitter | None],
    ) -> VllmRun:
        """A search that is ready to start."""
        run = self._texts.begin(number, generation, sampling, beams, prompt_ids, max_tokens, splitters)
        run.candidates = min(run.candidates, self._most, self._vocabulary)
        return VllmRun(run, first)

    def check(self, generation: Generation, beams: Beams) -> None:
        """Raises UnsupportedError where vLLM may not tell enough log-probabilities, or would compute the whole prompt
        again for each token of each beam.
        """
        if not self._prefixes_cached:
            raise UnsupportedError(
                f"{PATH}: beam search needs prefix caching, which this engine runs without "
                "(option.enable_prefix_caching)",
                PATH,
            )
        if 2 * beams.width > self._most:
            raise UnsupportedError(
                f"{PATH}: expected at most {self._most // 2} beams (option.max_logprobs is {self._most}, and "
                f"each beam takes two), got {beams.width}",
                PATH,
            )
        # Of other requests vLLM checks it itself; a search asks it for as many as it may.
        if (likely := generation.sampling.logprobs or 0) > self._most:
            expected = f"at most {self._most} (option.max_logprobs)"
            raise ParameterError.of("sampling.logprobs", likely, expected)

    def add(self, run: VllmRun) -> None:
        """Starts a search; raises what vLLM raises, having started nothing."""
        self._start(run)
        self._runs[run.beam.number] = run

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
        try:
            return [(run.beam.number, event) for event in self._advance(run, output)]
        except Exception as error:
            log.exception("request %s: its beam search failed", run.beam.generation.request_id)
            self.abort([run.beam.number])
            failure = error if isinstance(error, GenerationError) else GenerationError(f"beam search failed: {error}")
            return [(run.beam.number, Failed.of(failure))]

    def _start(self, run: VllmRun) -> None:
        """One request for each live prefix."""
        from vllm import SamplingParams

        params = SamplingParams(
            temperature=0.0,
            max_tokens=1,
            ignore_eos=True,
            logprobs=run.beam.candidates,
            prompt_logprobs=run.beam.sampling.prompt_logprobs if run.requests == 0 else None,
            detokenize=False,
        )
        run.steps.clear()
        for place, prefix in enumerate(run.beam.search.live):
            request = copy.copy(run.first)
            request.request_id = self._core.name(run.beam.number, f"beam{run.requests}")
            request.sampling_params = params.clone()
            request.data_parallel_rank = run.copy
            request.prompt_token_ids = [*run.beam.prompt_ids, *prefix.tokens]
            run.requests += 1
            self._core.add(request)
            run.waiting[request.request_id] = place
            self._owners[request.request_id] = run

    def _advance(self, run: VllmRun, output: Any) -> list[EngineEvent]:
        """Takes in one prefix's step, and with the last of them goes on."""
        place = run.waiting.pop(output.request_id)
        if str(output.finish_reason) not in {"length", "stop"} or output.new_logprobs is None:
            raise GenerationError(self._core.failure(output.request_id) or "the engine failed while generating")
        (entry,) = entries(output.new_logprobs, run.beam.candidates)
        run.steps[place] = Step({token: known.logprob for token, known in entry.items()}, entry)
        search = run.beam.search
        if place == 0 and not search.live[0].tokens:
            run.prompt = told(output, run.beam.sampling.prompt_logprobs, len(run.beam.prompt_ids))
            run.copy = self._core.copy
        if run.waiting:
            return []
        events: list[EngineEvent] = []
        if not search.live[0].tokens:
            started, generation = self._texts.started(run.beam, run.prompt), run.beam.generation
            if generation.echo or run.beam.sampling.prompt_logprobs is not None:
                self._aside.start(run.beam.number, started, generation.request_id)
            else:
                events += started
        search.advance([run.steps[place] for place in range(len(search.live))])
        if not search.finished:
            self._start(run)
            return events
        del self._runs[run.beam.number]
        return [*events, *self._texts.answer(run.beam)]

    def _drop(self, run: VllmRun) -> None:
        names = list(run.waiting)
        run.waiting.clear()
        for name in names:
            self._owners.pop(name, None)
        if names:
            self._core.abort(names)
