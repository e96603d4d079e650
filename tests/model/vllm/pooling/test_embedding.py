"""The backend that embeds, stepped by hand, compared with transformers: a sentence-transformers BERT, and a Llama."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ....kit.api.engine import vllm_core
from ....kit.api.errors import ContextError, ParameterError, RequestError, UnsupportedError
from ....kit.api.options import make_settings
from ....kit.api.types import Conversation, Delta, Embedding, Event, Failed, Finish, Generation, Message, Started
from ....kit.engines.backends import NUMBERS
from ....kit.engines.start import in_process
from ....kit.hosts.host import model_directory
from ....kit.models.embedding import WIDTH, Reference, build_sentence_bert

pytestmark = pytest.mark.engine

TEXTS = ["what is deep learning?", "a", "how many ways can i peel an orange", "0 1 2 3", "what is deep learning!"]
LONG = "abcdefghij " * 30
"""Longer than any context of these models."""


@dataclass
class Model:
    """A backend and what its vectors should be."""

    backend: Any
    reference: Reference
    context: int
    matryoshka: bool
    before: int
    """Special tokens ahead of a text."""
    after: int
    """And behind it."""


@pytest.fixture(scope="module", params=["bert", "llama"])
def model(
    request: pytest.FixtureRequest, demo_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Model]:
    folder = tmp_path_factory.mktemp("embedding")
    bert = request.param == "bert"
    source = build_sentence_bert(folder / "bert") if bert else demo_model
    # The BERT's own files say how long its texts may be.
    length = "" if bert else "48"
    properties = {"option.task": "text-embedding", "option.max_model_len": length}
    settings = make_settings(model_directory(source, folder / "model", properties))
    reference = Reference(source, "mean", lower=True) if bert else Reference(source, "last")
    backend = in_process(settings)
    yield Model(backend, reference, 48, bert, 1, 1 if bert else 0)
    backend.close()


def run(backend: Any, *prompts: str | tuple[int, ...] | Conversation, **wanted: Any) -> list[list[Event]]:
    """The events of each prompt, all of them run at once."""
    embedding = Embedding(**wanted)
    events: dict[int, list[Event]] = {}
    for prompt in prompts:
        events[number := next(NUMBERS)] = []
        backend.add(backend.prepare(number, Generation(request_id="test", prompt=prompt, embedding=embedding)))
    while backend.busy:
        for number, event in backend.step():
            events[number].append(event)
    return [*events.values()]


def vectors(backend: Any, *prompts: str | tuple[int, ...] | Conversation, **wanted: Any) -> list[list[float]]:
    taken: list[list[float]] = []
    for events in run(backend, *prompts, **wanted):
        _, delta = events
        assert isinstance(delta, Delta)
        taken.append([*struct.unpack(f"<{len(delta.vector) // 4}f", delta.vector)])
    return taken


def near(expected: list[float]) -> Any:
    return pytest.approx(expected, abs=1e-5)


def length(vector: list[float]) -> float:
    return math.sqrt(sum(number * number for number in vector))


def test_the_events(model: Model) -> None:
    """The prompt's tokens, then the whole vector with the finish."""
    assert model.backend.info.context == model.context
    (events,) = run(model.backend, TEXTS[0])
    started, delta = events
    assert started == Started(len(model.reference.ids(TEXTS[0])))
    assert isinstance(delta, Delta)
    assert (delta.text, delta.tokens, delta.finish) == ("", (), Finish("eos"))


def test_the_vectors_are_those_of_transformers(model: Model) -> None:
    for text, vector in zip(TEXTS, vectors(model.backend, *TEXTS), strict=True):
        assert vector == near(model.reference.vector(text))
        assert length(vector) == pytest.approx(1, abs=1e-5)


def test_a_text_has_the_same_vector_alone_and_among_others(model: Model) -> None:
    """Of texts of every length, many at once, each gets its own."""
    texts = ["xyz "[: 1 + index % 4] * (1 + index % 9) for index in range(40)]
    together = vectors(model.backend, *texts)
    for text, vector in zip(texts, together, strict=True):
        (alone,) = vectors(model.backend, text)
        assert vector == near(alone)
    assert len({tuple(round(number, 3) for number in vector) for vector in together}) > 20


def test_not_normalized(model: Model) -> None:
    (vector,) = vectors(model.backend, TEXTS[0], normalize=False)
    assert vector == near(model.reference.vector(TEXTS[0], normalize=False))
    assert abs(length(vector) - 1) > 0.1
    assert vectors(model.backend, TEXTS[0], normalize=True)[0] == near(model.reference.vector(TEXTS[0]))


