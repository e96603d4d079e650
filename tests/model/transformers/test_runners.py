"""What runs sequences on models of several kinds: nothing depends on what a sequence runs with, or on which it is."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from ...kit.api.options import make_settings

pytestmark = pytest.mark.engine

WORDS = 96
COMMON = {
    "vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 32,
}  # fmt: skip
# A window of 8 tokens, local attention with learned positions, positions by the mask, and recurrent states.
MODELS: dict[str, dict[str, Any]] = {
    "mistral": {**COMMON, "sliding_window": 8},
    "gpt_neo": {
        "vocab_size": WORDS, "hidden_size": 32, "num_layers": 2, "num_heads": 2, "max_position_embeddings": 256,
        "attention_types": [[["global", "local"], 1]], "window_size": 8, "intermediate_size": 32,
    },
    "bloom": {"vocab_size": WORDS, "hidden_size": 32, "n_layer": 2, "n_head": 4},
    "mamba": {"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8},
}  # fmt: skip
TOGETHER = {"mistral"}
"""Those that continuous batching of transformers can run."""
LENGTHS = (3, 30, 7, 60, 1, 12, 45, 5)
NEW = 24


def build(name: str) -> Any:
    """A model with random weights."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    built = AutoModelForCausalLM.from_config(AutoConfig.for_model(name, **MODELS[name])).eval()
    built.generation_config.eos_token_id = None
    for weights in built.parameters():
        if weights.dim() > 1:
            torch.nn.init.normal_(weights, std=0.2)
    return built


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> Any:
    return build(request.param)


@pytest.fixture(scope="module")
def known(model: Any) -> list[tuple[list[int], list[int]]]:
    """Prompts, and what transformers' own loop generates after each, alone."""
    import torch
    from transformers import GenerationConfig

    config = GenerationConfig(max_new_tokens=NEW, do_sample=False, pad_token_id=0, eos_token_id=None)
    numbers = random.Random(1)
    prompts = [[numbers.randrange(3, WORDS) for _ in range(length)] for length in LENGTHS]
    pairs: list[tuple[list[int], list[int]]] = []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        made = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)
        pairs.append((prompt, made[0, len(prompt) :].tolist()))
    return pairs


def runner_of(model: Any, context: int) -> Any:
    from lmi.model.transformers.load import Loaded, runner
    from lmi.model.transformers.options import Arguments

    settings = make_settings(rolling_batch="scheduler", max_rolling_batch_size="4")
    return runner(Loaded(model, model.device, None, context, WORDS, frozenset(), {}), settings, Arguments())


@pytest.fixture(scope="module")
def run(model: Any, known: object) -> Iterator[Any]:
    """What runs the model's sequences, at most 4 at once; after `known`, whose loops are the model's own."""
    running = runner_of(model, 128)
    yield running
    running.close()


def row(prompt: list[int], **given: Any) -> Any:
    from lmi.model.transformers.sampling import Row

    return Row([*prompt], len(prompt), **{"max_tokens": NEW, **given})


def finished(run: Any, rows: list[Any], news: Any = ()) -> list[list[int]]:
    """What has been generated for each, as it was told of, first by `news`."""
    told: dict[Any, list[int]] = {one: [] for one in rows}
    while True:
        for one, token, _, error in news:
            assert error is None
            if one in told:
                told[one].append(token)
        if all(len(made) == one.max_tokens or not one.ends.isdisjoint(made) for one, made in told.items()):
            break
        run.check()
        news = run.news.get(timeout=60)
    for one in rows:
        run.end(one)
    return [told[one] for one in rows]


def test_which_the_library_runs_together(request: pytest.FixtureRequest, run: Any) -> None:
    name = request.node.callspec.params["model"]
    assert type(run).__name__ == ("Batching" if name in TOGETHER else "Loops")


@pytest.mark.parametrize(("context", "runs"), [(64, "Batching"), (128, "Loops")])
@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_positions_that_depend_on_the_longest_sequence(kind: str, context: int, runs: str) -> None:
    """Beyond 64 tokens transformers scales the positions of all sequences of a pass by the longest one."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    rope: dict[str, Any] = {"rope_type": kind, "factor": 2.0, "rope_theta": 10000.0}
    if kind == "longrope":
        rope |= {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4, "original_max_position_embeddings": 64}
    config = AutoConfig.for_model("llama", **COMMON, max_position_embeddings=64, rope_parameters=rope)
    torch.manual_seed(0)
    made = AutoModelForCausalLM.from_config(config).eval()
    running = runner_of(made, context)
    try:
        assert type(running).__name__ == runs
    finally:
        running.close()


def test_each_is_what_it_is_alone(run: Any, known: list[tuple[list[int], list[int]]]) -> None:
    """More than run at once, some of which wait."""
    rows = [row(prompt) for prompt, _ in known]
    for one in rows:
        run.add(one)
    assert finished(run, rows) == [new for _, new in known]


def test_some_come_late_and_some_leave(run: Any, known: list[tuple[list[int], list[int]]]) -> None:
    gone = [row(prompt, max_tokens=60) for prompt, _ in known[:3]]
    stays, late = row(known[0][0]), row(known[1][0])
    for one in (*gone, stays):
        run.add(one)
    news = run.news.get(timeout=60)
    run.add(late)
    for one in gone:
        run.end(one)
    assert finished(run, [stays, late], news) == [known[0][1], known[1][1]]


def test_a_pass_that_fails_is_its_own_sequences_failure() -> None:
    model = build("gpt_neo")
    compute = model.forward

    def failing(input_ids: Any, **named: Any) -> Any:
        if (input_ids == WORDS - 1).any():
            raise RuntimeError("out of luck")
        return compute(input_ids=input_ids, **named)

    running = runner_of(model, 128)
    try:
        model.forward = failing
        bad, good = row([3, WORDS - 1]), row([3, 4], max_tokens=3)
        running.add(bad)
        running.add(good)
        told: dict[Any, list[Any]] = {bad: [], good: []}
        while len(told[good]) < good.max_tokens or not told[bad]:
            for one, _, _, error in running.news.get(timeout=60):
                told[one].append(error)
        assert [str(error) for error in told[bad]] == ["it could not be computed: out of luck"]
        assert told[good] == [None] * 3
    finally:
        running.close()


def test_it_ends_at_a_token(run: Any, known: list[tuple[list[int], list[int]]]) -> None:
    prompt, new = known[3]
    end = new.index(new[5])
    one = row(prompt, ends=frozenset({new[5]}))
    run.add(one)
    assert finished(run, [one]) == [new[: end + 1]]
    assert one.complete
    assert one.ids == prompt + new[: end + 1]


def test_processors_see_all_tokens_of_their_own_row(run: Any, known: list[tuple[list[int], list[int]]]) -> None:
    seen: dict[int, list[list[int]]] = {0: [], 1: []}

    def watching(number: int) -> Any:
        def process(ids: Any, scores: Any) -> Any:
            seen[number].append(ids[0].tolist())
            return scores

        return process

    rows = [row(known[number][0], processors=[watching(number)]) for number in seen]
    for one in rows:
        run.add(one)
    assert finished(run, rows) == [known[0][1], known[1][1]]
    for number, pasts in seen.items():
        prompt, new = known[number]
        assert pasts == [prompt + new[:count] for count in range(NEW)]
