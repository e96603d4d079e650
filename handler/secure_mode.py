"""SageMaker's secure mode, by the variables with which the platform turns it on in DJL Serving.

    SAGEMAKER_SECURE_MODE=true
    SAGEMAKER_SECURITY_CONTROLS=DISALLOW_...,...      what is forbidden

DJL Serving's plugin checks a model before the worker starts (plugins/secure-mode, 0.36): files, serving.properties,
OPTION_*, entry point. Here is what it does not look at: options that come from other variables, and adapters, for of
those in `lora_cache_dir` DJL Serving knows nothing. Without DJL Serving nobody checks the model: nothing is served.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..model.errors import AdapterForbiddenError, Fault, OptionError, refuse
from ..model.options import Settings
from ..model.options.environment.reading import naming
from ..model.options.properties import option_of_variable
from ..model.options.table import option_named

__all__ = ["SCRIPTS", "SecureMode", "refuse_secure_mode", "secure_mode"]

MODE, CONTROLS = "SAGEMAKER_SECURE_MODE", "SAGEMAKER_SECURITY_CONTROLS"
REQUIREMENTS = "DISALLOW_REQUIREMENTS_TXT"
PICKLES = "DISALLOW_PICKLE_FILES"
REMOTE_CODE = "DISALLOW_TRUST_REMOTE_CODE"
SCRIPTS = "DISALLOW_CUSTOM_INFERENCE_SCRIPTS"

PICKLE = re.compile(r".*\.(bin|pt|pth|ckpt|pkl)", re.IGNORECASE)

# fmt: off
ALLOWED = frozenset({
    "engine", "job_queue_size", "max_idle_time", "batch_size", "max_batch_delay", "max_dynamic_batch_size",
    "minWorkers", "maxWorkers", "load_on_devices",
    *(f"option.{name}" for name in (
        "mpi_mode", "entryPoint", "task", "model_id", "batch_size", "tensor_parallel_degree",
        "pipeline_parallel_degree", "rolling_batch", "dtype", "trust_remote_code", "revision",
        "max_rolling_batch_size", "parallel_loading", "model_loading_timeout", "output_formatter", "n_positions",
        "load_in_8bit", "unroll", "context_length_estimate", "low_cpu_mem_usage", "load_split_model",
        "compiled_graph_path", "group_query_attention", "enable_mixed_precision_accumulation",
        "enable_saturate_infinity", "speculative_draft_model", "speculative_length", "draft_model_compiled_path",
        "quantize", "max_rolling_batch_prefill_tokens", "max_model_len", "load_format", "enforce_eager",
        "gpu_memory_utilization", "draft_model_tp_size", "record_acceptance_rate", "enable_lora", "max_loras",
        "max_lora_rank", "lora_extra_vocab_size", "max_cpu_loras", "max_input_len", "max_output_len",
        "max_num_tokens", "use_custom_all_reduce", "tokens_per_block", "batch_scheduler_policy",
        "kv_cache_free_gpu_mem_fraction", "max_num_sequences", "enable_trt_overlap", "enable_kv_cache_reuse",
        "baichuan_model_version", "chatglm_model_version", "gpt_model_version", "multi_block_mode",
        "use_fused_mlp", "rotary_base", "rotary_dim", "rotary_scaling_type", "rotary_scaling_factor",
        "logits_dtype", "trtllm_checkpoint_path", "load_by_shard", "smoothquant_alpha", "smoothquant_per_token",
        "smoothquant_per_channel", "multi_query_mode", "awq_format", "awq_calib_size", "q_format", "calib_size",
        "calib_batch_size", "use_fp8_context_fmha", "enable_chunked_prefill", "cpu_offload_gb_per_gpu",
        "enable_prefix_caching", "disable_sliding_window", "enable_streaming", "tgi_compat", "pythonExecutable",
    )),
})
# fmt: on
"""The properties that a model may have, as they are written in serving.properties."""


@dataclass(frozen=True)
class SecureMode:
    """What the platform forbids."""

    controls: frozenset[str]

    def check_variables(self, settings: Settings, environment: Mapping[str, str]) -> None:
        """Raises one OptionError for all options that are forbidden and come from variables other than OPTION_*."""
        with naming(settings.sources):
            faults = [*_variables(settings, environment)]
            if REMOTE_CODE in self.controls and settings.trust_remote_code:
                faults.append(Fault("trust_remote_code", expected=f"false in secure mode ({REMOTE_CODE})"))
            refuse(faults)

    def check_adapter(self, folder: Path) -> None:
        """Raises AdapterForbiddenError for what is forbidden in an adapter's folder."""
        for control, name in ((SCRIPTS, "model.py"), (REQUIREMENTS, "requirements.txt")):
            if control in self.controls and (folder / name).is_file():
                raise AdapterForbiddenError(f"{name} is prohibited in secure mode ({control})", "src")
        if PICKLES in self.controls and (pickle := _pickle(folder)) is not None:
            raise AdapterForbiddenError(f"{pickle}: pickles are prohibited in secure mode ({PICKLES})", "src")


def secure_mode(environment: Mapping[str, str]) -> SecureMode | None:
    """What `environment` forbids; None where secure mode is off. Raises OptionError where it does not say what."""
    if environment.get(MODE, "").strip().lower() != "true":
        return None
    controls = environment.get(CONTROLS)
    if controls is None:
        why = f"expected what {MODE}=true forbids, it is not set"
        raise OptionError.of_all([Fault(why=why, source=CONTROLS)])
    return SecureMode(frozenset(control.strip() for control in controls.split(",")))


def refuse_secure_mode(environment: Mapping[str, str]) -> None:
    """For what serves without DJL Serving: raises OptionError where secure mode is on."""
    if secure_mode(environment) is not None:
        expected = "false without DJL Serving, which enforces it"
        raise OptionError.of_all([Fault(expected=expected, given="true", source=MODE)])


def _variables(settings: Settings, environment: Mapping[str, str]) -> Iterator[Fault]:
    """The other variables that nobody may set: ARGS_*, and those of other containers that set an option."""
    given = [*settings.sources.items()]
    # Of two that mean one option, Java has taken either.
    given += [
        (option_of_variable(name, "ARGS_"), name)
        for name, text in environment.items()
        if name.startswith("ARGS_") and text
    ]
    forbidden = {
        variable: name for name, variable in given if not (variable.startswith("OPTION_") or _permitted(name))
    }  # fmt: skip
    for variable, name in forbidden.items():
        yield Fault(name, "DJL Serving prohibits this property in secure mode", source=variable)


def _permitted(name: str) -> bool:
    """Whether an option, by any of its names, is one that a model may have."""
    option = option_named(name)
    return any(f"option.{one}" in ALLOWED for one in (option.names if option else (name,)))


def _pickle(folder: Path) -> str | None:
    """The name of a file, or of anything else, that pickles have."""
    names = (name for _, folders, files in os.walk(folder) for name in sorted([*folders, *files]))
    return next((name for name in names if PICKLE.fullmatch(name)), None)
