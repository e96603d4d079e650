"""Tensors that certainly do not fit the model are told by name, shape and what was expected; nothing else is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from lmi.model.adapters.shapes import bytes_of_slot, modules_of, tensor_faults

from ...kit.adapters import LLAMA, SEVEN, adapter_tensors
from ...kit.rows import each_row

Shapes = dict[str, tuple[int, ...]]
LAYER = "base_model.model.model.layers.0."


def shapes_of(base: dict[str, Any] = LLAMA, **options: Any) -> Shapes:
    return {name: tensor.shape for name, tensor in adapter_tensors(base, **options).items()}


def faults(
    shapes: Mapping[str, tuple[int, ...]], base: dict[str, Any] | None = LLAMA, ranks: set[int] | None = None
) -> list[str]:
    return [*tensor_faults(shapes, {8} if ranks is None else ranks, base)]


def test_modules() -> None:
    names = [*shapes_of(targets=["q_proj"]), "base_model.model.lm_head.base_layer.weight", "model.a.lora_embedding_A"]
    assert modules_of(names) == {"model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.q_proj", "model.a"}


DIVIDED = (
    "llama", "mistral", "qwen2", "qwen2_vl", "qwen2_5_vl", "phi3", "granite", "olmo", "olmo2", "olmo3", "cohere",
    "cohere2", "smollm3",
)  # fmt: skip
STATED = ("qwen3", "gemma", "gemma2", "gemma3_text", "ministral3", "exaone4", "ernie4_5", "seed_oss")
WITH_HEADS = {"head_dim": 24}


@each_row("kind", [*DIVIDED, *STATED, "mixtral", "qwen2_moe", "qwen3_moe"])
def test_what_fits(kind: str) -> None:
    for more in ({}, WITH_HEADS):
        base = {**LLAMA, "model_type": kind, **more}
        assert faults(shapes_of(base), base) == []


@each_row("kind", [*DIVIDED, *STATED])
@each_row(
    ("other", "name", "said"),
    [
        ({"hidden_size": 16}, "self_attn.q_proj.lora_A", "[8, 16], but the base has 32 inputs there"),
        ({"hidden_size": 64}, "self_attn.k_proj.lora_A", "[8, 64], but the base has 32 inputs there"),
        ({"hidden_size": 64}, "self_attn.o_proj.lora_B", "[64, 8], but the base has 32 outputs there"),
        ({"hidden_size": 64}, "mlp.gate_proj.lora_A", "[8, 64], but the base has 32 inputs there"),
        ({"hidden_size": 64}, "mlp.down_proj.lora_B", "[64, 8], but the base has 32 outputs there"),
        ({"head_dim": 12}, "self_attn.q_proj.lora_B", "[48, 8], but the base has 96 outputs there"),
        ({"head_dim": 12}, "self_attn.o_proj.lora_A", "[8, 48], but the base has 96 inputs there"),
        ({"num_key_value_heads": 4}, "self_attn.v_proj.lora_B", "[96, 8], but the base has 48 outputs there"),
        ({"intermediate_size": 40}, "mlp.up_proj.lora_B", "[40, 8], but the base has 48 outputs there"),
        ({"intermediate_size": 40}, "mlp.down_proj.lora_A", "[8, 40], but the base has 48 inputs there"),
    ],
)
def test_an_adapter_of_another_base(kind: str, other: dict[str, Any], name: str, said: str) -> None:
    base = {**LLAMA, "model_type": kind, **WITH_HEADS}
    target = name.split(".")[1]
    (fault,) = faults(shapes_of({**base, **other}, targets=[target]), base)
    assert fault == f"{LAYER}{name}.weight has shape {said} (1 more like that)"


def test_one_line_for_each_kind_of_fault() -> None:
    """Of another base every tensor is wrong."""
    other = {**LLAMA, "hidden_size": 64, "num_hidden_layers": 5, "head_dim": 8}
    size, layer = faults(shapes_of(other))
    assert size.startswith(f"{LAYER}self_attn.q_proj.lora_A.weight has shape [8, 64], ")
    assert size.endswith("(34 more like that)")
    first = "base_model.model.model.layers.2.self_attn.q_proj.lora_A.weight"
    assert layer == f"{first} is of a layer that the base does not have: it has 2 (41 more like that)"


def without(*names: str, **more: Any) -> dict[str, Any]:
    """A llama's configuration that does not say all."""
    return {key: value for key, value in LLAMA.items() if not any(name in key for name in names)} | more


