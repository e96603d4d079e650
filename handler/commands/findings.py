"""What `lmi check` finds, in groups for a person, or as JSON for programs.

check.py's lines, `warning: ...`, `note: ...` or facts --+--> Finding, each with what to write instead,
an OptionError, of one fault or of several --------------+    where that can be told
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from ...model.errors import OptionError
from ...model.options.advice.find import on_name, on_value
from ...model.options.advice.meant import meant
from ...model.options.properties import gather
from ...model.options.table import option_named
from .check import check
from .terminal import coloured

__all__ = ["Finding", "as_json", "findings", "report"]

Level = Literal["error", "warning", "note", "fact"]
HEADINGS: dict[Level, tuple[str, str]] = {
    "error": ("errors: it cannot be served as it is", "1;31"),
    "warning": ("warnings: it is served, but not as it is written", "1;33"),
    "note": ("notes", "1;36"),
    "fact": ("checked", "1;32"),
}
"""By level, in the order in which they are told, a heading and how it looks (terminal.py)."""
FORM = 1
"""Of the JSON; one that programs of before could not read has a higher one."""

_SET = re.compile(r"\bset (?P<what>[\w.]+=\S+?(?: and [\w.]+=\S+?)*)(?=[;,:]?(?:\s|$))")
"""What a line of check.py says is to be set."""
_NAMED = re.compile(r"\boption\.(?P<name>\w+)")
_TRUE = {"1": "true", "yes": "true", "on": "true", "0": "false", "no": "false", "off": "false"}


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of them; docs/cli.md has its fields, which are those of the JSON."""

    level: Level
    message: str
    option: str | None = None
    """The name of the option that it is about, without `option.`."""
    instead: str | None = None
    """What to write: `NAME=VALUE`, or several with ` and ` between them."""

    @classmethod
    def of(cls, line: str) -> Finding:
        """That of a line of check.py."""
        for level in ("warning", "note"):
            if line.startswith(f"{level}: "):
                message = line.removeprefix(f"{level}: ")
                named, told = _NAMED.search(message), _SET.search(message)
                return cls(level, message, named and named["name"], told and told["what"])
        return cls("fact", line)


def findings(model_dir: Path, overrides: Mapping[str, str]) -> list[Finding]:
    """All that `check` has to say; what it refuses are errors, after which it has nothing else to say."""
    try:
        return [Finding.of(line) for line in check(model_dir, overrides)]
    except OptionError as error:
        given = _given(model_dir, overrides)
        return [Finding("error", message, name, _instead(name, message, given)) for name, message in error.faults]


def _given(model_dir: Path, overrides: Mapping[str, str]) -> dict[str, str]:
    try:
        written = gather(model_dir, os.environ)
    except (OptionError, OSError):
        # serving.properties cannot be read, which is what there is to say.
        written = {}
    return written | {name.removeprefix("option."): text for name, text in overrides.items()}


def _instead(name: str | None, message: str, given: Mapping[str, str]) -> str | None:
    """What to write where `message` says what is wrong with the option `name`; None where nobody can tell.

    Only what is certain: likeness of names is a question in the message.
    """
    text = given.get(name or "", "").strip()
    if not name or not text:
        return None
    if found := meant(text):
        return f"option.{name}={found[1]}"
    option = option_named(name)
    if option is None:
        advice = on_name(name, text)
    elif option.kind == "bool" and ": expected " in message and (value := _TRUE.get(text.lower())):
        return f"option.{option.name}={value}"
    else:
        advice = on_value(option.name, text)
    return advice.instead if advice and advice.why in message else None


def as_json(model_dir: Path, found: Sequence[Finding]) -> str:
    """For programs (docs/cli.md)."""
    good = not any(one.level == "error" for one in found)
    document = {"version": FORM, "model_dir": str(model_dir), "ok": good, "findings": found}
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def report(found: Sequence[Finding]) -> None:
    """Prints them for a person."""
    for text, style in _lines(found):
        print(coloured(text, style, sys.stdout))


def _lines(found: Sequence[Finding]) -> Iterator[tuple[str, str]]:
    """Lines, each with how it looks."""
    for level, (heading, style) in HEADINGS.items():
        group = [finding for finding in found if finding.level == level]
        if group:
            yield heading, style
        for finding in group:
            yield f"  {finding.message}", ""
            if finding.instead and f"write {finding.instead}" not in finding.message:
                yield f"    write {finding.instead}", "1"
