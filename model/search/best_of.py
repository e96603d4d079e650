"""The best of several sequences, likeliest first: as many as are returned or more (Sampling.best_of), for any engine.

    Generation(n=2, best_of=5) --ranked--> Generation(n=5), and a sink that passes on the two likeliest

Sequence i has the seed `seed + i`, as it would have without ranking. A sequence's rank is its cumulative
log-probability's (vLLM's rule, while it had a best_of); of equals the earlier goes first, and one that was cut off
goes last. The chosen ones become sequences 0 to n - 1.
"""

from __future__ import annotations

import msgspec

from ..engine import Sink
from ..events import Delta, EngineEvent, Finish
from ..generation import Generation

__all__ = ["Ranking", "ranked"]


def ranked(generation: Generation, sink: Sink) -> tuple[Generation, Sink]:
    """What the engine is to generate, and the sink that it reports to, so that `sink` gets the best sequences only."""
    sampling = generation.sampling
    if sampling.best_of is None or sampling.best_of == 1:
        return generation, sink
    wider = msgspec.structs.replace(
        sampling,
        n=sampling.best_of,
        best_of=None,
        # Without log-probabilities engines do not sum them up either.
        logprobs=sampling.logprobs or 0,
    )
    return msgspec.structs.replace(generation, sampling=wider), Ranking(sink, sampling.n)


class Ranking:
    """A sink that holds what comes until every sequence has ended. Deltas may come in any split and order."""

    def __init__(self, sink: Sink, n: int) -> None:
        self._sink = sink
        self._n = n
        self._deltas: dict[int, list[Delta]] = {}
        self._finishes: dict[int, Finish] = {}

    def __call__(self, event: EngineEvent) -> None:
        if not isinstance(event, Delta):
            self._sink(event)
            return
        self._deltas.setdefault(event.index, []).append(event)
        if event.finish is not None:
            self._finishes[event.index] = event.finish
            if event.finish.last:
                self._pass_on()

    def _pass_on(self) -> None:
        order = sorted(self._finishes, key=self._rank)
        chosen = order[: self._n]
        discarded = [self._finishes[index] for index in order[self._n :]]
        for rank, index in enumerate(chosen):
            for delta in self._deltas[index]:
                finish = delta.finish
                if finish is not None:
                    finish = msgspec.structs.replace(finish, last=False)
                    if index == chosen[-1]:
                        finish = msgspec.structs.replace(
                            finish,
                            last=True,
                            discarded_tokens=sum(other.generated_tokens for other in discarded),
                            discarded_reasoning_tokens=sum(other.reasoning_tokens for other in discarded),
                        )
                self._sink(msgspec.structs.replace(delta, index=rank, finish=finish))

    def _rank(self, index: int) -> tuple[bool, float, int]:
        finish = self._finishes[index]
        return finish.reason == "abort", -(finish.cumulative_logprob or 0.0), index
