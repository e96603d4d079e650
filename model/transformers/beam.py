"""Beam search on the transformers engine: each live prefix is a row of the rolling batch.

    BeamRun.search.live --rows--> Rolling.step --what may follow each--> read --all there--> search.advance
         ^                                                                                        |
         +------- Rolling.follow: rows that go on from those before, whose cache they take over ---+

A step of a search is a step of the batch, whatever else runs in it. The prompt is computed once. Where a prefix has one
continuation, that goes on in its row; a further one gets a copy of the row in the cache, in the place of a prefix that
has none.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import GenerationError, LmiError, ParameterError, UnsupportedError
from ..events import Event, Failed
from ..generation import Beams, Sampling
from ..search.beam import Prefix, Step
from ..search.beam_run import BeamRun, BeamTexts
from ..text.outputs import Output
from .batch import Row
from .requests import Prepared
from .scheduler import Scheduler

__all__ = ["BeamRuns", "RowsRun"]

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class RowsRun:
    """The search of one generation, and its rows."""

    beam: BeamRun
    rows: list[Row] = field(default_factory=list[Row])
    """One for each of the search's `live`."""
    left: int = 0
    """How many of them have not been told what may follow."""


class BeamRuns:
    """The searches that run on one engine."""

    def __init__(self, rolling: Scheduler, texts: BeamTexts, *, most: int, budget: int, words: int) -> None:
        """`most` rows run at once, whose cache holds `budget` tokens; the vocabulary has so many `words`."""
        self._rolling = rolling
        self._texts = texts
        self._most = most
        self._budget = budget
        self._words = words
        self._runs: dict[int, RowsRun] = {}

    def prepare(self, prepared: Prepared, sampling: Sampling, beams: Beams) -> RowsRun:
        """A search that is ready to start; raises RequestError where its beams could not all run at once."""
        ids, max_tokens, name = prepared.prompt_ids, prepared.max_tokens, beams.field
        run = self._texts.begin(
            prepared.number, prepared.generation, sampling, beams, ids, max_tokens, prepared.splitters
        )
        if beams.width > self._most:
            most = f"{self._most} beams (option.max_rolling_batch_size, of which each takes a place)"
            raise UnsupportedError(f"{name}: expected at most {most}, got {beams.width}", name)
        if beams.width * (len(ids) + max_tokens) > self._budget:
            raise ParameterError(
                f"{name}: {beams.width} beams of {len(ids)} prompt tokens and {max_tokens} tokens to generate exceed "
                f"the cache of {self._budget} tokens",
                name,
            )
        run.candidates = min(run.candidates, self._words)
        return RowsRun(run)

    def add(self, run: RowsRun) -> None:
        """Queues a search."""
        beam = run.beam
        first = self._row(run, Prefix())
        first.places = beam.search.beams.width
        first.prompt_logprobs = beam.sampling.prompt_logprobs
        run.rows, run.left = [first], 1
        self._runs[beam.number] = run
        self._rolling.add(first)

    def abort(self, numbers: Sequence[int]) -> None:
        """Ends searches; others are ignored."""
        for number in numbers:
            if (run := self._runs.pop(number, None)) is not None:
                self._rolling.remove(run.rows)

    def read(self, row: Row) -> list[tuple[int, Event]]:
        """What a step has brought of a row; nothing where it is not of a search that runs.

        Raises what `Scheduler.follow` raises.
        """
        run = row.group
        if not isinstance(run, RowsRun) or self._runs.get(run.beam.number) is not run:
            return []
        number = run.beam.number
        run.left -= 1
        if row.error is None and run.left:
            return []
        search = run.beam.search
        events: list[Event] = []
        try:
            if row.error is not None:
                raise row.error
            if not row.begun:
                events.append(self._texts.started(run.beam, Output(prompt_logprobs=row.prefill)))
            steps = {_step(one): one for one in run.rows}
            search.advance(list(steps))
            if search.finished:
                events += self._texts.answer(run.beam)
        except Exception as error:
            log.exception("request %s: its beam search failed", run.beam.generation.request_id)
            self.abort([number])
            failure = error if isinstance(error, LmiError) else GenerationError(f"beam search failed: {error}")
            return [(number, Failed.of(failure))]
        if search.finished:
            self.abort([number])
        else:
            self._follow(run, steps)
        return [(number, event) for event in events]

    def _follow(self, run: RowsRun, steps: Mapping[Step, Row]) -> None:
        """A row for each prefix that is live now, in the place of those that the steps were of."""
        children: dict[Row, list[Row]] = {row: [] for row in run.rows}
        run.rows = [self._row(run, prefix) for prefix in run.beam.search.live]
        run.left = len(run.rows)
        for row, prefix in zip(run.rows, run.beam.search.live, strict=True):
            children[steps[prefix.steps[-1]]].append(row)
        self._rolling.follow(children)

    def _row(self, run: RowsRun, prefix: Prefix) -> Row:
        ids = run.beam.prompt_ids
        return Row(run.beam.number, run, [*ids, *prefix.tokens], len(ids), candidates=run.beam.candidates)


def _step(row: Row) -> Step:
    entry = row.entry or {}
    return Step({token: known.logprob for token, known in entry.items()}, entry)
