"""Configurations that LMI's container (djl-serving 0.36) accepts, typed from its own tests and guides.

Left out is the model's name: what DJL Serving downloads lies in the model directory; the entry point is this handler's,
as docs/migrating.md says. What the tests' builder adds to each (build_vllm_async_model and so on) is among the entries.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["CONFIGURATIONS", "FAMILIES", "Configuration"]

PREPARE = "tests/integration/llm/prepare.py"
GUIDES = "serving/docs/lmi/user_guides"
ASYNC = {"engine": "Python", "option.rolling_batch": "disable", "option.async_mode": "true"}
"""As build_vllm_async_model_custom_formatters; the plain one leaves the mode to Java."""
LMCACHE = '{"kv_connector":"LMCacheConnectorV1", "kv_role":"kv_both"}'

FAMILIES = {
    "bert": ("BertModel", "bert"),
    "bloom": ("BloomForCausalLM", "bloom"),
    "deepseek": ("Qwen2ForCausalLM", "qwen2"),
    "gpt-j": ("GPTJForCausalLM", "gptj"),
    "gpt-neox": ("GPTNeoXForCausalLM", "gpt_neox"),
    "gpt-oss": ("GptOssForCausalLM", "gpt_oss"),
    "llama": ("LlamaForCausalLM", "llama"),
    "minimax": ("MiniMaxM2ForCausalLM", "minimax_m2"),
    "mistral": ("MistralForCausalLM", "mistral"),
    "phi3-v": ("Phi3VForCausalLM", "phi3_v"),
    "qwen3": ("Qwen3ForCausalLM", "qwen3"),
    "qwen3-vl": ("Qwen3VLForConditionalGeneration", "qwen3_vl"),
    "t5": ("T5ForConditionalGeneration", "t5"),
}
"""The architecture and the type of each family in config.json."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """One of upstream's."""

    name: str
    source: str
    """File and key."""
    family: str
    entries: dict[str, str] = field(default_factory=dict[str, str])
    """Of serving.properties."""
    environment: dict[str, str] = field(default_factory=dict[str, str])
    adapters: tuple[str, ...] = ()
    """Their folders in `adapters`."""
    files: dict[str, str] = field(default_factory=dict[str, str])
    """Further ones of the model directory."""
    refused: frozenset[str] = frozenset()
    """The options that `lmi check` refuses."""


def _of(*names: str) -> frozenset[str]:
    return frozenset(names)


