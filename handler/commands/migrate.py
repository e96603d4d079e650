"""`lmi migrate`: serving.properties for this handler, of a configuration of LMI, of TGI or of the plain vLLM image.

    DIR/serving.properties ------------> entries --RULES, advice/-----> entries --`lmi check`, again and again--> text
    environment --the handler's own tables--^       what differs is said          what it refuses is commented out

The environment is read by the tables that the handler itself reads it by (model/options/environment/), so that a file
made of it means the same. Secrets stay where they are: what no table names is told by its name only.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ...model.errors import OPTION, Fault, OptionError
from ...model.options.environment.reading import Merged, merge
from ...model.options.environment.tgi import HUGGING_FACE, MODELS, TGI
from ...model.options.environment.vllm_image import LIBRARY, PREFIX, SIZES, variable_named
from ...model.options.finding import Finding
from ...model.options.properties import gather, sources_of
from ...model.options.table import option_named
from .check import check
from .migrate_entry import Entry, escaped, in_ascii
from .migrate_rules import ASYNC_MODE, ENTRY_POINT, JAVAS, LOAD_MODELS, READ, mpi_models, ruled
from .migrate_source import MigrateError, environment_of, lines_of

__all__ = ["MigrateError", "Migrated", "escaped", "migrate", "write"]

_FILE = "serving.properties"
MODEL_DIR = Path("/opt/ml/model")
"""Where SageMaker puts a model: the model directory, in whatever container."""
_OF_THE_MODEL = {"HF_TASK", *MODELS, *(name for names in MODELS.values() for name in names)}
_ENTRY_POINT = "DJL_ENTRY_POINT"
_RUNTIME_LORA = "VLLM_ALLOW_RUNTIME_LORA_UPDATING"
_TGIS_ANSWERS = [
    "TGI's answers to `inputs`, which are read as LMI's: max_new_tokens is 30 unless given, stop strings are cut off.",
    "Requests with the attribute dialect=tgi are read as TGI's.",
]
_VARIABLES = {variable.name: variable for variable in (*HUGGING_FACE, *TGI, *LIBRARY, *SIZES)}


@dataclass
class Migrated:
    """What there is to write, and to say."""

    text: str
    checked: list[Finding]
    """What `lmi check` says of it."""
    refused: list[str]
    """What is not served, each with what to write instead where there is something."""


def migrate(source: Path) -> Migrated:
    """What `source`, a model directory or a file with an environment, becomes.

    Raises MigrateError where it cannot be read, and OptionError for what `lmi check` refuses and no entry is to blame.
    """
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        if source.is_dir():
            if not (source / _FILE).is_file():
                raise MigrateError(f"{source} has no {_FILE}: where variables say it all, give a file of them")
            entries = [Entry(key, value, raw) for key, value, raw in lines_of(source / _FILE)]
            for entry in source.iterdir():
                if entry.name != _FILE:
                    directory.joinpath(entry.name).symlink_to(entry.absolute())
        elif source.is_file():
            entries = list(_of_environment(environment_of(source), directory))
        else:
            raise MigrateError(f"{source}: expected a model directory or a file with an environment, found nothing")
        entries = ruled(entries)
        _complete(entries, lmis=source.is_dir() or any(entry.option == "rolling_batch" for entry in entries))
        try:
            checked = _checked(entries, source, directory)
        except OptionError as error:
            raise OptionError.of_all(_placed(fault, name, source) for fault in error.faults) from error
    checked = [msgspec.structs.replace(one, message=one.message.replace(name, str(source))) for one in checked]
    refused = [entry.refused for entry in entries if entry.fault]
    return Migrated("\n".join(_document(source, entries)) + "\n", checked, refused)


def _placed(fault: Fault, name: str, source: Path) -> Fault:
    """The same with `source` in the place of the folder `name`, where it was tried."""
    texts = ((field, getattr(fault, field)) for field in fault.__struct_fields__)
    return Fault(**{field: text and text.replace(name, str(source)) for field, text in texts})


def write(text: str, output: Path, *, force: bool) -> Path:
    """Writes serving.properties as that file, or into that folder; raises MigrateError where there is one already."""
    path = output / _FILE if output.is_dir() else output
    if path.exists() and not force:
        raise MigrateError(f"{path} exists: --force writes over it")
    path.write_text(text, "ascii")
    return path


def _of_environment(given: Mapping[str, str | None], empty: Path) -> Iterator[Entry]:
    """The entries that say what the variables do, by variable, in the tables' order."""
    environment = {name: text for name, text in given.items() if text is not None}
    sources = sources_of(empty, environment)
    written = gather(empty, environment)
    tgis = not any(name.startswith(PREFIX) for name in given)
    merged = merge(written, model_dir=MODEL_DIR, environment=environment, written=written, sources=sources, tgis=tgis)
    yield from _noted(merged, environment)
    for name, value in merged.properties.items():
        variable = merged.sources.get(name, "")
        if name == "hf_token":
            yield Entry(comments=[f"dropped: {variable}: set HF_TOKEN in the environment, no token is for a file"])
            continue
        declared = _declared(variable)
        comment = f"{variable}={environment[variable]}" + (f": {declared}" if declared else "")
        prefix = "" if variable.startswith("ARGS_") or name == "engine" else "option."
        yield Entry(prefix + name, value, comments=[] if variable.startswith("OPTION_") else [comment])
    if (entry := environment.get(_ENTRY_POINT)) and "entryPoint" not in merged.properties:
        yield Entry("option.entryPoint", entry, comments=[f"{_ENTRY_POINT}={entry}"])
    elif entry:
        yield Entry(comments=[f"dropped: {_ENTRY_POINT}={entry}: option.entryPoint goes first"])
    if environment.get(_RUNTIME_LORA, "").lower() in {"1", "true"}:
        yield Entry(comments=[f"dropped: {_RUNTIME_LORA}: option.enable_lora=true lets adapters come and go"])
    for variable, key in JAVAS.items():
        if environment.get(variable):
            yield Entry(key, environment[variable], comments=[f"{variable}={environment[variable]}"])
    if _is_tgis(given):
        yield Entry("option.tgi_compat", "true", comments=_TGIS_ANSWERS)
    if not tgis and "tensor_parallel_size" not in merged.properties:
        yield Entry("option.tensor_parallel_degree", "1", comments=["vLLM's default; here it is all devices"])
    if not tgis and "enable_lora" in merged.properties and "max_loras" not in merged.properties:
        yield Entry("option.max_loras", "1", comments=["vLLM's default; here it is 4"])
    if limit := environment.get("MAX_CONCURRENT_REQUESTS"):
        yield Entry("job_queue_size", limit, comments=["The same for DJL Serving's own queue"])
    mpi = {name: text for name, text in environment.items() if name == LOAD_MODELS and "::MPI" in text}
    yield from (Entry(fault=mpi_models(text)) for text in mpi.values())
    known = {*mpi, _ENTRY_POINT, _RUNTIME_LORA, *JAVAS, *_VARIABLES, *_OF_THE_MODEL, *merged.sources.values()}
    known |= {name for name in given if name.startswith(("OPTION_", "ARGS_", PREFIX))}
    rest = [name for name, text in given.items() if text is None or name not in known]
    if stay := [name for name in rest if name in known or READ.fullmatch(name)]:
        yield Entry(comments=[f"Still to be set in the environment, where they are read: {', '.join(stay)}"])
    if unread := [name for name in rest if name not in stay]:
        yield Entry(comments=[f"dropped: nothing here reads {', '.join(unread)}"])


