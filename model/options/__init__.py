"""`option.*` as typed settings: read once, in the host's process, without the engine's library.

    serving.properties, OPTION_*, --set --load_settings--> properties
    DJL's init call --------------------------------------> properties --settings_of--> Settings

table.py, row.py                the table of options; djl.py: the rows of DJL's own
settings.py, limits.py, image_rules.py     Settings and its parts
engine.py, tasks.py, speculation.py        what options choose together: engine, task, draft model
properties.py, model_dir.py     where options come from; what the model directory has
rules.py, faults.py             rules that a row cannot express; how what is wrong is told

What the table of options (model/options/table.py) knows is judged here. Other names may be arguments of the engine:
they go to `Settings.engine_arguments` as they are, and the engine's process judges them (model/vllm/options.py); only
names that are all but one of the table's are refused here already. One OptionError tells all faults of a configuration.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from .engine import ON_TRANSFORMERS, ON_VLLM, check_mpi, engine_of, host_number, model_of
from .faults import refuse, shown
from .image_rules import image_rules
from .limits import limits_of
from .properties import bare_names, gather, read_properties
from .row import Option
from .rules import value_of
from .settings import Settings
from .speculation import speculative_config
from .table import OPTIONS, find, options_table
from .tasks import task_of

__all__ = ["Settings", "load_settings", "options_table", "read_properties", "settings_of"]

log = logging.getLogger(__name__)

SIMILAR_NAME_RATIO = 0.93
SIMILAR_NAME_LETTERS = 14
"""How alike (difflib's ratio) an unknown name of at least so many letters is to one of the table's to be taken for a
misspelling of it. No argument of vLLM 0.23 or 0.32 comes that near; shorter names do (device_ids, ubatch_size). What is
not refused here is left to the engine's side, which knows all names."""

_DTYPES = {"fp32": "float32", "float": "float32", "fp16": "float16", "half": "float16", "bf16": "bfloat16"}


class _Reading:
    """One pass over the properties: values by canonical name, texts of engine arguments, faults, notes."""

    def __init__(self) -> None:
        self.values: dict[str, object] = {}
        self.arguments: dict[str, str] = {}
        self.host: dict[str, str] = {}
        self.faults: list[tuple[str, str]] = []
        self.notes: list[str] = []
        self._names: dict[str, tuple[str, str]] = {}

    def fault(self, name: str, message: str) -> None:
        self.faults.append((name, f"option.{name}: {message}"))

    def read(self, name: str, text: str) -> None:
        option = find(name)
        if option is None:
            self._unknown(name, text)
        elif option.reader == "host":
            # DJL keeps `env` to itself: it may hold secrets.
            self.host |= {name: text} if name != "env" else {}
        elif option.unsupported:
            if text.lower() not in {"", option.default}:
                self.fault(name, f"{shown(text)} asks for what this version does not support: {option.unsupported}")
        elif text and option.reader != "nobody":
            self._known(option, name, text)

    def _known(self, option: Option, name: str, text: str) -> None:
        before = self._names.get(option.name)
        if before and before[1] != text:
            if not option.set_by_djl:
                self.fault(name, f"{shown(text)} contradicts option.{before[0]}={before[1]}, the same by another name")
                return
            # DJL Serving writes the first name of these where the user wrote none, so the user's word is the alias.
            if name == option.name:
                name, text, before = before[0], before[1], (name, text)
            self.notes.append(f"option.{name}={text} goes before option.{before[0]}={before[1]}")
        self._names[option.name] = (name, text)
        try:
            self.values[option.name] = value_of(option, text)
        except ValueError as error:
            self.fault(name, f"expected {error}, got {shown(text)}")
            return
        if option.argument:
            self.arguments[option.argument] = text

    def _unknown(self, name: str, text: str) -> None:
        near = (
            difflib.get_close_matches(name, _NAMES, n=1, cutoff=SIMILAR_NAME_RATIO)
            if len(name) >= SIMILAR_NAME_LETTERS
            else []
        )
        if near:
            self.fault(name, f"there is no such option; did you mean option.{near[0]}?")
        elif text:
            self.arguments[name] = text


_NAMES = [name for option in OPTIONS for name in option.names]


def settings_of(properties: Mapping[str, str], *, model_dir: str) -> Settings:
    """The settings that `properties` mean, given without `option.`, as DJL's init call delivers them.

    Raises OptionError, naming every option that is wrong, what was given and what was expected. Logs `Settings.notes`.
    """
    reading = _Reading()
    for name, text in properties.items():
        # djl_python's worker puts cluster_size in as a number.
        reading.read(name, str(text).strip())
    values = cast("dict[str, Any]", reading.values)
    rolling_batch, async_mode = _mode(reading)
    task = task_of(values, reading.fault, reading.notes)
    engine = engine_of(values, task, reading.fault)
    directory = str(Path(model_dir).absolute())
    model_id = model_of(values.get("model_id"), directory)
    named = str(values.get("dtype", "auto"))
    dtype = _DTYPES.get(named, named)
    size = values.get("max_rolling_batch_size", 32 if engine == "transformers" else 256)
    formatter = values.get("output_formatter")
    custom = formatter not in (None, "json", "jsonlines", "sse")
    if values.get("enable_streaming", "false") != "false" and (rolling_batch != "disable" or async_mode):
        reading.notes.append("option.enable_streaming has no effect: each request says whether its answer is streamed")
    for switch, parser in (("enable_auto_tool_choice", "tool_call_parser"), ("enable_reasoning", "reasoning_parser")):
        if values.get(switch) and not values.get(parser):
            reading.fault(switch, f"expected option.{parser} with it, but it is not set")
    check_mpi(values, reading.fault)
    draft = speculative_config(values, directory)
    if draft and "speculative_config" in reading.arguments:
        reading.fault("speculative_draft_model", "expected it or option.speculative_config, got both")
    device = host_number(reading.host, "device_id", -1, reading.fault)
    cluster = host_number(reading.host, "cluster_size", 1, reading.fault)
    images = image_rules(values, reading.fault)
    refuse(reading.faults)
    for note in reading.notes:
        log.warning("%s", note)
    arguments = {**reading.arguments, "model": model_id, "dtype": dtype, "max_num_seqs": str(size)}
    if values.get("tensor_parallel_degree") is None:
        arguments.pop("tensor_parallel_size", None)
    if draft:
        arguments["speculative_config"] = draft
    return Settings(
        model_dir=directory,
        model_id=model_id,
        model_name=values.get("served_model_name") or model_dir,
        engine=engine,
        revision=values.get("revision"),
        trust_remote_code=values.get("trust_remote_code", False),
        rolling_batch=rolling_batch,
        async_mode=async_mode,
        max_rolling_batch_size=size,
        tensor_parallel_degree=values.get("tensor_parallel_degree"),
        pipeline_parallel_degree=values.get("pipeline_parallel_degree", 1),
        dtype=dtype,
        output_formatter=None if custom else formatter,
        custom_formatter=formatter if custom else None,
        input_formatter=values.get("input_formatter"),
        content_filter=values.get("content_filter"),
        user_code_threads=values.get("user_code_threads"),
        dialect=str(values["dialect"]).lower() if values.get("dialect") else None,
        tgi_compat=values.get("tgi_compat", False),
        enable_streaming=values.get("enable_streaming", "false") != "false",
        task=task,
        normalize=values.get("normalize"),
        unknown_parameters=values.get("unknown_parameters", "ignore"),
        engine_stall_timeout=values.get("engine_stall_timeout", 300.0),
        enable_typical_p=values.get("enable_typical_p", "auto"),
        parameter_schema=values.get("parameter_schema"),
        chat_template=values.get("chat_template"),
        chat_template_content_format=values.get("chat_template_content_format", "auto"),
        tool_call_parser=values.get("tool_call_parser") if values.get("enable_auto_tool_choice", True) else None,
        reasoning_parser=values.get("reasoning_parser"),
        log_requests=values.get("log_requests", "false"),
        metrics_interval=values.get("metrics_interval", 60.0),
        merge_records=values.get("merge_records", False),
        device_map=values.get("device_map"),
        load_in_8bit=values.get("load_in_8bit", False),
        load_in_4bit=values.get("load_in_4bit", False),
        images=images,
        limits=limits_of(values),
        device_id=None if device < 0 else device,
        cluster_size=cluster,
        engine_arguments=arguments,
        unprefixed=tuple(sorted(bare_names(Path(directory)) & arguments.keys())),
        host=reading.host,
        notes=tuple(reading.notes),
    )


def _mode(reading: _Reading) -> tuple[str, bool]:
    """`rolling_batch`, resolved, and `async_mode`."""
    rolling_batch = str(reading.values.get("rolling_batch", "auto"))
    async_mode = bool(reading.values.get("async_mode", False))
    # DJL Serving itself turns rolling batch off where dynamic batches are asked for.
    sizes = [reading.host.get(name, "") for name in ("batch_size", "max_dynamic_batch_size")]
    dynamic = any(size.isdecimal() and int(size) > 1 for size in sizes)
    if async_mode:
        if rolling_batch not in {"auto", "disable"}:
            reading.fault("async_mode", f"expected option.rolling_batch=disable with it, got {rolling_batch!r}")
        return "disable", True
    if rolling_batch == "disable" or (dynamic and rolling_batch == "auto"):
        if dynamic and reading.values.get("enable_streaming", "false") != "false":
            reading.notes.append("option.enable_streaming with batch_size > 1: only a batch of one is streamed")
        return "disable", False
    if dynamic:
        reading.fault("rolling_batch", f"expected disable with batch_size > 1, got {rolling_batch!r}")
    if rolling_batch in ON_VLLM:
        reading.notes.append(f"option.rolling_batch={rolling_batch} runs on vLLM, {ON_VLLM[rolling_batch]}")
    if rolling_batch in {*ON_VLLM, *ON_TRANSFORMERS}:
        return rolling_batch, False
    return "scheduler" if reading.values.get("backend") == "transformers" else "vllm", False


def load_settings(model_dir: Path, *, environment: Mapping[str, str], overrides: Mapping[str, str]) -> Settings:
    """The settings of a model directory as DJL Serving would deliver them, with `overrides` on top (`option.x` or `x`).

    Raises OptionError as `settings_of` does.
    """
    properties = gather(model_dir, environment)
    for given, text in overrides.items():
        name = given.removeprefix("option.")
        option = find(name)
        for other in option.names if option else (name,):
            properties.pop(other, None)
        properties[name] = text
    return settings_of(properties, model_dir=str(model_dir))