# fmt: off
CONFIGURATIONS = (
    Configuration(
        "rolling batch", f"{GUIDES}/vllm_user_guide.md, Rolling Batch Configurations", "llama",
        {"engine": "Python", "option.tensor_parallel_degree": "max", "option.rolling_batch": "vllm",
         "option.max_rolling_batch_size": "64"},
    ),
    Configuration(
        "async mode", f"{PREPARE}, handler_performance_model_list: tiny-llama-vllm", "llama",
        {"engine": "Python", "option.rolling_batch": "disable", "option.async_mode": "True",
         "option.gpu_memory_utilization": "0.9", "option.max_rolling_batch_size": "512"},
    ),
    Configuration(
        "half precision", f"{PREPARE}, vllm_model_list: llama2-7b-chat", "llama",
        {"engine": "Python", "option.task": "text-generation", "option.dtype": "fp16",
         "option.tensor_parallel_degree": "4", "option.max_rolling_batch_size": "4"},
    ),
    Configuration(
        "AWQ", f"{PREPARE}, vllm_model_list: llama2-13b-awq", "llama",
        {"engine": "Python", "option.quantize": "awq", "option.tensor_parallel_degree": "4"},
    ),
    Configuration(
        "EAGLE3 by the environment", f"{GUIDES}/vllm_user_guide.md, EAGLE3 Speculative Decoding for GPT-OSS 20B",
        "gpt-oss",
        environment={
            "OPTION_SPECULATIVE_CONFIG": '{"method": "eagle3", "model":"zhuyksirEAGLE3-gpt-oss-20b-bf16", '
                                         '"num_speculative_tokens": 4}',
            "OPTION_TENSOR_PARALLEL_DEGREE": "1", "OPTION_MAX_ROLLING_BATCH_SIZE": "4",
        },
    ),
    Configuration(
        "a draft model", "engines/python/setup/djl_python/properties_manager/properties.py: draft_model_id", "llama",
        {"engine": "Python", "option.rolling_batch": "trtllm", "option.draft_model_id": "owner/draft",
         "option.spec_length": "5"},
    ),
    Configuration(
        "LoRA", f"{PREPARE}, vllm_model_list: llama3-8b-unmerged-lora", "llama",
        {"engine": "Python", "option.tensor_parallel_degree": "max", "option.enable_lora": "true",
         "option.max_loras": "2", "option.max_lora_rank": "64", "option.long_lora_scaling_factors": "4.0",
         "option.adapters": "adapters", "option.gpu_memory_utilization": "0.8"},
        adapters=("medical", "exam"),
    ),
    Configuration(
        "more adapters than fit", f"{PREPARE}, vllm_model_list: llama-7b-unmerged-lora-overflow", "llama",
        {"engine": "Python", "option.rolling_batch": "vllm", "option.tensor_parallel_degree": "max",
         "option.enable_lora": "true", "option.max_loras": "6", "option.max_cpu_loras": "8",
         "option.adapters": "adapters", "option.gpu_memory_utilization": "0.8"},
        adapters=tuple(f"english-alpaca-{number}" for number in range(20)),
    ),
    Configuration(
        "LoRA on GPTQ", f"{PREPARE}, vllm_model_list: mistral-7b-gptq-unmerged-lora", "mistral",
        {"engine": "Python", "option.tensor_parallel_degree": "max", "option.quantize": "gptq", "option.dtype": "fp16",
         "option.enable_lora": "true", "option.max_loras": "2", "option.max_lora_rank": "64",
         "option.long_lora_scaling_factors": "4.0", "option.lora_dtype": "float16", "option.adapters": "adapters",
         "option.gpu_memory_utilization": "0.8"},
        adapters=("spanish", "german"),
    ),
    Configuration(
        "Mistral's tokenizer", f"{PREPARE}, vllm_model_list: pixtral-12b", "mistral",
        {"engine": "Python", "option.max_model_len": "8192", "option.max_rolling_batch_size": "16",
         "option.tokenizer_mode": "mistral", "option.limit_mm_per_prompt": '{"image": 4}'},
    ),
    Configuration(
        "no videos", f"{PREPARE}, vllm_model_list: qwen3-vl-32b-instruct", "qwen3-vl",
        {"engine": "Python", "option.task": "text-generation", "option.tensor_parallel_degree": "8",
         "option.max_rolling_batch_size": "4", "option.trust_remote_code": "True",
         "option.limit_mm_per_prompt": '{"image": 4, "video": 0}'},
    ),
    Configuration(
        "tool calls by the environment", f"{GUIDES}/tool_calling.md, Deploying with LMI", "llama",
        environment={"OPTION_ENABLE_AUTO_TOOL_CHOICE": "true", "OPTION_TOOL_CALL_PARSER": "llama3_json",
                     "OPTION_ROLLING_BATCH": "vllm", "HF_TOKEN": "***"},
    ),
    Configuration(
        "reasoning", f"{PREPARE}, vllm_model_list: deepseek-r1-distill-qwen-1-5b", "deepseek",
        {"engine": "Python", "option.tensor_parallel_degree": "1", "option.max_rolling_batch_size": "4",
         "option.enable_reasoning": "True", "option.reasoning_parser": "deepseek_r1"},
    ),
    Configuration(
        "expert parallelism", f"{GUIDES}/vllm_user_guide.md, Minimax M2", "minimax",
        environment={"OPTION_TENSOR_PARALLEL_DEGREE": "max", "OPTION_ENABLE_EXPERT_PARALLEL": "true",
                     "OPTION_MAX_ROLLING_BATCH_SIZE": "128", "OPTION_MAX_MODEL_LEN": "16384",
                     "OPTION_GPU_MEMORY_UTILIZATION": "0.9"},
    ),
    Configuration(
        "formatters", f"{PREPARE}, build_vllm_async_model_with_example_formatter: gpt-neox-20b-custom", "gpt-neox",
        {**ASYNC, "option.task": "text-generation", "option.tensor_parallel_degree": "4"},
        files={"model.py": "from djl_python.output_formatter import output_formatter\n\n\n"
                           "@output_formatter\ndef custom_output_formatter(output, **kwargs):\n    return output\n"},
    ),
    Configuration(
        "a handle of the user's", f"{PREPARE}, build_vllm_async_model_with_custom_handler: gpt-neox-20b-custom",
        "gpt-neox", {**ASYNC, "option.task": "text-generation", "option.tensor_parallel_degree": "4"},
        files={"model.py": "async def handle(inputs):\n    return None\n"},
    ),
    Configuration(
        "sessions", f"{PREPARE}, build_stateful_model: llama3-8b", "llama",
        {**ASYNC, "option.task": "text-generation", "option.tensor_parallel_degree": "4",
         "option.max_rolling_batch_size": "32", "option.enable_stateful_sessions": "true",
         "option.sessions_path": "/tmp/djl_sessions"},
    ),
    Configuration(
        "LMCache", f"{PREPARE}, vllm_model_list: llama3-8b-lmcache-cpu", "llama",
        {"engine": "Python", "option.tensor_parallel_degree": "4", "option.lmcache_config_file": "lmcache_cpu.yaml",
         "option.kv_transfer_config": LMCACHE},
        files={"lmcache_cpu.yaml": "chunk_size: 256\nlocal_cpu: true\nmax_local_cpu_size: 5.0\n"},
    ),
    Configuration(
        "LMCache by itself", "serving/docs/lmcache_performance.md", "qwen3",
        environment={"OPTION_LMCACHE_AUTO_CONFIG": "True"},
    ),
    Configuration(
        "tokens that nobody reads", f"{PREPARE}, vllm_model_list: qwen3-8b-vllm-prefix-cache", "qwen3",
        {"engine": "Python", "option.tensor_parallel_degree": "1", "option.load_format": "dummy",
         "option.max_new_tokens": "100", "option.enable_prefix_caching": "True", "load_on_devices": "0"},
        refused=_of("max_new_tokens"),
    ),
    Configuration(
        "TGI's answers", f"{GUIDES}/lmi_input_output_schema.md, Response with TGI compatibility", "llama",
        environment={"OPTION_TGI_COMPAT": "true", "TENSOR_PARALLEL_DEGREE": "max", "OPTION_ROLLING_BATCH": "vllm"},
    ),
    Configuration(
        "JSON lines", "serving/docs/lmi/deployment_guide/configurations.md, option.output_formatter", "llama",
        {"engine": "Python", "job_queue_size": "1000", "option.output_formatter": "jsonlines",
         "option.rolling_batch": "auto", "option.parallel_loading": "true", "option.model_loading_timeout": "1800"},
    ),
    Configuration(
        "vectors", f"{GUIDES}/embedding-user-guide.md, vLLM", "bert",
        {**ASYNC, "option.task": "text-embedding"},
    ),
    Configuration(
        "vectors without a task", f"{PREPARE}, text_embedding_model_list: e5-small-vllm", "bert",
        {**ASYNC, "option.max_rolling_batch_size": "8"}, refused=_of("task"),
    ),
    Configuration(
        "lmi-dist", "wlm/src/main/java/ai/djl/serving/wlm/LmiConfigRecommender.java, setRollingBatch", "llama",
        {"engine": "Python", "option.rolling_batch": "lmi-dist", "option.mpi_mode": "false"},
    ),
    Configuration(
        "transformers", f"{PREPARE}, build_hf_handler_model: gpt-j-6b", "gpt-j",
        {"engine": "Python", "option.task": "text-generation", "option.tensor_parallel_degree": "2",
         "option.device_map": "auto", "option.dtype": "fp16", "option.predict_timeout": "240",
         "option.rolling_batch": "disable"},
    ),
    Configuration(
        "transformers, 8 bits", f"{PREPARE}, build_hf_handler_model: bloom-7b1", "bloom",
        {"engine": "Python", "option.tensor_parallel_degree": "4", "option.task": "text-generation",
         "option.load_in_8bit": "TRUE", "option.device_map": "auto", "option.predict_timeout": "240",
         "option.rolling_batch": "disable"}, refused=_of("load_in_8bit"),
    ),
    Configuration(
        "TensorRT-LLM", f"{GUIDES}/trt_llm_user_guide.md, Quick Start Configurations", "llama",
        {"engine": "Python", "option.mpi_mode": "true", "option.tensor_parallel_degree": "max",
         "option.max_num_tokens": "50000"}, refused=_of("mpi_mode"),
    ),
    Configuration(
        "TensorRT-LLM's limits", f"{PREPARE}, trtllm_handler_list: gpt-j-6b", "gpt-j",
        {"option.tensor_parallel_degree": "1", "option.max_input_len": "256", "option.max_output_len": "256",
         "option.max_rolling_batch_size": "16", "option.rolling_batch": "disable", "option.async_mode": "True"},
        refused=_of("max_input_len", "max_output_len"),
    ),
    Configuration(
        "TensorRT-LLM's quantization", f"{PREPARE}, trtllm_handler_list: llama2-7b-smoothquant", "llama",
        {"option.tensor_parallel_degree": "4", "option.quantize": "smoothquant", "option.rolling_batch": "disable",
         "option.smoothquant_per_token": "True", "option.smoothquant_per_channel": "True", "option.async_mode": "True"},
        refused=_of("quantize", "smoothquant_per_token", "smoothquant_per_channel"),
    ),
    Configuration(
        "TensorRT-LLM's scheduler", f"{PREPARE}, trtllm_handler_list: flan-t5-xl", "t5",
        {"option.dtype": "bf16", "option.max_rolling_batch_size": "128", "option.rolling_batch": "disable",
         "option.async_mode": "True", "option.batch_scheduler_policy": "guaranteed_no_evict"},
        refused=_of("batch_scheduler_policy"),
    ),
    Configuration(
        "Neo's quantization", f"{PREPARE}, vllm_neo_model_list: llama-3.1-8b-fp8-options", "llama",
        {"option.quantize": "fp8", "option.tensor_parallel_degree": "4", "option.fp8_scheme": "FP8_DYNAMIC"},
        refused=_of("fp8_scheme"),
    ),
    Configuration(
        "the fast model loader", f"{PREPARE}, vllm_neo_model_list: tiny-llama-lora-fml", "llama",
        {"option.tensor_parallel_degree": "2", "option.load_format": "sagemaker_fast_model_loader",
         "option.adapters": "adapters", "option.enable_lora": "true", "option.max_lora_rank": "64"},
        adapters=("tarot",), refused=_of("load_format"),
    ),
)
# fmt: on
