"""Beam search by itself (model/search/beam.py): made-up models, all of whose sequences can be counted out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmi.model.search.beam import BeamSearch, Prefix, Step, candidates_needed

from ...kit.api.types import Beams

END = 0


class Model:
    """The log-probabilities of the next token depend on the last one and on the length."""

    def __init__(self, seed: int, vocabulary: int) -> None:
        self.seed = seed
        self.vocabulary = vocabulary

    def logprobs(self, tokens: Sequence[int]) -> dict[int, float]:
        last = tokens[-1] if tokens else self.vocabulary
        weights = [
            1 + (self.seed + 7919 * last + 104729 * token + 1299709 * len(tokens)) * 2654435761 % 1000
            for token in range(self.vocabulary)
        ]
        return {token: math.log(weight / sum(weights)) for token, weight in enumerate(weights)}

    def likeliest(self, tokens: Sequence[int], count: int) -> dict[int, float]:
        known = sorted(self.logprobs(tokens).items(), key=lambda item: -item[1])
        return dict(known[:count])


def run(model: Model, search: BeamSearch) -> BeamSearch:
    needed = candidates_needed(search.beams, len(search.ends))
    while not search.finished:
        search.advance([Step(model.likeliest(prefix.tokens, needed)) for prefix in search.live])
    return search


def all_sequences(model: Model, most: int, least: int) -> Iterator[tuple[tuple[int, ...], float]]:
    """Every sequence that ends, by END or at `most` tokens, and the sum of its log-probabilities."""
    open_ones: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    while open_ones:
        tokens, score = open_ones.pop()
        for token, logprob in model.logprobs(tokens).items():
            longer = (*tokens, token)
            if token == END and len(longer) <= least:
                continue
            if token == END or len(longer) == most:
                yield longer, score + logprob
            else:
                open_ones.append((longer, score + logprob))


seeds = st.integers(0, 10**6)
penalties = st.sampled_from([-2.0, 0.0, 0.5, 1.0, 3.0])
stoppings = st.sampled_from([False, True, "never"])


@given(seeds, st.integers(2, 4), penalties, st.integers(0, 3))
def test_a_wide_search_finds_the_best_of_all(seed: int, vocabulary: int, penalty: float, least: int) -> None:
    """Wide enough to follow everything, and without an early end: then nothing better exists."""
    model = Model(seed, vocabulary)
    beams = Beams(width=vocabulary**4, length_penalty=penalty, early_stopping="never")
    search = run(model, BeamSearch(beams, 4, least, frozenset([END])))
    expected = sorted(
        ((score / len(tokens) ** penalty, tokens) for tokens, score in all_sequences(model, 4, least)), reverse=True
    )
    assert [one.score for one in search.complete] == pytest.approx([score for score, _ in expected])
    assert {one.prefix.tokens for one in search.complete} == {tokens for _, tokens in expected}


@given(seeds, st.integers(2, 8), st.integers(2, 5), penalties, stoppings, st.integers(1, 9), st.integers(0, 9))
def test_what_always_holds(
    seed: int, vocabulary: int, width: int, penalty: float, stopping: Any, most: int, least: int
) -> None:
    model = Model(seed, vocabulary)
    beams = Beams(width=width, length_penalty=penalty, early_stopping=stopping)
    least = min(least, most)
    search = run(model, BeamSearch(beams, most, least, frozenset([END])))
    assert 1 <= len(search.complete) <= width
    # The ends that may come leave out the shortest, so that a step has enough candidates only with some tokens more.
    if vocabulary > width:
        assert len(search.complete) == width
    assert len({one.prefix.tokens for one in search.complete}) == len(search.complete)
    scores = [one.score for one in search.complete]
    assert scores == sorted(scores, reverse=True)
    for one in search.complete:
        tokens = one.prefix.tokens
        steps = [model.logprobs(tokens[:position])[token] for position, token in enumerate(tokens)]
        assert one.prefix.score == pytest.approx(sum(steps))
        assert [step.logprobs[token] for step, token in zip(one.prefix.steps, tokens, strict=True)] == steps
        assert one.score == pytest.approx(sum(steps) / len(tokens) ** penalty)
        assert one.ending == ("end" if tokens[-1] == END else "length")
        assert END not in tokens[:-1]
        assert len(tokens) == most if one.ending == "length" else least < len(tokens) <= most


@given(seeds, st.integers(2, 5), penalties, st.integers(1, 9))
def test_enough_candidates(seed: int, width: int, penalty: float, most: int) -> None:
    """The whole vocabulary instead of `candidates_needed` changes nothing, however many ids end a sequence."""
    model = Model(seed, 20)
    beams = Beams(width=width, length_penalty=penalty)
    for ends in (frozenset([END]), frozenset(range(8))):
        few = run(model, BeamSearch(beams, most, 0, ends))
        everything = BeamSearch(beams, most, 0, ends)
        while not everything.finished:
            everything.advance([Step(model.logprobs(prefix.tokens)) for prefix in everything.live])
        assert [(one.prefix.tokens, one.score) for one in few.complete] == [
            (one.prefix.tokens, one.score) for one in everything.complete
        ]


def steps_of(stopping: Any, penalty: float = 1.0, most: int = 50) -> tuple[int, BeamSearch]:
    """How many steps a search takes that is likely to end at the first two tokens, and less likely to go on later."""
    search = BeamSearch(Beams(width=2, length_penalty=penalty, early_stopping=stopping), most, 0, frozenset([END]))
    count = 0
    while not search.finished:
        count += 1
        end, on = (-0.9, -0.7) if count <= 2 else (-6.0, -3.0)
        search.advance([Step({END: end, 1: on, 2: -8.0, 3: -9.0}) for _ in search.live])
    return count, search


def test_early_stopping() -> None:
    """True ends with the second complete sequence; False when the average of what goes on, (-0.7 - 0.7 - 3) / 3, is
    below that of the worst, -0.9; "never" only when its sum, divided by the longest length, is: at -45.2 / 50."""
    assert [steps_of(stopping)[0] for stopping in (True, False, "never")] == [2, 3, 17]
    # With a penalty below 0 nothing becomes better by growing longer.
    assert [steps_of(stopping, -1.0)[0] for stopping in (True, False, "never")] == [2, 3, 3]


def test_length_penalty() -> None:
    """Above 0 longer sequences gain, below 0 they lose."""
    longer, shorter = (steps_of("never", penalty)[1].complete[0].prefix.tokens for penalty in (3.0, -3.0))
    assert (len(longer), len(shorter)) == (50, 1)


@pytest.mark.parametrize("penalty", [-100.0, 100.0])
def test_an_extreme_length_penalty_is_no_overflow(penalty: float) -> None:
    _, search = steps_of("never", penalty, most=3000)
    assert all(math.isfinite(one.score) for one in search.complete)


def test_follow_ends_sequences_and_keeps_state() -> None:
    """A stop string counts as an end only among the likeliest; the state of a prefix is what was made of it."""

    def follow(prefix: Prefix, token: int) -> tuple[str, bool]:
        text = (prefix.state or "") + "abc"[token]
        return text, text.endswith("ba")

    search = BeamSearch(Beams(width=2, early_stopping=True), 5, follow=follow)
    search.advance([Step({1: -0.1, 2: -0.5, 0: -3.0})])
    assert [prefix.state for prefix in search.live] == ["b", "c"]
    # Of what follows, "ba" comes third.
    search.advance([Step({2: -0.1, 0: -0.9}), Step({1: -0.2, 0: -3.0})])
    assert ([prefix.state for prefix in search.live], search.complete) == (["bc", "cb"], [])
    search.advance([Step({2: -1.0, 1: -2.0}), Step({0: -0.1, 2: -4.0})])
    assert [prefix.state for prefix in search.live] == ["bcc", "bcb"]
    (only,) = search.complete
    assert (only.prefix.tokens, only.prefix.state, only.ending) == ((2, 1, 0), "cba", "stop")


def test_an_end_that_is_not_among_the_likeliest_is_none() -> None:
    """Though it comes before the last of those that go on."""
    search = BeamSearch(Beams(width=2), 5, 0, frozenset([END]))
    search.advance([Step({1: -0.1, 2: -0.5, END: -3.0})])
    search.advance([Step({END: -0.1, 1: -0.2, 2: -5.0}), Step({END: -0.3, 1: -0.4, 2: -5.0})])
    assert [one.prefix.tokens for one in search.complete] == [(1, END)]
    assert [prefix.tokens for prefix in search.live] == [(1, 1), (2, 1)]


def test_a_small_vocabulary_gives_what_there_is() -> None:
    search = run(Model(1, 2), BeamSearch(Beams(width=5), 2, 0, frozenset([END])))
    assert sorted(one.prefix.tokens for one in search.complete) == [(0,), (1, 0), (1, 1)]
