"""What of LMI's serving.properties means something else here: the table of `lmi migrate`.

Sources: djl-serving 0.36 (LmiConfigRecommender, djl_python's properties of vLLM, TensorRT-LLM and Hugging Face, the LMI
user guides). What this table does not name stays as it is, and `lmi check` judges it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from ...model.options.environment.vllm_image import PREFIX

__all__ = ["ASYNC_MODE", "ENTRY_POINT", "JAVAS", "RULES", "STAYS", "Rule"]

ENTRY_POINT = "lmi.handler"
ASYNC_MODE = {"option.rolling_batch": "disable", "option.async_mode": "true", "retry_threshold": "10"}
"""The mode for a configuration that has none of LMI's."""

JAVAS = {
    "SERVING_JOB_QUEUE_SIZE": "job_queue_size",
    "SERVING_BATCH_SIZE": "batch_size",
    "SERVING_MAX_BATCH_DELAY": "max_batch_delay",
    "SERVING_MAX_IDLE_TIME": "max_idle_time",
    "SERVING_MIN_WORKERS": "minWorkers",
    "SERVING_MAX_WORKERS": "maxWorkers",
    "SERVING_LOAD_ON_DEVICES": "load_on_devices",
    "SERVING_RETRY_THRESHOLD": "retry_threshold",
}
"""DJL Serving's variables that a model's own file says as well, with their keys there."""
STAYS = re.compile(rf"(?!OPTION_|ARGS_|{PREFIX}).*")
"""Names that nothing above takes: they are for DJL Serving, the hub's client, vLLM or CUDA, and stay where they are."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What becomes of a key with a value."""

    key: str
    """A pattern: DJL Serving's own keys as they are, options without `option.`."""
    why: str
    """For the comment; {value} is what was given."""
    becomes: tuple[tuple[str, str], ...] = ()
    """Entries that take its place; none drop it."""
    value: str = ".*"
    """A pattern."""
    fate: Literal["mapped", "dropped", "refused", "kept"] = "mapped"


def _without_effect(keys: str, why: str) -> Rule:
    return Rule(keys, why, fate="dropped")


_TRTLLM = "TensorRT-LLM's own: vLLM does without"

RULES = (
    Rule("entryPoint", "this handler takes LMI's place", (("option.entryPoint", ENTRY_POINT),), r"djl_python\..*"),
    Rule("entryPoint", "code of yours: it serves through this handler if it imports lmi.handler (docs/migrating.md)",
         value=rf"(?!{re.escape(ENTRY_POINT)}$).*", fate="kept"),
    Rule("engine", "one worker uses all devices", (("engine", "Python"),), "MPI"),
    Rule("engine", "vLLM makes the vectors, not DJL's {value}",
         (("engine", "Python"), ("option.task", "text-embedding")), "Rust|OnnxRuntime"),
    Rule("mpi_mode", "one worker uses all devices", value="(?i:true)", fate="dropped"),
    Rule("rolling_batch", "vLLM has taken the place of {value}", (("option.rolling_batch", "vllm"),),
         "lmi-dist|deepspeed"),
    Rule("rolling_batch", "vLLM runs the model, with TensorRT-LLM's defaults of parameters",
         (("option.rolling_batch", "vllm"), ("option.parameter_schema", "trtllm")), "trtllm"),
    Rule("rolling_batch", "transformers runs the model", value="scheduler|hf-accelerate", fate="kept"),
    Rule("load_format", "vLLM has no such format: option.load_format=runai_streamer reads weights fast, as does "
         "sharded_state", value="sagemaker_fast_model_loader", fate="refused"),
    Rule("max_input_len", "TensorRT-LLM's name of it", (("option.max_prompt_tokens", "{value}"),)),
    Rule("max_batch_size", "TensorRT-LLM's name of it", (("option.max_rolling_batch_size", "{value}"),)),
    Rule("kv_cache_free_gpu_mem_fraction", "a share of what the weights leave there, of all memory here",
         (("option.gpu_memory_utilization", "{value}"),)),
    Rule("enable_stateful_sessions", "it is the default; written out, it makes DJL Serving start one worker only, "
         "on the first device", value="(?i:true)", fate="dropped"),
    Rule("max_output_len|max_new_tokens", "requests say it: max_new_tokens, max_tokens", fate="refused"),
    Rule("reranking", "the task says it", (("option.task", "text-ranking"),), "(?i:true)"),
    Rule("reranking", "it is the default", fate="dropped"),
    Rule("pooling", 'set option.pooler_config={{"pooling_type": "CLS"}} or the like', fate="refused"),
    _without_effect("awq_block_size|fp8_scheme|smoothquant_.*|calib_.*", "a checkpoint says how it was made"),
    _without_effect(
        "batch_scheduler_policy|use_custom_all_reduce|max_draft_len|max_beam_width|max_num_tokens|tokens_per_block|"
        "enable_kv_cache_reuse|enable_trt_overlap|max_attention_window_size|fast_build|enable_build_cache|"
        "(?:baichuan|chatglm|gpt)_model_version", _TRTLLM,
    ),
)  # fmt: skip
"""The first that fits counts."""
