"""The rolling batch of the transformers engine: which sequences run, and a step of all of them.

    add -> waiting --room?--> prompts (in pieces) --first token--> joining --> running --one token a step--> remove
              ^                                                                   |
              +------------------- the newest, where the cache is full -----------+

A step computes some prompts and then one token of every running sequence. A sequence that had to make room is computed
again from all of its tokens later, and goes on where it was.

A beam search is so many rows. A step says what may follow each of them, `follow` which of that is to be: rows that take
over the cache of those they follow. They run, or wait for room, all at the same time.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..engine import EngineStats
from ..errors import GenerationError
from .batch import Batch, Row, lengths, read_prefill, units
from .cache import rows_of
from .forward import Forward, device_is_lost, short_of_memory
from .sampler import choose, likeliest

__all__ = ["Scheduler"]

log = logging.getLogger(__name__)

EVERY = 256
"""How many of a prompt's tokens are computed at once where the logits of all of them are wanted."""


class Scheduler:
    """Runs at most `most` sequences at once, whose cache holds at most `budget` tokens.

    A step computes about `piece` tokens of prompts. `least` is the smallest budget that will do: the model's context.
    """

    def __init__(self, forward: Forward, *, most: int, budget: int, least: int, piece: int) -> None:
        self._forward = forward
        self._least = least
        self._cache = rows_of(forward, budget, least)
        self._most = most
        self._budget = budget
        self._piece = piece
        self._waiting: deque[Row] = deque()
        self._partial: Batch | None = None
        self._joining: list[Batch] = []
        self._running: list[Row] = []

    @property
    def together(self) -> bool:
        """Whether a step computes all sequences in one pass."""
        return self._cache.together

    @property
    def busy(self) -> bool:
        """Whether a step has something to do."""
        return bool(self._waiting or self._partial or self._joining or self._running)

    def stats(self) -> EngineStats:
        """How many sequences are computed and wait, and how much of the cache they need."""
        batches = [*self._joining, *([self._partial] if self._partial else [])]
        joining = lengths(row for batch in batches for row in batch.rows)
        usage, running = min(1.0, self._cache.need(joining) / self._budget), len(self._running) + len(joining)
        return EngineStats(running=running, waiting=len(self._waiting), cache_usage=usage)

    def add(self, row: Row) -> None:
        """Queues a sequence."""
        self._waiting.append(row)

    def remove(self, rows: Collection[Row]) -> None:
        """Ends sequences, wherever they are."""
        import torch

        gone = set(rows)
        self._waiting = deque(row for row in self._waiting if row not in gone)
        if self._partial is not None:
            self._partial.drop(gone)
            if not self._partial.rows:
                self._partial = None
        for batch in self._joining:
            batch.drop(gone)
        with torch.inference_mode():
            for index in reversed(range(len(self._running))):
                if self._running[index] in gone:
                    self._leave(index)

    def follow(self, children: Mapping[Row, Sequence[Row]]) -> None:
        """Puts rows of a search in the place of those that they follow, all of the search's in the step before.

        Each has the tokens of the one it follows, and one more; of some there may be none.
        """
        import torch

        places = {row: index for index, row in enumerate(self._running) if row in children}
        if not places:
            # The prompt has just been computed, or has to be again after a step without memory.
            for batch in self._joining:
                batch.replace(children)
            self._waiting = deque(one for row in self._waiting for one in children.get(row, (row,)))
            return
        free = [index for row, index in places.items() if not children[row]]
        sources: list[int] = []
        targets: list[int] = []
        for row, index in places.items():
            for number, child in enumerate(children[row]):
                target = index
                if number:
                    target = free.pop() if free else len(self._running)
                    sources.append(index)
                    targets.append(target)
                self._running[target : target + 1] = [child]
        try:
            with torch.inference_mode():
                if targets:
                    self._cache.copy(sources, targets)
                for index in reversed(free):
                    self._leave(index)
        except Exception as error:
            self._running = [row for row in self._running if row not in children]
            if not short_of_memory(error) or not self._start_over():
                raise

    def step(self) -> list[Row]:
        """A step; returns the rows that have got a token, or an `error`. Raises what leaves the device beyond use."""
        import torch

        failed: list[Row] = []
        with torch.inference_mode():
            try:
                self._join()
                logits = self._prefill(failed)
                fresh = [row for batch in self._joining for row in batch.rows]
                self._make_room(lengths(fresh))
                if self._running:
                    tokens = torch.tensor([row.ids[-1] for row in self._running])
                    logits.insert(0, self._cache.decode(tokens))
            except Exception as error:
                if not short_of_memory(error) or not self._start_over():
                    raise
                return failed
            rows = self._running + fresh
            if rows:
                self._choose(logits, rows)
        return rows + failed

    def _choose(self, logits: list[Any], rows: list[Row]) -> None:
        import torch

        together = (torch.cat(logits) if len(logits) > 1 else logits[0]).to(self._forward.device)
        beams = [index for index, row in enumerate(rows) if row.candidates]
        if beams:
            wanted = [rows[index].candidates for index in beams]
            for index, known in zip(beams, likeliest(together[beams], wanted), strict=True):
                rows[index].entry = known
            others = [index for index, row in enumerate(rows) if not row.candidates]
            together, rows = together[others], [rows[index] for index in others]
        if not rows:
            return
        pasts = [(row.ids, row.prompt) for row in rows]
        tokens, entries = choose(together, [row.chooser for row in rows], pasts)
        for row, token, entry in zip(rows, tokens, entries, strict=True):
            row.ids.append(token)
            row.entry = entry

    def _join(self) -> None:
        """What got its first token in the step before runs from now on."""
        while self._joining:
            batch = self._joining[0]
            if batch.rows:
                self._cache.join(batch.prompts, batch.sources)
                self._running += batch.rows
            del self._joining[0]

    def _leave(self, index: int) -> None:
        self._cache.leave(index)
        last = self._running.pop()
        if index < len(self._running):
            self._running[index] = last

    def _prefill(self, failed: list[Row]) -> list[Any]:
        """Computes prompts; those that are complete are `joining`. Returns the logits [rows, words] after theirs."""
        ends: list[Any] = []
        left = self._piece
        while left > 0:
            batch = self._partial = self._partial or self._admit(failed)
            if batch is None:
                break
            prompts = batch.prompts
            every = batch.rows[0].prompt_logprobs is not None and not batch.rows[0].begun
            columns = prompts.width
            if self.together:
                columns = min(EVERY if every else columns, max(1, left // len(prompts.lengths)))
            before = prompts.done
            try:
                logits = prompts.advance(self._forward, columns, every=every)
                if every:
                    read_prefill(batch.rows[0], prompts, logits, before)
            except Exception as error:
                if device_is_lost(error) or (short_of_memory(error) and self._running):
                    raise
                log.exception("computing a prompt failed")
                for row in batch.rows:
                    row.error = GenerationError(f"the prompt could not be computed: {error}")
                failed += batch.rows
                self._partial = None
                continue
            left -= (prompts.done - before) * len(prompts.lengths)
            if prompts.done == prompts.width:
                self._joining.append(batch)
                ends.append(logits[:, -1][batch.sources])
                self._partial = None
        return ends

    def _admit(self, failed: list[Row]) -> Batch | None:
        """The next prompts to compute, if there is room for what comes of them."""
        taken = lengths(row for batch in self._joining for row in batch.rows)
        rows: list[Row] = []
        sources: list[int] = []
        prompts: list[list[int]] = []
        for unit in units(self._waiting):
            first, more = unit[0], lengths(unit)
            if len(self._running) + len(taken) + len(more) > self._most:
                break
            same = bool(rows) and first.group is rows[-1].group and not first.begun and not rows[-1].begun
            if prompts and not same and not self._fits([*prompts, *(row.ids for row in unit)], [*rows, *unit]):
                break
            if self._cache.need([*taken, *more]) > self._budget:
                if not taken and not self._running:
                    failed += self._refuse(unit)
                break
            for row in unit:
                if not same:
                    prompts.append(row.ids)
                rows.append(row)
                sources.append(len(prompts) - 1)
            taken += more
        if not rows:
            return None
        batch = Batch(self._cache.start(prompts), rows, sources)
        for _ in rows:
            self._waiting.popleft()
        return batch

    def _refuse(self, unit: list[Row]) -> list[Row]:
        """The first rows of the queue fail, which do not fit even alone; of a search they are several."""
        error = GenerationError(f"the cache of {self._budget} tokens does not hold so many beams")
        for row in unit:
            self._waiting.popleft()
            row.error = error
        return unit

    def _fits(self, prompts: list[list[int]], rows: list[Row]) -> bool:
        """Whether so many different prompts are computed in one pass: not if much of it were padding."""
        if not self.together or any(row.prompt_logprobs is not None for row in rows):
            return False
        widths = [len(prompt) for prompt in prompts]
        return max(widths) <= 2 * min(widths) + 16 and max(widths) * len(widths) <= self._piece

    def _make_room(self, joining: list[int]) -> None:
        """Sends sequences back to the queue until one more token for each of the others fits.

        `joining` are the lengths of those that are about to run.
        """
        partial = self._partial
        if partial and self._cache.need(joining + lengths(partial.rows)) > self._budget:
            self._waiting.extendleft(reversed(partial.rows))
            self._partial = None
        while len(self._running) + len(joining) > 1 and self._running and self._cache.need(joining) > self._budget:
            newest = max(self._running, key=lambda row: row.number)
            unit = [row for row in self._running if row is newest or (row.candidates and row.group is newest.group)]
            for row in unit:
                self._waiting.appendleft(row)
                self._leave(self._running.index(row))

    def _start_over(self) -> bool:
        """After a step without memory: all back to the queue, and a smaller cache. False: it cannot be smaller."""
        import torch

        smaller = self._budget * 3 // 4
        if smaller < self._least:
            return False
        log.warning("out of memory: the cache is cut from %d to %d tokens", self._budget, smaller)
        batches = [*self._joining, *([self._partial] if self._partial else [])]
        rows = [*self._running, *(row for batch in batches for row in batch.rows), *self._waiting]
        self._waiting = deque(sorted(rows, key=lambda row: row.number))
        self._running, self._joining, self._partial = [], [], None
        self._budget = smaller
        self._cache = rows_of(self._forward, smaller, self._least)
        torch.cuda.empty_cache()
        return True
