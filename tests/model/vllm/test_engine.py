"""The vLLM backend by itself, stepped by hand."""

from __future__ import annotations

import functools
import importlib
import logging
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import psutil
import pytest

from ...demo.model import question
from ...kit.api.engine import PROMPT_PIECE as PIECE
from ...kit.api.engine import ChatRenderer, Part, vllm_core
from ...kit.api.errors import ContextError, GenerationError, UnsupportedError
from ...kit.api.types import (
    Beams,
    Conversation,
    Delta,
    EngineEvent,
    Failed,
    Generation,
    Sampling,
    Started,
    StructuredOutput,
)
from ...kit.engines.backends import NUMBERS, deltas, run

pytestmark = pytest.mark.engine

GREEDY: dict[str, Any] = {"temperature": 0.0}


@pytest.fixture
def backend(plain_backend: Any) -> Any:
    return plain_backend


def test_what_vllms_forked_processes_log_is_withheld(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By every handler that they take over."""
    forked = os.getpid() + 1
    monkeypatch.setattr(os, "getpid", lambda: forked)
    handlers = logging.getLogger("vllm").handlers
    assert handlers
    for handler in handlers:
        record = logging.LogRecord("vllm.core", logging.WARNING, "", 1, "of a request: %s", ("secret",), None)
        assert handler.filter(record)
        assert "secret" not in record.getMessage()


def generation(prompt: str, *, stream: bool = True, tokens: bool = True, **sampling: Any) -> Generation:
    return Generation(
        request_id="test", prompt=prompt, sampling=Sampling(**{**GREEDY, **sampling}), stream=stream, tokens=tokens
    )


def text(events: Sequence[EngineEvent], index: int = 0) -> str:
    return "".join(event.text for event in events if isinstance(event, Delta) and event.index == index)


@pytest.mark.parametrize(
    ("span", "include"),
    [(None, False), *((span, include) for span in ((3, 1), (7, 5), (20, 13)) for include in (False, True))],
    ids=str,
)
def test_tokens_join_to_the_text_with_several_tokens_a_step(
    backend: Any, span: tuple[int, int] | None, include: bool
) -> None:
    """Whole, streamed, and without tokens, all at once."""
    asked = [question(kind) for kind in ("unicode", "long", "endless", "json")]
    stops = [() if span is None else (one.answer[span[0] : sum(span)],) for one in asked]
    wanted: list[Generation] = []
    for one, stop in zip(asked, stops, strict=True):
        sampling: dict[str, Any] = {"max_tokens": 150, "stop": stop, "include_stop": include, "logprobs": 0}
        wanted += [
            generation(one.prompt, stream=False, **sampling),
            generation(one.prompt, **sampling),
            generation(one.prompt, stream=False, tokens=False, **{**sampling, "logprobs": None}),
        ]
    answers = run(backend, *wanted)
    for number, (one, stop) in enumerate(zip(asked, stops, strict=True)):
        whole, streamed, bare = answers[3 * number : 3 * number + 3]
        assert text(whole) == text(streamed) == text(bare)
        # The first token comes alone; three come together from then on.
        if sum(len(delta.tokens) for delta in deltas(streamed)) > 4:
            assert max(len(delta.tokens) for delta in deltas(streamed)) > 1
        for events in (whole, streamed):
            tokens = [token for delta in deltas(events) for token in delta.tokens]
            assert all("".join(token.text for token in delta.tokens) == delta.text for delta in deltas(events))
            finish = deltas(events)[-1].finish
            assert finish is not None
            assert finish.generated_tokens == len(tokens)
            assert finish.cumulative_logprob == pytest.approx(sum(token.logprob or 0 for token in tokens))
        assert len(deltas(whole)) == len(deltas(bare)) == 1
        if stop:
            end = one.answer.find(stop[0]) + (len(stop[0]) if include else 0)
            assert text(whole) == one.answer[:end]
            ends = [delta.finish for events in (whole, streamed, bare) for delta in deltas(events) if delta.finish]
            assert [(ended.reason, ended.stop) for ended in ends] == [("stop", stop[0])] * 3
            # Computed twice, and not always to the last bit.
            assert ends[0].cumulative_logprob == pytest.approx(ends[1].cumulative_logprob, abs=1e-4)
            assert ends[0] == msgspec.structs.replace(ends[1], cumulative_logprob=ends[0].cumulative_logprob)


def test_sequences_of_one_generation_end_one_by_one(backend: Any) -> None:
    sampling: dict[str, Any] = {"n": 3, "temperature": 2.0, "seed": 11, "max_tokens": 60, "stop": ("e",)}
    (together,) = run(backend, generation("Tell me", **sampling))
    finishes = [delta.finish for delta in deltas(together) if delta.finish]
    assert [finish.last for finish in finishes] == [False, False, True]
    assert sum(isinstance(event, Started) for event in together) == 1
    for index in range(3):
        (alone,) = run(backend, generation("Tell me", **{**sampling, "n": 1, "seed": 11 + index}))
        assert text(alone) == text(together, index)


def test_abort_frees_the_engine(backend: Any) -> None:
    ended, other = next(NUMBERS), next(NUMBERS)
    backend.add(backend.prepare(ended, generation(question("endless").prompt, max_tokens=1000)))
    backend.add(backend.prepare(other, generation(question("endless").prompt, max_tokens=9)))
    backend.step()
    backend.abort([ended, 77])
    seen: list[int] = []
    while backend.busy:
        seen += [number for number, _ in backend.step()]
    assert set(seen) == {other}
    assert backend.core_ends()


def test_first_tokens_come_before_the_next_ones_of_others(backend: Any) -> None:
    asked = generation(question("endless").prompt, max_tokens=200)
    numbers: list[int] = []
    mixed = 0
    try:
        while mixed < 3:
            # One more each step: some step brings the first token of one beside the next ones of another.
            numbers.append(next(NUMBERS))
            backend.add(backend.prepare(numbers[-1], asked))
            came = backend.step()
            new = {number for number, event in came if isinstance(event, Started)}
            first = [number in new for number, _ in came]
            assert first == sorted(first, reverse=True)
            mixed += 0 < sum(first) < len(first)
    finally:
        backend.abort(numbers)


def test_a_stop_token_id_ends_the_sequence_without_text(backend: Any) -> None:
    asked = question("plain")
    (plain,) = run(backend, generation(asked.prompt, max_tokens=100))
    token = [token for delta in deltas(plain) for token in delta.tokens][4]
    (stopped,) = run(backend, generation(asked.prompt, max_tokens=100, stop_token_ids=(token.id,)))
    finish = deltas(stopped)[-1].finish
    assert finish is not None
    assert (finish.reason, finish.stop, finish.generated_tokens) == ("stop", token.id, 5)
    assert deltas(stopped)[-1].tokens[-1].text == ""
    assert asked.answer.startswith(text(stopped))


def late(receive: Any, outputs: int) -> Any:
    """In place of what receives the core's outputs: those of first sequences come that many later, or at their ends."""
    held: list[Any] = []

    async def receiving(core: Any) -> list[Any]:
        nonlocal held
        received = await receive(core)
        first = [output for output in received if output.request_id.endswith(".0")]
        held += first
        ended = any(output.finish_reason is not None for output in first)
        due = len(held) if ended else max(0, len(held) - outputs)
        told, held = held[:due], held[due:]
        return [output for output in received if output not in first] + told

    return receiving


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_the_prompt_of_several_sequences_is_told_once(
    backend: Any, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    """By the first sequence, which computes it without the prefix cache and so may come after the others."""
    prompt = question("long").prompt
    asked: dict[str, Any] = {"max_tokens": 9, "temperature": 1.0, "logprobs": 0, "stream": stream}
    (plain,) = run(backend, generation(prompt, n=3, seed=5, **asked))
    alone = run(backend, *(generation(prompt, prompt_logprobs=2, seed=5 + i, **asked) for i in range(3)))
    one = generation(prompt, n=3, seed=5, prompt_logprobs=2, **asked)
    params = [request.sampling_params for request in backend.prepare(1, one).requests]
    assert [each.prompt_logprobs for each in params] == [2, None, None]
    assert [each.skip_reading_prefix_cache for each in params] == [True, False, False]
    receive = vllm_core.Core.receive
    for outputs in (0, 2, 9):
        monkeypatch.setattr(vllm_core.Core, "receive", late(receive, outputs))
        (together,) = run(backend, one)
        begun, *rest = together
        assert isinstance(begun, Started)
        assert not any(isinstance(event, Started) for event in rest)
        first = alone[0][0]
        assert isinstance(first, Started)
        assert begun == msgspec.structs.replace(first, cached_tokens=begun.cached_tokens)
        finishes = [delta.finish for delta in deltas(together) if delta.finish]
        assert [finish.last for finish in finishes] == [False, False, True]
        for index in range(3):
            assert text(together, index) == text(alone[index]) == text(plain, index)


def test_an_adapter_is_refused_by_name(backend: Any) -> None:
    one = msgspec.structs.replace(generation("Hi"), adapter="poet")
    with pytest.raises(UnsupportedError, match=r"^adapter: this engine has none \(option\.enable_lora\)$"):
        backend.prepare(1, one)


def test_prompts_that_are_cut_beside_others_change_none(backend: Any) -> None:
    """Many threads prepare at once, with one tokenizer."""
    asked = [
        made(question(kind).prompt + " and more" * 50)
        for kind in ("plain", "long", "unicode", "json")
        for made in (generation, conversation, functools.partial(generation, truncate=7))
    ]
    alone = [backend.prepare(1, one).prompt_ids for one in asked]
    assert {len(ids) for ids in alone[2::3]} == {7}

    def ids(number: int) -> Any:
        return backend.prepare(number, asked[number % len(asked)]).prompt_ids

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ids, range(20 * len(asked)))) == alone * 20


