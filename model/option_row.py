"""One row of the table of options: a name, what its text may be, and who reads it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from .errors import SHOWN, OptionError

__all__ = ["Kind", "Option", "parsed", "refuse", "shown"]

Kind = Literal["bool", "int", "float", "str", "choice", "json", "list", "engine"]
"""`list`: texts. `engine`: text whose form the engine alone knows."""


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
    filled: bool = False
    """Whether DJL Serving sets it where the user did not, so that an alias, which only users write, goes first."""
    planned: str = ""
    """What an explicit value asks for that this version cannot do."""
    later: Mapping[str, str] = field(default_factory=dict[str, str])
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


def parsed(option: Option, text: str) -> object:
    """The value, with the rules that a row cannot express; raises ValueError with what was expected."""
    if text.lower() in option.later:
        raise ValueError(f"{option.expected} (this version does not support {option.later[text.lower()]})")
    if option.name == "tensor_parallel_degree":
        if text.lower() == "max":
            return None
        if not text.isdecimal() or int(text) < 1:
            raise ValueError("a number of at least 1, or max")
        return int(text)
    if option.name == "dtype" and text.lower() == "int8":
        raise ValueError(f"{option.expected} (for 8-bit weights set option.quantize instead)")
    if option.name == "model_id" and text.startswith("s3://"):
        raise ValueError("a hub id or a path (only DJL Serving downloads s3://, before the handler starts)")
    return option.value(text)


def refuse(faults: Iterable[tuple[str, str]]) -> None:
    """Raises one OptionError for all `faults`, if any: pairs of an option's name and what is wrong with it."""
    found = list(faults)
    if len(found) == 1:
        raise OptionError(found[0][1], found[0][0])
    if found:
        listed = "; ".join(f"({number}) {message}" for number, (_, message) in enumerate(found, 1))
        raise OptionError(f"{len(found)} options are wrong: {listed}", found[0][0])


def shown(text: str) -> str:
    """`text` in quotes, cut to what a message may repeat."""
    return repr(text if len(text) <= SHOWN else text[:SHOWN] + "...")
