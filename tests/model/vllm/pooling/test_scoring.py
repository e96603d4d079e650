"""The backend that scores, stepped by hand, compared with transformers: BERTs with a head, and a causal Qwen3."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ....kit.api.errors import ContextError, OptionError, ParameterError, UnsupportedError
from ....kit.api.options import make_settings
from ....kit.api.types import Conversation, Delta, Event, Finish, Generation, Scoring, Settings, Started
from ....kit.engines.backends import NUMBERS
from ....kit.engines.spoken_for import Client, engine_spoken_for
from ....kit.engines.start import in_process
from ....kit.hosts.host import model_directory
from ....kit.models.embedding import CONTEXT
from ....kit.models.scoring import (
    CAUSAL,
    CausalReference,
    ScoreReference,
    add_sentence_transformers,
    build_causal,
    build_cross_encoder,
)

pytestmark = pytest.mark.engine

QUERY = "what is a panda?"
DOCUMENTS = ["hi", "a bear of china", "it is not", "the giant panda lives in china.", "0 1 2"]
LONG = "abc defghi " * 20
LABELS = ("bad", "fair", "good")


@dataclass
class Model:
    """A backend, and what its numbers should be."""

    backend: Any
    reference: Any


def settings_of(source: Path, folder: Path, **options: str) -> Settings:
    # The model's own files say how long its prompts may be.
    properties = {f"option.{name}": value for name, value in {**options, "max_model_len": ""}.items()}
    return make_settings(model_directory(source, folder, properties))


def started(source: Path, folder: Path, **options: str) -> Any:
    return in_process(settings_of(source, folder, **options))


def configured(source: Path, folder: Path, **options: str) -> tuple[Any, Client]:
    """A backend, and what speaks for its core."""
    return engine_spoken_for(settings_of(source, folder, **options), "classify")


@pytest.fixture(scope="module")
def ranker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    folder = tmp_path_factory.mktemp("ranker")
    source = build_cross_encoder(folder / "bert")
    backend = started(source, folder / "model", task="text-ranking")
    yield Model(backend, ScoreReference(source))
    backend.close()


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    folder = tmp_path_factory.mktemp("classifier")
    source = build_cross_encoder(folder / "bert", LABELS)
    backend = started(source, folder / "model", task="text-classification")
    yield Model(backend, ScoreReference(source))
    backend.close()


@pytest.fixture(scope="module", params=["qwen3", "mxbai", "gemma"])
def causal(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    folder = tmp_path_factory.mktemp("causal")
    source = build_causal(folder / "source", request.param)
    backend = started(source, folder / "model", task="text-ranking", reranker=CAUSAL[request.param].option)
    yield Model(backend, CausalReference(source, request.param))
    backend.close()


def asked(prompt: Any, document: str | None = None, **scoring: Any) -> Generation:
    return Generation(request_id="test", prompt=prompt, scoring=Scoring(document=document, **scoring))


def run(backend: Any, *generations: Generation) -> list[list[Event]]:
    """The events of each generation, all of them run at once."""
    events: dict[int, list[Event]] = {}
    for generation in generations:
        events[number := next(NUMBERS)] = []
        backend.add(backend.prepare(number, generation))
    while backend.busy:
        for number, event in backend.step():
            events[number].append(event)
    return [*events.values()]


def numbers(backend: Any, *generations: Generation) -> list[list[float]]:
    taken: list[list[float]] = []
    for _, delta in run(backend, *generations):
        assert isinstance(delta, Delta)
        taken.append([*struct.unpack(f"<{len(delta.vector) // 4}f", delta.vector)])
    return taken


def scores(backend: Any, query: str, documents: list[str], **scoring: Any) -> list[float]:
    found = numbers(backend, *(asked(query, document, **scoring) for document in documents))
    return [score for (score,) in found]


def near(expected: Any) -> Any:
    return pytest.approx(expected, abs=1e-4)


def order(given: list[float]) -> list[int]:
    return sorted(range(len(given)), key=lambda index: -given[index])


def test_scores_are_those_of_transformers(ranker: Model) -> None:
    found = scores(ranker.backend, QUERY, DOCUMENTS)
    expected = [ranker.reference.score(QUERY, document) for document in DOCUMENTS]
    assert found == near(expected)
    assert order(found) == order(expected)
    assert max(expected) - min(expected) > 0.01, "a model that tells nothing apart shows nothing"
    assert scores(ranker.backend, QUERY, ["a"])[0] != near(scores(ranker.backend, "a", [QUERY])[0])


def test_the_events(ranker: Model) -> None:
    ((begun, delta),) = run(ranker.backend, asked(QUERY, "hi"))
    assert begun == Started(ranker.reference.tokens(QUERY, "hi"))
    assert isinstance(delta, Delta)
    assert (delta.text, delta.finish, delta.labels) == ("", Finish("eos"), ())


def test_without_the_activation_scores_are_logits(ranker: Model) -> None:
    found = scores(ranker.backend, QUERY, DOCUMENTS, activation=False)
    assert found == near([ranker.reference.logits(QUERY, document)[0] for document in DOCUMENTS])


@pytest.mark.parametrize(
    ("query", "document"),
    [(LONG, "hi"), (QUERY, LONG), (LONG, LONG + "x"), (LONG + "x", LONG)],
    ids=["query", "document", "second", "first"],
)
@pytest.mark.parametrize("truncate", [True, 20, 21, 1000])
def test_pairs_are_cut_as_transformers_cuts_them(ranker: Model, query: str, document: str, truncate: int) -> None:
    longest = CONTEXT if truncate is True else min(truncate, CONTEXT)
    (score,) = scores(ranker.backend, query, [document], truncate=truncate)
    assert score == near(ranker.reference.score(query, document, longest=longest))


def test_a_document_of_so_many_tokens(ranker: Model) -> None:
    """Each letter is one."""
    (score,) = scores(ranker.backend, QUERY, ["abc def" + "g" * 90], document_tokens=5)
    assert score == near(ranker.reference.score(QUERY, "abc de"))
    (score,) = scores(ranker.backend, "abc def" + "g" * 90, ["hi"], query_tokens=5)
    assert score == near(ranker.reference.score("abc de", "hi"))
    (score,) = scores(ranker.backend, QUERY, ["abc def"], document_tokens=5, cut="left")
    assert score == near(ranker.reference.score(QUERY, "bc def"))


def test_what_is_too_long_is_refused_by_its_field(ranker: Model) -> None:
    long = Generation(request_id="", prompt=QUERY, scoring=Scoring(document=LONG))
    with pytest.raises(ContextError, match=rf"^prompt: prompt is too long: \d+ tokens > {CONTEXT} maximum") as caught:
        ranker.backend.prepare(1, long)
    assert caught.value.param == "prompt"
    with pytest.raises(ContextError, match=r"^scoring\.document: prompt is too long: more than "):
        ranker.backend.prepare(1, asked(QUERY, "a b " * 10**6))


def test_classes_are_those_of_transformers(classifier: Model) -> None:
    events = run(classifier.backend, *(asked(text, classes=True) for text in DOCUMENTS))
    for text, (begun, delta) in zip(DOCUMENTS, events, strict=True):
        assert begun == Started(classifier.reference.tokens(text))
        assert isinstance(delta, Delta)
        assert delta.labels == LABELS
    found = numbers(classifier.backend, *(asked(text, classes=True) for text in DOCUMENTS))
    for text, probabilities in zip(DOCUMENTS, found, strict=True):
        assert probabilities == near(classifier.reference.probabilities(text))
    (logits,) = numbers(classifier.backend, asked("hi", classes=True, activation=False))
    assert logits == near(classifier.reference.logits("hi"))
    (pair,) = numbers(classifier.backend, asked(QUERY, "hi", classes=True))
    assert pair == near(classifier.reference.probabilities(QUERY, "hi"))


def test_token_ids_and_long_texts_are_classified(classifier: Model) -> None:
    cut, ids = numbers(classifier.backend, asked(LONG, classes=True, truncate=16), asked((7, 8, 9), classes=True))
    import torch

    expected = torch.tensor(classifier.reference.logits(LONG, longest=16)).softmax(0)
    assert cut == near(expected.tolist())
    assert sum(ids) == near(1)


def test_a_classifier_ranks_nothing(classifier: Model) -> None:
    with pytest.raises(UnsupportedError, match=r"^this model has 3 classes: it classifies texts and ranks none"):
        classifier.backend.prepare(1, asked(QUERY, "hi"))
    with pytest.raises(UnsupportedError, match=r"^this model scores texts and generates none"):
        classifier.backend.prepare(1, Generation(request_id="", prompt="a"))


def test_a_conversation_without_a_template(classifier: Model) -> None:
    with pytest.raises(ParameterError, match=r"^prompt: .*chat template"):
        classifier.backend.prepare(
            1,
            Generation(
                request_id="",
                prompt=Conversation(messages=({"role": "user", "content": "Hi"},)),
                scoring=Scoring(classes=True),
            ),
        )


def test_a_causal_reranker_scores_as_its_card_says(causal: Model) -> None:
    found = scores(causal.backend, QUERY, DOCUMENTS)
    expected = [causal.reference.score(QUERY, document) for document in DOCUMENTS]
    assert found == near(expected)
    assert order(found) == order(expected)
    assert max(expected) - min(expected) > 0.005
    ((begun, _),) = run(causal.backend, asked(QUERY, "hi"))
    assert isinstance(begun, Started)
    assert begun.prompt_tokens == causal.reference.tokens(QUERY, "hi")


def test_its_instruction(causal: Model) -> None:
    asks = {"template_arguments": {"instruction": "Find bears"}}
    if not causal.reference.instructed:
        with pytest.raises(
            UnsupportedError, match=r"^scoring.template_arguments.instruction: this model's template has none"
        ):
            causal.backend.prepare(1, asked(QUERY, "hi", **asks))
    else:
        (score,) = scores(causal.backend, QUERY, ["hi"], **asks)
        assert score == near(causal.reference.score(QUERY, "hi", "Find bears"))
    with pytest.raises(
        ParameterError, match=r"^scoring\.template_arguments: expected none that is named chat_template"
    ):
        causal.backend.prepare(1, asked(QUERY, "hi", template_arguments={"chat_template": "x"}))


def test_of_its_prompt_the_document_is_cut(causal: Model) -> None:
    whole = causal.reference.tokens(QUERY, "")
    (score,) = scores(causal.backend, QUERY, ["abcdefghij" * 50], truncate=whole + 7)
    assert score == near(causal.reference.score(QUERY, "abcdefg"))
    with pytest.raises(ContextError, match="expected a query that leaves room for a document"):
        causal.backend.prepare(1, asked(QUERY, "abc", truncate=whole))


def prompt_of(source: Path, folder: Path, **options: str) -> str:
    """That of a pair, by a reranker of no family."""
    made, _ = configured(source, folder, task="text-ranking", **options)
    return str(made.prompt_text(made.prepare(1, asked(QUERY, "hi"))))


def test_a_causal_model_that_the_options_make_a_reranker(tmp_path: Path) -> None:
    """As no family is."""
    template = "{% for message in messages %}{{ message.role }}: {{ message.content }}, {% endfor %}yes?"
    said = json.dumps({"classifier_from_token": ["no", "yes"], "method": "from_2_way_softmax"})
    source = build_causal(tmp_path / "source")
    found = prompt_of(source, tmp_path / "model", hf_overrides=said, chat_template=template)
    assert found == f"query: {QUERY}, document: hi, yes?"


PARTS_OF = '(messages | selectattr("role", "eq", "{}") | first).content[0].text'
TEXT_OF = '(messages | selectattr("role", "eq", "{}") | first).content'


@pytest.mark.parametrize(("form", "prompt"), [(TEXT_OF, ""), (PARTS_OF, "Which is it?")], ids=["text", "parts"])
def test_a_causal_model_that_its_own_files_make_a_reranker(tmp_path: Path, form: str, prompt: str) -> None:
    """Those of sentence-transformers: the tokens, the template, the prompt in front."""
    source = build_causal(tmp_path / "source")
    system, query, document = (f"{{{{ {form.format(role)} }}}}" for role in ("system", "query", "document"))
    add_sentence_transformers(source, "qwen3", f"{system if prompt else ''}q: {query}, d: {document}, yes?", prompt)
    assert prompt_of(source, tmp_path / "model") == f"{prompt}q: {QUERY}, d: hi, yes?"


def test_an_instruction_that_a_model_cannot_take(ranker: Model) -> None:
    with pytest.raises(
        UnsupportedError,
        match=r"^scoring.template_arguments.instruction: this model makes its prompts without a template",
    ):
        ranker.backend.prepare(1, asked(QUERY, "hi", template_arguments={"instruction": "x"}))


def test_several_classes_cannot_rank(tmp_path: Path) -> None:
    made, _ = configured(build_cross_encoder(tmp_path / "bert", LABELS), tmp_path / "model", task="text-ranking")
    with pytest.raises(OptionError, match=r"^option.task: expected text-classification with this model, which has 3"):
        asyncio.run(made.begin())


def test_the_activation_is_the_configs(tmp_path: Path) -> None:
    """activation_of judges the kinds."""
    import torch
    from vllm.v1.engine import EngineCoreOutput, FinishReason

    source = build_cross_encoder(tmp_path / "bert", problem_type="regression")
    made, client = configured(source, tmp_path / "model", task="score")

    async def scored(logits: float) -> bytes:
        made.add(1, made.prepare(1, asked(QUERY, "hi")))
        await asyncio.sleep(0)
        (request,) = client.requests
        ended = EngineCoreOutput(request.request_id, [], finish_reason=FinishReason.STOP)
        ended.pooling_output = torch.tensor([logits])
        client.say(ended)
        _, (_, delta) = await made.receive()
        assert isinstance(delta, Delta)
        return delta.vector

    assert struct.unpack("<f", asyncio.run(scored(-3.5))) == (-3.5,)
