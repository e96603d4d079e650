"""Properties, text by text, as typed values: what the table of options alone can judge."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from ..errors import did_you_mean
from .advice.find import closest, on_name, on_value
from .advice.meant import meant
from .option import Option, declared
from .refusal import shown
from .table import WRITTEN_NAMES, name_of_argument, option_named

__all__ = ["OptionReader"]

SIMILAR_NAME_RATIO = 0.93
SIMILAR_NAME_LETTERS = 14
"""How alike (difflib's ratio) an unknown name of at least so many letters is to one of the table's to be taken for a
misspelling of it. No argument of vLLM 0.26 or 0.32 comes that near; shorter names do (device_ids, ubatch_size). What is
not refused here is left to the engine's side, which knows all names."""
SECRET = "env"
"""DJL's own option that may hold secrets: no message shows it."""


class OptionReader:
    """One pass over the properties. Faults are collected, and reported together.

    Names among `unprefixed`, given without `option.`, may be meant for others where they are no options.
    """

    def __init__(self, unprefixed: Collection[str] = ()) -> None:
        self._unprefixed = unprefixed
        self.values: dict[str, object] = {}
        """By canonical name, without options that are missing or wrong."""
        self.arguments: dict[str, str] = {}
        """Texts of engine arguments, by the engine's names."""
        self.host: dict[str, str] = {}
        self.faults: list[tuple[str, str]] = []
        self.notes: list[str] = []
        self._given: dict[str, tuple[str, str]] = {}

    def fault(self, name: str, message: str) -> None:
        """Something is wrong with option `name`."""
        self.faults.append((name, f"option.{name}: {message}"))

    def fields(self, struct: type[msgspec.Struct]) -> dict[str, Any]:
        """Values for the fields of `struct` that declare options which were given."""
        options = declared(struct).items()
        return {field: self.values[option.name] for field, option in options if option.name in self.values}

    def name_given(self, name: str) -> str | None:
        """The name, of those that the option `name` has, by which it was given; None: it was not."""
        given = self._given.get(name)
        return given[0] if given else None

    def host_number(self, name: str, default: int) -> int:
        """An integer that DJL Serving itself sets."""
        try:
            return int(self.host.get(name) or default)
        except ValueError:
            self.fault(name, f"expected an integer, got {shown(self.host[name])}")
            return default

    def read(self, name: str, text: str) -> None:
        """One property; `name` comes without `option.`."""
        option = option_named(name)
        if (option is not None or name not in self._unprefixed) and name != SECRET and (found := meant(text)):
            what, shorter = found
            are = "are" if "quotes" in what else "is"
            self.fault(name, f"{what} {are} part of the value, {shown(text)}: write option.{name}={shorter}")
        elif option is None:
            self._read_unknown(name, text)
        elif option.owner == "djl":
            self.host |= {name: text} if name != SECRET else {}
        elif text and (advice := on_value(option.name, text)):
            self.fault(name, advice.sentence)
        elif option.unsupported:
            if text.lower() not in {"", option.default}:
                self.fault(name, f"{shown(text)} requires what this version does not support: {option.unsupported}")
        elif option.noted and text:
            self.notes.append(f"option.{name} has no effect: {option.help[0].lower()}{option.help[1:].rstrip('.')}")
        elif text and option.owner != "nobody":
            self._read_known(option, name, text)

    def _read_known(self, option: Option, name: str, text: str) -> None:
        before = self._given.get(option.name)
        if before and before[1] != text:
            if not option.set_by_djl:
                self.fault(name, f"{shown(text)} contradicts option.{before[0]}={before[1]}, which is the same option")
                return
            # DJL Serving writes the first name of these where the user wrote none, so the user's word is the alias.
            if name == option.name:
                name, text, before = before[0], before[1], (name, text)
            self.notes.append(f"option.{name}={text} takes precedence over option.{before[0]}={before[1]}")
        self._given[option.name] = (name, text)
        try:
            self.values[option.name] = option.value(text)
        except ValueError as error:
            self.fault(name, f"expected {error}, got {shown(text)}{closest(text.lower(), option.choices)}")
            return
        if option.argument:
            self.arguments[option.argument] = text

    def _read_unknown(self, name: str, text: str) -> None:
        long = len(name) >= SIMILAR_NAME_LETTERS and not on_name(name, text)
        hint = did_you_mean(name, WRITTEN_NAMES, prefix="option.", cutoff=SIMILAR_NAME_RATIO) if long else ""
        if hint:
            self.fault(name, f"there is no such option{hint}")
        elif text:
            self.arguments[name] = text

    def check_names(self) -> None:
        """Refuses what neither this handler nor any version of vLLM takes, where it is known what to write instead."""
        for name, text in self.arguments.items():
            if name_of_argument(name) != name or option_named(name) or name in self._unprefixed:
                continue
            if advice := on_name(name, text, any_version=True) or on_value(name, text):
                self.fault(name, advice.sentence)
