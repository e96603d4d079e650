"""Settings, of the properties of a model directory or of DJL's init call."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from ..errors import refuse
from .adapter_options import AdapterOptions
from .combined import (
    backend_of,
    batching_of,
    check_adapters,
    check_mpi,
    check_parsers,
    is_users,
    modelling_of,
    path_or_id,
    plugins_of,
    quantization_of,
    speculative_config,
    task_of,
)
from .deciding_options import IndirectOptions
from .environment.reading import Merged, merge
from .finding import Finding
from .lmcache import check_lmcache
from .media_rules import MediaRules
from .option_reader import OptionReader
from .parallel.options import ParallelOptions
from .parallel.rules import check_parallel
from .properties import gather, sources_of, unprefixed_names
from .session_options import ResponseStoreOptions, SessionOptions
from .settings import Limits, Settings
from .table import option_named

__all__ = ["load_settings", "settings_of"]

log = logging.getLogger(__name__)

NO_ENVIRONMENT: Mapping[str, str] = MappingProxyType({})


def settings_of(
    properties: Mapping[str, str], *, model_dir: str, environment: Mapping[str, str] = NO_ENVIRONMENT
) -> Settings:
    """The settings that `properties` mean, given without `option.`, as DJL's init call delivers them.

    `environment` tells where they came from, and what the variables of other containers say of the rest.
    Raises OptionError, naming every option that is wrong, what was given and what was expected, or the variable that it
    came from. Logs `Settings.notes`.
    """
    directory = Path(model_dir)
    delivered = {name: str(text).strip() for name, text in properties.items()}
    # Java has the variables' texts untrimmed: what differs has come from elsewhere.
    written = gather(directory, environment)
    sources = {
        name: variable
        for name, variable in sources_of(directory, environment).items()
        if delivered.get(name) == environment[variable].strip()
    }
    merged = merge(delivered, model_dir=directory, environment=environment, written=written, sources=sources)
    return _settings(merged, model_dir, environment)


def _settings(merged: Merged, model_dir: str, environment: Mapping[str, str]) -> Settings:
    unprefixed = unprefixed_names(Path(model_dir), environment)
    reader = OptionReader(unprefixed, merged.sources)
    reader.faults.extend(merged.faults)
    for name, text in merged.properties.items():
        reader.read(name, text.strip())
    given = IndirectOptions(**reader.fields(IndirectOptions))
    directory = str(Path(model_dir).absolute())
    settings = Settings(
        model_dir=directory,
        model_id=path_or_id(given.model_id, directory) if given.model_id else directory,
        model_name=given.served_model_name or model_dir,
        limits=Limits(**reader.fields(Limits)),
        media=MediaRules(**reader.fields(MediaRules)),
        adapters=AdapterOptions(**reader.fields(AdapterOptions)),
        sessions=SessionOptions(**reader.fields(SessionOptions)),
        responses=ResponseStoreOptions(**reader.fields(ResponseStoreOptions)),
        parallel=ParallelOptions(**reader.fields(ParallelOptions)),
        **reader.fields(Settings),
    )
    rolling_batch = batching_of(given, settings, reader)
    task = task_of(given, settings, reader)
    backend = backend_of(given, task, reader)
    streaming = given.enable_streaming != "false"
    if streaming and (rolling_batch != "disable" or settings.async_mode):
        why = "each request says whether its response is streamed"
        reader.note("enable_streaming", f" has no effect: {why}", "warning")
    check_parsers(given, settings, reader)
    if not is_users(backend):
        reader.check_names()
    check_mpi(given, settings, reader)
    plugins = plugins_of(settings, reader)
    lmcache = check_lmcache(settings, reader)
    check_parallel(settings, reader)
    adapters = check_adapters(settings, reader)
    draft = speculative_config(given, directory)
    if draft and "speculative_config" in reader.arguments:
        reader.fault("speculative_draft_model", expected=f"it or {reader.called('speculative_config')}, got both")
    written = reader.names_given()
    if draft:
        written["speculative_config"] = written.get("speculative_draft_model", "speculative_draft_model")
    else:
        written["draft_model_tp_size"] = "speculative_config"
    derived = {"speculative_config": draft}
    if not is_users(backend):
        derived |= {"model_impl": modelling_of(given, task, reader), "quantization": quantization_of(given, reader)}
    if derived.get("quantization") and "quantization" not in reader.arguments:
        written["quantization"] = "load_in_4bit"
    if settings.lmcache_auto_config:
        written["kv_transfer_config"] = "lmcache_auto_config"
    machines = reader.host_number("cluster_size", 1)
    if machines > 1 and settings.parallel.nnodes == 1:
        message = f"cluster_size={machines}: the engine uses this machine's devices only (option.nnodes)"
        reader.notes.append(Finding("warning", message, "nnodes"))
    refuse(reader.faults)
    notes = (*merged.notes, *reader.notes)
    for note in notes:
        log.log(logging.WARNING if note.level == "warning" else logging.INFO, "%s", note.message)
    size = given.max_rolling_batch_size or _most_sequences(settings, reader)
    arguments = reader.arguments | {"model": settings.model_id, "dtype": settings.dtype, "max_num_seqs": str(size)}
    if settings.tensor_parallel_degree is None:
        arguments.pop("tensor_parallel_size", None)
    arguments |= {name: text for name, text in derived.items() if text}
    if plugin := plugins.get("reasoning_parser_plugin"):
        # vLLM's core, another process, has use for reasoning parsers too.
        arguments["reasoning_parser_plugin"] = plugin
    custom = given.output_formatter not in (None, "json", "jsonlines", "sse")
    return msgspec.structs.replace(
        settings,
        adapters=adapters,
        **plugins,
        lmcache_config_file=lmcache,
        backend=backend,
        task=task,
        rolling_batch=rolling_batch,
        max_rolling_batch_size=size,
        enable_streaming=streaming,
        output_formatter=None if custom else given.output_formatter,
        custom_formatter=given.output_formatter if custom else None,
        tool_call_parser=None if given.enable_auto_tool_choice is False else settings.tool_call_parser,
        engine_arguments=arguments,
        unprefixed=tuple(sorted(unprefixed & arguments.keys())),
        host=reader.host,
        sources=merged.sources,
        written=written,
        notes=notes,
    )


def _most_sequences(settings: Settings, reader: OptionReader) -> int:
    """max_rolling_batch_size where nobody says: vLLM takes no more sequences than tokens in a step."""
    own = settings.max_rolling_batch_size
    step = reader.arguments.get("max_num_batched_tokens", "")
    # vLLM reads `8k` too, which is more in any case.
    return min(own, int(step)) if step.isascii() and step.isdecimal() and int(step) else own


def load_settings(model_dir: Path, *, environment: Mapping[str, str], overrides: Mapping[str, str]) -> Settings:
    """The settings of a model directory without DJL Serving, which would deliver the same, with `overrides` on top
    (`option.x` or `x`).

    Raises OptionError as `settings_of` does.
    """
    properties = gather(model_dir, environment)
    sources = sources_of(model_dir, environment)
    for given, text in overrides.items():
        name = given.removeprefix("option.")
        option = option_named(name)
        for other in option.names if option else (name,):
            properties.pop(other, None)
            sources.pop(other, None)
        properties[name] = text
    merged = merge(
        properties, model_dir=model_dir, environment=environment, written=properties, sources=sources, djl=False
    )
    return _settings(merged, str(model_dir), environment)
