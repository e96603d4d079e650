"""What a request's fields may be, for the tables of all dialects: kinds of values, a table's row, unknown names.

Parameter(name, kind, ...)   kind.read(name, given) -> value, or an error that names the field
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...model.errors import ParameterError, PayloadError, UnsupportedError, one_line
from ...model.options import Settings
from ..base import Request

__all__ = [
    "LARGEST",
    "LARGEST_ID",
    "Anything",
    "Boolean",
    "Ids",
    "Integer",
    "Kind",
    "Number",
    "Object",
    "Parameter",
    "Text",
    "Texts",
    "Tree",
    "handle_unknown_field",
    "read_ids",
    "read_rows",
    "refuse_headers",
]

logger = logging.getLogger(__name__)

LARGEST = 2**63 - 1
"""Integers travel to the engine as msgpack, and on into 64-bit tensors."""
LARGEST_ID = 2**31 - 1
TEXTS = 64
TEXTS_LENGTH = 4096
"""Stop strings are looked for at every token, in time and memory that other requests pay for too."""
IDS = 1024


DEPTH = 100


class Kind(Protocol):
    """What a parameter's value may be."""

    def read(self, name: str, given: Any) -> Any:
        """The value; raises PayloadError for a wrong type, ParameterError for a value that is out of range."""
        ...


@dataclass(frozen=True, slots=True)
class Boolean:
    """true or false, or one of `words`."""

    words: tuple[str, ...] = ()

    def read(self, name: str, given: Any) -> bool | str:
        if isinstance(given, bool) or (isinstance(given, str) and given in self.words):
            return given
        raise PayloadError.of(name, given, " or ".join(("true or false", *map(repr, self.words))))


@dataclass(frozen=True, slots=True)
class Integer:
    """From `low` to `high`. 5.0 is an integer too, as in JSON Schema: JSON has one type of number."""

    low: int
    high: int = LARGEST

    def read(self, name: str, given: Any) -> int:
        if isinstance(given, float) and given.is_integer():
            given = int(given)
        if not isinstance(given, int) or isinstance(given, bool):
            raise PayloadError.of(name, given, f"an integer >= {self.low}")
        if given < self.low:
            raise ParameterError.of(name, given, f"an integer >= {self.low}")
        if given > self.high:
            raise ParameterError.of(name, given, f"an integer from {self.low} to {self.high}")
        return given


@dataclass(frozen=True, slots=True)
class Number:
    """From `low` to `high`; `low` itself only where not `above`. An integer will do."""

    low: float
    high: float
    above: bool = False

    def read(self, name: str, given: Any) -> float:
        between = f"above {self.low:g} and up to" if self.above else f"from {self.low:g} to"
        expected = f"a number {between} {self.high:g}"
        if not isinstance(given, int | float) or isinstance(given, bool):
            raise PayloadError.of(name, given, expected)
        # Compared before it is converted: an integer may be too large for a float. NaN fails both comparisons.
        if not self.low <= given <= self.high or (self.above and given == self.low):
            raise ParameterError.of(name, given, expected)
        return float(given)


@dataclass(frozen=True, slots=True)
class Texts:
    """A list of non-empty strings; a single string is a list of one. With `flag` a boolean passes and means nothing."""

    flag: bool = False

    def read(self, name: str, given: Any) -> tuple[str, ...]:
        if self.flag and isinstance(given, bool):
            return ()
        if isinstance(given, str):
            given = [given]
        if not isinstance(given, list):
            raise PayloadError.of(name, given, "a list of non-empty strings")
        for index, text in enumerate(given):
            if not isinstance(text, str):
                raise PayloadError.of(f"{name}[{index}]", text, "a non-empty string")
            if not text:
                raise ParameterError.of(f"{name}[{index}]", text, "a non-empty string")
        if len(given) > TEXTS or sum(map(len, given)) > TEXTS_LENGTH:
            raise ParameterError(f"{name}: expected at most {TEXTS} strings of {TEXTS_LENGTH} characters in all", name)
        return tuple(given)


@dataclass(frozen=True, slots=True)
class Ids:
    """A list of token ids."""

    def read(self, name: str, given: Any) -> tuple[int, ...]:
        if not isinstance(given, list):
            raise PayloadError.of(name, given, "a list of token ids")
        if len(given) > IDS:
            raise ParameterError(f"{name}: expected at most {IDS} token ids", name)
        one = Integer(0, LARGEST_ID)
        return tuple(one.read(f"{name}[{index}]", value) for index, value in enumerate(given))


def read_ids(given: list[Any], name: str) -> tuple[int, ...]:
    """A prompt's token ids. Of the hundred thousands that there may be only a wrong one is looked at by itself."""
    if set(map(type, given)) == {int} and min(given) >= 0 and max(given) <= LARGEST_ID:
        return tuple(given)
    one = Integer(0, LARGEST_ID)
    return tuple(
        int(value)
        if type(value) in (int, float) and 0 <= value <= LARGEST_ID and value == int(value)
        else one.read(f"{name}[{index}]", value)
        for index, value in enumerate(given)
    )


