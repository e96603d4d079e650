"""SageMaker's secure mode, by the variables with which the platform turns it on in DJL Serving.

    SAGEMAKER_SECURE_MODE=true
    SAGEMAKER_SECURITY_CONTROLS=DISALLOW_...,...      what is forbidden
    SAGEMAKER_UNTRUSTED_CHANNELS=folder,...           where files are looked at

Behind DJL Serving its plugin checks a model before the worker starts. On the local server, and in `lmi check`, this
does, by the plugin's rules (plugins/secure-mode, 0.36). On every host this checks what the plugin does not look at:
options that come from variables other than OPTION_*, and adapters, for of those in `lora_cache_dir` DJL Serving knows
nothing.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..model.errors import AdapterForbiddenError, OptionError
from ..model.options import Settings, read_properties
from ..model.options.combined import is_users
from ..model.options.environment.reading import naming
from ..model.options.properties import option_of_variable
from ..model.options.refusal import refuse
from ..model.options.table import option_named
from .model_code import entry_point_of, has_own_code

__all__ = ["SecureMode", "secure_mode"]

MODE, CONTROLS, CHANNELS = "SAGEMAKER_SECURE_MODE", "SAGEMAKER_SECURITY_CONTROLS", "SAGEMAKER_UNTRUSTED_CHANNELS"
REQUIREMENTS = "DISALLOW_REQUIREMENTS_TXT"
PICKLES = "DISALLOW_PICKLE_FILES"
REMOTE_CODE = "DISALLOW_TRUST_REMOTE_CODE"
SCRIPTS = "DISALLOW_CUSTOM_INFERENCE_SCRIPTS"
TEMPLATES = "DISALLOW_CHAT_TEMPLATE"

PICKLE = re.compile(r".*\.(bin|pt|pth|ckpt|pkl)", re.IGNORECASE)
INTERPRETERS = ("/opt/djl/vllm_venv/bin/python", "/usr/bin/python3")
"""What option.pythonExecutable may be."""

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

Fault = tuple[str, str]
"""What it is about, and what is wrong."""


@dataclass(frozen=True)
class SecureMode:
    """What the platform forbids."""

    controls: frozenset[str]
    channels: tuple[str, ...]
    """The folders whose files nobody vouches for."""

    def check_model(self, settings: Settings, environment: Mapping[str, str]) -> None:
        """Raises one OptionError for all that is forbidden of a model."""
        with naming(settings.sources):
            refuse(
                [
                    *_properties(settings, environment),
                    *_variables(settings, environment),
                    *self._options(settings),
                    *self._scripts(settings),
                    *(fault for channel in self.channels for fault in self._files(Path(channel))),
                ]
            )

    def check_variables(self, settings: Settings, environment: Mapping[str, str]) -> None:
        """The same behind DJL Serving, whose plugin has looked at the files, serving.properties and OPTION_*."""
        with naming(settings.sources):
            refuse([*_variables(settings, environment), *self._options(settings), *self._scripts(settings)])

    def check_entry_point(self, settings: Settings, environment: Mapping[str, str]) -> None:
        """Raises OptionError for an entry point that DJL Serving would not load: any but its own, this one too."""
        entry = entry_point_of(settings, environment)
        if SCRIPTS in self.controls and entry and not entry.startswith("djl_python."):
            raise OptionError(
                f"option.entryPoint: {entry} is prohibited by DJL Serving in secure mode ({SCRIPTS}), which this "
                "handler cannot change; lmi serve does without it",
                "entryPoint",
            )

    def check_adapter(self, folder: Path) -> None:
        """Raises AdapterForbiddenError for what is forbidden in an adapter's folder."""
        for control, name in ((SCRIPTS, "model.py"), (REQUIREMENTS, "requirements.txt")):
            if control in self.controls and (folder / name).is_file():
                raise AdapterForbiddenError(f"{name} is prohibited in secure mode ({control})", "src")
        if PICKLES in self.controls and (pickle := _pickle(folder)) is not None:
            raise AdapterForbiddenError(f"{pickle.name}: pickles are prohibited in secure mode ({PICKLES})", "src")

    def _options(self, settings: Settings) -> Iterator[Fault]:
        if REMOTE_CODE in self.controls and settings.trust_remote_code:
            yield "trust_remote_code", f"option.trust_remote_code: expected false in secure mode ({REMOTE_CODE})"
        if TEMPLATES in self.controls and settings.chat_template is not None:
            yield "chat_template", f"option.chat_template: prohibited in secure mode ({TEMPLATES})"
        if TEMPLATES in self.controls and settings.request_chat_template:
            yield "request_chat_template", f"option.request_chat_template: prohibited in secure mode ({TEMPLATES})"
        python = settings.host.get("pythonExecutable")
        if python is not None and python not in INTERPRETERS:
            expected = f"expected {' or '.join(INTERPRETERS)} in secure mode"
            yield "pythonExecutable", f"option.pythonExecutable: {expected}, got {python!r}"

    def _scripts(self, settings: Settings) -> Iterator[Fault]:
        directory = Path(settings.model_dir)
        if REQUIREMENTS in self.controls and (directory / "requirements.txt").is_file():
            yield REQUIREMENTS, f"{directory / 'requirements.txt'}: prohibited in secure mode ({REQUIREMENTS})"
        # DJL Serving looks at its entry point and at model.py; what else is user code here, it knows nothing of.
        plugins = (settings.tool_parser_plugin, settings.reasoning_parser_plugin)
        if SCRIPTS in self.controls and (has_own_code(settings) or is_users(settings.backend) or any(plugins)):
            said = "code of your own (model.py, formatters, filters, dialects, engines, parsers)"
            yield SCRIPTS, f"{directory}: {said} is prohibited in secure mode ({SCRIPTS})"

    def _files(self, channel: Path) -> Iterator[Fault]:
        if not channel.is_dir():
            yield CHANNELS, f"{CHANNELS}: expected folders, got {str(channel)!r}, which is none"
            return
        if PICKLES in self.controls and (pickle := _pickle(channel)) is not None:
            yield PICKLES, f"{pickle}: only safetensors are permitted in secure mode ({PICKLES})"
        for file in _walked(channel) if TEMPLATES in self.controls else ():
            if file.name == "tokenizer_config.json" and _has_template(file):
                yield TEMPLATES, f"{file}: chat_template is prohibited in secure mode ({TEMPLATES})"


