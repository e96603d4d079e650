"""What to write instead of a name or a value: the tables, then likeness, which is no more than a question."""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import OPTION, Fault, most_like, shown
from ..environment.tgi import TGI
from ..environment.variable import Variable
from ..environment.vllm_image import ARGUMENTS, PREFIX
from ..table import WRITTEN_NAMES
from .lmi import LMI
from .row import DEFAULT, Advice, Fate, Row
from .values import VALUES
from .vllm import NEWER, NEWEST, VLLM

__all__ = ["closest", "on_name", "on_value", "unknown"]

CLOSE = 0.85
"""How alike (difflib's ratio) a name is to one that exists to be asked for."""


def _by_name(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        for name in row.names:
            found.setdefault(name, []).append(row)
    return found


_NAMES = _by_name((*LMI, *VLLM))
_VALUES = _by_name(VALUES)
_TGIS = {name: variable for variable in TGI if (name := variable.name.lower()) not in variable.options}
_FATES: dict[str, Fate] = {"refused": "lost", "by hand": "by hand"}
_SERVERS = {variable.name.removeprefix(PREFIX).lower(): variable for variable in ARGUMENTS.values()}


def on_name(name: str, text: str, *, any_version: bool = False) -> Advice | None:
    """What to do about `name`, which is no option, given as `text`; None where nobody knows it.

    `any_version`: whatever the version of vLLM, so that nothing is said of what one of the tested ones has.
    """
    for row in _NAMES.get(name, ()):
        if not (any_version and row.until) and (advice := row.advice(text)):
            return advice
    if name in NEWER:
        return None
    if variable := _TGIS.get(name):
        return _of_variable(variable, text, "TGI's name of it")
    if variable := _SERVERS.get(name):
        return _of_variable(variable, text, "its name here")
    return None


def _of_variable(variable: Variable, text: str, why: str) -> Advice:
    if variable.fate != "option":
        return Advice(_FATES.get(variable.fate, "gone"), variable.help)
    try:
        entries = tuple(variable.texts(text).items())
    except ValueError as error:
        return Advice("lost", f"expected {error}, got {text!r}")
    return Advice("renamed", why, entries) if entries else Advice("gone", DEFAULT)


def on_value(name: str, text: str) -> Advice | None:
    """What to do about the option `name` given as `text`; None where the tables say nothing of it."""
    return next((advice for row in _VALUES.get(name, ()) if (advice := row.advice(text))), None)


def closest(name: str, known: Iterable[str], prefix: str = "") -> str:
    """The one of `known` that is really close to `name`, after `prefix`; empty: none is."""
    return prefix + like if (like := most_like(name, known, CLOSE)) else ""


def unknown(name: str, text: str, engine: str, known: Iterable[str]) -> Fault:
    """What is wrong with `name`, that `engine` (a library and its version) does not have; `known` are those it has."""
    if advice := on_name(name, text):
        return advice.fault(name, text)
    if name in NEWER:
        return Fault(name, f"{engine} does not have it, vLLM {NEWEST} does")
    why = f"there is no such option and no such argument of {engine}"
    return Fault(name, why, given=shown(text), similar=closest(name, [*known, *WRITTEN_NAMES], OPTION))
