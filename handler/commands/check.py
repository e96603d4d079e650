"""`lmi check`: what start-up would say of a model directory, without starting an engine.

    options --> secure mode --> user code --> dialect --> entry point --> files of the model --> workers
            --> adapters --> parsers of the user's, engine's arguments

A model that DJL Serving downloads before it starts the handler (`s3://`) is let pass, and its files are not checked.
Everything that would keep the model from being served is an OptionError; what is only worth knowing is a Finding.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ...model.adapters.folder import base_config
from ...model.backend import users_backend
from ...model.errors import Fault, OptionError, SessionError, StartError, refuse
from ...model.options import Settings, load_settings
from ...model.options.advice.parsers import PARSERS, unknown_parsers
from ...model.options.combined import is_users
from ...model.options.environment.reading import naming
from ...model.options.finding import Finding, fact, note, warning
from ...model.options.model_dir import HEAD, check_model
from ...model.options.properties import gather
from ...model.process.ending.start_errors import fetched
from ...model.text.chat_template import chat_template
from ...model.vllm.library.version import VERSIONS, vllm_version
from ...model.vllm.library.version import refusal as version_refusal
from ...model.vllm.library.version import warning as version_warning
from ...model.vllm.pooling.activation import activation_of, leaving_logits
from ..model_code import entry_point_of
from ..secure_mode import SecureMode, secure_mode
from ..sessions.store import check_folder
from ..user_code.extensions import load_extensions
from .arguments import options_of_model
from .checks.adapters import of_adapters, of_code, of_forbidden
from .checks.container import of_container
from .checks.families import of_families
from .checks.media import of_media
from .checks.secure_mode import of_secure_mode
from .checks.workers import of_workers

__all__ = ["check"]

ENTRY_POINT = "lmi.handler"
UNCHECKED = "not checked whether vLLM takes all that together"

DOWNLOADED = ("s3://", "djl://")
"""How a `model_id` begins that DJL Serving downloads; the handler gets the folder (ModelInfo.downloadS3)."""


def check(
    model_dir: Path,
    overrides: Mapping[str, str],
    *,
    environment: Mapping[str, str] | None = None,
    files: bool = True,
    here: bool = True,
) -> list[Finding]:
    """What there is to say of `model_dir` with `overrides` over its options.

    Reads the environment as the container does; without `files` neither the model nor adapters are looked for, without
    `here` what depends on this machine is left open: its devices, and packages that vLLM may need.
    Raises OptionError for what start-up would refuse.
    """
    overrides = options_of_model(model_dir) | dict(overrides)
    environment = os.environ if environment is None else environment
    options = gather(model_dir, environment) | {name.removeprefix("option."): text for name, text in overrides.items()}
    given = options.get("model_id") or environment.get("HF_MODEL_ID", "")
    if downloaded := given.startswith(DOWNLOADED):
        overrides = {**overrides, "model_id": ""}
        environment = {name: text for name, text in environment.items() if name != "HF_MODEL_ID"}
    settings = load_settings(model_dir, environment=environment, overrides=overrides)
    secure = secure_mode(environment)
    with naming(settings.sources):
        if secure is not None:
            secure.check_variables(settings, environment)
        model = f"model: {given or settings.model_id}, not checked" if downloaded or not files else ""
        workers = list(of_workers(settings, options))
        return _found(settings, environment, model, secure, workers, adapters=files, here=here and not model)


def _found(
    settings: Settings,
    environment: Mapping[str, str],
    model: str,
    secure: SecureMode | None,
    workers: list[Finding],
    *,
    adapters: bool,
    here: bool,
) -> list[Finding]:
    """`model` stands for what the model's files say, where they are not there."""
    own = _own_code(settings)
    entry = _entry_point(settings, environment)
    model = model or check_model(settings)
    _check_activation(settings)
    _check_sessions(settings)
    mode = f"rolling batch of at most {settings.max_rolling_batch_size}"
    if settings.rolling_batch == "disable":
        mode = "async mode" if settings.async_mode else "dynamic batches"
    return [
        fact(f"options: good; {settings.backend}, {mode}"),
        *settings.notes,
        *(of_secure_mode(settings, secure, environment) if secure else ()),
        entry,
        *own,
        fact(model),
        *_template(settings),
        *(of_families(settings) if adapters else ()),
        *workers,
        *(of_adapters(settings) if adapters else ()),
        *(of_forbidden(settings, secure) if secure and adapters else ()),
        *(of_code(settings, secure) if adapters else ()),
        *_hosts(settings),
        *_arguments(settings, here=here),
    ]