@dataclass(frozen=True, slots=True)
class Text:
    """A string, or one of `words`."""

    words: tuple[str, ...] = ()

    def read(self, name: str, given: Any) -> str:
        if not isinstance(given, str):
            raise PayloadError.of(name, given, self._expected)
        if self.words and given not in self.words:
            raise ParameterError.of(name, given, self._expected)
        return given

    @property
    def _expected(self) -> str:
        return "one of " + ", ".join(self.words) if self.words else "a string"


@dataclass(frozen=True, slots=True)
class Object:
    """A JSON object, whatever is in it."""

    def read(self, name: str, given: Any) -> dict[str, Any]:
        if not isinstance(given, dict):
            raise PayloadError.of(name, given, "an object")
        return given


@dataclass(frozen=True, slots=True)
class Tree:
    """A JSON object that goes to the engine as it is: its depth and integers must be such as every encoder bears."""

    def read(self, name: str, given: Any) -> dict[str, Any]:
        tree = Object().read(name, given)
        level: list[Any] = [tree]
        for _ in range(DEPTH):
            members = [inner for value in level for inner in (value.values() if isinstance(value, dict) else value)]
            for inner in members:
                if isinstance(inner, int) and not -LARGEST <= inner <= LARGEST:
                    raise ParameterError.of(name, inner, f"integers from {-LARGEST} to {LARGEST} in it")
            level = [inner for inner in members if isinstance(inner, dict | list)]
            if not level:
                return tree
        raise ParameterError(f"{name}: expected at most {DEPTH} levels", name)


@dataclass(frozen=True, slots=True)
class Anything:
    """For what is refused whatever it is."""

    def read(self, name: str, given: Any) -> Any:
        return given


@dataclass(frozen=True, slots=True)
class Parameter:
    """A row of the table."""

    name: str
    kind: Kind
    default: Any
    key: str | None = None
    """What it sets: a field of Sampling or a switch of the dialect. None: nothing that an answer shows."""
    only: bool = False
    """Whether the default is the only value that is served."""
    same: Mapping[int, int | None] = field(default_factory=dict[int, "int | None"])
    """Values that stand for another one."""


def read_rows(
    given: Mapping[str, Any], rows: Mapping[str, Parameter], settings: Settings, prefix: str = ""
) -> tuple[dict[str, Any], dict[str, str]]:
    """The value of each key of a table, by its rows' names, and which field gave it; null is the default.

    Raises RequestError, naming the field as it was written after `prefix`.
    """
    values = {row.key: row.default for row in rows.values() if row.key}
    names: dict[str, str] = {}
    for name, value in given.items():
        if value is None:
            continue
        row = rows.get(name)
        if row is None:
            handle_unknown_field(name, rows, settings, prefix)
            continue
        shown = f"{prefix}{name}"
        value = row.kind.read(shown, value)
        if row.same:
            value = row.same.get(value, value)
        if row.only and value != row.default:
            if row.default is None:
                raise UnsupportedError(f"{shown}: not supported", shown)
            raise UnsupportedError.of(shown, value, f"{row.default}, the only value that is supported")
        if row.key is None:
            continue
        if value == row.default:
            names.setdefault(row.key, shown)
            continue
        if values[row.key] != row.default:
            raise ParameterError(f"{shown}: the same parameter as {names[row.key]}, expected one of them", shown)
        names[row.key] = shown
        values[row.key] = value
    return values, names


MET = 1000
_met: set[str] = set()
"""Unknown names that have been logged; not more than MET, so that no client can fill memory or log."""


def handle_unknown_field(name: str, known: Iterable[str], settings: Settings, prefix: str = "") -> None:
    """Ignores a name with one log line a process, or refuses it (wire-decisions: a parameter that nobody knows)."""
    shown = prefix + one_line(name)[:64]
    if settings.unknown_parameters == "error":
        near = difflib.get_close_matches(name[:64], known, n=1)
        hint = f"; did you mean {prefix}{near[0]}?" if near else ""
        raise UnsupportedError(f"{shown}: not known{hint}", shown)
    if shown not in _met and len(_met) < MET:
        _met.add(shown)
        # The value may be part of a prompt: it is not for the log.
        logger.warning("a request field that is not known is ignored: %s", shown)


ADAPTER_HEADER = "X-Amzn-SageMaker-Adapter-Identifier"
SESSION_HEADER = "X-Amzn-SageMaker-Session-Id"


def refuse_headers(request: Request) -> None:
    """Adapters and stateful sessions: to ignore them would answer from the wrong model, or without the session."""
    for header, subject in ((SESSION_HEADER, "stateful sessions"), (ADAPTER_HEADER, "adapters")):
        if request.headers.get(header.lower()):
            raise UnsupportedError(f"the header {header}: {subject} are not supported", header)