def test_token_ids_are_taken_as_they_are(model: Model) -> None:
    ids = tuple(model.reference.ids(TEXTS[2]))
    text, whole, part = vectors(model.backend, TEXTS[2], ids, ids[2:5])
    assert whole == near(text)
    assert part == near(model.reference.vector(ids[2:5]))


def told(model: Model, content: str, **fields: Any) -> Conversation:
    return Conversation(messages=(Message("user", content),), **{"add_generation_prompt": False, **fields})


def test_a_conversation_is_what_its_template_makes_of_it(model: Model) -> None:
    if not model.reference.chats:
        with pytest.raises(ParameterError, match=r"^prompt: .*chat template"):
            run(model.backend, told(model, "hi"))
        return
    for prompts in (True, False):
        (vector,) = vectors(model.backend, told(model, "hi", add_generation_prompt=prompts))
        assert vector == near(model.reference.vector(model.reference.chat("hi", prompts=prompts)))
    ids = model.reference.chat("hi", prompts=False)
    (vector,) = vectors(model.backend, told(model, "hi"), truncate=4, cut="left")
    assert vector == near(model.reference.vector(ids[-4:]))
    with pytest.raises(ContextError, match=r"^prompt: prompt is too long: "):
        run(model.backend, told(model, LONG))
    with pytest.raises(ContextError, match=r"^prompt: prompt is too long: "):
        run(model.backend, told(model, LONG * 10_000))
    (vector,) = vectors(model.backend, told(model, LONG * 10_000), truncate=True)
    assert vector == near(model.reference.vector(model.reference.chat(LONG, prompts=False)[: model.context]))


def test_the_text_of_token_ids(model: Model) -> None:
    ids = tuple(model.reference.ids(TEXTS[2]))
    prepared = model.backend.prepare(1, Generation(request_id="test", prompt=ids, embedding=Embedding()))
    text = model.backend.prompt_text(prepared)
    assert TEXTS[2].replace(" ", "") in text.replace(" ", "").replace("##", "")


def test_without_special_tokens(model: Model) -> None:
    ids = model.reference.ids(TEXTS[0])
    bare = ids[model.before : len(ids) - model.after]
    generation = Generation(request_id="", prompt=TEXTS[0], embedding=Embedding(), add_special_tokens=False)
    model.backend.add(model.backend.prepare(1, generation))
    events = [event for _ in range(9) if model.backend.busy for _, event in model.backend.step()]
    assert events[0] == Started(len(bare))
    assert [*struct.unpack(f"<{len(events[1].vector) // 4}f", events[1].vector)] == near(model.reference.vector(bare))


@pytest.mark.parametrize("cut", ["left", "right"])
@pytest.mark.parametrize("wanted", [True, 10])
def test_truncate_keeps_the_special_tokens(model: Model, cut: str, wanted: int | bool) -> None:
    ids = model.reference.ids(LONG)
    longest = model.context if wanted is True else wanted
    assert len(ids) > longest
    head, tail = ids[: model.before], ids[len(ids) - model.after :]
    text = ids[model.before : len(ids) - model.after]
    room = longest - model.before - model.after
    kept = [*head, *(text[:room] if cut == "right" else text[-room:]), *tail]
    (events,) = run(model.backend, LONG, truncate=wanted, cut=cut)
    assert events[0] == Started(longest)
    assert vectors(model.backend, LONG, truncate=wanted, cut=cut)[0] == near(model.reference.vector(kept))
    # Token ids have no special tokens around them that are known.
    plain = ids[:longest] if cut == "right" else ids[-longest:]
    (given,) = vectors(model.backend, tuple(ids), truncate=wanted, cut=cut)
    assert given == near(model.reference.vector(plain))


def test_truncate_leaves_what_fits(model: Model) -> None:
    assert vectors(model.backend, TEXTS[0], truncate=True)[0] == near(model.reference.vector(TEXTS[0]))


def test_a_text_that_is_too_long_is_refused_by_its_field(model: Model) -> None:
    backend, context = model.backend, model.context
    embedding = Embedding()
    longest = Generation(request_id="", prompt=tuple([7] * context), embedding=embedding)
    backend.add(backend.prepare(1, longest))
    with pytest.raises(ContextError) as caught:
        backend.prepare(2, Generation(request_id="", prompt=LONG, embedding=embedding))
    assert caught.value.param == "prompt"
    assert re.match(rf"prompt: prompt is too long: \d+ tokens > {context} maximum", caught.value.message)
    while backend.busy:
        assert [number for number, _ in backend.step()] in ([], [1, 1])


