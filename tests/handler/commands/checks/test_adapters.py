"""What `lmi check` says of adapters, before anything is deployed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lmi.handler.commands.checks.adapters import of_adapters, of_forbidden

from ....kit.adapters import LLAMA, adapter_tensors, safetensors_of, write_adapter
from ....kit.api.errors import OptionError
from ....kit.api.handler import SecureMode, check_model_dir
from ....kit.api.options import make_settings
from ....kit.rows import each_row


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    describe(tmp_path)
    return tmp_path


def describe(model_dir: Path, **config: Any) -> None:
    model_dir.joinpath("config.json").write_text(json.dumps({**LLAMA, **config}))


def lines(model_dir: Path, **options: str) -> list[str]:
    return [str(one) for one in of_adapters(make_settings(model_dir, **{"enable_lora": "true", **options}))]


def refused(model_dir: Path, **options: str) -> str:
    with pytest.raises(OptionError) as caught:
        lines(model_dir, **options)
    return caught.value.message


def test_each_adapter_is_told_of(model_dir: Path) -> None:
    a = write_adapter(model_dir / "adapters" / "a", LLAMA, targets=["v_proj", "q_proj"], rank=32)
    write_adapter(model_dir / "adapters" / "b", LLAMA, base_model_name_or_path=None)
    size = a.joinpath("adapter_model.safetensors").stat().st_size
    first, of_a, of_b = lines(model_dir)
    # 2 layers of 464 dimensions, and 2 tables of 96.
    memory = (2 * 464 + 2 * 96) * 32 * 2
    assert first == (
        f"adapters: 2 found; 4 slots for rank 32, of about {memory / 1e6:.1f} MB of a device's memory each; "
        "8 kept in memory"
    )
    assert of_a == f"adapter a: rank 32, {size / 1e6:.1f} MB, trained on owner/tiny-llama; changes q_proj, v_proj"
    assert of_b.startswith("adapter b: rank 8, ")
    assert of_b.endswith("; changes down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj")
    assert "trained on" not in of_b


@each_row(
    ("options", "said"),
    [
        ({}, "4 slots for rank 16, of about 35.8 MB of"),
        ({"max_loras": "2", "max_lora_rank": "64"}, "2 slots for rank 64, of about 143.4 MB of"),
        ({"dtype": "fp32"}, "rank 16, of about 71.7 MB of"),
        ({"dtype": "fp32", "lora_dtype": "float16"}, "rank 16, of about 35.8 MB of"),
        ({"lora_target_modules": '["q_proj"]'}, "rank 16, of about 10.2 MB of"),
        ({"max_cpu_loras": "9"}, "; 9 kept in memory"),
    ],
    ids=str,
)
def test_what_options_make_of_it(model_dir: Path, options: dict[str, str], said: str) -> None:
    """A model of a thousand times as many layers and words, so that the numbers show something."""
    describe(model_dir, num_hidden_layers=2000, vocab_size=96_000 - 32)
    (line,) = lines(model_dir, **options)
    assert said in line


def test_memory_that_is_not_known_is_not_told(model_dir: Path) -> None:
    describe(model_dir, model_type="unheard-of")
    assert lines(model_dir) == ["adapters: 0 found; 4 slots for rank 16; 8 kept in memory"]


def test_broken_adapters_are_refused_together(model_dir: Path) -> None:
    write_adapter(model_dir / "adapters" / "dora", LLAMA, use_dora=True)
    write_adapter(model_dir / "adapters" / "wide", {**LLAMA, "hidden_size": 64})
    write_adapter(model_dir / "adapters" / "good", LLAMA)
    message = refused(model_dir)
    assert message.startswith("2 adapters cannot be served: (1) adapters/dora: adapter_config.json: use_dora: ")
    assert "(2) adapters/wide: adapter_model.safetensors: base_model.model.model.layers.0.self_attn.q_proj" in message


def test_broken_adapters_are_only_told_of(model_dir: Path) -> None:
    write_adapter(model_dir / "adapters" / "dora", LLAMA, use_dora=True)
    write_adapter(model_dir / "adapters" / "good", LLAMA)
    first, broken, good = lines(model_dir, adapters_on_error="warn")
    assert first.startswith("adapters: 1 found; ")
    assert broken == "warning: adapters/dora will not be served: adapter_config.json: use_dora: vLLM does not have DoRA"
    assert good.startswith("adapter good: ")


def test_a_rank_that_is_too_low(model_dir: Path) -> None:
    write_adapter(model_dir / "adapters" / "a", LLAMA, rank=24)
    assert refused(model_dir, max_lora_rank="16").endswith(
        "rank 24 is above option.max_lora_rank=16; option.max_lora_rank=32 would hold all adapters that were found"
    )


OTHER = "warning: adapter a was trained on owner/tiny-llama, by its name another model than this one"


@each_row(
    ("name", "notes"),
    [
        ("elsewhere/Tiny-Llama", []),
        ("/home/somebody/tiny-llama/", []),
        ("", []),
        (None, []),
        ("owner/large-llama", [OTHER]),
    ],
)
def test_the_name_of_the_base(model_dir: Path, name: str | None, notes: list[str]) -> None:
    """By itself it refuses nothing: copies have other names."""
    describe(model_dir, _name_or_path=name)
    write_adapter(model_dir / "adapters" / "a", LLAMA)
    assert lines(model_dir)[2:] == notes


def test_the_name_of_a_base_on_the_hub(model_dir: Path) -> None:
    write_adapter(model_dir / "adapters" / "a", LLAMA)
    assert lines(model_dir, model_id="another/tiny-llama")[2:] == []
    assert lines(model_dir, model_id="owner/large-llama")[2:] == [OTHER]


def test_what_vllm_does_not_heed_is_noted(model_dir: Path) -> None:
    path = write_adapter(model_dir / "adapters" / "a", LLAMA, alpha_pattern={"q_proj": 1})
    assert lines(model_dir)[2] == (
        "note: adapter a has modules with scales of their own (rank_pattern, alpha_pattern): "
        "vLLM 0.32.0 heeds that, 0.26.0 and 0.28.0 do not"
    )
    path.joinpath("adapter_model.safetensors").rename(path / "adapter_model.bin")
    assert lines(model_dir)[3] == "note: adapter a: not checked whether adapter_model.bin fits the model"


def test_embeddings_are_noted(model_dir: Path) -> None:
    path = write_adapter(model_dir / "adapters" / "a", LLAMA)
    table = {"base_model.model.lm_head.base_layer.weight": np.zeros((64, 32), np.float32)}
    path.joinpath("adapter_model.safetensors").write_bytes(safetensors_of(adapter_tensors(LLAMA) | table))
    assert lines(model_dir)[2] == "note: adapter a brings embeddings of the base along, which vLLM does not use"


def test_adapters_that_nobody_serves_are_noted(model_dir: Path) -> None:
    assert lines(model_dir, enable_lora="false") == []
    model_dir.joinpath("adapters", ".keep").mkdir(parents=True)
    assert lines(model_dir, enable_lora="false") == []
    write_adapter(model_dir / "adapters" / "a", LLAMA, use_dora=True)
    note = f"warning: what is in {model_dir / 'adapters'} is not served: set option.enable_lora=true"
    assert lines(model_dir, enable_lora="false") == [note]


@pytest.mark.processes
def test_the_command_tells_of_them(model_dir: Path) -> None:
    for name, text in {"tokenizer.json": "{}", "serving.properties": "option.entryPoint=lmi.handler\n"}.items():
        model_dir.joinpath(name).write_text(text)
    write_adapter(model_dir / "adapters" / "a", LLAMA)
    said = check_model_dir(model_dir, {"enable_lora": "true", "load_format": "dummy"}, here=False)
    assert any(line.startswith("adapter a: rank 8, ") for line in said)


def test_what_secure_mode_forbids_of_adapters(model_dir: Path) -> None:
    secure = SecureMode(frozenset({"DISALLOW_REQUIREMENTS_TXT"}))
    write_adapter(model_dir / "adapters" / "a", LLAMA)
    assert of_forbidden(make_settings(model_dir, enable_lora="true"), secure) == []
    (write_adapter(model_dir / "adapters" / "b", LLAMA) / "requirements.txt").write_text("")
    said = "adapters/b: requirements.txt is prohibited in secure mode (DISALLOW_REQUIREMENTS_TXT)"
    with pytest.raises(OptionError) as caught:
        of_forbidden(make_settings(model_dir, enable_lora="true"), secure)
    assert caught.value.message == said
    (found,) = of_forbidden(make_settings(model_dir, enable_lora="true", adapters_on_error="warn"), secure)
    assert str(found) == f"warning: {said.replace(': ', ' will not be served: ', 1)}"
    assert of_forbidden(make_settings(model_dir), secure) == []
