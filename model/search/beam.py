"""Beam search over token log-probabilities, for any engine.

    BeamSearch.live --the engine: what may follow each--> advance(steps) --> live, complete, finished

Nothing here knows of models or text: the caller asks the engine what may follow each live prefix, and
says with `follow` whether a token completes a stop string. The rules are those of transformers' beam search
(transformers 5.23, GenerationMixin._beam_search), whose results this has to give.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..generation import Beams

__all__ = ["BeamSearch", "Follow", "Hypothesis", "Prefix", "Step", "candidates_needed"]

Ending = Literal["end", "stop", "length"]
"""end: one of the ids that end a sequence. stop: a stop string. length: max_tokens."""


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """Tokens that follow the prompt."""

    tokens: tuple[int, ...] = ()
    score: float = 0.0
    """The sum of their log-probabilities."""
    steps: tuple[Step, ...] = ()
    """The step that each token was taken from."""
    state: Any = None
    """What `follow` made of the tokens."""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """What may follow a prefix."""

    logprobs: Mapping[int, float]
    """Of the likeliest tokens, as many as `candidates_needed` says."""
    note: Any = None
    """The engine's own, for whoever makes the answer of `Prefix.steps`."""


@dataclass(frozen=True, slots=True, eq=False)
class Hypothesis:
    """A sequence that is complete."""

    prefix: Prefix
    score: float
    """The sum of log-probabilities divided by length ** length_penalty; the token that ends it counts."""
    ending: Ending


Follow = Callable[[Prefix, int], tuple[Any, bool]]
"""The state of a prefix with one token more, and whether that token completes a stop string."""


def candidates_needed(beams: Beams, endings: int) -> int:
    """How many of the likeliest tokens `advance` needs of each live prefix, with so many ids that end a sequence.

    transformers takes (1 + endings) * width of all together, so that `width` prefixes are left that go on. For the same
    choice width + endings of each prefix do; twice the width leaves room for tokens that complete a stop string.
    """
    return max(2 * beams.width, beams.width + endings)


@dataclass(slots=True)
class BeamSearch:
    """One search. While it is not `finished`, each prefix of `live` wants its step."""

    beams: Beams
    max_tokens: int
    min_tokens: int = 0
    """How many tokens come before one that ends the sequence is considered; `follow` has a rule of its own."""
    ends: frozenset[int] = frozenset()
    follow: Follow = field(default=lambda prefix, token: (None, False))
    live: list[Prefix] = field(default_factory=lambda: [Prefix()])
    """Likeliest first; none when finished."""
    complete: list[Hypothesis] = field(default_factory=list[Hypothesis])
    """The best so far, at most `beams.width`, best first."""

    @property
    def finished(self) -> bool:
        """Whether `complete` is the result. It has fewer than `beams.width` only where the vocabulary is that small."""
        return not self.live

    def advance(self, steps: Sequence[Step]) -> None:
        """Goes one token further; `steps` are those of `live`, in its order."""
        width = self.beams.width
        length = len(self.live[0].tokens) + 1
        may_end = length > self.min_tokens
        candidates = [
            (prefix.score + logprob, prefix, step, token)
            for prefix, step in zip(self.live, steps, strict=True)
            for token, logprob in step.logprobs.items()
            if may_end or token not in self.ends
        ]
        candidates.sort(key=lambda candidate: candidate[0], reverse=True)
        live: list[Prefix] = []
        for rank, (score, prefix, step, token) in enumerate(candidates):
            if rank >= width and len(live) == width:
                break
            ending: Ending | None = None
            state = None
            if token in self.ends:
                ending = "end"
            else:
                state, stopped = self.follow(prefix, token)
                if stopped:
                    ending = "stop"
                elif length >= self.max_tokens:
                    ending = "length"
            # What ends counts only among the `width` likeliest; what goes on fills the places that it leaves.
            if rank >= width if ending else len(live) == width:
                continue
            longer = Prefix((*prefix.tokens, token), score, (*prefix.steps, step), state)
            if ending:
                self.complete.append(Hypothesis(longer, self._score(score, length), ending))
            else:
                live.append(longer)
        self.complete.sort(key=lambda hypothesis: hypothesis.score, reverse=True)
        del self.complete[width:]
        self.live = live if self._worthwhile(live, length) else []

    def _worthwhile(self, live: list[Prefix], length: int) -> bool:
        """Whether going on may change the result, by the rule that `early_stopping` chooses."""
        if not live or len(self.complete) < self.beams.width:
            return bool(live)
        if self.beams.early_stopping is True:
            return False
        # "never" supposes the best that the likeliest prefix could become, False that it ends here.
        longest = self.beams.early_stopping == "never" and self.beams.length_penalty > 0
        return self._score(live[0].score, self.max_tokens if longest else length) > self.complete[-1].score

    def _score(self, total: float, length: int) -> float:
        # Not length ** length_penalty, which may overflow.
        return total / math.exp(max(-700.0, min(700.0, self.beams.length_penalty * math.log(length))))
