"""Beam search in the transformers engine's rolling batch, on caches of several kinds and short of memory.

What is found is always what a search finds that computes every prefix anew, alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lmi.model.errors import RequestError
from lmi.model.events import Delta, Event, Failed
from lmi.model.generation import Beams, Generation, Sampling
from lmi.model.search.beam import BeamSearch, Step

from .test_scheduler import MODELS, NEW, WORDS, build, rolling, row

pytestmark = pytest.mark.engine

END = 2
TOKENS = 14


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> Any:
    return build(request.param)


@dataclass(frozen=True)
class Asked:
    """A search, and what it has to find: the tokens and the sum of their log-probabilities of each sequence."""

    prompt: list[int]
    beams: Beams
    found: list[tuple[tuple[int, ...], float]] = field(default_factory=list[tuple[tuple[int, ...], float]])


@pytest.fixture(scope="module")
def asked(model: Any) -> list[Asked]:
    import torch

    numbers = random.Random(2)
    searches: list[Asked] = []
    for length, width, penalty in ((3, 4, 1.0), (30, 2, 0.0), (12, 6, 2.0)):
        one = Asked([numbers.randrange(3, WORDS) for _ in range(length)], Beams(width=width, length_penalty=penalty))
        search = BeamSearch(one.beams, TOKENS, ends=frozenset([END]))
        while not search.finished:
            ids = torch.tensor([[*one.prompt, *prefix.tokens] for prefix in search.live])
            with torch.inference_mode():
                known = model(input_ids=ids).logits[:, -1].log_softmax(-1)
            search.advance([Step(dict(enumerate(row.tolist()))) for row in known])
        one.found.extend((hypothesis.prefix.tokens, hypothesis.prefix.score) for hypothesis in search.complete)
        searches.append(one)
    return searches


class Engine:
    """What the transformers engine does of searches, without loading and text of its own."""

    def __init__(self, model: Any, demo_model: Path, refusing: int = 1 << 20, **limits: int) -> None:
        from transformers import AutoTokenizer

        from lmi.model.search.beam_run import BeamTexts
        from lmi.model.text.outputs import OutputReader
        from lmi.model.text.tokenizer import Tokenizer
        from lmi.model.transformers.beam import BeamRuns

        tokenizer = Tokenizer(AutoTokenizer.from_pretrained(demo_model))
        ends = frozenset([END])
        self.batch = rolling(model, **limits)
        texts = BeamTexts(OutputReader(tokenizer, ends), tokenizer, ends)
        self.beams = BeamRuns(self.batch, texts, most=limits.get("most", 64), budget=refusing, words=WORDS)

    def prepare(self, number: int, asked: Asked, **sampling: Any) -> Any:
        from lmi.model.transformers.requests import Prepared

        ours = Sampling(n=asked.beams.width, beams=asked.beams, logprobs=0, **sampling)
        one = Generation(request_id="test", prompt=tuple(asked.prompt), sampling=ours, tokens=True)
        prepared = Prepared(number, one, asked.prompt, TOKENS, [], [None] * ours.n, True)
        return self.beams.prepare(prepared, ours, asked.beams)

    def step(self, events: dict[int, list[Event]]) -> list[Any]:
        """A step; the ordinary rows that have got a token."""
        rows = self.batch.step()
        for one in rows:
            for number, event in self.beams.read(one):
                events.setdefault(number, []).append(event)
        return [one for one in rows if not one.candidates]

    def empty(self) -> bool:
        """Whether nothing is left of anything."""
        cache = self.batch._cache
        held = cache._starts or cache._cache if cache.together else cache._caches
        return not (self.batch.busy or held or self.beams._runs)


def drive(engine: Engine, searches: list[Asked], others: list[Any], each: Callable[[int], None] | None = None) -> None:
    """Runs all to the end, searches first, another row after each; `each` is called before every step."""
    events: dict[int, list[Event]] = {}
    for number, one in enumerate(searches):
        engine.beams.add(engine.prepare(number, one))
    steps = 0
    while engine.batch.busy or others:
        if others and steps % 2 == 0:
            engine.batch.add(others.pop(0))
        if each is not None:
            each(steps)
        news = engine.step(events)
        assert not any(one.error for one in news)
        engine.batch.remove([one for one in news if len(one.ids) - one.prompt == NEW])
        steps += 1
        assert steps < 2000, "it goes on for ever"
    for number, one in enumerate(searches):
        found = [
            (tuple(token.id for token in event.tokens), event.finish.cumulative_logprob)
            for event in events[number]
            if isinstance(event, Delta) and event.finish
        ]
        assert [tokens for tokens, _ in found] == [tokens for tokens, _ in one.found]
        assert [score for _, score in found] == pytest.approx([score for _, score in one.found], abs=1e-3)
    assert engine.empty()


LIMITS: dict[str, dict[str, int]] = {
    "at once": {},
    "prompts in pieces": {"piece": 10},
    "eight places": {"most": 8},
    # 6 beams of 26 tokens need 156, and there is more to run.
    "little memory": {"budget": 240},
}


@pytest.mark.parametrize("limits", LIMITS.values(), ids=[*LIMITS])
def test_beside_each_other_and_ordinary_rows(
    model: Any, demo_model: Path, asked: list[Asked], limits: dict[str, int]
) -> None:
    engine = Engine(model, demo_model, **limits)
    numbers = random.Random(3)
    others = [row(100 + n, [numbers.randrange(3, WORDS) for _ in range(length)]) for n, length in enumerate((5, 40, 9))]
    alone = [row(0, one.ids) for one in others]
    for one in alone:
        single = rolling(model)
        single.add(one)
        while len(one.ids) - one.prompt < NEW:
            single.step()
    again: list[int] = []
    make_room = engine.batch._make_room

    def counted(joining: list[int]) -> None:
        before = len(engine.batch._waiting)
        make_room(joining)
        again.append(len(engine.batch._waiting) - before)

    engine.batch._make_room = counted
    most: list[int] = []
    rows = [*others]
    drive(engine, asked, others, lambda _: most.append(len(engine.batch._running)))
    assert [one.ids for one in rows] == [one.ids for one in alone]
    assert max(most) <= limits.get("most", 64)
    if not limits:
        assert max(most) > sum(one.beams.width for one in asked)
    if "budget" in limits:
        assert any(again), "nothing had to make room"


def test_a_search_that_made_room_goes_on_where_it_was(model: Any, demo_model: Path, asked: list[Asked]) -> None:
    """As a whole: all of its rows are computed again, together."""
    engine = Engine(model, demo_model, piece=16)
    (one,) = asked[2:]
    sent: list[int] = []

    def send_back(step: int) -> None:
        running = engine.batch._running
        if running and len(running[0].ids) in {15, 20} - {*sent}:
            sent.append(len(running[0].ids))
            assert len(running) == one.beams.width
            engine.batch._start_over()
            assert len(engine.batch._waiting) == one.beams.width

    engine.batch._budget = engine.batch._least * 4
    drive(engine, [one], [], send_back)
    assert sent == [15, 20]


def test_a_prefix_that_splits_takes_its_cache_along(
    model: Any, demo_model: Path, asked: list[Asked], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prompt is computed once, and after it one token a row and step."""
    from lmi.model.transformers.forward import Forward

    computed: list[tuple[int, int]] = []
    forward = Forward.__call__

    def counting(self: Any, ids: Any, *arguments: Any, **named: Any) -> Any:
        computed.append(tuple(ids.shape))
        return forward(self, ids, *arguments, **named)

    monkeypatch.setattr(Forward, "__call__", counting)
    drive(Engine(model, demo_model), asked[:1], [])
    assert computed[0] == (1, len(asked[0].prompt))
    assert {columns for _, columns in computed[1:]} == {1}
    assert max(rows for rows, _ in computed) <= asked[0].beams.width


