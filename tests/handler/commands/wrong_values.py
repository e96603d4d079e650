"""Configurations, wrong and right, for `lmi check` and for a start: each option by its kind, and what goes wrong
between options, models and machines.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...kit.adapters import write_adapter
from ...kit.api.options import OPTIONS, Option
from ...kit.faults.start_faults import configured, nothing, without

__all__ = ["BETWEEN", "Case", "single_options"]

OF_KIND = {
    "bool": ("perhaps",), "int": ("many",), "float": ("much",), "str": ("nosuch",), "choice": ("nosuch",),
    "json": ("{", "[0]"), "list": ("[0",), "engine": ("nosuch", "-2"), "reference": ("no such", "nosuch:thing"),
}  # fmt: skip
"""Values that are none of a kind, or may be none."""


def single_options() -> Iterator[tuple[str, str]]:
    """Of each option of the table values by its kind, of which most are wrong, by themselves."""
    for option in OPTIONS:
        if option.owner in {"handler", "engine"}:
            yield from ((option.name, text) for text in dict.fromkeys(_values(option)))


def _values(option: Option) -> Iterator[str]:
    yield from OF_KIND[option.kind]
    yield from option.unsupported_values
    if option.ge is not None:
        yield f"{option.ge - 1:g}"
    if option.kind == "bool":
        yield "false" if option.default == "true" else "true"
    # A right one of several: each takes a configuration of vLLM's.
    yield from option.choices[-1:]


@dataclass(frozen=True, slots=True)
class Case:
    """One of several options, or of a model."""

    options: Mapping[str, str] = field(default_factory=dict[str, str])
    refused: str | None = None
    """The option that is named; empty: it is refused, and no option is to blame. None: it is served."""
    change: Callable[[Path], Any] = nothing
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    everywhere: bool = True
    """Whether every version of vLLM refuses it."""


def text(name: str, said: str) -> Callable[[Path], Any]:
    """A file more."""

    def change(directory: Path) -> None:
        directory.joinpath(name).write_text(said)

    return change


def coded(said: str) -> Callable[[Path], Any]:
    """An adapter with a model.py."""

    def change(directory: Path) -> None:
        config = json.loads((directory / "config.json").read_text())
        write_adapter(directory / "adapters" / "a", config).joinpath("model.py").write_text(said)

    return change


NGRAM = {"speculative_draft_model": "ngram"}
HOSTS = {"nnodes": "2", "master_addr": "127.0.0.1", "tensor_parallel_degree": "4"}
LORA = {"enable_lora": "true"}
PARSER = "from vllm.tool_parsers import ToolParserManager\n"

BETWEEN = {
    # Sizes.
    "nothing": Case(),
    "a longer context than the model's": Case({"max_model_len": "100000"}, "max_model_len"),
    "a context that fits": Case({"max_model_len": "1k"}),
    "heads and devices": Case({"tensor_parallel_degree": "3"}, "tensor_parallel_degree"),
    "more devices than there are": Case({"tensor_parallel_degree": "16"}, "tensor_parallel_degree"),
    "more stages than devices": Case(
        {"tensor_parallel_degree": "8", "pipeline_parallel_degree": "3"}, "tensor_parallel_degree"
    ),
    "devices and copies": Case({"data_parallel_size": "3"}, "data_parallel_size"),
    "copies": Case({"data_parallel_size": "2"}),
    "a share of memory above 1": Case({"gpu_memory_utilization": "1.5"}, "gpu_memory_utilization"),
    "a step below the batch": Case(
        {"max_num_batched_tokens": "64", "max_num_seqs": "128"}, "max_num_batched_tokens"
    ),
    "a step below the context, in one piece": Case(
        {"max_num_batched_tokens": "512", "enable_chunked_prefill": "false"}, "max_num_batched_tokens"
    ),
    "experts of a model without": Case({"enable_expert_parallel": "true"}, "enable_expert_parallel"),
    # Weights.
    "AWQ of a model that is not": Case({"quantize": "awq"}, "quantize"),
    "fp8 of floats": Case({"quantize": "fp8", "dtype": "fp32"}, "quantize"),
    "fp8": Case({"quantize": "fp8"}),
    "a type of the cache": Case({"kv_cache_dtype": "fp8"}),
    "a method of quantization": Case({"quantize": "nosuch"}, "quantize"),
    "GPTQ in config.json, AWQ in the options": Case(
        {"quantize": "awq"}, "quantize", configured(quantization_config={"quant_method": "gptq", "bits": 4})
    ),
    # Speculative decoding.
    "n-grams": Case(NGRAM),
    "a draft model that is not there": Case({"speculative_draft_model": "/no/such"}, "speculative_draft_model"),
    "no number of drafted tokens": Case({"speculative_config": '{"method": "ngram"}'}, "speculative_config"),
    "a method of drafting": Case(
        {"speculative_config": '{"method": "nosuch", "num_speculative_tokens": 2}'}, "speculative_config"
    ),
    "a field of drafting": Case({"speculative_config": '{"nosuch": 1}'}, "speculative_config"),
    "typical_p and drafts": Case({**NGRAM, "enable_typical_p": "true"}, "enable_typical_p", everywhere=False),
    # Tasks.
    "vectors": Case({"task": "text-embedding"}),
    "vectors that are drafted": Case({**NGRAM, "task": "text-embedding"}, "speculative_draft_model"),
    "ranks by no tokens": Case({"task": "text-ranking"}, "hf_overrides"),
    "a reranker of another family": Case({"task": "text-ranking", "reranker": "qwen3"}, "reranker"),
    "a head for classes generates": Case({}, "task", configured(architectures=["LlamaForSequenceClassification"])),
    "classes": Case(
        {"task": "text-classification"}, None, configured(architectures=["LlamaForSequenceClassification"])
    ),
    "a pooler that does not fit": Case(
        {"task": "text-embedding", "pooler_config": '{"pooling_type": "NOSUCH"}'}, "pooler_config"
    ),
    # Parsers, templates.
    "gpt-oss's parser of calls": Case({"tool_call_parser": "openai"}, "tool_call_parser"),
    "gpt-oss's parser of reasoning": Case({"reasoning_parser": "openai_gptoss"}, "reasoning_parser"),
    "a parser of calls": Case({"tool_call_parser": "hermes"}),
    "a parser of reasoning without its tokens": Case({"reasoning_parser": "qwen3"}),
    "Mistral's parser of calls": Case({"tool_call_parser": "mistral"}, "tool_call_parser"),
    "Mistral's tokenizer without its file": Case({"tokenizer_mode": "mistral"}, "tokenizer"),
    "calls without a parser": Case({"enable_auto_tool_choice": "true"}, "enable_auto_tool_choice"),
    "a file that registers nothing": Case(
        {"tool_parser_plugin": "mine.py", "tool_call_parser": "mine"}, "tool_call_parser", text("mine.py", PARSER)
    ),
    "a file that fails": Case({"tool_parser_plugin": "mine.py"}, "tool_parser_plugin", text("mine.py", "1/0\n")),
    "a template that is none": Case({"chat_template": "{% for x in messages %}"}, "chat_template"),
    "a template that is not there": Case({"chat_template": "nosuch.jinja"}, "chat_template"),
    "a template": Case({"chat_template": "{{ messages[0].content }}"}),
    "a variable of nobody's": Case(
        {"default_chat_template_kwargs": '{"tokenize": true}'}, "default_chat_template_kwargs"
    ),
    "guides by nobody": Case({"structured_outputs_config": '{"backend": "nosuch"}'}, "structured_outputs_config"),
    "guides": Case({"structured_outputs_config": '{"backend": "guidance"}'}),
    # Caches.
    "a connector without a role": Case(
        {"kv_transfer_config": '{"kv_connector": "OffloadingConnector"}'}, "kv_transfer_config"
    ),
    "LMCache, which is not installed": Case({"lmcache_auto_config": "true"}, "lmcache_auto_config"),
    "LMCache's file": Case({"lmcache_config_file": "nosuch.yaml"}, "lmcache_config_file"),
    "the machine's memory": Case({"kv_offloading_size": "1"}),
    # Hosts.
    "no address": Case({"nnodes": "2"}, "master_addr"),
    "a leader": Case(HOSTS),
    "a follower": Case({**HOSTS, "node_rank": "1"}),
    "a host too many": Case({**HOSTS, "node_rank": "2"}, "node_rank"),
    "heads and hosts": Case({**HOSTS, "tensor_parallel_degree": "3"}, "tensor_parallel_degree"),
    # Adapters.
    "adapters": Case(LORA),
    "a rank": Case({**LORA, "max_lora_rank": "7"}, "max_lora_rank"),
    "more slots than memory": Case({**LORA, "max_loras": "4", "max_cpu_loras": "2"}, "max_cpu_loras"),
    "a folder of no adapter": Case({**LORA, "lora_modules": "a=nosuch"}, "adapters"),
    "a broken adapter": Case(LORA, "adapters", lambda path: (path / "adapters" / "a").mkdir(parents=True)),
    "code of an adapter that fails": Case(LORA, "adapters", coded("1/0\n")),
    "code of an adapter": Case(LORA, None, coded("")),
    "a cache of adapters": Case({**LORA, "lora_cache_dir": "nosuch"}, "lora_cache_dir"),
    "a type of adapters": Case({**LORA, "lora_dtype": "float64"}, "lora_dtype"),
    "adapters of images of a model without": Case(
        {**LORA, "default_mm_loras": '{"image": "a"}'}, "adapters"
    ),
    "drafts, adapters, a small step": Case(
        {**LORA, **NGRAM, "max_num_batched_tokens": "512"}, "max_num_batched_tokens"
    ),
    # What vLLM alone knows.
    "images of a model without": Case({"limit_mm_per_prompt": '{"image": 1}'}),
    "an architecture by hf_overrides": Case(
        {"hf_overrides": '{"architectures": ["NosuchForCausalLM"]}'}, "hf_overrides"
    ),
    "a mode of compilation": Case({"compilation_config": '{"mode": 9}'}, "compilation_config"),
    "a backend of attention": Case({"attention_backend": "nosuch"}, "attention_backend"),
    "an argument that is no more": Case({"num_scheduler_steps": "4"}, "num_scheduler_steps"),
    "an argument of nobody's": Case({"nosuch": "1"}, "nosuch"),
    # The model's files.
    "no config": Case({}, "model_id", without("config.json")),
    "no tokenizer": Case({}, "model_id", without("*token*")),
    "no weights": Case({}, "model_id", without("*.safetensors")),
    "a broken tokenizer": Case({}, "", text("tokenizer.json", "{}")),
    "an architecture": Case({}, "model_id", configured(architectures=["NosuchForCausalLM"])),
    "a type": Case({}, "model_id", configured(model_type="nosuch", architectures=["NosuchForCausalLM"])),
    "code of the model's": Case(
        {}, "trust_remote_code", configured(model_type="nosuch", auto_map={"AutoConfig": "my.Config"})
    ),
    "heads that cannot be shared out": Case(
        {"tensor_parallel_degree": "2"}, "tensor_parallel_degree", configured(num_key_value_heads=3)
    ),
    # User code, sessions, secure mode.
    "a formatter": Case({"output_formatter": "nosuch:thing"}, "output_formatter"),
    "model.py": Case({}, "model.py", text("model.py", "1/0\n")),
    "an engine": Case({"backend": "mine:Engine"}, "backend", text("mine.py", "class Other: pass\n")),
    "a folder of sessions": Case({"sessions_path": "/proc/nosuch"}, "sessions_path"),
    "what secure mode forbids": Case(
        {"trust_remote_code": "true"}, "trust_remote_code", nothing,
        {"SAGEMAKER_SECURE_MODE": "true", "SAGEMAKER_SECURITY_CONTROLS": "DISALLOW_TRUST_REMOTE_CODE"},
    ),
    # Variables.
    "a variable of DJL's": Case({}, "max_model_len", nothing, {"OPTION_MAX_MODEL_LEN": "100000"}),
    "a variable of vLLM's image": Case({}, "max_model_len", nothing, {"SM_VLLM_MAX_MODEL_LEN": "100000"}),
}  # fmt: skip
"""By what is wrong, or what it is."""