def _own_code(settings: Settings) -> list[Finding]:
    """User code, loaded as start-up does; the container alone may have what it imports."""
    before = list(sys.path)
    try:
        extensions = load_extensions(settings)
    except OptionError as error:
        if not of_container(error):
            raise
        return [note(f"not checked, as it needs djl_python, which only the container has: {error.message}")]
    finally:
        sys.path[:] = before
    found = [
        ("handle", extensions.handler),
        ("input formatter", extensions.input),
        ("output formatter", extensions.output),
        ("content filter", extensions.filter),
    ]
    kinds = [kind for kind, one in found if one]
    kinds += [f"dialect {dialect.name}" for dialect in extensions.dialects]
    return [fact(f"your own code: {', '.join(kinds)}")] if kinds else []


def _check_activation(settings: Settings) -> None:
    """Raises OptionError for a head for classes whose activation is not known."""
    config = base_config(settings) or {}
    if settings.scores and str((config.get("architectures") or [""])[0]).endswith(HEAD):
        activation_of({**config, **leaving_logits(config, {})})


def _check_sessions(settings: Settings) -> None:
    """Raises OptionError for a folder that sessions cannot be kept in, as their start does."""
    sessions = settings.sessions
    if sessions.enable_stateful_sessions and sessions.sessions_path is not None:
        try:
            check_folder(Path(settings.model_dir, sessions.sessions_path))
        except (OSError, SessionError) as error:
            raise OptionError.of("sessions_path", str(error)) from None


def _template(settings: Settings) -> list[Finding]:
    """Raises OptionError for a chat template that is none, where the start would read it."""
    if settings.embeds or is_users(settings.backend):
        return []
    try:
        chat_template(settings)
    except ImportError:
        return [note("option.chat_template is not checked: transformers is not installed here", "chat_template")]
    return []


def _entry_point(settings: Settings, environment: Mapping[str, str]) -> Finding:
    entry = entry_point_of(settings, environment)
    source = None if settings.host.get("entryPoint") else "DJL_ENTRY_POINT"
    directory = Path(settings.model_dir)
    if not entry and (directory / "model.py").is_file():
        only = "it serves through this handler if it imports it"
        return fact(f"entry point: model.py, as option.entryPoint is not set; {only}")
    instead = f"option.entryPoint={ENTRY_POINT}"
    if not entry:
        return warning("entry point: none, so that DJL Serving would run its own handler", "entryPoint", instead)
    if entry.lower().startswith("http"):
        return fact(f"entry point: {entry}, not checked")
    if entry.endswith(".py"):
        if not (directory / entry).is_file():
            raise OptionError.of_all([Fault("entryPoint", f"there is no file {directory / entry}", source=source)])
        return fact(f"entry point: {entry}")
    with _importing_from(directory):
        try:
            found = importlib.util.find_spec(entry) is not None
        except (ImportError, ValueError):
            found = False
    if entry.startswith("djl_python"):
        own = f"entry point: {entry}, which is DJL Serving's own handler and not this one"
        return warning(own, "entryPoint", instead)
    if not found:
        why = f"no module {entry} in {directory} or on Python's path"
        raise OptionError.of_all([Fault("entryPoint", why, source=source)])
    return fact(f"entry point: {entry}")


@contextmanager
def _importing_from(directory: Path) -> Iterator[None]:
    """The model directory ahead on Python's path, as in DJL's worker."""
    sys.path.insert(0, str(directory))
    try:
        yield
    finally:
        sys.path.remove(str(directory))


