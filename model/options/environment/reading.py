"""Who goes first: serving.properties, then OPTION_*, then a cluster's variables, Hugging Face's, TGI's and
SM_VLLM_*.

    properties --written by the user, or by DJL Serving--> merge --> properties, and the variable of each value

The rules of OPTION_*, ARGS_* and the degrees are DJL Serving's (properties.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import Fault, OptionError, shown
from ..advice.find import on_value
from ..finding import Finding
from ..table import option_named
from .cluster import CLUSTER
from .tgi import HUGGING_FACE, MODELS, TGI
from .variable import Variable
from .vllm_image import LIBRARY, PREFIX, SERVER, SIZES, variable_named

__all__ = ["Merged", "merge", "naming"]


@dataclass
class Merged:
    """What comes of it."""

    properties: dict[str, str]
    """By options' names, without `option.`."""
    sources: dict[str, str] = field(default_factory=dict[str, str])
    """By option, under all its names, the variable that its value came from; nothing for those of the file."""
    notes: list[Finding] = field(default_factory=list[Finding])
    faults: list[Fault] = field(default_factory=list[Fault])
    """Of variables that cannot be served."""


def merge(
    properties: Mapping[str, str],
    *,
    model_dir: Path,
    environment: Mapping[str, str],
    written: Mapping[str, str],
    sources: Mapping[str, str],
    tgis: bool = False,
    djl: bool = True,
) -> Merged:
    """`properties` with what the other containers' variables say of options that nobody has set.

    `written` are those that the user has set, and not DJL Serving by itself; `sources` the variables OPTION_* and the
    like that they came from. `tgis`: the environment is one of TGI's, whether or not it names a model. `djl`: DJL
    Serving is the host, or may be, which reads some variables itself.
    """
    merged = Merged(dict(properties), {name: variable for name, variable in sources.items() if name in properties})
    for name, source in [*merged.sources.items()]:
        # Of two names that one option was given by, each has its own.
        merged.sources |= {one: source for one in _names(name) if one not in properties}
    for variable, text in _given(environment, tgis=tgis, djl=djl):
        _take(merged, variable, text, written)
    _name_the_model(merged, model_dir, environment)
    return merged


def _given(environment: Mapping[str, str], *, tgis: bool, djl: bool) -> Iterator[tuple[Variable, str]]:
    """The variables that count, in their order."""
    named = tgis or any(environment.get(name) for name in ("HF_MODEL_ID", "MODEL_ID"))
    for variable in (*CLUSTER, *HUGGING_FACE, *TGI, *LIBRARY, *SIZES, *(() if djl else SERVER)):
        text = environment.get(variable.name, "").strip()
        if text and variable.fate != "unread" and (named or not variable.generic):
            yield variable, text
    for name in sorted(environment):
        if name.startswith(PREFIX) and name != f"{PREFIX}MODEL":
            yield variable_named(name), environment[name].strip()


def _take(merged: Merged, variable: Variable, text: str, written: Mapping[str, str]) -> None:
    if variable.fate == "nothing":
        merged.notes.append(Finding("warning", f"{variable.name} has no effect: {variable.help}"))
    elif variable.fate in {"refused", "by hand"}:
        if text.lower() not in {"false", "0"}:
            given = "" if variable.secret else shown(text)
            why = f"{given or 'its value'} cannot be served: {variable.what_to_do}"
            merged.faults.append(Fault(why=why, given=given, source=variable.name))
    else:
        _set(merged, variable, text, written)


def _set(merged: Merged, variable: Variable, text: str, written: Mapping[str, str]) -> None:
    first = variable.options[0]
    before = next((name for name in _names(first) if name in merged.properties), None)
    copied = (
        before is not None and variable.copied and merged.sources.get(before, "").startswith(("OPTION_", "TENSOR_"))
    )
    try:
        texts = dict(_translated(merged, variable, text))
    except ValueError as error:
        if before is None or (copied and merged.properties[before] == text):
            merged.properties.pop(before or "", None)
            fault = Fault(first, expected=str(error), given=shown(text), source=variable.name)
            merged.faults.append(fault)
        return
    if before is not None:
        of_djl = before not in written and (option := option_named(first)) is not None and option.set_by_djl
        if of_djl and before not in merged.sources:
            other = f"option.{before}={merged.properties[before]}, which DJL Serving has chosen"
            merged.notes.append(Finding("note", f"{variable.name}={text} takes precedence over {other}", first))
        elif not (copied and merged.properties[before] in {text, texts.get(first)}):
            return
        for name in _names(first):
            merged.properties.pop(name, None)
    for name, value in texts.items():
        merged.properties.setdefault(name, value)
        for one in _names(name):
            merged.sources[one] = variable.name


def _translated(merged: Merged, variable: Variable, text: str) -> Iterator[tuple[str, str]]:
    """The options that it means, with values of here in the place of other servers'."""
    for name, value in variable.texts(text).items():
        advice = on_value(option.name if (option := option_named(name)) else name, value)
        if advice and advice.entries:
            message = f"{variable.name}={text} is read as {advice.instead} ({advice.why})"
            merged.notes.append(Finding("note", message, name, advice.instead))
        yield from advice.entries if advice and advice.entries else [(name, value)]


def _names(name: str) -> Collection[str]:
    option = option_named(name)
    return option.names if option else (name,)


def _name_the_model(merged: Merged, model_dir: Path, environment: Mapping[str, str]) -> None:
    """A variable names the model where the directory has none; in LMI's container HF_MODEL_ID makes one anew."""
    if any(merged.properties.get(name) for name in _names("model_id")):
        return
    for variable, revisions in MODELS.items():
        model = environment.get(variable, "").strip()
        if not model:
            continue
        if (model_dir / "config.json").is_file():
            # What DJL Serving downloads lies there.
            if "://" not in model and Path(model).absolute() != model_dir.absolute():
                message = f"{variable}={model} has no effect: {model_dir} holds a model"
                merged.notes.append(Finding("warning", message, "model_id"))
            return
        if Path(model).absolute() == model_dir.absolute():
            return
        merged.properties["model_id"] = model
        merged.sources["model_id"] = variable
        task = ("HF_TASK",) if variable == "HF_MODEL_ID" else ()
        for option, others in (("revision", revisions), ("task", task)):
            other = next((other for other in others if environment.get(other, "").strip()), None)
            if other and option not in merged.properties:
                merged.properties[option] = environment[other].strip()
                merged.sources[option] = other
        return


@contextmanager
def naming(sources: Mapping[str, str]) -> Iterator[None]:
    """OptionErrors about options name the variables that these came from."""
    try:
        yield
    except OptionError as error:
        error.come_from(sources)
        raise