@pytest.mark.parametrize("where", ["decode", "join", "start", "copy"])
def test_after_a_step_without_memory_searches_go_on(
    model: Any, demo_model: Path, asked: list[Asked], where: str
) -> None:
    import torch

    engine = Engine(model, demo_model, budget=4096)
    failed: list[str] = []

    def fail(*_arguments: Any) -> Any:
        failed.append(where)
        raise torch.OutOfMemoryError("CUDA out of memory")

    def each(step: int) -> None:
        if step in {4, 9}:
            setattr(engine.batch._cache, where, fail)

    drive(engine, asked, [row(50 + n, [5, 6, 7]) for n in range(6)], each)
    assert failed
    assert engine.batch._budget == 4096 * 3 ** len(failed) // 4 ** len(failed)


@pytest.mark.parametrize("steps", range(5))
def test_an_aborted_search_leaves_nothing_behind(model: Any, demo_model: Path, asked: list[Asked], steps: int) -> None:
    """While it waits, while its prompt is computed in pieces, right after it, and while its beams run."""
    engine = Engine(model, demo_model, piece=16)
    events: dict[int, list[Event]] = {}
    engine.beams.add(engine.prepare(1, asked[1]))
    other = row(2, [5, 6, 7])
    engine.batch.add(other)
    for _ in range(steps):
        engine.step(events)
    engine.beams.abort([1, 77])
    assert not any(one.candidates for one in [*engine.batch._running, *engine.batch._waiting])
    while engine.batch.busy:
        news = engine.step(events)
        assert news == [other]
        engine.batch.remove([one for one in news if len(one.ids) - one.prompt == NEW])
    assert not [event for found in events.values() for event in found if isinstance(event, Delta)]
    assert engine.empty()


