"""Beam search on vLLM against transformers' own, on the demo model in float32: the same texts and likelihoods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from ...demo.model import question
from ...kit.api.engine import vllm_core
from ...kit.api.errors import GenerationError, ParameterError, UnsupportedError
from ...kit.api.types import Beams, EngineEvent, Failed, Generation, Sampling, Started
from ...kit.engines.backends import deltas, run
from ...kit.engines.beams import PROMPT, Reference, answers, generation, same
from ...kit.engines.said import SaidEngine

pytestmark = pytest.mark.engine


@pytest.fixture
def backend(plain_backend: Any) -> Any:
    return plain_backend


@pytest.fixture(scope="module")
def reference(demo_model: Path) -> Reference:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(demo_model, dtype=torch.float32)
    return Reference(model.eval(), AutoTokenizer.from_pretrained(demo_model))


WAYS: list[tuple[float, Any]] = [
    (1.0, False), (1.0, True), (1.0, "never"), (0.0, True), (-1.5, False), (-1.5, "never"), (2.5, False),
    (2.5, "never"),
]  # fmt: skip
"""Penalties of the length, and what ends a search early."""


@pytest.mark.parametrize(("prompt", "width"), [(PROMPT, 2), ("What is", 4), ("The", 10)], ids=str)
def test_like_transformers(backend: Any, reference: Reference, prompt: str, width: int) -> None:
    wanted = [Beams(width=width, length_penalty=penalty, early_stopping=stopping) for penalty, stopping in WAYS]
    found = run(backend, *(generation(prompt, beams=beams) for beams in wanted))
    for (penalty, stopping), events in zip(WAYS, found, strict=True):
        how = {"length_penalty": penalty, "early_stopping": stopping}
        same(answers(events), reference.beams(prompt, num_beams=width, max_new_tokens=12, **how))


ENDINGS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "end of sequence": ({"max_tokens": 80}, {}, "eos"),
    "least": ({"max_tokens": 80, "min_tokens": 60}, {"min_new_tokens": 60}, "eos"),
    "ignored end": ({"max_tokens": 30, "ignore_eos": True}, {"eos_token_id": None}, "length"),
    "length": ({"max_tokens": 7}, {}, "length"),
    "one token": ({"max_tokens": 1}, {}, "length"),
}


@pytest.mark.parametrize("kind", ENDINGS)
def test_endings_like_transformers(backend: Any, reference: Reference, kind: str) -> None:
    sampling, arguments, reason = ENDINGS[kind]
    prompt = question("plain").prompt
    (events,) = run(backend, generation(prompt, beams=Beams(width=4), **sampling))
    expected = reference.beams(prompt, num_beams=4, max_new_tokens=sampling["max_tokens"], **arguments)
    same(answers(events), expected)
    finish = deltas(events)[0].finish
    assert finish is not None
    assert finish.reason == reason
    assert finish.generated_tokens == len(expected[0][0])
    if kind == "end of sequence":
        assert deltas(events)[0].text == question("plain").answer


@pytest.mark.parametrize("least", [0, 5])
def test_stop_token_ids(backend: Any, reference: Reference, least: int) -> None:
    """For transformers they are further ends of sequence."""
    end = reference.tokenizer.eos_token_id
    ids = tuple(reference.tokenizer.encode(question("plain").answer)[position] for position in (3, 8))
    (events,) = run(
        backend,
        generation(question("plain").prompt, beams=Beams(width=3), stop_token_ids=ids, min_tokens=least, max_tokens=40),
    )
    expected = reference.beams(
        question("plain").prompt, num_beams=3, eos_token_id=[end, *ids], min_new_tokens=least, max_new_tokens=40
    )
    same(answers(events), expected)
    finish = deltas(events)[0].finish
    assert finish is not None
    assert (finish.reason, finish.stop) == ("stop", expected[0][0][-1])
    assert finish.stop in ids
    assert finish.generated_tokens > least
    assert deltas(events)[0].tokens[-1].text == ""


@pytest.mark.parametrize(("kind", "span"), [("plain", (7, 5)), ("plain", (10, 1)), ("unicode", (6, 3))], ids=str)
def test_stop_strings(backend: Any, reference: Reference, kind: str, span: tuple[int, int]) -> None:
    """Where the sequence ends is transformers' answer; the text ends before the stop string, or with it."""
    asked = question(kind)
    stop = asked.answer[span[0] : sum(span)]
    how: dict[str, Any] = {"beams": Beams(width=3, early_stopping=True), "stop": (stop,), "max_tokens": 60}
    both = run(backend, *(generation(asked.prompt, include_stop=include, **how) for include in (False, True)))
    expected = reference.beams(asked.prompt, num_beams=3, early_stopping=True, stop_strings=[stop], max_new_tokens=60)
    for shown, events in zip(("", stop), both, strict=True):
        same(answers(events), expected)
        best = deltas(events)[0]
        assert best.finish is not None
        assert (best.finish.reason, best.finish.stop) == ("stop", stop)
        assert best.text == asked.answer[: asked.answer.find(stop)] + shown


def test_no_stop_string_within_the_least_tokens(backend: Any) -> None:
    asked = question("plain")
    stop = asked.answer[2:4]
    (events,) = run(backend, generation(asked.prompt, beams=Beams(width=2), stop=(stop,), min_tokens=20, max_tokens=80))
    assert stop in deltas(events)[0].text