WIDE = {**LLAMA, "hidden_size": 64, "num_hidden_layers": 9}
UNTOLD: dict[str, tuple[Shapes, dict[str, Any] | None]] = {
    # Defaults differ between kinds, and between versions of a kind.
    "heads": (shapes_of({**LLAMA, "head_dim": 256}), without("head", model_type="gemma3_text")),
    "keys without groups": (shapes_of(without("key_value")), without("key_value")),
    "keys of another kind": (shapes_of(), without("key_value", model_type="mistral")),
    "no sizes": (shapes_of(WIDE), {**LLAMA, "hidden_size": "32", "num_hidden_layers": None, "intermediate_size": True}),
    "no configuration": (shapes_of(WIDE), None),
    "another kind": (shapes_of(WIDE), {**LLAMA, "model_type": "unheard-of"}),
}


@each_row("case", UNTOLD)
def test_what_the_configuration_does_not_tell_is_not_judged(case: str) -> None:
    assert faults(*UNTOLD[case]) == []


def test_what_it_tells_is_judged_beside_that() -> None:
    other = shapes_of({**LLAMA, "hidden_size": 64, "head_dim": 256}, targets=["q_proj"])
    (fault,) = faults(other, without("head", model_type="gemma3_text"))
    assert "but the base has 32 inputs there" in fault
    # A llama without groups has as many keys as heads.
    assert "but the base has 32 outputs there" in faults(shapes_of(), without("key_value"))[0]


def test_modules_in_one() -> None:
    base = {**LLAMA, "model_type": "phi3"}
    good = {
        f"{LAYER}self_attn.qkv_proj.lora_A.weight": (8, 32),
        f"{LAYER}self_attn.qkv_proj.lora_B.weight": (64, 8),
        f"{LAYER}mlp.gate_up_proj.lora_A.weight": (8, 32),
        f"{LAYER}mlp.gate_up_proj.lora_B.weight": (96, 8),
    }
    assert faults(good, base) == []
    (fault,) = faults(good, {**base, "intermediate_size": 40})
    assert "mlp.gate_up_proj.lora_B.weight has shape [96, 8], but the base has 80 outputs there" in fault


@pytest.mark.parametrize("kind", ["mixtral", "qwen2_moe", "qwen3_moe"])
def test_experts_are_not_judged(kind: str) -> None:
    base = {**LLAMA, "model_type": kind, "head_dim": 8}
    experts = {
        f"{LAYER}mlp.experts.0.gate_proj.lora_A.weight": (8, 999),
        f"{LAYER}mlp.experts.0.gate_proj.lora_B.weight": (999, 8),
        f"{LAYER}mlp.experts.lora_A.weight": (64, 48),
        f"{LAYER}mlp.experts.lora_B.weight": (32, 64),
        f"{LAYER}mlp.down_proj.lora_A.weight": (8, 999),
        f"{LAYER}mlp.down_proj.lora_B.weight": (32, 8),
    }
    assert faults(experts, base) == []
    assert "but the base has 32 inputs there" in faults(shapes_of({**base, "hidden_size": 64}), base)[0]


@pytest.mark.parametrize(
    "prefix",
    ["base_model.model.language_model.model.", "base_model.model.model.language_model.", "language_model.model."],
)
def test_the_language_model_of_one_that_sees(prefix: str) -> None:
    """Its towers have modules of the same names, which are not judged."""
    base = {"model_type": "llava", "hidden_size": 9, "text_config": LLAMA}
    tower = adapter_tensors(
        {**LLAMA, "hidden_size": 64, "num_hidden_layers": 9}, prefix=f"{prefix}vision_tower.encoder."
    )
    seen = {name: tensor.shape for name, tensor in tower.items()}
    assert faults({**shapes_of(prefix=prefix), **seen}, base) == []
    other = shapes_of({**LLAMA, "hidden_size": 64, "num_hidden_layers": 1}, prefix=prefix, targets=["q_proj"])
    (fault,) = faults(other, base)
    assert fault == f"{prefix}layers.0.self_attn.q_proj.lora_A.weight has shape [8, 64], but the base has 32 inputs there (1 more like that)"  # fmt: skip # noqa: E501


def test_modules_that_the_base_does_not_have() -> None:
    """vLLM would load it without a word, and the adapter would change nothing."""
    name = "base_model.model.model.language_model.layers.0.self_attn.q_proj.lora_A.weight"
    (fault,) = faults(shapes_of(prefix="base_model.model.model.language_model."))
    assert fault == f"the base has none of its modules: expected such as model.layers.0.self_attn.q_proj, got {name}"
    assert faults(shapes_of(prefix="model.")) == faults(shapes_of(prefix="base_model.model.")) == []


