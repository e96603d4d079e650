"""Tables of fields, which read an object of a request and describe it; unknown fields, what no dialect supports.

{"top_k": 5} --Table([Parameter(...), ...])--> values by key, or an error that names the field
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from ...model.errors import Fault, ParameterError, PayloadError, RequestError, UnsupportedError, most_like, one_line
from ...model.options import Settings
from ..dialect import JsonSchema
from .kinds import Anything, Kind, Nested
from .schemas import NULL, nullable

__all__ = [
    "Parameter",
    "Table",
    "add_values",
    "handle_unknown_field",
    "harmless",
    "log_once",
    "paths_of",
    "two_values",
    "unserved",
]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A row of the table."""

    name: str
    kind: Kind | Nested
    default: Any
    key: str | None = None
    """What it sets: a field of Sampling or a switch of the dialect. None: it has no effect on the response."""
    default_only: bool = False
    """Whether the default is the only value that is supported."""
    why: str = ""
    """Why it is."""
    equivalents: Mapping[int, int | None] = field(default_factory=dict[int, "int | None"])
    """Values that mean the same as another one."""

    def refused(self, shown: str, value: Any) -> RequestError:
        """The error for a value that is not the default, where that is all that is supported."""
        why = f" ({self.why})" if self.why else ""
        if self.default in (None, ""):
            return UnsupportedError.because(Fault(shown, f"not supported{why}"))
        return UnsupportedError.of(shown, value, f"{self.default}, the only value that is supported{why}")

    @property
    def schema(self) -> JsonSchema:
        """What the field may be, with its default."""
        default = self.default
        if self.default_only:
            # 0 is 0.0, but 0 is not false.
            return NULL if default is None else nullable({"const": default})
        schema = nullable(self.kind.schema)
        return {**schema, "default": default} if isinstance(default, str | int | float) else schema


def paths_of(rows: Iterable[Parameter], start: str, struct: type[Struct], prefix: str = "") -> dict[str, str]:
    """Of a dialect's table what its fields come to: for each field of `struct`, at `start`, the first row that
    sets it, after `prefix`.
    """
    keys = struct.__struct_fields__
    return {f"{start}.{row.key}": f"{prefix}{row.name}" for row in [*rows][::-1] if row.key in keys}


def unserved(*names: str) -> tuple[Parameter, ...]:
    """Fields that would change the answer, or whom it may be shown to: null alone is served."""
    return tuple(Parameter(name, Anything(), None, default_only=True) for name in names)


def harmless(*names: str) -> tuple[Parameter, ...]:
    """Fields that change nothing in an answer."""
    return tuple(Parameter(name, Anything(), None) for name in names)


NOTHING = (None, ())
"""Defaults that ask for nothing, as null."""


