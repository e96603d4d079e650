"""The vLLM backend by itself, stepped by hand, and behind EngineClient with vLLM's core in a process of its own."""

from __future__ import annotations

import functools
import importlib
import logging
import os
import re
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from ...demo.model import question
from ...kit.api.engine import PROMPT_PIECE as PIECE
from ...kit.api.engine import RESPONSE_TOKEN as TOKEN
from ...kit.api.engine import Part
from ...kit.api.errors import (
    ContextError,
    GenerationError,
    ParameterError,
    UnavailableError,
    UnsupportedError,
)
from ...kit.api.options import make_settings
from ...kit.api.types import (
    Beams,
    Conversation,
    Delta,
    EngineEvent,
    Failed,
    Generation,
    Sampling,
    Settings,
    Started,
    StructuredOutput,
)
from ...kit.engines.backends import NUMBERS, deltas, run
from ...kit.engines.start import EngineClient, engine_arguments, own_process
from ...kit.hosts.host import model_directory

pytestmark = pytest.mark.engine

GREEDY: dict[str, Any] = {"temperature": 0.0}


@pytest.fixture(scope="module")
def model_dir(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_directory(demo_model, tmp_path_factory.mktemp("vllm") / "model", {})


def settings(model_dir: Path, **overrides: str) -> Settings:
    return make_settings(model_dir, **overrides)


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


@pytest.mark.parametrize("kind", ["unicode", "long", "endless", "json"])
@pytest.mark.parametrize("include", [False, True], ids=["hidden", "included"])
@pytest.mark.parametrize("span", [None, (3, 1), (7, 5), (20, 13)], ids=str)
def test_tokens_join_to_the_text_with_several_tokens_a_step(
    backend: Any, kind: str, include: bool, span: tuple[int, int] | None
) -> None:
    asked = question(kind)
    stop = () if span is None else (asked.answer[span[0] : sum(span)],)
    sampling: dict[str, Any] = {"max_tokens": 150, "stop": stop, "include_stop": include, "logprobs": 0}
    whole, streamed, bare = run(
        backend,
        generation(asked.prompt, stream=False, **sampling),
        generation(asked.prompt, **sampling),
        generation(asked.prompt, stream=False, tokens=False, **{**sampling, "logprobs": None}),
    )
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
        end = asked.answer.find(stop[0]) + (len(stop[0]) if include else 0)
        assert text(whole) == asked.answer[:end]
        ends = [deltas(events)[-1].finish for events in (whole, streamed)]
        # Computed twice, and not always to the last bit.
        logprobs = [end_.cumulative_logprob for end_ in ends if end_ is not None]
        assert logprobs[0] == pytest.approx(logprobs[1], abs=1e-4)
        assert [end_ and msgspec.structs.replace(end_, cumulative_logprob=None) for end_ in ends[:1]] == [
            end_ and msgspec.structs.replace(end_, cumulative_logprob=None) for end_ in ends[1:]
        ]
        ended = deltas(bare)[-1].finish
        assert ended is not None
        assert (ended.reason, ended.stop) == ("stop", stop[0])


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


def test_the_most_likely_tokens_and_their_bytes(backend: Any) -> None:
    asked = question("unicode")
    wanted = msgspec.structs.replace(generation(asked.prompt, max_tokens=200, logprobs=4), token_bytes=True)
    (events,) = run(backend, wanted)
    tokens = [token for delta in deltas(events) for token in delta.tokens]
    assert b"".join(token.raw for token in tokens[:-1]).decode() == asked.answer
    for token in tokens:
        assert len(token.top) == 4
        assert [entry.logprob for entry in token.top] == sorted((entry.logprob for entry in token.top), reverse=True)
        assert token.top[0].id == token.id, "greedy takes the most likely one"


def test_the_prompts_own_tokens_and_the_likely_ones(backend: Any) -> None:
    asked = question("plain")
    (events,) = run(backend, generation(asked.prompt, max_tokens=2, prompt_logprobs=3))
    started = events[0]
    assert isinstance(started, Started)
    assert "".join(token.text for token in started.prefill).endswith(asked.prompt)
    assert started.prompt_tokens == len(started.prefill)
    assert (started.prefill[0].logprob, started.prefill[0].top) == (None, ())
    assert all(token.logprob is not None and len(token.top) == 3 for token in started.prefill[1:])


class Late:
    """In place of what receives the core's outputs: those of first sequences come that many later, or at their ends."""

    def __init__(self, receive: Callable[[], Awaitable[Sequence[Any]]], outputs: int) -> None:
        self._receive = receive
        self._outputs = outputs
        self._held: list[Any] = []

    async def __call__(self) -> list[Any]:
        outputs = await self._receive()
        first = [output for output in outputs if output.request_id.endswith(".0")]
        self._held += first
        ended = any(output.finish_reason is not None for output in first)
        due = len(self._held) if ended else max(0, len(self._held) - self._outputs)
        late, self._held = self._held[:due], self._held[due:]
        return [output for output in outputs if output not in first] + late


@pytest.mark.parametrize("late", [0, 2, 9])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_the_prompt_of_several_sequences_is_told_once(
    backend: Any, monkeypatch: pytest.MonkeyPatch, stream: bool, late: int
) -> None:
    """By the first sequence, which computes it without the prefix cache and so may come after the others."""
    prompt = question("long").prompt
    asked: dict[str, Any] = {"max_tokens": 9, "temperature": 1.0, "logprobs": 0, "stream": stream}
    (plain,) = run(backend, generation(prompt, n=3, seed=5, **asked))
    alone = [run(backend, generation(prompt, prompt_logprobs=2, seed=5 + i, **asked))[0] for i in range(3)]
    one = generation(prompt, n=3, seed=5, prompt_logprobs=2, **asked)
    params = [request.sampling_params for request in backend.prepare(1, one).requests]
    assert [each.prompt_logprobs for each in params] == [2, None, None]
    assert [each.skip_reading_prefix_cache for each in params] == [True, False, False]
    monkeypatch.setattr(backend._core, "receive", Late(backend._core.receive, late))
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


def test_a_prompt_beyond_the_context_names_the_field(backend: Any) -> None:
    long = Generation(request_id="x", prompt="word " * 8000, sampling=Sampling(**GREEDY))
    with pytest.raises(ContextError, match=r"^prompt: prompt is too long: \d{5} tokens > 2047 maximum"):
        backend.prepare(1, long)
    refused = Generation(
        request_id="x", prompt="word " * 9, sampling=Sampling(max_tokens=2047, **GREEDY), overflow="refuse"
    )
    with pytest.raises(ContextError, match=r"^prompt: prompt is too long: \d+ tokens > 1 maximum \(before 2047 tokens"):
        backend.prepare(1, refused)


def test_truncation_keeps_the_end_of_the_prompt(backend: Any) -> None:
    asked = question("plain")
    ids = backend.prepare(1, generation(asked.prompt)).prompt_ids
    kept = backend.prepare(1, generation("word " * 8000 + asked.prompt, truncate=5)).prompt_ids
    assert kept == ids[-5:]


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
        assert list(pool.map(ids, range(50 * len(asked)))) == alone * 50


class Watched:
    """A tokenizer, which notes how long the texts are that it is given."""

    def __init__(self, backend: Any, patch: pytest.MonkeyPatch) -> None:
        self.lengths: list[int] = []
        kind = type(backend._core.get_tokenizer())
        for name in ("encode", "__call__"):
            patch.setattr(kind, name, self._watching(getattr(kind, name)))

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
    watched = Watched(backend, monkeypatch)
    with pytest.raises(ContextError, match=r": prompt is too long: more than \d{4,5} tokens > 2047 maximum"):
        backend.prepare(1, made("a " * 10_000_000))
    assert watched.lengths
    assert max(watched.lengths) <= PIECE
    assert sum(watched.lengths) <= 2 * PIECE


def test_of_a_prompt_that_is_cut_the_end_is_tokenized(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = question("plain")
    ids = backend.prepare(1, generation("some words, " * 10_000 + asked.prompt, truncate=500)).prompt_ids
    watched = Watched(backend, monkeypatch)
    assert backend.prepare(1, generation("some words, " * 1_000_000 + asked.prompt, truncate=500)).prompt_ids == ids
    assert watched.lengths
    assert max(watched.lengths) <= 8 * 500 + PIECE


def test_too_many_token_ids_are_not_handed_to_vllm(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one = generation("")
    long = msgspec.structs.replace(one, prompt=(5,) * 2048)
    assert len(backend.prepare(1, msgspec.structs.replace(one, prompt=(5,) * 2047)).prompt_ids) == 2047
    cut = msgspec.structs.replace(long, sampling=Sampling(truncate=7))
    assert len(backend.prepare(1, cut).prompt_ids) == 7
    monkeypatch.setattr(backend._core.renderer, "render_cmpl", None)
    with pytest.raises(ContextError, match=r"^prompt: prompt is too long: 2048 tokens > 2047 maximum"):
        backend.prepare(1, long)


def test_token_ids_that_there_are_not_are_refused(backend: Any) -> None:
    """By the field's name, which vLLM does not tell where it finds them."""
    one = generation("")
    assert list(backend.prepare(1, msgspec.structs.replace(one, prompt=(5, 639))).prompt_ids) == [5, 639]
    for foreign in (640, -1):
        with pytest.raises(ParameterError, match=f"^prompt: expected token ids from 0 to 639, got {foreign}$"):
            backend.prepare(1, msgspec.structs.replace(one, prompt=(5, foreign)))


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


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("after", [0, 12])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
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
    monkeypatch.setattr(backend._chat, "splitter", lambda *_, **__: Broken(after))
    before, broken, behind = run(backend, other, talk, other)
    assert text(before) == text(behind) == text(alone)
    failures = [event for event in broken if isinstance(event, Failed)]
    assert failures == [broken[-1]]
    assert failures[0].error.message == "the response could not be decoded: 'a fault'"
    assert any(isinstance(event, Delta) for event in broken) is (stream and after > 0)
    assert re.search(r"request test: generation \d+ failed", caplog.text)
    assert not backend._sequences
    assert not backend._groups
    assert backend.core_ends()
    monkeypatch.undo()
    (well,) = run(backend, talk)
    assert not any(isinstance(event, Failed) for event in well)


class Panic(BaseException):
    """What a library in Rust raises where it panics (PyO3's PanicException)."""


DETOKENIZER, SEQUENCE = "lmi.model.text.detokenizer:Detokenizer", "lmi.model.vllm.sequence:OutputSequence"


def sequence_of(made: Any, number: int) -> Any:
    return made._sequences[made._core.name(number, 0)]


def text_of(made: Any, number: int) -> Any:
    return sequence_of(made, number).text


IN_STEP: dict[str, tuple[str, str, Callable[[Any, int], object], dict[str, Any]]] = {
    "detokenizer": (
        DETOKENIZER,
        "push",
        text_of,
        {},
    ),
    "detokenizer: a panic": (
        DETOKENIZER,
        "push",
        text_of,
        {},
    ),
    "stop strings": (
        "lmi.model.text.detokenizer:StopFinder",
        "take",
        text_of,
        {"stop": ("zq",)},
    ),
    "log-probabilities": (
        SEQUENCE,
        "_read",
        sequence_of,
        {"logprobs": 2},
    ),
    "the prompt": (
        "lmi.model.vllm.sequence:SequenceGroup",
        "begin",
        lambda made, number: made._groups[number],
        {"prompt_logprobs": 2},
    ),
    "beams": (
        "lmi.model.search.beam:BeamSearch",
        "advance",
        lambda made, number: made._beams._runs[number].search,
        {"beams": Beams(width=2)},
    ),
}
"""What fails in a step: a class and its method, where it is given this of a generation; the sampling that needs it."""


@pytest.mark.parametrize("place", IN_STEP)
def test_a_fault_in_a_step_ends_its_generation_alone(
    backend: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    """The part of the table of faults (docs/robustness.md) that lies in vLLM's steps."""
    path, method, find, sampling = IN_STEP[place]
    module, _, kind = path.partition(":")
    owner = getattr(importlib.import_module(module), kind)
    whole = getattr(owner, method)
    neighbour = generation(question("long").prompt, max_tokens=60)
    (alone,) = run(backend, neighbour)
    faulty = generation("Count up.", stream=place != "beams", max_tokens=60, ignore_eos=True, **sampling)
    backend.add(backend.prepare(beside := next(NUMBERS), neighbour))
    backend.add(backend.prepare(number := next(NUMBERS), faulty))
    found = find(backend, number)

    def failing(*given: Any, **named: Any) -> Any:
        if any(one is found for one in given):
            raise (Panic if place.endswith("panic") else KeyError)("a fault")
        return whole(*given, **named)

    monkeypatch.setattr(owner, method, failing)
    events: dict[int, list[EngineEvent]] = {beside: [], number: []}
    while backend.busy:
        for its, event in backend.step():
            events[its].append(event)
    assert text(events[beside]) == text(alone)
    (failed,) = [event for event in events[number] if isinstance(event, Failed)]
    assert failed is events[number][-1]
    assert failed.kind == "GenerationError"
    assert "a fault" in caplog.text
    assert backend.core_ends()
    monkeypatch.undo()
    assert text(run(backend, neighbour)[0]) == text(alone)


def test_a_fault_between_two_sequences_starts_leaves_none(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    add = backend._core.add

    def failing(request: Any) -> None:
        if request.request_id.endswith(".2"):
            raise KeyError("a fault")
        add(request)

    monkeypatch.setattr(backend._core, "add", failing)
    with pytest.raises(KeyError):
        backend.add(backend.prepare(next(NUMBERS), generation("Count up.", n=3)))
    assert not backend.busy
    assert not backend._groups
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
    before_the_end: list[bool] = []
    while backend.busy:
        for number, event in backend.step():
            events[number].append(event)
            if isinstance(event, Failed):
                before_the_end.append(beside.number in backend._groups)
    failed = events[prepared.number][-1]
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, GenerationError)
    assert failed.error.message.startswith("the request could not be sent to the engine: ")
    assert before_the_end == [True]
    assert text(events[beside.number]) == neighbour.answer
    assert backend.core_ends()


@pytest.mark.parametrize("likely", [0, 5])
def test_an_answer_that_becomes_too_long_ends_on_its_way(
    backend: Any, monkeypatch: pytest.MonkeyPatch, likely: int
) -> None:
    """At the limit it is complete; beyond it no token more is made than shows it."""
    tokens, n = 30, 4
    one = generation("Count up.", stream=False, n=n, max_tokens=tokens, ignore_eos=True, logprobs=likely)
    most = n * tokens * (1 + likely) * TOKEN
    other = generation(question("plain").prompt, max_tokens=40)
    (alone,) = run(backend, other)
    for holder in (backend._backend, backend._requests):
        monkeypatch.setattr(holder, "_longest", most)
    whole, beside = run(backend, one, other)
    assert [len(delta.tokens) for delta in deltas(whole)] == [tokens] * n
    assert text(beside) == text(alone)
    for holder in (backend._backend, backend._requests):
        monkeypatch.setattr(holder, "_longest", most // 2)
    broken, beside = run(backend, one, other)
    (failed,) = broken[-1:]
    assert isinstance(failed, Failed)
    assert failed.kind == "ParameterError"
    assert "option.max_answer_bytes" in failed.message
    assert not any(event.finish for event in broken if isinstance(event, Delta))
    assert text(beside) == text(alone)
    assert backend.core_ends()


class Collector:
    """A sink that waits for the end."""

    def __init__(self) -> None:
        self.events: list[EngineEvent] = []
        self.ended = threading.Event()

    def __call__(self, event: EngineEvent) -> None:
        self.events.append(event)
        if isinstance(event, Failed) or (isinstance(event, Delta) and event.finish and event.finish.last):
            self.ended.set()


def ask(engine: EngineClient, one: Generation) -> list[EngineEvent]:
    sink = Collector()
    engine.submit(one, sink)
    assert sink.ended.wait(60)
    return sink.events


@pytest.mark.slow
@pytest.mark.timing
@pytest.mark.skipif(not Path("/proc").exists(), reason="looks at processes as Linux shows them")
def test_a_core_that_is_killed_is_missed_at_once(model_dir: Path) -> None:
    """When it is killed, the engine's process ends with it and is started anew."""
    asked = question("plain")
    engine = own_process(settings(model_dir), pauses=(0.0,))
    try:
        engine.start()
        assert text(ask(engine, generation(asked.prompt, max_tokens=100))) == asked.answer
        assert engine.process_id is not None
        cores = [
            child
            for child in psutil.Process(engine.process_id).children(recursive=True)
            if "resource_tracker" not in " ".join(child.cmdline())
        ]
        assert cores, "vLLM's core has no process of its own"
        # Stopped first: else all tokens may have been made before a busy machine lets this thread go on.
        cores[0].suspend()
        sink = Collector()
        engine.submit(generation(asked.prompt, max_tokens=100), sink)
        cores[0].kill()
        assert sink.ended.wait(2)
        last = sink.events[-1]
        assert isinstance(last, Failed)
        assert isinstance(last.error, UnavailableError)
        with pytest.raises(UnavailableError, match="rebuilt"):
            engine.submit(generation(asked.prompt), Collector())
        deadline = threading.Event()
        for _ in range(1200):
            if engine.healthy:
                break
            deadline.wait(0.1)
        assert text(ask(engine, generation(asked.prompt, max_tokens=100))) == asked.answer
        assert not any(core.is_running() and core.status() != "zombie" for core in cores)
    finally:
        engine.close()


@pytest.mark.parametrize("dtype", ["bf16", "bfloat16"])
def test_both_spellings_of_bfloat16(model_dir: Path, dtype: str) -> None:
    import torch
    from vllm import EngineArgs

    made = EngineArgs(**engine_arguments(settings(model_dir, dtype=dtype)))
    assert made.create_model_config().dtype is torch.bfloat16


@pytest.mark.parametrize("most", range(1, 16))
def test_text_alone_that_ends_within_a_character_keeps_what_is_before_it(backend: Any, most: int) -> None:
    """Whole and streamed, with tokens shown and without, an answer of so many tokens has the same text."""
    prompt = question("unicode").prompt
    asked = [
        msgspec.structs.replace(generation(prompt, max_tokens=most, stream=stream), tokens=tokens)
        for stream in (False, True)
        for tokens in (False, True)
    ]
    first, *others = map(text, run(backend, *asked))
    assert [*others] == [first] * 3
