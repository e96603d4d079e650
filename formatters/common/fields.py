"""One field of a request, for the tables of all dialects: a table's row, unknown fields, what no dialect supports.

{"top_k": 5} --read_rows, by {name: Parameter}--> values by key, or an error that names the field
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from ...model.errors import ParameterError, RequestError, UnsupportedError, did_you_mean, one_line
from ...model.options import Settings
from ..base import JsonSchema
from .kinds import Kind, Nested, read_field
from .schemas import nullable

__all__ = ["Parameter", "fields_schema", "handle_unknown_field", "log_once", "paths_of", "read_rows", "two_values"]

logger = logging.getLogger(__name__)


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
            return UnsupportedError(f"{shown}: not supported{why}", shown)
        return UnsupportedError.of(shown, value, f"{self.default}, the only value that is supported{why}")

    @property
    def schema(self) -> JsonSchema:
        """What the field may be, with its default."""
        default = self.default
        if self.default_only:
            # 0 is 0.0, but 0 is not false.
            return {"type": "null"} if default is None else nullable({"const": default})
        schema = nullable(self.kind.schema)
        return {**schema, "default": default} if isinstance(default, str | int | float) else schema


def fields_schema(rows: Iterable[Parameter]) -> dict[str, JsonSchema]:
    """The properties of an object that a table reads."""
    return {row.name: row.schema for row in rows}


def paths_of(rows: Iterable[Parameter], start: str, struct: type[Struct], prefix: str = "") -> dict[str, str]:
    """Of a dialect's table what its plain fields come to: for each field of `struct`, at `start`, the first row that
    sets it, after `prefix`.
    """
    keys = struct.__struct_fields__
    return {f"{start}.{row.key}": f"{prefix}{row.name}" for row in [*rows][::-1] if row.key in keys}


def read_rows(
    given: Mapping[str, Any], rows: Mapping[str, Parameter], settings: Settings, prefix: str = ""
) -> tuple[dict[str, Any], dict[str, str]]:
    """The value of each key of a table, by its rows' names, and which field gave it; null is the default.

    Raises RequestError, naming the field as it was written after `prefix`.
    """
    values = {row.key: row.default for row in rows.values() if row.key}
    names: dict[str, str] = {}
    asked: set[str] = set()
    for name, value in given.items():
        if value is None:
            continue
        row = rows.get(name)
        if row is None:
            handle_unknown_field(name, rows, settings, prefix)
            continue
        shown = f"{prefix}{name}"
        value = read_field(row.kind, shown, value, settings)
        if row.equivalents:
            value = row.equivalents.get(value, value)
        if row.default_only and value != row.default:
            raise row.refused(shown, value)
        if row.key is None:
            continue
        if value == row.default and value in (None, ()):
            # It asks for nothing, as null.
            names.setdefault(row.key, shown)
            continue
        if row.key in asked:
            if values[row.key] != value:
                raise two_values(shown, names[row.key])
            continue
        asked.add(row.key)
        names[row.key] = shown
        values[row.key] = value
    return values, names


def two_values(name: str, other: str) -> ParameterError:
    """The error for a parameter that is given by two of its names with two values; with one value they are one."""
    return ParameterError(f"{name}: the same parameter as {other}, which has another value; set only one of them", name)


MAX_LOGGED_NAMES = 1000
MAX_NAME_CHARACTERS = 256
_logged_names: set[str] = set()
"""Unknown names that have been logged; not more, so that no client can fill memory or log."""


def handle_unknown_field(name: str, known: Iterable[str], settings: Settings, prefix: str = "") -> None:
    """Ignores a name with one log line a process, or refuses it (docs/decisions.md: Unknown parameters)."""
    if settings.unknown_parameters == "error":
        shown = _shown(name, prefix)
        raise UnsupportedError(f"{shown}: unknown field{did_you_mean(name[:64], known, prefix=prefix)}", shown)
    # The value may be part of a prompt: it is not for the log.
    log_once("unknown request field ignored: %s", name, prefix)


def log_once(message: str, name: str, prefix: str = "") -> None:
    """Logs what is done without something that clients name, with its name, one line a process."""
    if len(_logged_names) >= MAX_LOGGED_NAMES:
        return
    shown = _shown(name, prefix)
    if shown not in _logged_names:
        _logged_names.add(shown)
        logger.warning(message, shown)


def _shown(name: str, prefix: str) -> str:
    """A name may be as long as the body."""
    return prefix + one_line(name[:MAX_NAME_CHARACTERS])[:64]
