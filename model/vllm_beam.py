"""Beam search on vLLM, which has none in its core: each step of each live prefix is a vLLM request of one token.

    BeamRun.search.live --start--> requests --outputs of vLLM's steps--> read --all there--> search.advance, and so on

The prefix cache makes such a request cheap: of its prompt only the last block is computed again. Searches and ordinary
requests share vLLM's steps, and none waits for another.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .beam import BeamSearch, Hypothesis, Prefix, Step, candidates_needed
from .errors import GenerationError, UnsupportedError
from .events import Delta, Event, Failed, Finish
from .generation import Beams, Generation, Sampling
from .stops import Stops
from .tokenizer import Tokenizer
from .vllm_outputs import OutputReader
from .vllm_splitter import Splitter, split

__all__ = ["BeamRun", "BeamRuns"]

log = logging.getLogger(__name__)


@dataclass(slots=True)
class BeamRun:
    """The search of one generation."""

    number: int
    generation: Generation
    sampling: Sampling
    """The generation's, with what its chat template asks for."""
    prompt: Any
    prompt_ids: list[int]
    splitters: Sequence[Splitter | None]
    search: BeamSearch
    candidates: int
    requests: int = 0
    """How many there have been."""
    waiting: dict[str, int] = field(default_factory=dict[str, int])
    """The vLLM requests that run: each one's place in `search.live`."""
    steps: dict[int, Step] = field(default_factory=dict[int, Step])


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A complete sequence, in the shape of vLLM's CompletionOutput."""

    token_ids: tuple[int, ...]
    logprobs: list[Any]
    finish_reason: str


class BeamRuns:
    """The searches that run on one engine."""

    def __init__(self, llm: Any, reader: OutputReader, tokenizer: Tokenizer, eos_ids: frozenset[int]) -> None:
        self._llm = llm
        self._reader = reader
        self._tokenizer = tokenizer
        self._eos_ids = eos_ids
        self._vocabulary: int = llm.model_config.get_vocab_size()
        most = llm.model_config.max_logprobs
        self._most: int = self._vocabulary if most < 0 else most
        self._runs: dict[int, BeamRun] = {}
        self._owners: dict[str, BeamRun] = {}

    @property
    def busy(self) -> bool:
        """Whether a search runs."""
        return bool(self._owners)

    @property
    def most(self) -> int:
        """Log-probabilities that vLLM tells of a position at most."""
        return self._most

    def prepare(
        self,
        number: int,
        generation: Generation,
        sampling: Sampling,
        beams: Beams,
        prompt: Any,
        prompt_ids: list[int],
        max_tokens: int,
        splitters: Sequence[Splitter | None],
    ) -> BeamRun:
        """A search that is ready to start; raises UnsupportedError where vLLM may not tell enough log-probabilities."""
        ends = frozenset(sampling.stop_token_ids) | (frozenset() if sampling.ignore_eos else self._eos_ids)
        if generation.stream:
            raise UnsupportedError(f"{beams.field}: beam search is not supported with streaming", beams.field)
        if 2 * beams.width > self._most:
            raise UnsupportedError(
                f"{beams.field}: expected at most {self._most // 2} beams (option.max_logprobs is {self._most}, and "
                f"each beam takes two), got {beams.width}",
                beams.field,
            )
        needed = max(candidates_needed(beams, len(ends)), sampling.logprobs or 0)
        stops = Stops(self._tokenizer, prompt_ids, sampling)
        search = BeamSearch(beams, max_tokens, min(sampling.min_tokens, max_tokens), ends, stops.follow)
        candidates = min(needed, self._most, self._vocabulary)
        return BeamRun(number, generation, sampling, prompt, prompt_ids, splitters, search, candidates)

    def add(self, run: BeamRun) -> None:
        """Starts a search; raises what vLLM raises, having started nothing."""
        self._start(run)
        self._runs[run.number] = run

    def abort(self, numbers: Sequence[int]) -> None:
        """Ends searches; others are ignored."""
        for number in numbers:
            if (run := self._runs.pop(number, None)) is not None:
                self._drop(run)

    def read(self, output: Any) -> list[tuple[int, Event]]:
        """What a RequestOutput brings; nothing where it is not of a search."""
        run = self._owners.pop(output.request_id, None)
        if run is None:
            return []
        try:
            return [(run.number, event) for event in self._advance(run, output)]
        except Exception as error:
            log.exception("request %s: its beam search failed", run.generation.request_id)
            self.abort([run.number])
            failure = error if isinstance(error, GenerationError) else GenerationError(f"beam search failed: {error}")
            return [(run.number, Failed.of(failure))]

    def _start(self, run: BeamRun) -> None:
        """One request for each live prefix."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        first = run.requests == 0
        params = SamplingParams(
            temperature=0.0,
            max_tokens=1,
            ignore_eos=True,
            logprobs=run.candidates,
            prompt_logprobs=run.sampling.prompt_logprobs if first else None,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        run.steps.clear()
        try:
            for place, prefix in enumerate(run.search.live):
                name = f"{run.number}.beam{run.requests}"
                run.requests += 1
                self._llm.add_request(request_id=name, prompt=self._prompt(run, prefix), params=params.clone())
                run.waiting[name] = place
                self._owners[name] = run
        except Exception:
            self._drop(run)
            raise

    def _prompt(self, run: BeamRun, prefix: Prefix) -> Any:
        if not prefix.tokens:
            return run.prompt
        return {**run.prompt, "prompt_token_ids": [*run.prompt_ids, *prefix.tokens]}

    def _advance(self, run: BeamRun, output: Any) -> list[Event]:
        """Takes in one prefix's step, and with the last of them goes on."""
        completion = output.outputs[0]
        place = run.waiting.pop(output.request_id)
        if completion.finish_reason not in {"length", "stop"} or not completion.logprobs:
            raise GenerationError("the engine failed while generating")
        entry: Mapping[int, Any] = completion.logprobs[0]
        run.steps[place] = Step({token: known.logprob for token, known in entry.items()}, entry)
        if run.waiting:
            return []
        events: list[Event] = []
        if not run.search.live[0].tokens:
            echo = self._reader.prompt_text(run.prompt_ids) if run.generation.echo else ""
            events.append(self._reader.started(run.prompt_ids, output, echo, run.sampling.prompt_logprobs or 0))
        run.search.advance([run.steps[place] for place in range(len(run.search.live))])
        if not run.search.finished:
            self._start(run)
            return events
        del self._runs[run.number]
        return events + self._deltas(run)

    def _deltas(self, run: BeamRun) -> list[Event]:
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
        keep_tokens = run.generation.tokens or splitter is not None
        text = self._reader.text(run.sampling, run.prompt_ids, keep_tokens, run.generation.token_bytes)
        ids = hypothesis.prefix.tokens
        ended = "stop" if hypothesis.ending == "end" else "length"
        self._reader.read(text, _Chosen(ids, [step.note for step in hypothesis.prefix.steps], ended))
        new, tokens = text.stream.finish()
        # A stop string that the text as a whole has not, though its end seemed to, is a stop all the same.
        how = "repetition" if hypothesis.ending == "stop" else ended
        reason, stop = self._reader.how(text.stream.stop, how, ids[-1])
        finish = Finish(reason, stop, text.stream.count, text.cumulative, last=last, discarded_tokens=discarded)
        return split(splitter, Delta(index, new, tokens, finish), shown=run.generation.tokens)

    def _drop(self, run: BeamRun) -> None:
        names = list(run.waiting)
        run.waiting.clear()
        for name in names:
            self._owners.pop(name, None)
        if names:
            self._llm.abort_request(names)
