"""The best of several sequences (model/search/best_of.py): which, in which order, and what is told of the others."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmi.model.search.best_of import Ranking, ranked

from ...kit.answers.events import feed
from ...kit.answers.openai import call, reply
from ...kit.api.errors import GenerationError
from ...kit.api.types import Delta, Event, Failed, Finish, Generation, Sampling, Started, Token


def generation(**sampling: Any) -> Generation:
    return Generation(request_id="x", prompt="hi", sampling=Sampling(**sampling))


def collector() -> tuple[list[Event], Callable[[Any], None]]:
    events: list[Event] = []
    return events, events.append


@pytest.mark.parametrize("sampling", [{}, {"n": 3}, {"best_of": 1}], ids=str)
def test_nothing_to_choose(sampling: dict[str, Any]) -> None:
    one = generation(**sampling)
    _, sink = collector()
    assert ranked(one, sink) == (one, sink)


@pytest.mark.parametrize(("logprobs", "asked"), [(None, 0), (0, 0), (4, 4)])
def test_the_engine_generates_all_with_log_probabilities(logprobs: int | None, asked: int) -> None:
    """Without logprobs there would be nothing to rank by; the seed is the first sequence's, as ever."""
    wider, _ = ranked(generation(n=2, best_of=5, logprobs=logprobs, seed=7, top_k=3), print)
    assert wider == generation(n=5, logprobs=asked, seed=7, top_k=3)


def finish(logprob: float | None, last: bool = False, **more: Any) -> Finish:
    return Finish(**{"reason": "eos", "generated_tokens": 2, **more}, cumulative_logprob=logprob, last=last)


def test_the_likeliest_become_the_first() -> None:
    events, sink = collector()
    ranking = Ranking(sink, 2)
    started = Started(4)
    for event in (
        started,
        Delta(2, "two", (), finish(-3.0, generated_tokens=5, reasoning_tokens=3)),
        Delta(0, "nought", (), finish(-2.0)),
        Delta(3, "three", (), finish(-0.5, reason="length", generated_tokens=7)),
    ):
        ranking(event)
    assert events == [started]
    ranking(Delta(1, "one", (), finish(-2.5, last=True, generated_tokens=4)))
    assert events[1:] == [
        Delta(0, "three", (), finish(-0.5, reason="length", generated_tokens=7)),
        Delta(1, "nought", (), finish(-2.0, last=True, discarded_tokens=9, discarded_reasoning_tokens=3)),
    ]


def test_all_of_them_in_order() -> None:
    """n sequences of n: none is left out, but the likeliest comes first."""
    events, sink = collector()
    wider, ranking = ranked(generation(n=2, best_of=2), sink)
    assert wider == generation(n=2, logprobs=0)
    ranking(Delta(0, "nought", (), finish(-2.0)))
    ranking(Delta(1, "one", (), finish(-1.0, last=True)))
    assert events == [Delta(0, "one", (), finish(-1.0)), Delta(1, "nought", (), finish(-2.0, last=True))]


def test_equals_keep_their_order_and_what_was_cut_off_goes_last() -> None:
    events, sink = collector()
    ranking = Ranking(sink, 3)
    for index, one in enumerate([finish(-9.0), finish(0.0, reason="abort"), finish(-1.0), finish(-1.0, last=True)]):
        ranking(Delta(index, str(index), (), one))
    assert [event.text for event in events if isinstance(event, Delta)] == ["2", "3", "0"]


def test_an_error_is_passed_on_at_once() -> None:
    events, sink = collector()
    ranking = Ranking(sink, 1)
    ranking(Delta(0, "a", (), finish(-1.0)))
    failed = Failed.of(GenerationError("the reason"))
    ranking(failed)
    assert events == [failed]


@st.composite
def sequences(draw: st.DrawFn) -> tuple[int, list[list[str]], list[float], list[int]]:
    """How many are wanted; each sequence's texts and log-probability; the order in which their deltas come."""
    texts = draw(st.lists(st.lists(st.text(max_size=3), min_size=1, max_size=3), min_size=1, max_size=5))
    logprobs = [draw(st.floats(-100, 0)) for _ in texts]
    order = draw(st.permutations([index for index, parts in enumerate(texts) for _ in parts]))
    return draw(st.integers(1, len(texts))), texts, logprobs, list(order)


@given(sequences())
def test_any_split_and_order_gives_the_same_choice(drawn: tuple[int, list[list[str]], list[float], list[int]]) -> None:
    n, texts, logprobs, order = drawn
    events, sink = collector()
    ranking = Ranking(sink, n)
    left = [list(parts) for parts in texts]
    for position, index in enumerate(order):
        text = left[index].pop(0)
        ended = None if left[index] else finish(logprobs[index], last=position == len(order) - 1)
        ranking(Delta(index, text, (), ended))
    best = sorted(range(len(texts)), key=lambda index: -logprobs[index])[:n]
    deltas = [event for event in events if isinstance(event, Delta)]
    assert [delta.index for delta in deltas] == [rank for rank, index in enumerate(best) for _ in texts[index]]
    for rank, index in enumerate(best):
        assert [delta.text for delta in deltas if delta.index == rank] == texts[index]
    finishes = [delta.finish for delta in deltas if delta.finish]
    assert [one.last for one in finishes] == [False] * (n - 1) + [True]
    assert finishes[-1].discarded_tokens == 2 * (len(texts) - n)


@pytest.mark.parametrize("chat", [True, False])
@pytest.mark.parametrize("logprobs", [True, False])
def test_the_answer_has_the_best_and_counts_all(chat: bool, logprobs: bool) -> None:
    """OpenAI's usage counts what was generated, not what is shown. Log-probabilities are shown where asked for only."""
    fields: dict[str, Any] = {"n": 2, "best_of": 3}
    if logprobs:
        fields["logprobs"] = True if chat else 1
    answer = reply(**fields) if chat else call(**fields).reply
    events, sink = collector()
    ranking = Ranking(sink, 2)
    ranking(Started(4))
    for index, (text, logprob) in enumerate([("a", -5.0), ("b", -1.0), ("c", -3.0)]):
        tokens = (Token(1, text, logprob, raw=text.encode()),) if logprobs else ()
        ranking(Delta(index, text, tokens, finish(logprob, last=index == 2, generated_tokens=index + 1)))
    (body,) = feed(answer, *events)
    document = json.loads(body)
    choices = document["choices"]
    assert [choice["index"] for choice in choices] == [0, 1]
    assert [choice["message"]["content"] if chat else choice["text"] for choice in choices] == ["b", "c"]
    assert [choice["logprobs"] is not None for choice in choices] == [logprobs] * 2
    assert (document["usage"]["prompt_tokens"], document["usage"]["completion_tokens"]) == (4, 6)
