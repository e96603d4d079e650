"""What is declared of an option, and what follows from it: how its text is read and what a message says is expected.

    class Settings(msgspec.Struct):
        merge_records: Annotated[bool, Option("Whether one chunk may carry several records.")] = False

Name, kind, choices and default come from the field unless the Option says them; an option without a field says all.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import msgspec

__all__ = ["Kind", "Option", "declared", "items", "port"]

Kind = Literal["bool", "int", "float", "str", "choice", "json", "list", "engine", "reference"]
"""`list`: texts. `engine`: text whose form the engine alone knows. `reference`: the name of an object of the user's,
`module:name`; with choices it may be one of them, or a module."""

_EXPECTED = {
    "bool": "true or false", "int": "an integer", "float": "a number", "str": "text", "json": "a JSON object",
    "list": "a list in JSON, or items with blanks between", "engine": "what vLLM takes",
}  # fmt: skip
_KINDS: dict[object, Kind] = {bool: "bool", int: "int", float: "float", str: "str", Literal: "choice", tuple: "list"}
_REFERENCE = re.compile(r"[^\W\d][\w.]*(:[^\W\d][\w.]*)?")


@dataclass(frozen=True, slots=True)
class Option:
    """The declaration."""

    help: str
    """One line of documentation."""
    name: str = ""
    kind: Kind = "str"
    """Of an option that a field declares: only what the field's type does not say."""
    default: str = ""
    """For the documentation: what stands where nothing is given; empty: none."""
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    ge: float | None = None
    """The least number, as msgspec.Meta has it."""
    convert: Callable[[str], object] | None = None
    """Reads the text instead of the kind's own rule; raises ValueError with what was expected."""
    owner: Literal["handler", "engine", "djl", "nobody"] = "handler"
    """Who reads it. Nobody: it is accepted without effect."""
    noted: bool = False
    """Whether it is said, where nobody reads it, that it has no effect."""
    argument: str | None = None
    """The engine argument (vLLM's name) that the text becomes."""
    set_by_djl: bool = False
    """Whether DJL Serving sets it where the user did not, so that an alias, which only users write, goes first."""
    unsupported: str = ""
    """What any value but the default asks for that this version cannot do."""
    unsupported_values: Mapping[str, str] = field(default_factory=dict[str, str])
    """The same for single values."""

    @property
    def names(self) -> tuple[str, ...]:
        """The name, then its aliases."""
        return (self.name, *self.aliases)

    @property
    def reason(self) -> str:
        """Its documentation as the reason of something, after a colon."""
        return f"{self.help[0].lower()}{self.help[1:].rstrip('.')}"

    @property
    def expected(self) -> str:
        """What a value has to be, for messages."""
        if self.kind == "reference":
            return ", ".join((*self.choices, "or module:name")) if self.choices else "module:name"
        if self.choices:
            return "one of " + ", ".join(self.choices)
        noun = _EXPECTED[self.kind]
        return noun if self.ge is None else f"{noun} of at least {self.ge:g}"

    def value(self, text: str) -> object:
        """`text` as a value of this option's type; raises ValueError with what was expected."""
        lower = text.lower()
        if lower in self.unsupported_values:
            raise ValueError(f"{self.expected} (this version does not support {self.unsupported_values[lower]})")
        if self.convert:
            return self.convert(text)
        match self.kind:
            case "bool" if lower in {"true", "false"}:
                # Java reads only "true" as true: "1" or "yes" would mean one thing to the host and another to us.
                return lower == "true"
            case "choice" | "reference" if lower in self.choices:
                return lower
            case "reference" if (found := _REFERENCE.fullmatch(text)) and (found[1] or self.choices):
                # Whether there is such an object shows when it is imported.
                return text
            case "int" | "float":
                return self._number(text)
            case "list":
                return items(text)
            case "json" if lower in {"none", "null"} or isinstance(_decoded(text, Any, self.expected), dict):
                return text
            case "str" | "engine":
                return text
            case _:
                raise ValueError(self.expected)

    def _number(self, text: str) -> int | float:
        try:
            number = int(text) if self.kind == "int" else float(text)
        except ValueError:
            raise ValueError(self.expected) from None
        # Written so that NaN fails too.
        if not (self.ge is None or number >= self.ge):
            raise ValueError(self.expected)
        return number


def items(text: str) -> tuple[str, ...]:
    """The items of a list, written in JSON or with blanks between; raises ValueError with what was expected."""
    return _decoded(text, tuple[str, ...], _EXPECTED["list"]) if text.startswith("[") else tuple(text.split())


def _decoded(text: str, type: Any, expected: str) -> Any:
    try:
        return msgspec.json.decode(text.encode(), type=type)
    except msgspec.DecodeError as error:
        raise ValueError(f"{expected} ({error})") from None


@functools.cache
def declared(struct: type[msgspec.Struct]) -> dict[str, Option]:
    """The options that the fields of `struct` declare, complete, by the fields' names."""
    return {
        field.name: _completed(option, field)
        for field in msgspec.structs.fields(struct)
        for option in getattr(field.type, "__metadata__", ())
        if isinstance(option, Option)
    }


def _completed(option: Option, field: msgspec.structs.FieldInfo) -> Option:
    type = get_args(field.type)[0]
    if NoneType in get_args(type):
        (type,) = (one for one in get_args(type) if one is not NoneType)
    origin = get_origin(type) or type
    return dataclasses.replace(
        option,
        name=option.name or field.name,
        kind=_KINDS[origin] if option.kind == "str" else option.kind,
        choices=option.choices or (get_args(type) if origin is Literal else ()),
        default=option.default or _text(field.default),
    )


def _text(default: object) -> str:
    """A field's default as a user would write it; empty where it is none."""
    if isinstance(default, bool):
        return str(default).lower()
    return f"{default:g}" if isinstance(default, float) else str(default) if isinstance(default, (int, str)) else ""


def port(text: str) -> int:
    """A port's number, for `convert`."""
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise ValueError("a port, 1 to 65535")
    return int(text)
