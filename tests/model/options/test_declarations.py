"""Options as fields declare them: what is taken from the field, and that somebody reads it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest

from lmi.model.options.deciding_options import IndirectOptions
from lmi.model.options.media_rules import MediaRules
from lmi.model.options.option import Option, declared
from lmi.model.options.settings import Limits, Settings

from ...kit.paths import ROOT
from ...kit.rows import each_row


class Declares(msgspec.Struct, kw_only=True):
    plain: str = "of no option"
    switch: Annotated[bool, Option("A switch.")] = False
    count: Annotated[int | None, Option("A number.", ge=1, aliases=("number",))] = None
    share: Annotated[float, Option("A share.", ge=0.5)] = 60.0
    choice: Annotated[Literal["a", "b"] | None, Option("One of two.", default="by the other")] = None
    names: Annotated[tuple[str, ...], Option("Names.", name="list_of_names")] = ()
    parser: Annotated[str | None, Option("The name of a function.", kind="reference")] = None


OPTIONS = declared(Declares)

# A field, the option's name, kind and default for the documentation, and what a message says is expected.
COMPLETED = [
    ("switch", "switch", "bool", "false", "true or false"),
    ("count", "count", "int", "", "an integer of at least 1"),
    ("share", "share", "float", "60", "a number of at least 0.5"),
    ("choice", "choice", "choice", "by the other", "one of a, b"),
    ("names", "list_of_names", "list", "", "a list in JSON, or items with blanks between"),
    ("parser", "parser", "reference", "", "module:name"),
]


@each_row(("field", "name", "kind", "default", "expected"), COMPLETED)
def test_what_the_field_says_completes_the_option(
    field: str, name: str, kind: str, default: str, expected: str
) -> None:
    option = OPTIONS[field]
    assert (option.name, option.kind, option.default, option.expected) == (name, kind, default, expected)


def test_only_fields_with_an_option_declare_one() -> None:
    assert OPTIONS.keys() == {field for field, *_ in COMPLETED}
    assert OPTIONS["count"].names == ("count", "number")


# A field, a text, its value; None: the text is refused.
TEXTS: list[tuple[str, str, object]] = [
    ("switch", "TRUE", True), ("switch", "yes", None), ("count", "7", 7), ("count", "0", None), ("count", "7.0", None),
    ("share", "1e3", 1000.0), ("share", "nan", None), ("choice", "B", "b"), ("choice", "c", None),
    ("names", "a b", ("a", "b")), ("names", '["a b"]', ("a b",)), ("names", "[1]", None),
    ("parser", "a.b:c", "a.b:c"), ("parser", "a.b", None),
]  # fmt: skip


@each_row(("field", "text", "value"), TEXTS)
def test_a_text_is_read_by_the_fields_type(field: str, text: str, value: object) -> None:
    if value is None:
        with pytest.raises(ValueError, match=OPTIONS[field].expected):
            OPTIONS[field].value(text)
    else:
        assert OPTIONS[field].value(text) == value


@cache
def attributes(path: Path) -> list[tuple[str, str]]:
    """What the file reads, and of what: `settings.dtype` and `self._settings.dtype` are of `settings`, `_settings`."""
    found: list[tuple[str, str]] = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.Attribute(value=ast.Name(id=owner) | ast.Attribute(attr=owner), attr=name):
                found.append((owner, name))
            case _:
                pass
    return found


def reads(path: Path, owners: set[str]) -> set[str]:
    """Attributes that the file reads of what is called `owners`."""
    return {name for owner, name in attributes(path) if owner in owners}


@pytest.mark.parametrize(
    ("struct", "owners", "inside"),
    [
        (Settings, {"settings", "_settings"}, False),
        (Limits, {"limits", "_limits"}, False),
        (MediaRules, {"rules", "_rules"}, False),
        # Resolving reads these, and nobody else.
        (IndirectOptions, {"given"}, True),
    ],
)
def test_every_option_is_read_by_somebody(struct: type[msgspec.Struct], owners: set[str], inside: bool) -> None:
    room = ROOT / "model" / "options"
    files = [path for layer in ("model", "formatters", "handler") for path in (ROOT / layer).rglob("*.py")]
    read = {name for path in files if (path.parent == room) is inside for name in reads(path, owners)}
    # What a property of its own tells of others.
    read |= reads(room / "settings.py", {"self"})
    assert set(struct.__struct_fields__) - read == set()
