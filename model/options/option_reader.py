"""Properties, text by text, as typed values: what the table of options alone can judge."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from ..errors import OPTION, Fault, most_like, shown
from .advice.find import closest, on_name, on_value
from .advice.meant import meant
from .finding import Finding, Level
from .option import Option, declared
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

    Names among `unprefixed`, given without `option.`, may be meant for others where they are no options. `sources` has
    the variables that options came from, by which they are called then.
    """

    def __init__(self, unprefixed: Collection[str], sources: Mapping[str, str]) -> None:
        self._unprefixed = unprefixed
        self._sources = sources
        self.values: dict[str, object] = {}
        """By canonical name, without options that are missing or wrong."""
        self.arguments: dict[str, str] = {}
        """Texts of engine arguments, by the engine's names."""
        self.host: dict[str, str] = {}
        self.faults: list[Fault] = []
        self.notes: list[Finding] = []
        self._given: dict[str, tuple[str, str]] = {}

    def fault(
        self,
        name: str,
        why: str = "",
        *,
        expected: str = "",
        given: object = None,
        instead: str = "",
        similar: str = "",
    ) -> None:
        """Something is wrong with option `name`; the fields are Fault's."""
        told = "" if given is None else shown(given)
        self.found(Fault(name, why, expected, told, instead, similar))

    def found(self, fault: Fault) -> None:
        """The same of a fault that is made already."""
        self.faults.append(fault.come_from(self._sources.get(fault.name or "")))

    def note(self, name: str, text: str, level: Level = "note", instead: str | None = None) -> None:
        """Something is to be said of option `name`: `text` goes on after what it is called."""
        self.notes.append(Finding(level, self.called(name) + text, name, instead))

    def called(self, name: str) -> str:
        """What messages call an option: where it came from, or its name."""
        return self._sources.get(name) or OPTION + name

    def fields(self, struct: type[msgspec.Struct]) -> dict[str, Any]:
        """Values for the fields of `struct` that declare options which were given."""
        options = declared(struct).items()
        return {field: self.values[option.name] for field, option in options if option.name in self.values}

    def name_given(self, name: str) -> str | None:
        """The name, of those that the option `name` has, by which it was given; None: it was not."""
        given = self._given.get(name)
        return given[0] if given else None

    def names_given(self) -> dict[str, str]:
        """By option, and by the engine's argument that it sets, the alias by which it was given; no others."""
        aliases = [(option_named(name), name) for option, (name, _) in self._given.items() if name != option]
        return {one: name for option, name in aliases if option for one in (option.name, option.argument) if one}

    def host_number(self, name: str, default: int) -> int:
        """An integer that DJL Serving itself sets."""
        try:
            return int(self.host.get(name) or default)
        except ValueError:
            self.fault(name, expected="an integer", given=self.host[name])
            return default

    def read(self, name: str, text: str) -> None:
        """One property; `name` comes without `option.`."""
        option = option_named(name)
        if (option is not None or name not in self._unprefixed) and name != SECRET and (found := meant(text)):
            what, shorter = found
            are = "are" if "quotes" in what else "is"
            self.fault(name, f"{what} {are} part of the value", given=text, instead=f"{OPTION}{name}={shorter}")
        elif option is None:
            self._read_unknown(name, text)
        elif option.owner == "djl":
            self.host |= {name: text} if name != SECRET else {}
        elif text and (advice := on_value(option.name, text)):
            self.found(advice.fault(name, text))
        elif option.unsupported:
            if text.lower() not in {"", option.default}:
                why = f"{shown(text)} requires what this version does not support: {option.unsupported}"
                self.fault(name, why, given=text)
        elif option.noted and text:
            self.note(name, f" has no effect: {option.reason}", "warning")
        elif text and option.owner != "nobody":
            self._read_known(option, name, text)

    def _read_known(self, option: Option, name: str, text: str) -> None:
        before = self._given.get(option.name)
        if before and before[1] != text:
            if not option.set_by_djl:
                other = f"{self.called(before[0])}={before[1]}"
                self.fault(name, f"{shown(text)} contradicts {other}, which is the same option", given=text)
                return
            # DJL Serving writes the first name of these where the user wrote none, so the user's word is the alias.
            if name == option.name:
                name, text, before = before[0], before[1], (name, text)
            self.note(name, f"={text} takes precedence over {self.called(before[0])}={before[1]}")
        self._given[option.name] = (name, text)
        try:
            self.values[option.name] = option.value(text)
        except ValueError as error:
            instead = f"{OPTION}{option.name}={value}" if option.kind == "bool" and (value := _switch(text)) else ""
            like = closest(text.lower(), option.choices)
            self.fault(name, expected=str(error), given=text, instead=instead, similar=like)
            return
        if option.argument:
            self.arguments[option.argument] = text

    def _read_unknown(self, name: str, text: str) -> None:
        long = len(name) >= SIMILAR_NAME_LETTERS and not on_name(name, text)
        like = most_like(name, WRITTEN_NAMES, SIMILAR_NAME_RATIO) if long else ""
        if like:
            self.fault(name, "there is no such option", given=text, similar=OPTION + like)
        elif text:
            self.arguments[name] = text

    def check_names(self) -> None:
        """Refuses what neither this handler nor any version of vLLM takes, where it is known what to write instead."""
        for name, text in self.arguments.items():
            if name_of_argument(name) != name or option_named(name) or name in self._unprefixed:
                continue
            if advice := on_name(name, text, any_version=True) or on_value(name, text):
                self.found(advice.fault(name, text))


def _switch(text: str) -> str | None:
    """What of true and false `text` means to people."""
    meanings = {"true": ("1", "yes", "on"), "false": ("0", "no", "off")}
    return next((value for value, texts in meanings.items() if text.lower() in texts), None)