def test_a_prompt_that_cannot_be_computed_again_fails_its_search_alone(
    model: Any, demo_model: Path, asked: list[Asked], monkeypatch: pytest.MonkeyPatch
) -> None:
    from lmi.model.transformers.forward import Prompts

    engine = Engine(model, demo_model, budget=4096)
    advance = Prompts.advance

    def failing(self: Any, *arguments: Any, **named: Any) -> Any:
        if len(asked[0].prompt) < self.width <= len(asked[0].prompt) + TOKENS:
            raise RuntimeError("no luck")
        return advance(self, *arguments, **named)

    events: dict[int, list[Event]] = {}
    engine.beams.add(engine.prepare(1, asked[0]))
    for _ in range(3):
        engine.step(events)
    engine.batch._start_over()
    monkeypatch.setattr(Prompts, "advance", failing)
    engine.beams.add(engine.prepare(2, asked[1]))
    while engine.batch.busy:
        engine.step(events)
    failed = events[1][-1]
    assert isinstance(failed, Failed)
    assert "no luck" in failed.message
    assert sum(isinstance(event, Delta) for event in events[2]) == asked[1].beams.width
    assert engine.empty()


def test_more_beams_than_there_is_room_for(model: Any, demo_model: Path, asked: list[Asked]) -> None:
    """Refused before it begins; where the cache has been cut since, it fails by itself."""
    with pytest.raises(RequestError, match=r"^num_beams: expected at most 3 beams .* got 4$"):
        Engine(model, demo_model, most=3).prepare(1, asked[0])
    with pytest.raises(RequestError, match=r"^num_beams: 4 beams of 3 prompt tokens and 14 .* the cache of 60 tokens$"):
        Engine(model, demo_model, refusing=60).prepare(1, asked[0])
    engine = Engine(model, demo_model, budget=40)
    events: dict[int, list[Event]] = {}
    engine.beams.add(engine.prepare(1, asked[0]))
    other = row(0, [5, 6, 7])
    engine.batch.add(other)
    while engine.batch.busy:
        engine.batch.remove([one for one in engine.step(events) if len(one.ids) - one.prompt == NEW])
    failed = events[1][-1]
    assert isinstance(failed, Failed)
    assert failed.message == "the cache of 40 tokens does not hold so many beams"
    assert len(other.ids) == other.prompt + NEW
    assert engine.empty()