class Table(dict[str, Parameter], Nested):
    """The fields of an object: rows, by their names."""

    def __init__(
        self, rows: Iterable[Parameter], required: tuple[str, ...] = (), either: tuple[str, str] | None = None
    ) -> None:
        """`required`: those that there must be. `either`: two of which there must be exactly one."""
        super().__init__((row.name, row) for row in rows)
        self.required = required
        self.either = either
        self._defaults = {row.key: row.default for row in self.values() if row.key}

    @property
    def schema(self) -> JsonSchema:
        shown = {name: row.kind.schema if name in self.required else row.schema for name, row in self.items()}
        schema: JsonSchema = {"type": "object", "properties": shown}
        if self.required:
            schema["required"] = [*self.required]
        if self.either is not None:
            schema["anyOf"] = [{"required": [name]} for name in self.either]
        return schema

    def described(self, settings: Settings) -> JsonSchema:
        """The schema, as OpenApi asks for it."""
        return self.schema

    @property
    def description(self) -> str:
        return "an object"

    def read(self, name: str, given: Any, settings: Settings) -> tuple[dict[str, Any], dict[str, str]]:
        """The value of each key, and which field gave it; null is the default. Raises RequestError.

        Fields are named by their places in `name`, or where that is empty, as they are.
        """
        values, names = self._defaults.copy(), dict[str, str]()
        asked: set[str] = set()
        for row, shown, value in self._given(name, given, settings):
            key = row.key
            if key is None:
                continue
            if value == row.default and value in NOTHING:
                names.setdefault(key, shown)
            elif key not in asked:
                asked.add(key)
                names[key] = shown
                values[key] = value
            elif not _same(values[key], value):
                raise two_values(shown, names[key])
        return values, names

    def given(self, body: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
        """The value of each key that a body gives; raises RequestError."""
        given = self._given("", body, settings)
        return {row.key: value for row, _, value in given if row.key is not None and value is not None}

    def _given(self, place: str, given: Any, settings: Settings) -> Iterator[tuple[Parameter, str, Any]]:
        """Of each field that is there: its row, what it is called, and its value."""
        if not isinstance(given, dict):
            raise PayloadError.of(place, given, self.description)
        prefix = f"{place}." if place else ""
        for name, value in given.items():
            if value is None:
                continue
            row = self.get(name)
            if row is None:
                handle_unknown_field(name, self, settings, prefix)
                continue
            shown, kind = prefix + name, row.kind
            value = kind.read(shown, value, settings) if isinstance(kind, Nested) else kind.read(shown, value)
            if row.equivalents:
                value = row.equivalents.get(value, value)
            if row.default_only and value != row.default:
                raise row.refused(shown, value)
            yield row, shown, value
        for name in self.required:
            if given.get(name) is None:
                shown, kind = f"{prefix}{name}", self[name].kind
                expected = kind.description
                if name in given:
                    raise PayloadError.of(shown, None, expected)
                raise PayloadError.because(Fault(shown, expected=f"{expected}, but there is no such field"))
        if self.either is not None:
            self._check_either(prefix, given, *self.either)

    def _check_either(self, prefix: str, given: Mapping[str, Any], one: str, other: str) -> None:
        there = [name for name in (one, other) if given.get(name) is not None]
        if not there:
            expected = f"{self[one].kind.description}, or a field {other}"
            raise PayloadError.because(Fault(f"{prefix}{one}", expected=f"{expected}, but there is none"))
        if len(there) > 1:
            raise ParameterError.because(Fault(f"{prefix}{other}", f"cannot be combined with {one}"))


def _same(one: Any, other: Any) -> bool:
    """Whether two values are one: 1 and true are two, of `truncate` one token and as many as fit."""
    return type(one) is type(other) and bool(one == other)


def two_values(name: str, other: str) -> ParameterError:
    """The error for a parameter that is given by two of its names with two values; with one value they are one."""
    return ParameterError.because(
        Fault(name, f"the same parameter as {other}, which has another value; set only one of them")
    )


def add_values(
    values: dict[str, Any], names: dict[str, str], more: Mapping[str, Any], more_names: Mapping[str, str]
) -> None:
    """Adds what an object `parameters` says to what a body says beside it, both as Table.read has them; raises
    ParameterError where they differ."""
    for key, name in more_names.items():
        if key in names and not _same(values[key], more[key]):
            raise two_values(names[key], name)
        values[key], names[key] = more[key], name


MAX_LOGGED_NAMES = 1000
MAX_NAME_CHARACTERS = 256
_logged_names: set[str] = set()
"""Unknown names that have been logged; not more, so that no client can fill memory or log."""


def handle_unknown_field(name: str, known: Iterable[str], settings: Settings, prefix: str = "") -> None:
    """Ignores a name with one log line a process, or refuses it (docs/decisions.md: Unknown parameters)."""
    if settings.unknown_parameters == "error":
        like = most_like(name[:64], known)
        fault = Fault(_shown(name, prefix), "unknown field", similar=prefix + like if like else "")
        raise UnsupportedError.because(fault)
    # The value may be part of a prompt: it is not for the log.
    log_once("unknown request field ignored: %s", name, prefix)


def log_once(message: str, name: str, prefix: str = "") -> None:
    """Logs what is done without something that clients name, with its name, one line a process."""
    if len(_logged_names) >= MAX_LOGGED_NAMES:
        return
    shown = _shown(name, prefix)
    if shown not in _logged_names:
        _logged_names.add(shown)
        log.warning(message, shown)


def _shown(name: str, prefix: str) -> str:
    """A name may be as long as the body."""
    return prefix + one_line(name[:MAX_NAME_CHARACTERS])[:64]
