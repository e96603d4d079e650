"""The transformers engine's rolling batch on caches of several kinds: nothing depends on what a sequence runs with."""

from __future__ import annotations

import random
from typing import Any

import pytest

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
LENGTHS = (3, 30, 7, 60, 1, 12, 45, 5)
NEW = 24


def build(name: str) -> Any:
    """A model with random weights."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    built = AutoModelForCausalLM.from_config(AutoConfig.for_model(name, **MODELS[name])).eval()
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
        with torch.inference_mode():
            model.generation_config.eos_token_id = None
            out = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)
        pairs.append((prompt, out[0, len(prompt) :].tolist()))
    return pairs


def rolling(model: Any, **limits: int) -> Any:
    from lmi.model.transformers.forward import Forward
    from lmi.model.transformers.scheduler import Scheduler

    return Scheduler(Forward(model), **{"most": 64, "budget": 1 << 20, "least": 128, "piece": 2048, **limits})


def row(number: int, prompt: list[int], group: object = None) -> Any:
    from lmi.model.transformers.batch import Row
    from lmi.model.transformers.sampler import SamplingState

    return Row(number, group or object(), list(prompt), len(prompt), SamplingState(temperature=0.0))


def drive(batch: Any, rows: list[Any], late: dict[int, Any]) -> tuple[int, int]:
    """Runs all to the end, the `late` ones joining at their steps; the most that ran at once, and the steps."""
    for one in rows:
        batch.add(one)
    steps, most = 0, 0
    while batch.busy:
        news = batch.step()
        assert not any(one.error for one in news)
        steps += 1
        if steps in late:
            batch.add(late[steps])
        most = max(most, len(news))
        batch.remove([one for one in news if len(one.ids) - one.prompt == NEW])
    assert steps > max(late, default=0)
    return most, steps


@pytest.mark.parametrize(
    "limits",
    [{}, {"piece": 10}, {"most": 3}, {"budget": 200}],
    ids=["at once", "prompts in pieces", "three at a time", "little memory"],
)
def test_rows_come_and_go(model: Any, known: list[tuple[list[int], list[int]]], limits: dict[str, int]) -> None:
    rows = [row(number, prompt) for number, (prompt, _) in enumerate(known)]
    batch = rolling(model, **limits)
    most, _ = drive(batch, rows[:4], dict(zip((3, 5, 9, 15), rows[4:], strict=True)))
    assert [one.ids[one.prompt :] for one in rows] == [answer for _, answer in known]
    assert most == limits.get("most", most)
    if not limits:
        assert most == len(rows)
    if "budget" in limits:
        assert 1 < most < len(rows)


def test_rows_that_made_room_go_on_where_they_were(model: Any, known: list[tuple[list[int], list[int]]]) -> None:
    """The cache is so small that what was begun must be computed again."""
    rows = [row(number, known[0][0]) for number in range(6)]
    batch = rolling(model, budget=100)
    again: list[int] = []
    leave = batch._leave

    def counted(index: int) -> None:
        if len(batch._running[index].ids) - batch._running[index].prompt < NEW:
            again.append(batch._running[index].number)
        leave(index)

    batch._leave = counted
    drive(batch, rows, {})
    assert again, "nothing had to make room"
    assert [one.ids[one.prompt :] for one in rows] == [known[0][1]] * 6


def test_a_shared_prompt_is_computed_once(
    model: Any, known: list[tuple[list[int], list[int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from lmi.model.transformers.forward import Prompts

    widths: list[int] = []
    advance = Prompts.advance

    def counting(self: Any, *arguments: Any, **named: Any) -> Any:
        widths.append(len(self.lengths))
        return advance(self, *arguments, **named)

    monkeypatch.setattr(Prompts, "advance", counting)
    group = object()
    prompt, answer = known[1]
    rows = [row(0, prompt, group) for _ in range(5)]
    drive(rolling(model), rows, {})
    assert widths == [1]
    assert all(one.ids[one.prompt :] == answer for one in rows)


@pytest.mark.parametrize("where", ["decode", "join", "start"])
def test_after_a_step_without_memory_all_go_on(
    model: Any, known: list[tuple[list[int], list[int]]], where: str
) -> None:
    import torch

    rows = [row(number, prompt) for number, (prompt, _) in enumerate(known)]
    batch = rolling(model, budget=4096)
    for one in rows[:5]:
        batch.add(one)
    failed: list[str] = []

    def fail(*_arguments: Any) -> Any:
        failed.append(where)
        raise torch.OutOfMemoryError("CUDA out of memory")

    steps = 0
    while batch.busy:
        steps += 1
        if steps == 4:
            for one in rows[5:]:
                batch.add(one)
        if steps in {4, 9}:
            setattr(batch._cache, where, fail)
        news = batch.step()
        assert not any(one.error for one in news)
        batch.remove([one for one in news if len(one.ids) - one.prompt == NEW])
    assert [one.ids[one.prompt :] for one in rows] == [answer for _, answer in known]
    assert failed
    assert batch._budget == 4096 * 3 ** len(failed) // 4 ** len(failed)


def test_removed_rows_leave_nothing_behind(model: Any, known: list[tuple[list[int], list[int]]]) -> None:
    """Taken out while they wait, while their prompt is computed, right after it, and while they run."""
    rows = [row(number, prompt) for number, (prompt, _) in enumerate(known)]
    batch = rolling(model, piece=8, most=7)
    for one in rows:
        batch.add(one)
    batch.step()
    batch.remove([rows[1], rows[7]])
    batch.step()
    batch.remove([rows[0]])
    while len(rows[2].ids) == rows[2].prompt:
        batch.step()
    batch.remove([rows[2]])
    kept = rows[3:7]
    while batch.busy:
        news = batch.step()
        assert set(news) <= set(kept)
        batch.remove([one for one in news if len(one.ids) - one.prompt == NEW])
    assert [one.ids[one.prompt :] for one in kept] == [answer for _, answer in known[3:7]]


@pytest.mark.parametrize("short", [False, True], ids=["with room", "out of memory"])
def test_rows_that_follow_others(model: Any, known: list[tuple[list[int], list[int]]], short: bool) -> None:
    """More of them than before, then fewer, beside a row of another length."""
    import torch

    from lmi.model.transformers.batch import Row

    prompt, answer = known[3]
    other = row(0, prompt)
    batch = rolling(model, budget=4096)
    group = object()
    beams: list[Any] = []

    def follow(*following: tuple[int, ...]) -> None:
        """Each with as many tokens after it as there are numbers."""
        children = {
            parent: [Row(1, group, [*parent.ids, token], 3, candidates=4) for token in tokens]
            for parent, tokens in zip(beams, following, strict=True)
        }
        beams[:] = [child for found in children.values() for child in found]
        batch.follow(children)

    def step() -> None:
        assert set(batch.step()) == {other, *beams}
        for one in beams:
            with torch.inference_mode():
                logprobs = model(input_ids=torch.tensor([one.ids])).logits[0, -1].log_softmax(-1)
            best = logprobs.topk(4)
            assert [*one.entry] == best.indices.tolist()
            assert [known.logprob for known in one.entry.values()] == pytest.approx(best.values.tolist(), abs=1e-3)

    def fail(*_arguments: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    beams += [Row(1, group, [5, 6, 7, token], 3, candidates=4) for token in (8, 9)]
    for one in (other, *beams):
        batch.add(one)
    step()
    follow((10, 11, 12), (13,))
    step()
    follow((14, 15, 16), (), (17, 18), ())
    step()
    if short:
        batch._cache.copy = fail
    follow((), (), (19, 20), (), ())
    assert batch._budget == (3072 if short else 4096)
    step()
    follow((21,), (22,))
    step()
    batch.remove(beams)
    while len(other.ids) - other.prompt < NEW:
        assert batch.step() == [other]
    assert other.ids == [*prompt, *answer]


@pytest.mark.parametrize(("context", "together"), [(64, True), (128, False)])
def test_positions_that_depend_on_the_longest_row_keep_rows_apart(context: int, together: bool) -> None:
    """transformers' dynamic scaling looks at all rows of a pass: what is beyond 64 tokens would change the others."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    config = AutoConfig.for_model("llama", **COMMON, max_position_embeddings=64, rope_parameters=rope)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    assert rolling(model, least=context).together is together
