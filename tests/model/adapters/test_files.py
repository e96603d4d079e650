"""Every fault of an adapter's files is told by field, file or tensor; all at once."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lmi.model.adapters.files import RANKS, rank_of, rank_that_holds, read_adapter

from ...kit.adapters import LLAMA, SEVEN, adapter_tensors, safetensors_of, write_adapter
from ...kit.api.errors import AdapterError

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
Q_A = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"


def faults(path: Path, base: dict[str, Any] | None = LLAMA, max_rank: int | None = None) -> str:
    with pytest.raises(AdapterError) as caught:
        read_adapter(path, base=base, max_rank=max_rank)
    return caught.value.message


@pytest.mark.parametrize(
    "base", [LLAMA, None, {}, {"model_type": "unheard-of"}], ids=["llama", "none", "empty", "other"]
)
def test_good(tmp_path: Path, base: dict[str, Any] | None) -> None:
    path = write_adapter(tmp_path / "a", LLAMA, targets=("v_proj", "q_proj"), rank=8)
    files = read_adapter(path, base=base, max_rank=8)
    assert (files.path, files.rank, files.base_model) == (path, 8, "owner/tiny-llama")
    assert files.targets == ("q_proj", "v_proj")
    assert (files.weights, files.weights_bytes) == (WEIGHTS, (path / WEIGHTS).stat().st_size)
    assert not files.own_scales
    assert not files.own_embeddings


@pytest.mark.parametrize(
    "config",
    [
        {"target_modules": "all-linear"},
        {"target_modules": r".*\.(q|v)_proj"},
        {"target_modules": None},
        {"lora_alpha": 0.5},
        {"use_rslora": True},
        {"init_lora_weights": "gaussian"},
        {"init_lora_weights": False},
        {"peft_type": None},
        {"base_model_name_or_path": None},
        {"some_field_of_later_versions": {"a": 1}},
    ],
    ids=str,
)
def test_good_configurations(tmp_path: Path, config: dict[str, Any]) -> None:
    path = write_adapter(tmp_path, LLAMA, **config)
    assert read_adapter(path, base=LLAMA, max_rank=None).targets == tuple(sorted(SEVEN))


def test_a_configuration_of_the_least_fields(tmp_path: Path) -> None:
    path = write_adapter(tmp_path, LLAMA)
    path.joinpath(CONFIG).write_text(json.dumps({"r": 8, "lora_alpha": 8, "target_modules": []}))
    assert read_adapter(path, base=LLAMA, max_rank=None).base_model == ""


def test_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert faults(tmp_path / "missing") == f"{tmp_path / 'missing'} does not exist"
    assert faults(tmp_path / "file") == f"{tmp_path / 'file'} is not a folder"


def test_a_folder_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_adapter(tmp_path, LLAMA)

    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert faults(path) == f"{path / CONFIG} cannot be read: Permission denied"
    assert rank_of(path) is None


def test_an_empty_folder(tmp_path: Path) -> None:
    weights = "it has no weights: expected one of adapter_model.safetensors, adapter_model.bin, adapter_model.pt"
    assert faults(tmp_path) == f"{CONFIG} does not exist; {weights}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON: "),
        ("[" * 200_000, "is not JSON: "),
        ("[]", "is not a JSON object"),
        ("\ufeff{}", "is not JSON: Unexpected UTF-8 BOM"),
        ("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "is a Git LFS pointer, not the file itself"),
    ],
    ids=["cut off", "deep", "a list", "byte order mark", "LFS"],
)
def test_broken_configuration(tmp_path: Path, text: str, said: str) -> None:
    path = write_adapter(tmp_path, LLAMA)
    path.joinpath(CONFIG).write_text(text)
    assert faults(path).startswith(f"{CONFIG} {said}")
    assert rank_of(path) is None


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"r": 0}, "r: expected a positive integer, got 0"),
        ({"r": True}, "r: expected a positive integer, got True"),
        ({"r": "8"}, "r: expected a positive integer, got '8'"),
        ({"r": None}, "r: expected a positive integer, got nothing"),
        ({"lora_alpha": "16"}, "lora_alpha: expected a number, got '16'"),
        ({"lora_alpha": None}, "lora_alpha: expected a number, got nothing"),
        ({"target_modules": 1}, "target_modules: expected a list of names or a string, got 1"),
        ({"target_modules": [1]}, "target_modules: expected a list of names or a string, got [1]"),
        ({"rank_pattern": {"q_proj": 0}}, "rank_pattern: expected an object of positive integers, got {'q_proj': 0}"),
        ({"rank_pattern": [8]}, "rank_pattern: expected an object of positive integers, got [8]"),
        ({"alpha_pattern": {"q_proj": "8"}}, "alpha_pattern: expected an object of numbers, got {'q_proj': '8'}"),
        ({"bias": "all"}, "bias: expected none, vLLM has no biases of adapters, got 'all'"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save: expected none, vLLM takes no whole modules of adapters"),
        ({"use_dora": True}, "use_dora: vLLM does not have DoRA"),
        ({"lora_bias": True}, "lora_bias: vLLM does not have a bias of the adapter"),
        ({"alora_invocation_tokens": [1]}, "alora_invocation_tokens: vLLM does not have Activated LoRA"),
        ({"layer_replication": [[0, 1]]}, "layer_replication: vLLM does not have replicated layers"),
        ({"use_bdlora": {"a": 1}}, "use_bdlora: vLLM does not have block-diagonal LoRA"),
        ({"use_qalora": True}, "use_qalora: vLLM does not have QALoRA"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights: 'pissa' changes the base's weights too: convert"),
    ],
    ids=str,
)  # fmt: skip
def test_wrong_configuration(tmp_path: Path, config: dict[str, Any], said: str) -> None:
    message = faults(write_adapter(tmp_path, LLAMA, **config))
    assert message.startswith(f"{CONFIG}: {said}")
    assert ";" not in message


def test_a_field_that_is_missing(tmp_path: Path) -> None:
    path = write_adapter(tmp_path, LLAMA)
    path.joinpath(CONFIG).write_text(json.dumps({"r": 8}))
    assert faults(path) == (
        f"{CONFIG}: lora_alpha: expected a number, got nothing; "
        f"{CONFIG}: target_modules: expected a list of names or a string, got nothing"
    )


def test_an_adapter_of_another_kind(tmp_path: Path) -> None:
    """Whose other fields mean something else."""
    path = write_adapter(tmp_path, LLAMA, peft_type="IA3", r=None, lora_alpha=None)
    assert faults(path) == f"{CONFIG}: peft_type: expected LORA, got 'IA3'"


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    path = write_adapter(tmp_path, LLAMA, use_dora=True, bias="all", lora_alpha=None)
    path.joinpath(WEIGHTS).unlink()
    message = faults(path)
    for part in ("use_dora", "bias", "lora_alpha", "no weights"):
        assert part in message
    assert message.count("; ") == 3


def test_rank_above_the_highest(tmp_path: Path) -> None:
    path = write_adapter(tmp_path / "a", LLAMA, rank=24)
    assert faults(path, max_rank=16) == f"{CONFIG}: rank 24 is above option.max_lora_rank=16"
    assert read_adapter(path, base=LLAMA, max_rank=32).rank == 24
    wide = write_adapter(tmp_path / "b", LLAMA, rank=513, targets=["q_proj"])
    assert faults(wide) == f"{CONFIG}: rank 513 is above 512, the highest that vLLM has"


def test_ranks_of_single_modules(tmp_path: Path) -> None:
    """The highest counts; a tensor may have any of them."""
    path = write_adapter(tmp_path, LLAMA, rank=8, rank_pattern={"q_proj": 32})
    tensors = adapter_tensors(LLAMA, rank=8) | adapter_tensors(LLAMA, rank=32, targets=["q_proj"])
    path.joinpath(WEIGHTS).write_bytes(safetensors_of(tensors))
    files = read_adapter(path, base=LLAMA, max_rank=32)
    assert (files.rank, files.own_scales, rank_of(path)) == (32, True, 32)
    assert faults(path, max_rank=16) == f"{CONFIG}: rank 32 is above option.max_lora_rank=16"


@pytest.mark.parametrize(
    ("config", "own"),
    [
        ({}, False),
        ({"rank_pattern": None, "alpha_pattern": None}, False),
        ({"alpha_pattern": {"q_proj": 16}}, False),
        ({"alpha_pattern": {"q_proj": 8}}, True),
        ({"rank_pattern": {"q_proj": 16}}, True),
        ({"rank_pattern": {"q_proj": 16}, "alpha_pattern": {"q_proj": 32}}, False),
        ({"rank_pattern": {"q_proj": 16}, "alpha_pattern": {"v_proj": 32}}, True),
        ({"rank_pattern": {"q_proj": 32}, "alpha_pattern": {"q_proj": 32}, "use_rslora": True}, False),
    ],
    ids=str,
)
def test_scales_of_single_modules(tmp_path: Path, config: dict[str, Any], own: bool) -> None:
    assert read_adapter(write_adapter(tmp_path, LLAMA, **config), base=LLAMA, max_rank=None).own_scales is own


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is not a safetensors file, or cut off in its header: it has 0 bytes"),
        (safetensors_of(adapter_tensors(LLAMA))[:100], "is not a safetensors file, or cut off in its header: it has"),
        (safetensors_of(adapter_tensors(LLAMA))[:-1], "is cut off: it has "),
        (struct.pack("<Q", 4) + b"nope", "is not a safetensors file: its header cannot be read"),
        (struct.pack("<Q", 300_000) + b"[" * 300_000, "is not a safetensors file: its header cannot be read"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "is a Git LFS pointer, not the weights"),
    ],
    ids=["empty", "half a header", "a byte short", "no JSON", "deep", "LFS"],
)  # fmt: skip
def test_broken_weights(tmp_path: Path, content: bytes, said: str) -> None:
    path = write_adapter(tmp_path, LLAMA)
    path.joinpath(WEIGHTS).write_bytes(content)
    assert faults(path).startswith(f"{WEIGHTS} {said}")


@pytest.mark.parametrize("name", ["adapter_model.bin", "adapter_model.pt"])
def test_weights_that_only_torch_can_read(tmp_path: Path, name: str) -> None:
    """Their tensors are not looked at."""
    path = write_adapter(tmp_path, LLAMA, targets=["q_proj"])
    path.joinpath(WEIGHTS).rename(path / name)
    files = read_adapter(path, base={**LLAMA, "hidden_size": 64}, max_rank=None)
    assert (files.weights, files.targets) == (name, ("q_proj",))
    path.joinpath(name).write_bytes(b"")
    assert faults(path) == f"{name} is empty"
    path.joinpath(name).write_text("version https://git-lfs.github.com/spec/v1\n")
    assert faults(path) == f"{name} is a Git LFS pointer, not the weights"


def test_modules_by_a_pattern_in_weights_that_only_torch_can_read(tmp_path: Path) -> None:
    path = write_adapter(tmp_path, LLAMA, target_modules="all-linear")
    path.joinpath(WEIGHTS).rename(path / "adapter_model.bin")
    assert read_adapter(path, base=LLAMA, max_rank=None).targets == ("all-linear",)


def test_safetensors_go_first(tmp_path: Path) -> None:
    path = write_adapter(tmp_path, LLAMA)
    path.joinpath("adapter_model.bin").write_bytes(b"")
    assert read_adapter(path, base=LLAMA, max_rank=None).weights == WEIGHTS


def test_links_are_followed(tmp_path: Path) -> None:
    """As in a hub's cache."""
    blobs, snapshot = write_adapter(tmp_path / "blobs", LLAMA), tmp_path / "snapshot"
    snapshot.mkdir()
    for name in (CONFIG, WEIGHTS):
        snapshot.joinpath(name).symlink_to(blobs / name)
    assert read_adapter(snapshot, base=LLAMA, max_rank=None).rank == 8
    blobs.joinpath(WEIGHTS).unlink()
    assert faults(snapshot) == f"{WEIGHTS} is a link to {blobs / WEIGHTS}, which is no file"