class Watched:
    """Tokenizers, which note how long the texts are that they are given."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        from transformers import PreTrainedTokenizerBase

        self.lengths: list[int] = []
        for name in ("encode", "__call__"):
            patch.setattr(PreTrainedTokenizerBase, name, self._watching(getattr(PreTrainedTokenizerBase, name)))

    def _watching(self, encode: Any) -> Any:
        def watching(*given: Any, **named: Any) -> Any:
            self.lengths += [len(text) for text in (*given, *named.values()) if isinstance(text, str)]
            return encode(*given, **named)

        return watching


def conversation(content: str) -> Generation:
    talk = Conversation(messages=({"role": "user", "content": content},))
    return Generation(request_id="test", prompt=talk, sampling=Sampling(**GREEDY))


@pytest.mark.parametrize("made", [generation, conversation], ids=["text", "messages"])
def test_of_a_prompt_that_is_far_too_long_a_part_is_tokenized(
    backend: Any, monkeypatch: pytest.MonkeyPatch, made: Any
) -> None:
    watched = Watched(monkeypatch)
    with pytest.raises(ContextError, match=r": prompt is too long: more than \d{4,5} tokens > 2047 maximum"):
        backend.prepare(1, made("a " * 10_000_000))
    assert watched.lengths
    assert max(watched.lengths) <= PIECE
    assert sum(watched.lengths) <= 2 * PIECE


def test_of_a_prompt_that_is_cut_the_end_is_tokenized(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = question("plain")
    ids = backend.prepare(1, generation("some words, " * 10_000 + asked.prompt, truncate=500)).prompt_ids
    watched = Watched(monkeypatch)
    assert backend.prepare(1, generation("some words, " * 1_000_000 + asked.prompt, truncate=500)).prompt_ids == ids
    assert watched.lengths
    assert max(watched.lengths) <= 8 * 500 + PIECE


def test_too_many_token_ids_are_not_handed_to_vllm(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one = generation("")
    long = msgspec.structs.replace(one, prompt=(5,) * 2048)
    assert len(backend.prepare(1, msgspec.structs.replace(one, prompt=(5,) * 2047)).prompt_ids) == 2047
    cut = msgspec.structs.replace(long, sampling=Sampling(truncate=7))
    assert len(backend.prepare(1, cut).prompt_ids) == 7
    monkeypatch.setattr("vllm.renderers.base.BaseRenderer.render_cmpl", None)
    with pytest.raises(ContextError, match=r"^prompt: prompt is too long: 2048 tokens > 2047 maximum"):
        backend.prepare(1, long)


class Broken:
    """A splitter with a fault, after so many tokens."""

    reasoning_tokens = 0
    by_tokens = True

    def __init__(self, after: int) -> None:
        self.left = after

    def feed(self, tokens: Any, *, ended: bool, cut: bool = False) -> Any:
        self.left -= len(tokens)
        if self.left < 0:
            raise KeyError("a fault")
        return Part("".join(token.text for token in tokens))


@pytest.mark.parametrize(("stream", "after", "n"), [(False, 0, 1), (False, 12, 3), (True, 0, 3), (True, 12, 1)])
def test_a_fault_of_a_splitter_ends_its_generation_alone(
    backend: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, stream: bool, after: int, n: int
) -> None:
    """At its first tokens and on its way: others beside it are what they are alone, and vLLM goes on with nothing."""
    asked = question("long")
    other = generation(asked.prompt, max_tokens=200)
    talk = msgspec.structs.replace(
        conversation("Count up."), stream=stream, sampling=Sampling(n=n, max_tokens=60, ignore_eos=True, **GREEDY)
    )
    (alone,) = run(backend, other)
    monkeypatch.setattr(ChatRenderer, "splitter", lambda *_, **__: Broken(after))
    before, broken, behind = run(backend, other, talk, other)
    assert text(before) == text(behind) == text(alone)
    failures = [event for event in broken if isinstance(event, Failed)]
    assert failures == [broken[-1]]
    assert failures[0].error.message == "the response could not be decoded: 'a fault'"
    assert any(isinstance(event, Delta) for event in broken) is (stream and after > 0)
    assert re.search(r"request test: generation \d+ failed", caplog.text)
    assert backend.core_ends()
    monkeypatch.undo()
    (well,) = run(backend, talk)
    assert not any(isinstance(event, Failed) for event in well)


class Panic(BaseException):
    """What a library in Rust raises where it panics (PyO3's PanicException)."""


IN_STEP: dict[str, tuple[str, str, dict[str, Any]]] = {
    "detokenizer": ("lmi.model.text.detokenizer:Detokenizer", "push", {}),
    "detokenizer: a panic": ("lmi.model.text.detokenizer:Detokenizer", "push", {}),
    "stop strings": ("lmi.model.text.detokenizer:StopFinder", "take", {"stop": ("zq",)}),
    "log-probabilities": ("lmi.model.vllm.sequences.sequence", "entries", {"logprobs": 2}),
    "the prompt": ("lmi.model.vllm.sequences.group:SequenceGroup", "begin", {"prompt_logprobs": 2}),
    "beams": ("lmi.model.search.beam:BeamSearch", "advance", {"beams": Beams(width=2)}),
}
"""What fails in a step: a function or a class's method, of the first object that it is called of; the sampling that
needs it."""


@pytest.mark.parametrize("place", IN_STEP)
def test_a_fault_in_a_step_ends_its_generation_alone(
    backend: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    """The part of the table of faults (docs/robustness.md) that lies in vLLM's steps."""
    path, method, sampling = IN_STEP[place]
    module, _, kind = path.partition(":")
    owner: Any = importlib.import_module(module)
    owner = getattr(owner, kind) if kind else owner
    whole = getattr(owner, method)
    neighbour = generation(question("long").prompt, max_tokens=60)
    (alone,) = run(backend, neighbour)
    faulty = generation("Count up.", stream=place != "beams", max_tokens=60, ignore_eos=True, **sampling)
    found: list[Any] = []

    def failing(*given: Any, **named: Any) -> Any:
        found.append(given[0])
        if given[0] is found[0]:
            raise (Panic if place.endswith("panic") else KeyError)("a fault")
        return whole(*given, **named)

    monkeypatch.setattr(owner, method, failing)
    # The faulty one comes first, and so do its outputs.
    broken, beside = run(backend, faulty, neighbour)
    assert text(beside) == text(alone)
    (failed,) = [event for event in broken if isinstance(event, Failed)]
    assert failed is broken[-1]
    assert failed.kind == "GenerationError"
    assert "a fault" in caplog.text
    assert backend.core_ends()
    monkeypatch.undo()
    assert text(run(backend, neighbour)[0]) == text(alone)


def test_a_fault_between_two_sequences_starts_leaves_none(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    add = vllm_core.Core.add

    def failing(core: Any, request: Any) -> None:
        if request.request_id.endswith(".2"):
            raise KeyError("a fault")
        add(core, request)

    monkeypatch.setattr(vllm_core.Core, "add", failing)
    with pytest.raises(KeyError):
        backend.add(backend.prepare(next(NUMBERS), generation("Count up.", n=3)))
    assert not backend.busy
    assert backend.core_ends()


UNSENDABLE: dict[str, tuple[Callable[[Generation], Generation], Callable[[Any], Any]]] = {
    "one": (lambda one: one, lambda prepared: prepared.requests[0]),
    "the last of several": (
        lambda one: msgspec.structs.replace(one, sampling=msgspec.structs.replace(one.sampling, n=3)),
        lambda prepared: prepared.requests[2],
    ),
    "a beam": (
        lambda one: msgspec.structs.replace(
            one, stream=False, sampling=msgspec.structs.replace(one.sampling, beams=Beams(width=2))
        ),
        lambda prepared: prepared.requests[0],
    ),
    "a guide's": (
        lambda one: msgspec.structs.replace(
            one,
            sampling=msgspec.structs.replace(one.sampling, structured_output=StructuredOutput(regex="a+")),
        ),
        lambda prepared: prepared.requests[0],
    ),
}
"""What is asked, and the request of it that vLLM's client cannot send."""


@pytest.mark.parametrize("case", UNSENDABLE)
def test_a_request_that_cannot_be_sent_fails_at_once_and_alone(backend: Any, case: str) -> None:
    change, chosen = UNSENDABLE[case]
    neighbour = question("long")
    prepared = backend.prepare(next(NUMBERS), change(generation("Count up.")))
    # Its client has no form for it on the wire.
    chosen(prepared).cache_salt = object()
    backend.add(prepared)
    beside = backend.prepare(next(NUMBERS), generation(neighbour.prompt))
    backend.add(beside)
    events: dict[int, list[EngineEvent]] = {prepared.number: [], beside.number: []}
    order: list[EngineEvent] = []
    while backend.busy:
        for number, event in backend.step():
            events[number].append(event)
            order.append(event)
    failed = events[prepared.number][-1]
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, GenerationError)
    assert failed.error.message.startswith("the request could not be sent to the engine: ")
    assert order[-1] is not failed
    assert text(events[beside.number]) == neighbour.answer
    assert backend.core_ends()


def test_text_alone_that_ends_within_a_character_keeps_what_is_before_it(backend: Any) -> None:
    """Whole and streamed, with tokens shown and without, an answer of so many tokens has the same text."""
    prompt = question("unicode").prompt
    asked = [
        msgspec.structs.replace(generation(prompt, max_tokens=most, stream=stream), tokens=tokens)
        for most in range(1, 16)
        for stream in (False, True)
        for tokens in (False, True)
    ]
    texts = [*map(text, run(backend, *asked))]
    for first in range(0, len(texts), 4):
        assert texts[first : first + 4] == texts[first : first + 1] * 4


@pytest.mark.parametrize("stop", [(), ("nowhere",)], ids=["text", "stops"])
def test_streams_of_text_gather_and_those_of_tokens_do_not(backend: Any, stop: tuple[str, ...]) -> None:
    text = generation(question("endless").prompt, tokens=False, max_tokens=60, stop=stop)
    shown = generation(question("endless").prompt, max_tokens=60, stop=stop)
    (at_once,), (tokens_at_once,) = run(backend, text), run(backend, shown)
    backend.gather(3600.0)
    try:
        gathered, with_tokens = run(backend, text, shown)
    finally:
        backend.gather(0.0)
    assert len(deltas(gathered)) == 2, "the first token, and all others with the end"
    assert "".join(delta.text for delta in deltas(gathered)) == "".join(delta.text for delta in deltas(at_once))
    assert len(deltas(with_tokens)) == len(deltas(tokens_at_once)) > 10


@pytest.mark.parametrize("stop", [(), ("nowhere",)], ids=["text", "stops"])
def test_text_that_gathers_does_not_wait_for_a_long_step(backend: Any, stop: tuple[str, ...]) -> None:
    asked = generation(question("endless").prompt, tokens=False, max_tokens=400, stop=stop)
    (at_once,) = run(backend, asked)
    backend.gather(SHORTLY)
    backend.add(backend.prepare(next(NUMBERS), asked))
    cores = [child for child in psutil.Process().children(recursive=True) if child.name().startswith("VLLM::")]
    assert cores
    (sequence,) = backend.backend._sequences.values()
    told: list[EngineEvent] = []
    try:
        # Ten more tokens than the first: of fewer all may be held back for the stop string.
        while not deltas(told) or sequence._due > -10:
            told += [event for _, event in backend.step()]
        assert len(deltas(told)) == 1
        for core in cores:
            core.suspend()
        while len(deltas(told)) == 1:
            told += [event for _, event in backend.step()]
        before = len(text(told))
    finally:
        for core in cores:
            core.resume()
        while backend.busy:
            told += [event for _, event in backend.step()]
        backend.gather(0.0)
    assert len(text(deltas(told)[:1])) < before < len(text(at_once))
    assert text(told) == text(at_once)


SHORTLY = 3.0
"""Seconds."""