def _hosts(settings: Settings) -> Iterator[Finding]:
    parallel = settings.parallel
    if parallel.nnodes > 1:
        ports = f"ports {parallel.node_port} and {parallel.master_port} of {parallel.master_addr}"
        role = "a follower: run lmi follow" if parallel.follows else "the leader; on the others run lmi follow"
        this = f"this one is node {parallel.node_rank}, {role}"
        yield fact(f"hosts: {parallel.nnodes}, which meet at {ports}; {this}")


def _arguments(settings: Settings, *, here: bool) -> list[Finding]:
    if is_users(settings.backend):
        return [_users_engine(settings) if here else fact(f"engine {settings.backend}: your own, not checked")]
    return _of_vllm(settings, here=here)


def _users_engine(settings: Settings) -> Finding:
    """Raises OptionError for one that is not there; what it imports may be in the container alone."""
    try:
        with _importing_from(Path(settings.model_dir)):
            users_backend(settings)
    except OptionError as error:
        cause = error.__cause__
        missing = cause.name if isinstance(cause, ModuleNotFoundError) else None
        if missing is None or f"{settings.backend.partition(':')[0]}.".startswith(f"{missing}."):
            raise
        return note(f"engine {settings.backend}: not checked, as it needs {missing}, which is not installed here")
    return fact(f"engine {settings.backend}: your own, not checked: it is loaded at start")


def _of_vllm(settings: Settings, *, here: bool) -> list[Finding]:
    if importlib.util.find_spec("vllm") is None:
        if not (settings.pools or settings.tool_parser_plugin or settings.reasoning_parser_plugin):
            refuse(unknown_parsers(settings, PARSERS, f"vLLM's {VERSIONS}"))
        names = ", ".join(sorted(settings.engine_arguments))
        return [fact(f"vLLM is not installed here ({VERSIONS} is supported): not checked whether it knows {names}")]
    from ...model.vllm.options import engine_arguments
    from ...model.vllm.setup.lmcache import is_missing
    from ...model.vllm.setup.plugins import import_plugins

    installed = vllm_version()
    if fault := version_refusal(installed):
        raise OptionError(fault)
    plugins = import_plugins(settings)
    arguments = engine_arguments(settings)
    found = [warning(said)] if (said := version_warning(installed)) else []
    found += [fact(f"vLLM {installed}: good; {len(arguments)} arguments, among them {_shown(arguments)}")]
    found += [fact(f"parsers of your own: {path}") for path in plugins]
    if option := is_missing(settings):
        found.append(warning(f"option.{option} requires the package lmcache, which is not installed here", option))
    ignored = sorted(set(settings.unprefixed) - arguments.keys())
    if ignored:
        found.append(warning(f"unknown, and without `option.`, therefore ignored: {', '.join(ignored)}"))
    if here and Path(settings.model_id).exists():
        found += _tried_here(settings)
    return found


def _tried_here(settings: Settings) -> list[Finding]:
    """Raises OptionError for what vLLM refuses of this model on this machine."""
    from ...model.vllm.configured import runs_here, tried

    if not runs_here():
        return [note(f"{UNCHECKED}: it finds no device here")]
    if option := next(fetched(settings), None):
        return [note(f"{UNCHECKED}: {settings.called(option)} names what only a start fetches", option)]
    found = tried(settings)
    if isinstance(found, StartError):
        raise found if isinstance(found, OptionError) else OptionError(found.message, found.param)
    return [] if found is None or settings.pools else [*of_media(found.info, found.chat.media.missing)]


def _shown(arguments: Mapping[str, object]) -> str:
    names = (
        "runner",
        "convert",
        "dtype",
        "max_model_len",
        "max_num_seqs",
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "data_parallel_size",
        "kv_cache_memory_bytes",
    )
    return ", ".join(f"{name}={arguments[name]}" for name in names if name in arguments)