def test_the_n_best(backend: Any) -> None:
    """n of the beams come, and what else was completed counts as discarded."""
    every, few = run(backend, generation(beams=Beams(width=4)), generation(beams=Beams(width=4), n=2))
    for ours, theirs in zip(answers(few), answers(every)[:2], strict=True):
        assert ours[0] == theirs[0]
        # Computed twice, and not always to the last bit.
        assert ours[1] == pytest.approx(theirs[1], abs=1e-4)
    last = deltas(few)[-1].finish
    assert last is not None
    assert last.discarded_tokens == sum(len(tokens) for tokens, _ in answers(every)[2:])


def test_what_else_is_told(backend: Any) -> None:
    """Prompt tokens, the likeliest tokens at each place, without tokens where none are wanted."""
    full, bare = run(
        backend,
        generation(beams=Beams(width=2), logprobs=3, prompt_logprobs=0),
        Generation(
            request_id="test",
            prompt=PROMPT,
            sampling=Sampling(temperature=0.0, max_tokens=12, n=2, beams=Beams(width=2)),
        ),
    )
    started = full[0]
    assert isinstance(started, Started)
    assert "".join(token.text for token in started.prefill) == f"<s>{PROMPT}"
    for token in deltas(full)[0].tokens:
        assert len(token.top) == 3
        assert token.top[0].logprob >= (token.logprob or 0) - 1e-6
    assert [delta.text for delta in deltas(bare)] == [delta.text for delta in deltas(full)]
    assert all(not delta.tokens and delta.finish and delta.finish.cumulative_logprob is None for delta in deltas(bare))


def test_searches_and_others_side_by_side(backend: Any) -> None:
    """Several searches and an ordinary request share the engine's steps, and each gets what it gets alone."""
    generations = [
        generation(beams=Beams(width=3)),
        generation(question("long").prompt, max_tokens=100),
        generation("What is", beams=Beams(width=5), max_tokens=30),
    ]
    alone = [run(backend, one)[0] for one in generations]
    for number, one in enumerate(generations):
        backend.add(backend.prepare(number, one))
    events: list[list[EngineEvent]] = [[] for _ in generations]
    steps = 0
    while backend.busy:
        steps += 1
        for number, event in backend.step():
            events[number].append(event)
    for lonely, together in zip(alone, events, strict=True):
        assert [delta.text for delta in deltas(together)] == [delta.text for delta in deltas(lonely)]
    # One after the other they would take 142.
    assert steps < 130


def test_abort_ends_all_of_it(backend: Any) -> None:
    backend.add(backend.prepare(1, generation(beams=Beams(width=4), max_tokens=500, ignore_eos=True)))
    backend.add(backend.prepare(2, generation(max_tokens=5)))
    for _ in range(3):
        backend.step()
    backend.abort([1])
    rest = [number for _ in range(10) if backend.busy for number, _ in backend.step()]
    assert set(rest) <= {2}
    assert not backend.busy
    assert backend.core_ends()


def test_streaming_is_refused(backend: Any) -> None:
    ask = generation(beams=Beams(width=2))
    with pytest.raises(UnsupportedError) as caught:
        backend.prepare(1, msgspec.structs.replace(ask, stream=True))
    assert caught.value.message == "sampling.beams: beam search is not supported with streaming"
    assert caught.value.param == "sampling.beams"


def test_a_beam_that_fails_fails_its_request_alone(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    add = vllm_core.Core.add

    def failing(core: Any, request: Any) -> None:
        # The first has three beams.
        if request.request_id.endswith(".beam4") and request.sampling_params.logprobs == 8:
            raise ValueError("no room")
        add(core, request)

    monkeypatch.setattr(vllm_core.Core, "add", failing)
    first, second = generation(beams=Beams(width=3)), generation(beams=Beams(width=4))
    events = run(backend, first, second)
    assert len(deltas(events[0])) == 3
    failed = events[1][-1]
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, GenerationError)
    assert failed.error.message == "beam search failed: no room"
    assert backend.core_ends()


def test_too_many_beams_for_the_engine(backend: Any) -> None:
    """vLLM tells at most max_logprobs log-probabilities, 20 unless an option says otherwise."""
    with pytest.raises(UnsupportedError) as caught:
        backend.prepare(1, generation(beams=Beams(width=11)))
    assert caught.value.message == (
        "sampling.beams: expected at most 10 beams (option.max_logprobs is 20, and each beam takes two), got 11"
    )
    assert caught.value.param == "sampling.beams"


def test_without_prefix_caching_it_is_refused(demo_model: Path) -> None:
    """Each token of each beam would compute the whole prompt again."""
    engine = SaidEngine(demo_model, enable_prefix_caching="false")
    with pytest.raises(UnsupportedError) as caught:
        engine.backend.prepare(1, generation(beams=Beams(width=2)))
    assert caught.value.param == "sampling.beams"
    assert caught.value.message == (
        "sampling.beams: beam search needs prefix caching, which this engine runs without "
        "(option.enable_prefix_caching)"
    )
    assert engine.backend.prepare(2, generation(max_tokens=1)).requests
    engine.close()


def test_more_likely_tokens_than_the_engine_tells(backend: Any) -> None:
    beams = Beams(width=2)
    backend.prepare(1, generation(beams=beams, logprobs=20))
    with pytest.raises(
        ParameterError, match=r"^sampling.logprobs: expected at most 20 \(option\.max_logprobs\), got 21$"
    ):
        backend.prepare(1, generation(beams=beams, logprobs=21))
