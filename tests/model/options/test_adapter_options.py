"""Options of LoRA adapters: what they may be, and what fits each other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lmi.model.options import Settings, load_settings, settings_of
from lmi.model.options.adapter_options import RANKS, AdapterOptions

from ...kit.api.errors import OptionError
from ...kit.api.options import notes_of
from ...kit.rows import each_row


def settings(directory: str | Path = "/opt/ml/model", /, **properties: str) -> Settings:
    return settings_of({"enable_lora": "true", **properties}, model_dir=str(directory))


def refused(directory: str | Path = "/opt/ml/model", /, **properties: str) -> str:
    with pytest.raises(OptionError) as caught:
        settings(directory, **properties)
    return caught.value.message


def test_the_defaults(tmp_path: Path) -> None:
    assert settings_of({}, model_dir=str(tmp_path)).adapters == AdapterOptions()
    assert settings(tmp_path).adapters == AdapterOptions(
        enable_lora=True,
        max_loras=4,
        max_lora_rank=None,
        max_cpu_loras=None,
        adapters_on_error="fail",
        lora_cache_dir=None,
        lora_cache_size=100,
        adapters_registry=str(tmp_path / ".lmi" / "adapters.json"),
    )
    assert settings().unknown_models == "base"
    # Beside a model of the hub there is no place for it.
    assert settings("org/name").adapters.adapters_registry == ""


@each_row(
    ("text", "modules"),
    [
        ("a=/x", (("a", "/x"),)),
        ("org/a=/x", (("org/a", "/x"),)),
        ("a=/x  b=y", (("a", "/x"), ("b", "y"))),
        ('["a=/x", "b=/y=z"]', (("a", "/x"), ("b", "/y=z"))),
        ('{"name": "a", "path": "/x", "base_model_name": "m"}', (("a", "/x"),)),
        ('{"name": "a", "path": "/x"} {"name": "b", "path": "/y"}', (("a", "/x"), ("b", "/y"))),
        ('[{"name": "a", "path": "/x y"}]', (("a", "/x y"),)),
        ("[]", ()),
    ],
)
def test_folders_of_adapters(text: str, modules: tuple[tuple[str, str], ...]) -> None:
    assert settings(lora_modules=text).adapters.lora_modules == modules


@each_row(
    "text",
    ["a", "=x", "a=", "/a=/x", "a//b=/x", "../a=/x", "a=/x a=/y", '[{"name": "a"}]', "[1]", '{"name": "a"', "[" * 9000],
)
def test_what_names_no_folders(text: str) -> None:
    assert "option.lora_modules: expected " in refused(lora_modules=text)


def test_what_is_set(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    options = {
        "max_loras": "2", "max_lora_rank": "64", "max_cpu_loras": "8", "adapters_on_error": "warn",
        "lora_cache_dir": "cache", "lora_cache_size": "7", "adapters_registry": "state/mine.json",
    }  # fmt: skip
    assert settings(tmp_path, **options).adapters == AdapterOptions(
        enable_lora=True,
        max_loras=2,
        max_lora_rank=64,
        max_cpu_loras=8,
        adapters_on_error="warn",
        lora_cache_dir=str(tmp_path / "cache"),
        lora_cache_size=7,
        adapters_registry=str(tmp_path / "state" / "mine.json"),
    )
    assert settings(adapters_registry="None").adapters.adapters_registry == ""
    assert settings(adapters_registry="/var/mine.json").adapters.adapters_registry == "/var/mine.json"


def test_the_environment_says_them_too(tmp_path: Path) -> None:
    environment = {"OPTION_ENABLE_LORA": "true", "OPTION_MAX_LORAS": "2"}
    adapters = load_settings(tmp_path, environment=environment, overrides={}).adapters
    assert (adapters.enable_lora, adapters.max_loras) == (True, 2)


@each_row("rank", RANKS)
def test_ranks_that_may_be(rank: int) -> None:
    assert settings(max_lora_rank=str(rank)).adapters.max_lora_rank == rank


@pytest.mark.parametrize(("rank", "nearest"), [("2", 8), ("9", 16), ("24", 32), ("257", 320), ("511", 512)])
def test_of_other_ranks_the_nearest_that_holds_them_is_named(rank: str, nearest: int) -> None:
    assert refused(max_lora_rank=rank) == (
        "option.max_lora_rank: expected one of 1, 8, 16, 32, 64, 128, 256, 320, 512; "
        f"{nearest} is the nearest that holds it, got '{rank}'"
    )


@each_row("rank", ["513", "0", "-8", "16.0", "all", "²"])
def test_what_no_rank_holds_or_what_is_none_is_refused(rank: str) -> None:
    message = refused(max_lora_rank=rank)
    assert message.startswith("option.max_lora_rank: expected one of 1, 8, 16, 32, 64, 128, 256, 320, 512")
    assert "nearest" not in message or rank == "0"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_loras": "5", "max_cpu_loras": "2"}, "option.max_cpu_loras: expected at least option.max_loras=5, got 2"),
        ({"max_loras": "0"}, "option.max_loras: expected an integer of at least 1, got '0'"),
        ({"lora_cache_size": "0"}, "option.lora_cache_size: expected an integer of at least 1, got '0'"),
        ({"adapters_on_error": "ignore"}, "option.adapters_on_error: expected one of fail, warn, got 'ignore'"),
        ({"unknown_models": "no"}, "option.unknown_models: expected one of base, error, got 'no'"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, str], message: str) -> None:
    assert refused(**options) == message


def test_as_many_in_memory_as_in_slots_do() -> None:
    assert settings(max_loras="5", max_cpu_loras="5").adapters.max_cpu_loras == 5


@pytest.mark.parametrize(("given", "slots"), [("2", 2), ("4", 4), ("9", 4)])
def test_no_more_slots_than_are_kept_in_memory(given: str, slots: int) -> None:
    adapters = settings(max_cpu_loras=given).adapters
    assert (adapters.max_loras, adapters.max_cpu_loras) == (slots, int(given))


@pytest.mark.parametrize(
    "options",
    [
        {"kv_transfer_config": json.dumps({"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"})},
        {"kv_transfer_config": json.dumps({"kv_connector": "LMCacheMPConnector", "kv_role": "kv_both"})},
        {"kv_offloading_size": "4", "kv_offloading_backend": "lmcache"},
    ],
    ids=str,
)
def test_lmcache_is_refused(options: dict[str, str]) -> None:
    """It does not know one adapter's KV cache from another's (vLLM #44250, LMCache #2961)."""
    assert "expected no LMCache with it" in refused(**options)
    assert settings_of(options, model_dir="/m").adapters == AdapterOptions()


def test_vllms_own_offloading_is_not() -> None:
    """It goes by the adapter's name."""
    connector = json.dumps({"kv_connector": "OffloadingConnector", "kv_role": "kv_both"})
    assert settings(kv_transfer_config=connector, kv_offloading_backend="native").adapters.enable_lora


def test_a_folder_of_adapters_has_to_be_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for given in ("nothing", "file", "/of/which/nobody/knows"):
        place = str(tmp_path / given)
        assert refused(tmp_path, lora_cache_dir=given) == (
            f"option.lora_cache_dir: expected a folder, got {place!r}: it is none"
        )


def test_all_faults_are_said_at_once(tmp_path: Path) -> None:
    message = refused(tmp_path, max_lora_rank="24", max_loras="2", max_cpu_loras="1", lora_cache_dir="nothing")
    assert message.startswith("3 options")
    for name in ("max_lora_rank", "max_cpu_loras", "lora_cache_dir"):
        assert f"option.{name}: " in message


def test_dead_options_have_no_effect_and_that_is_said() -> None:
    found = settings(lora_extra_vocab_size="256", long_lora_scaling_factors="[1.0, 4.0]", adapters="adapters")
    assert notes_of(found) == [
        "option.lora_extra_vocab_size has no effect: adapters have no vocabulary of their own any more",
        "option.long_lora_scaling_factors has no effect: adapters have no context of their own any more",
    ]
    assert found.adapters == settings().adapters
    assert found.engine_arguments == settings().engine_arguments


def test_options_of_adapters_without_adapters_have_no_effect_and_that_is_said() -> None:
    found = settings_of({"max_loras": "2", "max_lora_rank": "64"}, model_dir="/m")
    assert notes_of(found) == ["the options of adapters have no effect without option.enable_lora=true"]
    assert "enable_lora" not in found.engine_arguments
    # As DJL's containers write it.
    assert settings_of({"enable_lora": "false"}, model_dir="/m").notes == ()


def test_what_only_vllm_reads_goes_on_to_it() -> None:
    found = settings(lora_dtype="float16", lora_target_modules='["q_proj"]', fully_sharded_loras="true")
    arguments = found.engine_arguments
    assert {name: arguments[name] for name in arguments if "lora" in name} == {
        "lora_dtype": "float16",
        "lora_target_modules": '["q_proj"]',
        "fully_sharded_loras": "true",
    }


def test_the_adapter_of_images(tmp_path: Path) -> None:
    """The engine is not told: it would load it behind our back."""
    found = settings(tmp_path, default_mm_loras='{"image": "mine"}')
    assert found.adapters.default_mm_loras == {"image": str(tmp_path / "mine")}
    assert "default_mm_loras" not in found.engine_arguments
    assert settings(default_mm_loras='{"image": "/a"}').adapters.default_mm_loras == {"image": "/a"}
    for nothing in ("{}", "none"):
        assert settings(default_mm_loras=nothing).adapters == settings().adapters


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ('{"audio": "/a"}', "(prompts have no audio here)"),
        ('{"image": "/a", "video": "/b"}', "(prompts have no video here)"),
        ('{"image": 1}', "Expected `str`, got `int`"),
        ('{"image": ""}', "a JSON object with the folder"),
        ("/a", "JSON is malformed"),
    ],
)
def test_what_is_no_adapter_of_images_is_refused(given: str, why: str) -> None:
    message = refused(default_mm_loras=given)
    assert message.startswith(
        "option.default_mm_loras: expected a JSON object with the folder of an adapter for images"
    )
    assert why in message
