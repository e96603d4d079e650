"""`option.*` as typed settings: read once, in the host's process, without the engine's library.

    serving.properties, OPTION_*, --set --load_settings--> properties
    DJL's init call --------------------------------------> properties --settings_of--> Settings

What the table of options (model/option_table.py) knows is judged here. Other names may be arguments of the engine: they
go to `Settings.engine_arguments` as they are, and the engine's process judges them (model/vllm_options.py); only names
that are all but one of the table's are refused here already. One OptionError tells all faults of a configuration.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from .errors import SHOWN, OptionError
from .image_rules import ImageRules, image_rules
from .option_row import Option
from .option_table import OPTIONS, find, options_table
from .properties import bare_names, gather, read_properties
from .speculation import speculative_config

__all__ = ["Settings", "load_settings", "options_table", "read_properties", "refuse", "settings_of"]

log = logging.getLogger(__name__)

NEAR = 0.93
LONG = 14
"""How alike (difflib's ratio) an unknown name of at least so many letters is to one of the table's to be taken for a
misspelling of it. No argument of vLLM 0.23 or 0.32 comes that near; shorter names do (device_ids, ubatch_size). What is
not refused here is left to the engine's side, which knows all names."""

_DTYPES = {"fp32": "float32", "float": "float32", "fp16": "float16", "half": "float16", "bf16": "bfloat16"}


_MPI = {
    "trtllm": "DJL Serving turns it on for option.rolling_batch=trtllm, a worker for each device; for one device set "
    "option.tensor_parallel_degree=1, for more option.rolling_batch=vllm and option.parameter_schema=trtllm"
}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a model directory's configuration says. It travels to the engine's process as msgpack."""

    model_dir: str
    """The model directory, where serving.properties lies; absolute."""
    model_id: str
    """A hub id or an absolute path; by default the model directory."""
    model_name: str
    """The `model` field of OpenAI answers; by default the model directory as it was given."""
    engine: str = "vllm"
    """A name of the ENGINES table."""
    revision: str | None = None
    trust_remote_code: bool = False
    rolling_batch: str = "vllm"
    """Resolved: vllm, lmi-dist or trtllm (vLLM too), or disable: in async mode, and for dynamic batches."""
    async_mode: bool = False
    max_rolling_batch_size: int = 256
    """How many sequences run at once at most; more wait."""
    tensor_parallel_degree: int | None = None
    """None: every device that there is (`max`)."""
    pipeline_parallel_degree: int = 1
    dtype: str = "auto"
    """auto, float32, float16 or bfloat16."""
    output_formatter: Literal["json", "jsonlines", "sse"] | None = None
    dialect: str | None = None
    """In lower case; whether there is such a dialect, formatters know."""
    tgi_compat: bool = False
    """Whether a body with `inputs` is TGI's rather than LMI's."""
    enable_streaming: bool = False
    task: str = "auto"
    """auto or generate."""
    unknown_parameters: Literal["ignore", "error"] = "ignore"
    parameter_schema: Literal["common", "trtllm"] | None = None
    """None: that of `rolling_batch`."""
    chat_template: str | None = None
    """A file, relative to the model directory or not, or Jinja text."""
    chat_template_content_format: Literal["auto", "string", "openai"] = "auto"
    tool_call_parser: str | None = None
    """None: no call is taken out of the text unless a request forces it."""
    reasoning_parser: str | None = None
    merge_records: bool = False
    images: ImageRules = ImageRules()
    device_id: int | None = None
    """What DJL's init call says; None is no particular device."""
    cluster_size: int = 1
    engine_arguments: dict[str, str] = {}
    """The engine's own arguments by its own names, values as they were given: what was set, and model, dtype and
    max_num_seqs always. tensor_parallel_size is missing for `max`."""
    bare: tuple[str, ...] = ()
    """Those of `engine_arguments` that stand in serving.properties without `option.`: DJL delivers such keys too, and a
    user may keep keys of their own there, so that the engine's side ignores the ones that it does not know."""
    host: dict[str, str] = {}
    """DJL Serving's own options, as they were given."""
    notes: tuple[str, ...] = ()
    """What a user should know: logged once by `settings_of`."""

    @property
    def dynamic_batch(self) -> bool:
        """Whether the host hands over whole batches and waits for all of their answers."""
        return self.rolling_batch == "disable" and not self.async_mode


def refuse(faults: Iterable[tuple[str, str]]) -> None:
    """Raises one OptionError for all `faults`, if any: pairs of an option's name and what is wrong with it."""
    found = list(faults)
    if len(found) == 1:
        raise OptionError(found[0][1], found[0][0])
    if found:
        listed = "; ".join(f"({number}) {message}" for number, (_, message) in enumerate(found, 1))
        raise OptionError(f"{len(found)} options are wrong: {listed}", found[0][0])


def shown(text: str) -> str:
    """`text` in quotes, cut to what a message may repeat."""
    return repr(text if len(text) <= SHOWN else text[:SHOWN] + "...")


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
        elif option.planned:
            if text.lower() not in {"", option.default}:
                self.fault(name, f"{shown(text)} asks for what this version does not support: {option.planned}")
        elif text and option.reader != "nobody":
            self._known(option, name, text)

    def _known(self, option: Option, name: str, text: str) -> None:
        before = self._names.get(option.name)
        if before and before[1] != text:
            if not option.filled:
                self.fault(name, f"{shown(text)} contradicts option.{before[0]}={before[1]}, the same by another name")
                return
            # DJL Serving writes the first name of these where the user wrote none, so the user's word is the alias.
            if name == option.name:
                name, text, before = before[0], before[1], (name, text)
            self.notes.append(f"option.{name}={text} goes before option.{before[0]}={before[1]}")
        self._names[option.name] = (name, text)
        try:
            self.values[option.name] = _special(option, text)
        except ValueError as error:
            self.fault(name, f"expected {error}, got {shown(text)}")
            return
        if option.argument:
            self.arguments[option.argument] = text

    def _unknown(self, name: str, text: str) -> None:
        near = difflib.get_close_matches(name, _NAMES, n=1, cutoff=NEAR) if len(name) >= LONG else []
        if near:
            self.fault(name, f"there is no such option; did you mean option.{near[0]}?")
        elif text:
            self.arguments[name] = text


_NAMES = [name for option in OPTIONS for name in option.names]


def _special(option: Option, text: str) -> object:
    """The value, with the rules that a row cannot express; raises ValueError with what was expected."""
    if text.lower() in option.later:
        raise ValueError(f"{option.expected} (this version does not support {option.later[text.lower()]})")
    if option.name == "tensor_parallel_degree":
        if text.lower() == "max":
            return None
        if not text.isdecimal() or int(text) < 1:
            raise ValueError("a number of at least 1, or max")
        return int(text)
    if option.name == "dtype" and text.lower() == "int8":
        raise ValueError(f"{option.expected} (for 8-bit weights set option.quantize instead)")
    if option.name == "model_id" and text.startswith("s3://"):
        raise ValueError("a hub id or a path (only DJL Serving downloads s3://, before the handler starts)")
    return option.value(text)


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
    directory = str(Path(model_dir).absolute())
    model_id = _model(values.get("model_id"), directory)
    named = str(values.get("dtype", "auto"))
    dtype = _DTYPES.get(named, named)
    size = values.get("max_rolling_batch_size", 256)
    if values.get("enable_streaming", "false") != "false" and (rolling_batch != "disable" or async_mode):
        reading.notes.append("option.enable_streaming has no effect: each request says whether its answer is streamed")
    if values.get("enable_auto_tool_choice") and not values.get("tool_call_parser"):
        reading.fault("enable_auto_tool_choice", "expected option.tool_call_parser with it, but it is not set")
    if values.get("enable_reasoning") and not values.get("reasoning_parser"):
        reading.fault("enable_reasoning", "expected option.reasoning_parser with it, but it is not set")
    # One device leaves one worker, which is as good as none of MPI.
    degrees = (values.get("tensor_parallel_degree"), values.get("pipeline_parallel_degree", 1))
    if values.get("mpi_mode") and degrees != (1, 1):
        reading.fault("mpi_mode", _MPI.get(rolling_batch, "MPI mode is not supported: set engine=Python"))
    draft = speculative_config(values, directory)
    if draft and "speculative_config" in reading.arguments:
        reading.fault("speculative_draft_model", "expected it or option.speculative_config, got both")
    device = _host_number(reading, "device_id", -1)
    cluster = _host_number(reading, "cluster_size", 1)
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
        revision=values.get("revision"),
        trust_remote_code=values.get("trust_remote_code", False),
        rolling_batch=rolling_batch,
        async_mode=async_mode,
        max_rolling_batch_size=size,
        tensor_parallel_degree=values.get("tensor_parallel_degree"),
        pipeline_parallel_degree=values.get("pipeline_parallel_degree", 1),
        dtype=dtype,
        output_formatter=values.get("output_formatter"),
        dialect=str(values["dialect"]).lower() if values.get("dialect") else None,
        tgi_compat=values.get("tgi_compat", False),
        enable_streaming=values.get("enable_streaming", "false") != "false",
        task="auto" if values.get("task", "auto") == "auto" else "generate",
        unknown_parameters=values.get("unknown_parameters", "ignore"),
        parameter_schema=values.get("parameter_schema"),
        chat_template=values.get("chat_template"),
        chat_template_content_format=values.get("chat_template_content_format", "auto"),
        tool_call_parser=values.get("tool_call_parser") if values.get("enable_auto_tool_choice", True) else None,
        reasoning_parser=values.get("reasoning_parser"),
        merge_records=values.get("merge_records", False),
        images=images,
        device_id=None if device < 0 else device,
        cluster_size=cluster,
        engine_arguments=arguments,
        bare=tuple(sorted(bare_names(Path(directory)) & arguments.keys())),
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
            reading.notes.append(
                "option.enable_streaming with batch_size > 1: only a batch of one is sent as it is made"
            )
        return "disable", False
    if dynamic:
        reading.fault("rolling_batch", f"expected disable with batch_size > 1, got {rolling_batch!r}")
    if rolling_batch == "lmi-dist":
        reading.notes.append("option.rolling_batch=lmi-dist runs on vLLM, which has taken lmi-dist's place")
        return rolling_batch, False
    if rolling_batch == "trtllm":
        reading.notes.append("option.rolling_batch=trtllm runs on vLLM, with TensorRT-LLM's defaults of parameters")
        return rolling_batch, False
    return "vllm", False


def _model(given: str | None, directory: str) -> str:
    """The hub id, or the absolute path; a relative path counts from the model directory, if it is there."""
    if not given:
        return directory
    inside = Path(directory, given)
    return str(inside.absolute()) if inside.exists() else given


def _host_number(reading: _Reading, name: str, default: int) -> int:
    text = reading.host.get(name, "")
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        reading.fault(name, f"expected an integer, got {shown(text)}")
        return default


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
