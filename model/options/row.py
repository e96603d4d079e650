"""One row of the table of options: a name, what its text may be, and who reads it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec

__all__ = ["Kind", "Option"]

Kind = Literal["bool", "int", "float", "str", "choice", "json", "list", "engine", "reference"]
"""`list`: texts. `engine`: text whose form the engine alone knows. `reference`: the name of an object of the user's,
`module:name`; with choices it may be one of them, or a module."""

_REFERENCE = re.compile(r"[^\W\d][\w.]*(:[^\W\d][\w.]*)?")


@dataclass(frozen=True, slots=True)
class Option:
    """One row."""

    name: str
    kind: Kind
    help: str
    """One line of documentation."""
    default: str = ""
    """As a user would write it; empty where there is none."""
    aliases: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    reader: Literal["us", "engine", "host", "nobody"] = "us"
    argument: str | None = None
    """The engine argument (vLLM's name) that the value becomes."""
    set_by_djl: bool = False
    """Whether DJL Serving sets it where the user did not, so that an alias, which only users write, goes first."""
    unsupported: str = ""
    """What an explicit value asks for that this version cannot do."""
    unsupported_values: Mapping[str, str] = field(default_factory=dict[str, str])
    """The same for single values."""
    since: str = "0.1"

    @property
    def names(self) -> tuple[str, ...]:
        """The name, then its aliases."""
        return (self.name, *self.aliases)

    @property
    def expected(self) -> str:
        """What a value has to be, for messages."""
        if self.kind == "bool":
            return "true or false"
        if self.kind == "choice":
            return "one of " + ", ".join(self.choices)
        if self.kind == "json":
            return "a JSON object"
        if self.kind == "reference":
            return ", ".join((*self.choices, "or module:name")) if self.choices else "module:name"
        if self.kind == "list":
            return "a list in JSON, or items with blanks between"
        noun = {"int": "an integer", "float": "a number", "engine": "what vLLM takes"}.get(self.kind, "text")
        if self.least is not None and self.most is not None:
            return f"{noun} from {self.least:g} to {self.most:g}"
        return noun if self.least is None else f"{noun} of at least {self.least:g}"

    def value(self, text: str) -> object:
        """`text` as this row's type; raises ValueError with what was expected."""
        text = text.strip()
        if self.kind == "bool":
            # Java reads only "true" as true: "1" or "yes" would mean one thing to the host and another to us.
            if text.lower() not in {"true", "false"}:
                raise ValueError(self.expected)
            return text.lower() == "true"
        if self.kind == "choice":
            if text.lower() not in self.choices:
                raise ValueError(self.expected)
            return text.lower()
        if self.kind in {"int", "float"}:
            return self._number(text)
        if self.kind == "reference":
            return self._reference(text)
        if self.kind == "json":
            self._json(text)
        return self._items(text) if self.kind == "list" else text

    def _number(self, text: str) -> int | float:
        try:
            number = int(text) if self.kind == "int" else float(text)
        except ValueError:
            raise ValueError(self.expected) from None
        # Written so that NaN fails too.
        if not (self.least is None or number >= self.least) or not (self.most is None or number <= self.most):
            raise ValueError(self.expected)
        return number

    def _reference(self, text: str) -> str:
        """Whether there is such an object shows when it is imported."""
        if text.lower() in self.choices:
            return text.lower()
        found = _REFERENCE.fullmatch(text)
        if not found or not (found[1] or self.choices):
            raise ValueError(self.expected)
        return text

    def _items(self, text: str) -> tuple[str, ...]:
        if not text.startswith("["):
            return tuple(text.split())
        try:
            return msgspec.json.decode(text.encode(), type=tuple[str, ...])
        except msgspec.DecodeError as error:
            raise ValueError(f"{self.expected} ({error})") from None

    def _json(self, text: str) -> None:
        if text.lower() in {"none", "null"}:
            return
        try:
            decoded: object = msgspec.json.decode(text.encode())
        except msgspec.DecodeError as error:
            raise ValueError(f"{self.expected} ({error})") from None
        if not isinstance(decoded, dict):
            raise ValueError(self.expected)