def _is_tgis(environment: Mapping[str, str | None]) -> bool:
    """Whether it says something to TGI, and nothing to another container; LMI's reads some of TGI's names too."""
    lmis = any(name.startswith(("OPTION_", "ARGS_", "SERVING_", "TENSOR_PARALLEL_", PREFIX)) for name in environment)
    return not lmis and not environment.keys().isdisjoint(variable.name for variable in TGI)


def _noted(merged: Merged, environment: Mapping[str, str]) -> Iterator[Entry]:
    for name in environment:
        if name in _OF_THE_MODEL and name not in merged.sources.values():
            why = "the model is the model directory's" if "model_id" not in merged.sources else "another one goes first"
            yield Entry(comments=[f"dropped: {name}={environment[name]}: {why}"])
    for note in merged.notes:
        yield Entry(comments=[f"dropped: {note.message}" if note.level == "warning" else note.message])
    for fault in merged.faults:
        yield Entry(fault=fault)
    for name in environment:
        if name in _VARIABLES and _VARIABLES[name].fate == "unread":
            yield Entry(comments=[f"dropped: {name} has no effect: {_VARIABLES[name].help}"])


def _declared(variable: str) -> str:
    if variable.startswith(PREFIX):
        return variable_named(variable).help
    return _VARIABLES[variable].help if variable in _VARIABLES else ""


def _complete(entries: list[Entry], *, lmis: bool) -> None:
    """Adds what every configuration of this handler has, and the mode where the other container had none of LMI's."""
    given = {entry.option: entry.value for entry in entries if entry.key and not entry.fault}
    head: dict[str, str] = {}
    if "engine" not in given:
        head["engine"] = "Python"
    if "entryPoint" not in given:
        head["option.entryPoint"] = ENTRY_POINT
    if not lmis:
        head |= {key: value for key, value in ASYNC_MODE.items() if key.removeprefix("option.") not in given}
    if given.get("task") == "text-ranking":
        # Not the task that DJL's engine of vectors stands for.
        entries[:] = [entry for entry in entries if (entry.key, entry.value) != ("option.task", "text-embedding")]
    entries[:0] = [Entry(key, value) for key, value in head.items()]


def _checked(entries: list[Entry], source: Path, directory: Path) -> list[Finding]:
    """What `lmi check` says, once what it refuses is no longer among the entries."""
    while True:
        directory.joinpath(_FILE).write_text("\n".join(_document(source, entries)), "ascii")
        try:
            # What is not here is in the container, or on the hub, and so are the devices.
            files = (directory / "config.json").is_file()
            return check(directory, {}, environment={}, files=files, here=False)
        except OptionError as error:
            # Others may be right without the first.
            if not any(_mend(entries, fault) for fault in error.faults):
                raise


def _mend(entries: list[Entry], fault: Fault) -> bool:
    """Comments the entry that is to blame out, or writes what is to stand there where there is none."""
    entry = _to_blame(entries, fault.name)
    # Several have ` and ` between them.
    written = [one.partition("=") for one in re.split(f" and (?={re.escape(OPTION)})", fault.instead)]
    if entry is not None:
        entry.fault = fault
    elif written[0][0] == OPTION + str(fault.name):
        entries.append(Entry(comments=[fault.sentence(OPTION)]))
        entries += [Entry(key, value) for key, _, value in written]
    else:
        return False
    return True


def _to_blame(entries: Iterable[Entry], name: str | None) -> Entry | None:
    option = option_named(name or "")
    names = option.names if option else (name,)
    return next((entry for entry in entries if entry.key and not entry.fault and entry.option in names), None)


def _document(source: Path, entries: Iterable[Entry]) -> Iterator[str]:
    name = in_ascii(source.name or str(source))
    yield f"# Made by lmi migrate of {name}. A comment says what differs; docs/migrating.md says more."
    for entry in entries:
        yield from map(in_ascii, entry.text())