def test_a_token_that_the_model_does_not_have(model: Model) -> None:
    size = model.reference.vocabulary
    for token in (size, 10**6):
        with pytest.raises(RequestError, match=rf"prompt: expected tokens that the model has, below {size}"):
            model.backend.prepare(1, Generation(request_id="", prompt=(5, token), embedding=Embedding()))
    model.backend.prepare(1, Generation(request_id="", prompt=(5, size - 1), embedding=Embedding()))


def test_a_text_with_a_token_that_only_the_tokenizer_has(model: Model) -> None:
    """vLLM adds special tokens in lower case to the tokenizer of such a model: one in a text would end its engine."""
    if not model.matryoshka:
        pytest.skip("a matter of sentence-transformers' files")
    with pytest.raises(RequestError, match="prompt: expected tokens that the model has"):
        model.backend.prepare(1, Generation(request_id="", prompt="a [mask] b", embedding=Embedding()))


def test_dimensions(model: Model) -> None:
    backend, size = model.backend, len(vectors(model.backend, "a")[0])
    assert vectors(backend, "a", dimensions=size)[0] == near(model.reference.vector("a"))
    if not model.matryoshka:
        with pytest.raises(
            UnsupportedError, match=rf"embedding.dimensions: expected {size}: the model is not trained for others"
        ):
            run(backend, "a", dimensions=8)
        return
    assert size == WIDTH
    (vector,) = vectors(backend, TEXTS[0], dimensions=8)
    assert len(vector) == 8
    assert vector == near(model.reference.vector(TEXTS[0], dimensions=8))
    with pytest.raises(
        ParameterError, match=f"embedding.dimensions: expected an integer from 1 to {size}, got {size + 1}"
    ):
        run(backend, "a", dimensions=size + 1)


def test_lower_case_where_the_models_files_say_so(model: Model) -> None:
    if not model.matryoshka:
        pytest.skip("a matter of sentence-transformers' files")
    upper, lower = vectors(model.backend, "DEEP learning", "deep learning")
    assert upper == near(lower)


def test_abort_frees_the_engine(model: Model) -> None:
    backend = model.backend
    ended, other = next(NUMBERS), next(NUMBERS)
    for number in (ended, other):
        backend.add(backend.prepare(number, Generation(request_id="", prompt="a", embedding=Embedding())))
    backend.abort([ended, 9])
    told: list[int] = []
    while backend.busy:
        told += [number for number, _ in backend.step()]
    assert told == [other, other]
    backend.abort([ended, other])
    assert not backend.busy


def test_a_generation_is_refused(model: Model) -> None:
    with pytest.raises(UnsupportedError, match="this model makes embeddings and generates no text"):
        model.backend.prepare(1, Generation(request_id="", prompt="a"))


def test_a_fault_in_a_step_ends_its_request_alone(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """The part of the table of faults (docs/robustness.md) that lies in the steps of embeddings."""
    receive = vllm_core.Core.receive
    broken: list[str] = []

    async def changed(core: Any) -> Any:
        outputs = await receive(core)
        for output in outputs:
            broken[:] = broken or [output.request_id]
            if output.request_id in broken:
                output.pooling_output = None
        return outputs

    monkeypatch.setattr(vllm_core.Core, "receive", changed)
    (failed,), neighbour = run(model.backend, TEXTS[0], TEXTS[1])
    assert isinstance(failed, Failed)
    assert failed.message == "the engine failed while making embeddings"
    assert isinstance(neighbour[-1], Delta)
    monkeypatch.undo()
    assert len(vectors(model.backend, TEXTS[0])) == 1


def test_a_request_that_cannot_be_sent_fails_at_once_and_alone(model: Model) -> None:
    backend = model.backend
    prepared = [
        backend.prepare(next(NUMBERS), Generation(request_id="test", prompt=prompt, embedding=Embedding()))
        for prompt in TEXTS[:2]
    ]
    # vLLM's client has no form for it on the wire.
    prepared[0].request.cache_salt = object()
    for one in prepared:
        backend.add(one)
    events: dict[int, list[Event]] = {one.number: [] for one in prepared}
    while backend.busy:
        for number, event in backend.step():
            events[number].append(event)
    (failed,), neighbour = events.values()
    assert isinstance(failed, Failed)
    assert failed.message.startswith("the request could not be sent to the engine: ")
    assert isinstance(neighbour[-1], Delta)


def test_an_adapter_is_refused_by_name(model: Model) -> None:
    asked = Generation(request_id="r", prompt="Hi", embedding=Embedding(), adapter="poet")
    with pytest.raises(UnsupportedError, match=r"^adapter: this engine has none \(option\.enable_lora\)$"):
        model.backend.prepare(1, asked)