def test_ranks_of_tensors() -> None:
    (fault,) = faults(shapes_of(rank=4, targets=["q_proj"]))
    a = f"{LAYER}self_attn.q_proj.lora_A.weight"
    assert fault == f"{a} has shape [4, 32], but rank 8 by adapter_config.json (3 more like that)"
    assert faults(shapes_of(rank=4), ranks={8, 4}) == faults(shapes_of(rank=4), ranks=set()) == []
    assert "but rank 8 or 16 by adapter_config.json" in faults(shapes_of(rank=4), ranks={16, 8})[0]


def test_halves_that_are_missing() -> None:
    shapes = shapes_of(targets=["q_proj"])
    b = f"{LAYER}self_attn.q_proj.lora_B.weight"
    shapes.pop(b.replace("lora_B", "lora_A"))
    assert faults(shapes) == [f"{b} has no other half, lora_A"]


def test_embeddings() -> None:
    """vLLM itself refuses other vocabularies."""
    shapes = {"base_model.model.model.embed_tokens.lora_embedding_A": (8, 64)}
    shapes["base_model.model.model.embed_tokens.lora_embedding_B"] = (32, 8)
    assert faults(shapes) == []
    shapes["base_model.model.model.embed_tokens.lora_embedding_A"] = (8, 65)
    assert "lora_embedding_A has shape [8, 65], but the base has 64 inputs there" in faults(shapes)[0]


def test_tensors_that_are_not_of_lora() -> None:
    head = {"base_model.model.lm_head.weight": (64, 32)}
    assert faults({**shapes_of(), **head}) == [
        "vLLM takes tensors of LoRA alone, and does not know base_model.model.lm_head.weight"
    ]
    magnitudes = {f"{LAYER}self_attn.{name}.lora_magnitude_vector": (32,) for name in ("q_proj", "k_proj")}
    assert faults({**shapes_of(), **magnitudes})[0].endswith("self_attn.q_proj.lora_magnitude_vector and 1 more")
    skipped = {"base_model.model.lm_head.base_layer.weight": (64, 32), "base_model.model.mtp.fc.weight": (1,)}
    assert faults({**shapes_of(), **skipped}) == []


def test_no_tensors_of_lora() -> None:
    assert faults({}) == ["it has no tensors of LoRA, such as NAME.lora_A.weight"]
    assert faults({"a": (1,), "b": (1,)}) == ["it has no tensors of LoRA, such as NAME.lora_A.weight, but a and 1 more"]


def test_the_memory_of_a_slot() -> None:
    """In and out of each module of a layer; two tables of 64 words and 32 dimensions besides, of a llama."""
    layers = 2 * (64 + 48 + 48 + 64 + 80 + 80 + 80)
    assert bytes_of_slot({**LLAMA, "model_type": "mistral"}, 16, 2) == layers * 16 * 2
    assert bytes_of_slot(LLAMA, 16, 2) == (layers + 2 * 96) * 16 * 2
    assert bytes_of_slot(LLAMA, 64, 4) == (layers + 2 * 96) * 64 * 4
    assert bytes_of_slot({"text_config": LLAMA}, 16, 2) == bytes_of_slot(LLAMA, 16, 2)
    in_one = 2 * (32 + 64 + 64 + 32 + 96 + 80)
    assert bytes_of_slot({**LLAMA, "model_type": "phi3"}, 16, 2) == (in_one + 2 * 96) * 16 * 2


def test_the_memory_of_a_slot_for_some_modules() -> None:
    """What vLLM has in one module counts as a whole."""
    for targets in ({"qkv_proj"}, {"q_proj"}, {"k_proj", "v_proj"}):
        assert bytes_of_slot(LLAMA, 16, 2, targets) == 2 * (64 + 48 + 48) * 16 * 2
    assert bytes_of_slot(LLAMA, 16, 2, {"lm_head", "o_proj"}) == (2 * 64 + 96) * 16 * 2


@each_row(
    "base",
    [
        None,
        {},
        {**LLAMA, "model_type": "unheard-of"},
        {**LLAMA, "model_type": "mixtral"},
        {**LLAMA, "model_type": "qwen3"},
        {key: value for key, value in LLAMA.items() if key != "intermediate_size"},
        {key: value for key, value in LLAMA.items() if key != "num_hidden_layers"},
    ],
    ids=["none", "empty", "kind", "experts", "no head_dim", "no inner", "no layers"],
)
def test_memory_that_is_not_known(base: dict[str, Any] | None) -> None:
    assert bytes_of_slot(base, 16, 2) is None


def test_the_seven_are_all_known() -> None:
    assert {name.split(".")[-3] for name in shapes_of()} == set(SEVEN)