def secure_mode(environment: Mapping[str, str]) -> SecureMode | None:
    """What `environment` forbids; None where secure mode is off. Raises OptionError where it does not say what."""
    if environment.get(MODE, "").strip().lower() != "true":
        return None
    controls = environment.get(CONTROLS)
    if controls is None:
        raise OptionError(f"{CONTROLS}: expected what {MODE}=true forbids, it is not set", CONTROLS)
    channels = environment.get(CHANNELS, "").split(",")
    return SecureMode(
        frozenset(control.strip() for control in controls.split(",")),
        tuple(channel.strip() for channel in channels if channel.strip()),
    )


def _properties(settings: Settings, environment: Mapping[str, str]) -> Iterator[Fault]:
    """The properties that nobody may set: of serving.properties, and of OPTION_* in the environment."""
    file = Path(settings.model_dir, "serving.properties")
    names = [*read_properties(file.read_bytes().decode("latin-1"))] if file.is_file() else []
    for variable in environment:
        if variable.startswith("OPTION_") and environment[variable]:
            name = variable.removeprefix("OPTION_").lower()
            names.append("option.entryPoint" if name == "entrypoint" else f"option.{name}")
    for name in dict.fromkeys(names):
        if name not in ALLOWED:
            yield name.removeprefix("option."), f"{name}: DJL Serving prohibits this property in secure mode"


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
        yield name, f"{variable}: DJL Serving prohibits this property in secure mode"


def _permitted(name: str) -> bool:
    """Whether an option, by any of its names, is one that a model may have."""
    option = option_named(name)
    return any(f"option.{one}" in ALLOWED for one in (option.names if option else (name,)))


def _walked(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        yield from (Path(place, name) for name in sorted([*folders, *files]))


def _pickle(folder: Path) -> Path | None:
    """A file, or anything else, of a name that pickles have."""
    return next((path for path in _walked(folder) if PICKLE.fullmatch(path.name)), None)


def _has_template(file: Path) -> bool:
    try:
        config = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        # Nobody can read a template from it either.
        return False
    return isinstance(config, dict) and "chat_template" in config
