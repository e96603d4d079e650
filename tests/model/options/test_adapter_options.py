"""The options of LoRA adapters: what they are read as, what contradicts them, what has no effect."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from lmi.model.options.adapter_options import RANKS, AdapterOptions

from ...kit.api.errors import OptionError
from ...kit.api.options import settings_of
from ...kit.api.types import Settings


def settings(model_dir: Path | str = "/opt/ml/model", **properties: str) -> Settings:
    return settings_of({"enable_lora": "true", **properties}, model_dir=str(model_dir))


def refused(**properties: str) -> str:
    with pytest.raises(OptionError) as caught:
        settings(**properties)
    return caught.value.message


def test_without_the_switch_there_are_none() -> None:
    assert settings_of({}, model_dir="/m").adapters == AdapterOptions()


def test_what_is_not_said_is_upstreams_default() -> None:
    options = settings().adapters
    assert (options.max_loras, options.max_lora_rank, options.max_cpu_loras) == (4, None, None)
    assert (options.adapters_on_error, options.lora_cache_dir, options.lora_cache_size) == ("fail", None, 100)


@pytest.mark.parametrize("rank", RANKS)
def test_each_rank_that_vllm_has_is_taken(rank: int) -> None:
    assert settings(max_lora_rank=str(rank)).adapters.max_lora_rank == rank


@pytest.mark.parametrize(("rank", "nearest"), [("24", 32), ("2", 8), ("300", 320), ("17", 32)])
def test_another_rank_is_refused_with_the_nearest_that_holds_it(rank: str, nearest: int) -> None:
    message = refused(max_lora_rank=rank)
    assert message.startswith("option.max_lora_rank: expected one of 1, 8, 16, 32, 64, 128, 256, 320, 512; ")
    assert message.endswith(f"{nearest} is the nearest that holds it, got '{rank}'")


@pytest.mark.parametrize("rank", ["513", "sixteen", "-8", "1.5"])
def test_what_no_rank_holds_is_refused(rank: str) -> None:
    assert refused(max_lora_rank=rank).endswith(f"320, 512, got '{rank}'")


def test_fewer_in_memory_than_in_slots_are_refused() -> None:
    assert refused(max_loras="5", max_cpu_loras="2") == (
        "option.max_cpu_loras: expected at least option.max_loras=5, got 2"
    )


@pytest.mark.parametrize("properties", [{"rolling_batch": "scheduler"}, {"backend": "transformers"}])
def test_the_transformers_engine_has_none(properties: dict[str, str]) -> None:
    assert refused(**properties) == (
        "option.enable_lora: expected vLLM with it, the transformers engine has no adapters"
    )


def test_auto_is_vllm() -> None:
    assert settings(backend="auto").engine == "vllm"


@pytest.mark.parametrize("connector", ["LMCacheConnectorV1", "LMCacheMPConnector"])
def test_lmcache_is_refused(connector: str) -> None:
    message = refused(kv_transfer_config=f'{{"kv_connector": "{connector}", "kv_role": "kv_both"}}')
    assert message.startswith("option.enable_lora: expected no LMCache with it (option.kv_transfer_config)")


def test_vllms_own_connectors_are_taken() -> None:
    config = '{"kv_connector": "OffloadingConnector", "kv_role": "kv_both"}'
    assert settings(kv_transfer_config=config).engine_arguments["kv_transfer_config"] == config


def test_a_folder_of_adapters_has_to_be_there(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    assert settings(tmp_path, lora_cache_dir="more").adapters.lora_cache_dir == str(tmp_path / "more")
    with pytest.raises(OptionError, match=r"option\.lora_cache_dir: expected a folder, got "):
        settings(tmp_path, lora_cache_dir="less")


@pytest.mark.parametrize(
    ("given", "file"), [({}, "/m/.lmi/adapters.json"), ({"adapters_registry": "a.json"}, "/m/a.json")]
)
def test_the_registry_lies_in_the_model_directory(given: dict[str, str], file: str) -> None:
    assert settings("/m", **given).adapters.adapters_registry == file


@pytest.mark.parametrize("none", ["none", "None"])
def test_there_may_be_no_registry(none: str) -> None:
    assert settings(adapters_registry=none).adapters.adapters_registry == ""


@pytest.mark.parametrize("name", ["lora_extra_vocab_size", "long_lora_scaling_factors"])
def test_what_vllm_has_no_more_is_said_to_have_no_effect(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        made = settings(**{name: "4.0"})
    assert name not in made.engine_arguments
    assert [f"option.{name} has no effect" in line for line in caplog.messages] == [True]


def test_the_name_of_the_folder_passes_silently() -> None:
    assert settings(adapters="adapters") == settings()


def test_options_without_the_switch_are_said_to_have_no_effect() -> None:
    (note,) = settings_of({"max_loras": "2"}, model_dir="/m").notes
    assert note == "the options of adapters have no effect without option.enable_lora=true"
