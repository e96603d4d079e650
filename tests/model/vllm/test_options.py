"""The engine's arguments: what only vLLM can judge, on every version that is installed for the tests."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from ...kit.api.errors import OptionError
from ...kit.api.options import OPTIONS, load_settings, make_settings, option_named
from ...kit.api.types import Settings

pytestmark = pytest.mark.engine


def settings(**properties: str) -> Settings:
    return make_settings(**properties)


def arguments(**properties: str) -> dict[str, Any]:
    from lmi.model.vllm.options import engine_arguments

    return engine_arguments(settings(**properties))


def refused(**properties: str) -> str:
    with pytest.raises(OptionError) as caught:
        arguments(**properties)
    assert "\n" not in caught.value.message
    return caught.value.message


OF_COPIES_ELSEWHERE = {
    "data_parallel_size_local", "data_parallel_start_rank", "data_parallel_rank", "data_parallel_address",
    "data_parallel_rpc_port", "data_parallel_external_lb", "data_parallel_hybrid_lb",
}  # fmt: skip
"""Refused by name (model/options/parallel/rules.py)."""


def test_no_argument_is_taken_for_a_misspelling() -> None:
    from vllm import EngineArgs

    for field in dataclasses.fields(EngineArgs):
        if option_named(field.name) is None and field.name not in OF_COPIES_ELSEWHERE:
            assert settings(**{field.name: "some value"}).engine_arguments[field.name] == "some value"


def test_the_tables_arguments_exist() -> None:
    from vllm import EngineArgs

    fields = {field.name for field in dataclasses.fields(EngineArgs)}
    assert {option.argument for option in OPTIONS if option.argument} <= fields


def test_our_defaults() -> None:
    taken = arguments()
    assert taken["disable_log_stats"] is True
    assert taken["runner"] == "generate"
    assert taken["tensor_parallel_size"] >= 1
    assert "structured_outputs_config" not in taken
    assert arguments(disable_log_stats="false")["disable_log_stats"] is False


@pytest.mark.parametrize(
    ("properties", "runner", "convert"),
    [
        ({"task": "text-embedding"}, "pooling", "embed"),
        ({"convert": "embed"}, "pooling", "embed"),
        ({"runner": "pooling", "convert": "none"}, "pooling", "none"),
        ({"task": "text-embedding", "runner": "auto"}, "auto", "embed"),
    ],
    ids=str,
)
def test_embedding(properties: dict[str, str], runner: str, convert: str) -> None:
    taken = arguments(**properties, pooler_config='{"pooling_type": "MEAN"}')
    assert (taken["runner"], taken["convert"]) == (runner, convert)
    assert taken["pooler_config"].seq_pooling_type == "MEAN"
    assert "option.pooler_config: expected what vLLM takes" in refused(
        **properties, pooler_config='{"pooling": "MEAN"}'
    )


@pytest.mark.parametrize("config", ['{"enable_chunked_processing": true}', '{"max_embed_len": 4000}'])
def test_a_text_in_pieces(config: str) -> None:
    assert "option.pooler_config: expected neither enable_chunked" in refused(task="embed", pooler_config=config)


def test_cache_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        pytest.skip("needs vLLM's CPU build")
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    assert 0 < arguments()["kv_cache_memory_bytes"] <= 2 << 30
    assert arguments(kv_cache_memory_bytes="64M")["kv_cache_memory_bytes"] == 64 << 20
    assert "kv_cache_memory_bytes" not in arguments(gpu_memory_utilization="0.2")
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    assert "kv_cache_memory_bytes" not in arguments()


def test_grammars_of_the_users_choice() -> None:
    taken = arguments(structured_outputs_config='{"backend": "guidance", "disable_any_whitespace": true}')
    assert taken["structured_outputs_config"].backend == "guidance"
    taken = arguments(structured_outputs_config='{"disable_any_whitespace": true}')
    assert taken["structured_outputs_config"].backend == "xgrammar"
    assert taken["structured_outputs_config"].disable_any_whitespace


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("max_model_len", "2k", 2000),
        ("max_model_len", "512", 512),
        ("enforce_eager", "True", True),
        ("enable_prefix_caching", "false", False),
        ("async_scheduling", "none", None),
        ("gpu_memory_utilization", "0.5", 0.5),
        ("seed", "7", 7),
        ("max_logprobs", "5", 5),
        ("limit_mm_per_prompt", '{"image": 4}', {"image": 4}),
        ("speculative_config", '{"method": "ngram"}', {"method": "ngram"}),
        ("hf_overrides", '{"a": 1}', {"a": 1}),
        ("logits_processors", '["a:B", "c:D"]', ["a:B", "c:D"]),
        ("logits_processors", "a:B c:D", ["a:B", "c:D"]),
        ("cudagraph_capture_sizes", "[1, 2]", [1, 2]),
        ("quantization", "none", None),
        ("quantization", "FP8", "FP8"),
        ("hf_token", "true", True),
        ("enable_mm_processor_stats", "true", True),
    ],
)  # fmt: skip
def test_typed(name: str, text: str, value: object) -> None:
    from vllm import EngineArgs

    taken = arguments(**{name: text})
    assert taken[name] == value
    # Offline, vLLM looks for the model in its cache unless it is a path that exists.
    EngineArgs(**{**taken, "model": str(Path(__file__).parent)})


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("load_fromat", "dummy", "did you mean option.load_format?"),
        ("minWorker", "1", "did you mean option.minWorkers?"),
        ("max_model_len", "long", "option.max_model_len: expected an integer, got 'long'"),
        ("gpu_memory_utilization", "much", "expected a number"),
        (
            "max_rolling_batch_prefill_tokens",
            "many",
            "option.max_rolling_batch_prefill_tokens: expected an integer",
        ),
        ("kv_cache_dtype", "int3", "one of auto, "),
        ("quantize", "awqq", "option.quantize: expected a method of vLLM's, one of "),
        ("quantization", "fp88", "got 'fp88'; did you mean fp8?"),
        ("disable_log_stats", "1", "true or false"),
        ("compilation_config", "{x", "what vLLM takes"),
        ("structured_outputs_config", "[]", "option.structured_outputs_config"),
        ("_api_process_count", "2", "no such option"),
        ("no_such_thing_at_all", "2", "no such option"),
    ],
)
def test_refused(name: str, text: str, said: str) -> None:
    assert said in refused(**{name: text})


@pytest.mark.parametrize(("name", "text"), [("load_in_4bit", "true"), ("quantize", "BitsAndBytes")])
def test_4_bits_are_bitsandbytes_where_that_is(name: str, text: str) -> None:
    """vLLM 0.26.0 has that method, and needs the package; 0.28.0 has it no more."""
    from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS

    if "bitsandbytes" not in QUANTIZATION_METHODS:
        message = refused(**{name: text})
        assert message.startswith(f"option.{name}: vLLM ")
        assert message.endswith("or write option.quantize=fp8")
    elif importlib.util.find_spec("bitsandbytes") is None:
        assert refused(**{name: text}) == (f"option.{name}: requires the package bitsandbytes, which is not installed")
    else:
        assert arguments(**{name: text})["quantization"].lower() == "bitsandbytes"


@pytest.mark.parametrize("given", [{"backend": "transformers"}, {"rolling_batch": "hf-accelerate"}], ids=str)
def test_whose_modelling(given: dict[str, str]) -> None:
    assert arguments(**given)["model_impl"] == "transformers"
    assert "model_impl" not in arguments()


def test_all_faults_in_one_message() -> None:
    assert refused(max_model_len="long", load_fromat="dummy").startswith("2 options are wrong")


def test_a_users_own_bare_keys_are_ignored(tmp_path: Path) -> None:
    from lmi.model.vllm.options import engine_arguments

    tmp_path.joinpath("serving.properties").write_text("mine=1\nseed=5")
    taken = engine_arguments(make_settings(tmp_path))
    assert "mine" not in taken
    assert taken["seed"] == 5


NAMED = [
    ({"max_num_batched_tokens": "foo"}, {}, "option.max_num_batched_tokens", "max_num_batched_tokens"),
    ({"max_rolling_batch_prefill_tokens": "foo"}, {}, "option.max_rolling_batch_prefill_tokens",
     "max_rolling_batch_prefill_tokens"),
    ({}, {"OPTION_MAX_NUM_BATCHED_TOKENS": "foo"}, "OPTION_MAX_NUM_BATCHED_TOKENS", "max_num_batched_tokens"),
    ({}, {"ARGS_MAX_NUM_BATCHED_TOKENS": "foo"}, "ARGS_MAX_NUM_BATCHED_TOKENS", "max_num_batched_tokens"),
    ({}, {"SM_VLLM_MAX_NUM_BATCHED_TOKENS": "foo"}, "SM_VLLM_MAX_NUM_BATCHED_TOKENS", "max_num_batched_tokens"),
    ({"quantization": "nosuch"}, {}, "option.quantization", "quantization"),
    ({}, {"OPTION_QUANTIZATION": "nosuch"}, "OPTION_QUANTIZATION", "quantization"),
    ({"max_num_batched_tokens": "64", "enable_lora": "true", "speculative_draft_model": "ngram"}, {},
     "option.max_num_batched_tokens", "max_num_batched_tokens"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "environment", "called", "name"), NAMED, ids=str)
def test_the_name_that_was_given(
    tmp_path: Path, options: dict[str, str], environment: dict[str, str], called: str, name: str
) -> None:
    """Of several that an option has, and the variable where it came from one."""
    from lmi.model.vllm.options import engine_arguments

    asked = load_settings(tmp_path, environment=environment, overrides=options)
    with pytest.raises(OptionError) as caught:
        engine_arguments(asked)
    caught.value.come_from(asked.sources)
    assert caught.value.message.startswith(f"{called}: ")
    assert caught.value.param == name