def test_faults_of_tensors_name_their_file(tmp_path: Path) -> None:
    path = write_adapter(tmp_path, {**LLAMA, "hidden_size": 64})
    assert faults(path).startswith(f"{WEIGHTS}: {Q_A} has shape [8, 64], but the base has 32 inputs there (")


def test_wrong_ranks_are_told_once(tmp_path: Path) -> None:
    """The tensors' say nothing new where the configuration has none."""
    assert faults(write_adapter(tmp_path, LLAMA, r=-1)) == f"{CONFIG}: r: expected a positive integer, got -1"


def test_stacked_parameters_have_no_rank_of_their_own(tmp_path: Path) -> None:
    """PEFT's target_parameters: as many times r as there are experts."""
    path = write_adapter(tmp_path, LLAMA, target_parameters=["mlp.experts.down_proj"], target_modules=None)
    tensors = {
        "base_model.model.model.layers.0.mlp.down.lora_A.weight": np.zeros((32, 48), np.float32),
        "base_model.model.model.layers.0.mlp.down.lora_B.weight": np.zeros((32, 32), np.float32),
    }
    path.joinpath(WEIGHTS).write_bytes(safetensors_of(tensors))
    assert read_adapter(path, base=LLAMA, max_rank=None).targets == ("down",)


def test_embeddings_of_its_own(tmp_path: Path) -> None:
    path = write_adapter(tmp_path, LLAMA)
    own = {"base_model.model.lm_head.base_layer.weight": np.zeros((64, 32), np.float32)}
    path.joinpath(WEIGHTS).write_bytes(safetensors_of(adapter_tensors(LLAMA) | own))
    assert read_adapter(path, base=LLAMA, max_rank=None).own_embeddings


def test_the_least_rank_that_holds() -> None:
    assert [rank_that_holds(rank) for rank in (1, 2, 8, 9, 257, 321, 512, 513)] == [1, 8, 8, 16, 320, 512, 512, None]
    assert [rank_that_holds(rank) for rank in RANKS] == [*RANKS]
