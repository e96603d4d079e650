"""What there is to say of a configuration: by a start in its log, and by `lmi check` in groups or as JSON."""

from __future__ import annotations

from typing import Literal

import msgspec

from ..errors import OPTION, Fault

__all__ = ["Finding", "Level", "fact", "note", "warning"]

Level = Literal["error", "warning", "note", "fact"]
"""An error keeps the model from being served, a warning is about what is not as it was probably meant, a note about
what may surprise, and a fact was checked and is good."""


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of them; docs/cli.md has its fields, which are those of the JSON."""

    level: Level
    message: str
    option: str | None = None
    """The name of the option that it is about, without `option.`."""
    instead: str | None = None
    """What to write: `NAME=VALUE`, or several with ` and ` between them."""

    @classmethod
    def of(cls, fault: Fault) -> Finding:
        """The error that a fault of the options is."""
        return cls("error", fault.sentence(OPTION), fault.name, fault.instead or None)

    def __str__(self) -> str:
        """In one line."""
        return self.message if self.level == "fact" else f"{self.level}: {self.message}"


def fact(message: str) -> Finding:
    """That of what was checked and is good."""
    return Finding("fact", message)


def note(message: str, option: str | None = None, instead: str | None = None) -> Finding:
    """That of what may surprise; `instead` is named at the end."""
    return _with("note", message, option, instead)


def warning(message: str, option: str | None = None, instead: str | None = None) -> Finding:
    """That of what is probably not as it was meant; `instead` is named at the end."""
    return _with("warning", message, option, instead)


def _with(level: Level, message: str, option: str | None, instead: str | None) -> Finding:
    return Finding(level, f"{message}: set {instead}" if instead else message, option, instead)
