"""What must be the same on all hosts: what counts as different, and how it is told."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lmi.model.nodes.facts import differences, facts_of

from ...kit.adapters import write_adapter
from ...kit.api.options import make_settings
from ...kit.installed import VERSION

NAME = "node 1 (10.0.0.2)"


@pytest.fixture
def copies(tmp_path: Path) -> tuple[Path, Path]:
    """Two copies of a model directory, in places of their own."""
    for name in ("here", "there"):
        folder = tmp_path / name
        folder.mkdir()
        folder.joinpath("config.json").write_text('{"architectures": ["LlamaForCausalLM"], "hidden_size": 64}')
        folder.joinpath("model.safetensors").write_bytes(b"\0" * ((1 << 20) + 1))
        folder.joinpath("serving.properties").write_text(f"option.master_addr=a\n# {name}\n")
    return tmp_path / "here", tmp_path / "there"


def facts(folder: Path, rank: int, **options: str) -> dict[str, str]:
    return facts_of(make_settings(folder, nnodes="2", node_rank=str(rank), **options))


def test_the_same_model_in_another_place_is_the_same(copies: tuple[Path, Path]) -> None:
    here, there = copies
    assert differences(facts(here, 0), facts(there, 1), NAME) == ""
    assert facts(here, 0)["lmi"] == VERSION


def test_each_difference_is_named_but_what_the_leader_decides(copies: tuple[Path, Path]) -> None:
    here, there = copies
    leader = facts(here, 0)
    assert differences(leader, facts(there, 1, max_model_len="512"), NAME) == (
        f"option.max_model_len: the leader has none, {NAME} has 512"
    )
    assert differences(leader, facts(there, 1, max_rolling_batch_size="3", pipeline_parallel_size="2"), NAME) == ""
    assert differences(leader, {**facts(there, 1), "vLLM": "0.1"}, NAME) == (
        f"vLLM: the leader has {leader.get('vLLM', 'none')}, {NAME} has 0.1"
    )
    there.joinpath("model.safetensors").write_bytes(b"\0" * (1 << 21))
    assert differences(leader, facts(there, 1), NAME) == (
        f"the model's model.safetensors: the leader has 1048577 bytes, {NAME} has 2097152 bytes"
    )
    shutil.copy(here / "model.safetensors", there)
    there.joinpath("config.json").write_text('{"architectures": ["LlamaForCausalLM"], "hidden_size": 65}')
    assert differences(leader, facts(there, 1), NAME).startswith("the model's config.json: the leader has 58 bytes, ")


def test_many_differences_are_counted() -> None:
    assert differences({}, {str(number): "x" for number in range(8)}, "n").endswith(
        "4: the leader has none, n has x; and 3 more"
    )


def test_a_model_of_the_hub_is_its_name(tmp_path: Path) -> None:
    leader = facts(tmp_path, 0, model_id="owner/a", master_addr="a")
    assert leader["model"] == "owner/a"
    assert "model: the leader has owner/a, n has owner/b" in differences(
        leader, facts(tmp_path, 1, model_id="owner/b", master_addr="a"), "n"
    )


def test_tokens_of_the_hub_are_told_to_nobody(copies: tuple[Path, Path]) -> None:
    assert "secret" not in str(facts(copies[0], 0, hf_token="secret"))


def test_adapters(copies: tuple[Path, Path]) -> None:
    here, there = copies
    config = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
    write_adapter(there / "adapters" / "extra", config, rank=17)
    told = differences(facts(here, 0, enable_lora="true"), facts(there, 1, enable_lora="true"), "n")
    assert told == (
        "adapters: the leader has none, n has extra; option.max_lora_rank: the leader has 16, n has 32"
    )  # fmt: skip
