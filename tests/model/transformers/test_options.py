"""The arguments of the transformers engine, which need no library to be judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lmi.model.transformers.options import Arguments, transformers_arguments

from ...kit.api.errors import OptionError
from ...kit.api.options import make_settings


def arguments(**properties: str) -> Arguments:
    return transformers_arguments(make_settings(**{"rolling_batch": "scheduler", **properties}))


def refused(**properties: str) -> str:
    with pytest.raises(OptionError) as caught:
        arguments(**properties)
    assert "\n" not in caught.value.message
    return caught.value.message


def test_defaults() -> None:
    assert arguments() == Arguments()
    assert arguments().given == {}


# An option as it is given, the field of Arguments, its value.
TAKEN: list[tuple[str, str, str, Any]] = [
    ("max_model_len", "2k", "max_model_len", 2000),
    ("max_model_len", "4K", "max_model_len", 4096),
    ("max_model_len", "512", "max_model_len", 512),
    ("max_model_len", "auto", "max_model_len", None),
    ("kv_cache_memory_bytes", "64M", "kv_cache_memory_bytes", 64 << 20),
    ("kv_cache_memory_bytes", "1.5g", "kv_cache_memory_bytes", 1_500_000_000),
    ("gpu_memory_utilization", "0.5", "gpu_memory_utilization", 0.5),
    ("max_num_batched_tokens", "512", "max_num_batched_tokens", 512),
    ("max_rolling_batch_prefill_tokens", "512", "max_num_batched_tokens", 512),
    ("tokenizer", "other", "tokenizer", "other"),
    ("max_logprobs", "5", "max_logprobs", 5),
    ("seed", "7", "seed", 7),
    ("attn_implementation", "eager", "attn_implementation", "eager"),
    ("generation_config", "vllm", "generation_config", "vllm"),
    ("structured_outputs_config", '{"disable_any_whitespace": true}', "any_whitespace", False),
    ("quantize", "bitsandbytes8", "bits", 8),
    ("quantization", "bitsandbytes4", "bits", 4),
    ("load_in_8bit", "true", "bits", 8),
    ("load_in_4bit", "true", "bits", 4),
    ("quantize", "none", "bits", None),
]


@pytest.mark.parametrize(("name", "text", "field", "value"), TAKEN)
def test_taken(name: str, text: str, field: str, value: object) -> None:
    assert getattr(arguments(**{name: text}), field) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("enforce_eager", "true"), ("enforce_eager", "false"), ("enable_prefix_caching", "false"),
        ("load_format", "auto"), ("load_format", "safetensors"), ("tokenizer_mode", "auto"), ("runner", "generate"),
        ("convert", "none"), ("cpu_offload_gb_per_gpu", "0"), ("speculative_config", "none"),
        ("pipeline_parallel_degree", "1"), ("tensor_parallel_degree", "2"), ("low_cpu_mem_usage", "true"),
        ("max_rolling_batch_size", "8"), ("revision", "main"), ("enable_chunked_prefill", "false"),
    ],
)  # fmt: skip
def test_no_fault_and_no_effect(name: str, text: str) -> None:
    assert arguments(**{name: text}) == Arguments()


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("speculative_config", '{"method": "ngram"}', "option.speculative_config: the transformers engine takes"),
        ("enable_prefix_caching", "true", "option.enable_prefix_caching: the transformers engine takes one of false"),
        ("limit_mm_per_prompt", '{"image": 4}', "option.limit_mm_per_prompt: the transformers engine has no"),
        ("stream_interval", "3", "option.stream_interval: the transformers engine has no such option"),
        ("load_format", "dummy", "option.load_format"),
        ("tokenizer_mode", "mistral", "option.tokenizer_mode"),
        ("kv_transfer_config", "{}", "option.kv_transfer_config"),
        ("cpu_offload_gb", "4", "option.cpu_offload_gb"),
        ("tool_call_parser", "hermes", "the transformers engine does not parse responses, vLLM does"),
        ("reasoning_parser", "qwen3", "the transformers engine does not parse responses, vLLM does"),
        ("pipeline_parallel_degree", "2", "option.pipeline_parallel_degree"),
        ("quantize", "awq", "option.quantize: the transformers engine takes bitsandbytes8 or bitsandbytes4"),
        ("max_model_len", "long", "an integer, got 'long'"),
        ("max_model_len", "0", "an integer of at least 1"),
        ("max_model_len", "1.5K", "an integer"),
        ("gpu_memory_utilization", "2", "a number above 0, up to 1"),
        ("max_logprobs", "-1", "an integer of at least 0"),
        ("structured_outputs_config", "[]", "a JSON object"),
        ("structured_outputs_config", '{"backend": "guidance"}', "xgrammar as backend"),
        ("structured_outputs_config", '{"reasoning_parser": "x"}', "not reasoning_parser"),
        ("attn_implementatoin", "eager", "did you mean option.attn_implementation?"),
    ],
)  # fmt: skip
def test_refused(name: str, text: str, said: str) -> None:
    message = refused(**{name: text})
    assert said in message
    assert f"option.{name}" in message or name == "cpu_offload_gb"


def test_all_faults_in_one_message() -> None:
    message = refused(max_model_len="long", stream_interval="3", load_in_8bit="true", quantize="bitsandbytes4")
    assert message.startswith("3 options are wrong")
    assert "option.load_in_8bit: contradicts" in message


def test_as_second_choice_what_only_vllm_has_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    given = {
        "backend": "auto", "stream_interval": "3", "enable_prefix_caching": "true", "max_model_len": "64",
        "tool_call_parser": "hermes",
    }  # fmt: skip
    taken = transformers_arguments(make_settings(**given))
    assert taken == Arguments(max_model_len=64)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.endswith("option.stream_interval, option.enable_prefix_caching, option.tool_call_parser")
    with pytest.raises(OptionError, match="an integer"):
        transformers_arguments(make_settings(**{**given, "max_model_len": "long"}))


def test_a_users_own_bare_keys_are_ignored(tmp_path: Path) -> None:
    tmp_path.joinpath("serving.properties").write_text("mine=1\noption.rolling_batch=scheduler\nseed=5")
    taken = transformers_arguments(make_settings(tmp_path))
    assert taken == Arguments(seed=5)
