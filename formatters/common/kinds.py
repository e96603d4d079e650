"""What a field of a request may be: each kind reads a value, and describes itself as a schema and in words.

Kind.read(name, given) -> value, or an error that names the field
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from ...model.errors import Fault, ParameterError, PayloadError
from ...model.options import Settings
from ..dialect import JsonSchema
from .schemas import ANY, BOOLEAN, FILLED, NULL, OBJECT, STRING, array, one_of

__all__ = [
    "ID",
    "LARGEST",
    "LARGEST_ID",
    "SMALLEST",
    "TEXTS",
    "TEXTS_LENGTH",
    "Anything",
    "Boolean",
    "Filled",
    "Integer",
    "Kind",
    "Nested",
    "Number",
    "Object",
    "Refused",
    "Text",
    "Texts",
    "Tree",
    "read_field",
]

SMALLEST, LARGEST = -(2**63), 2**63 - 1
"""Integers travel to the engine as msgpack, and on into 64-bit tensors."""
LARGEST_ID = 2**31 - 1
ID: JsonSchema = {"type": "integer", "minimum": 0, "maximum": LARGEST_ID}
TEXTS = 64
TEXTS_LENGTH = 4096
"""Stop strings are looked for at every token, in time and memory that other requests pay for too."""
DEPTH = 100


class Kind(Protocol):
    """What a parameter's value may be. A new kind is a class of this shape."""

    @property
    def schema(self) -> JsonSchema:
        """It as JSON Schema, for /openapi.json."""
        ...

    @property
    def description(self) -> str:
        """It in words, for docs/parameters.md."""
        ...

    def read(self, name: str, given: Any) -> Any:
        """The value; raises PayloadError for a wrong type, ParameterError for a value that is out of range."""
        ...


class Nested:
    """A kind that has fields or entries of its own; the settings say what is done about unknown fields."""

    __slots__ = ()
    any_text = False
    """Whether any string is read as it is."""

    @property
    def schema(self) -> JsonSchema:
        """It as JSON Schema, for /openapi.json."""
        raise NotImplementedError

    @property
    def description(self) -> str:
        """It in words, for docs/parameters.md."""
        raise NotImplementedError

    def read(self, name: str, given: Any, settings: Settings) -> Any:
        """The value; raises RequestError, naming the place."""
        raise NotImplementedError


def read_field(kind: Kind | Nested, name: str, given: Any, settings: Settings) -> Any:
    """A value of either kind; raises RequestError, naming the place."""
    if isinstance(kind, Nested):
        return kind.read(name, given, settings)
    return kind.read(name, given)


@dataclass(frozen=True, slots=True)
class Boolean:
    """true or false, or one of `words`."""

    words: tuple[str, ...] = ()

    @property
    def schema(self) -> JsonSchema:
        return {"enum": [True, False, *self.words]} if self.words else BOOLEAN

    @property
    def description(self) -> str:
        return " or ".join(("true or false", *(f'"{word}"' for word in self.words)))

    def read(self, name: str, given: Any) -> bool | str:
        if isinstance(given, bool) or (isinstance(given, str) and given in self.words):
            return given
        raise PayloadError.of(name, given, " or ".join(("true or false", *map(repr, self.words))))


@dataclass(frozen=True, slots=True)
class Integer:
    """From `low` to `high`. 5.0 is an integer too, as in JSON Schema: JSON has one type of number."""

    low: int
    high: int = LARGEST

    @property
    def schema(self) -> JsonSchema:
        return {"type": "integer", "minimum": self.low, "maximum": self.high}

    @property
    def description(self) -> str:
        if self.low == SMALLEST:
            return "an integer of 64 bits"
        return f"an integer from {self.low}" + (f" to {self.high}" if self.high < LARGEST_ID else "")

    def read(self, name: str, given: Any) -> int:
        if isinstance(given, float) and given.is_integer():
            given = int(given)
        if not isinstance(given, int) or isinstance(given, bool):
            raise PayloadError.of(name, given, f"an integer >= {self.low}")
        if given < self.low:
            raise ParameterError.of(name, given, f"an integer >= {self.low}")
        if given > self.high:
            raise ParameterError.of(name, given, f"an integer from {self.low} to {self.high}")
        return given


@dataclass(frozen=True, slots=True)
class Number:
    """From `low` to `high`; `low` itself only where not `above`. An integer will do."""

    low: float
    high: float
    above: bool = False

    @property
    def schema(self) -> JsonSchema:
        return {"type": "number", "exclusiveMinimum" if self.above else "minimum": self.low, "maximum": self.high}

    @property
    def description(self) -> str:
        return f"a number {'above' if self.above else 'from'} {self.low:g} to {self.high:g}"

    def read(self, name: str, given: Any) -> float:
        between = f"above {self.low:g} and up to" if self.above else f"from {self.low:g} to"
        expected = f"a number {between} {self.high:g}"
        if not isinstance(given, int | float) or isinstance(given, bool):
            raise PayloadError.of(name, given, expected)
        # Compared before it is converted: an integer may be too large for a float. NaN fails both comparisons.
        if not self.low <= given <= self.high or (self.above and given == self.low):
            raise ParameterError.of(name, given, expected)
        return float(given)


@dataclass(frozen=True, slots=True)
class Texts:
    """A list of non-empty strings; a single string is a list of one. With `flag` a boolean passes and means nothing."""

    flag: bool = False

    @property
    def schema(self) -> JsonSchema:
        text = {**FILLED, "maxLength": TEXTS_LENGTH}
        return one_of(text, array(text, le=TEXTS), *([BOOLEAN] if self.flag else []))

    @property
    def description(self) -> str:
        return "a string or a list of strings" + (", or a boolean, which has no effect" if self.flag else "")

    def read(self, name: str, given: Any) -> tuple[str, ...]:
        if self.flag and isinstance(given, bool):
            return ()
        if isinstance(given, str):
            given = [given]
        if not isinstance(given, list):
            raise PayloadError.of(name, given, "a list of non-empty strings")
        for index, text in enumerate(given):
            if not isinstance(text, str):
                raise PayloadError.of(f"{name}[{index}]", text, "a non-empty string")
            if not text:
                raise ParameterError.of(f"{name}[{index}]", text, "a non-empty string")
        if len(given) > TEXTS or sum(map(len, given)) > TEXTS_LENGTH:
            raise ParameterError.because(
                Fault(name, expected=f"at most {TEXTS} strings of {TEXTS_LENGTH} characters in all")
            )
        return tuple(given)


@dataclass(frozen=True, slots=True)
class Text:
    """A string, or one of `words`."""

    words: tuple[str, ...] = ()

    @property
    def schema(self) -> JsonSchema:
        return {"enum": [*self.words]} if self.words else STRING

    @property
    def description(self) -> str:
        return ", ".join(f'"{word}"' for word in self.words) or "a string"

    def read(self, name: str, given: Any) -> str:
        if not isinstance(given, str):
            raise PayloadError.of(name, given, self._expected)
        if self.words and given not in self.words:
            raise ParameterError.of(name, given, self._expected)
        return given

    @property
    def _expected(self) -> str:
        return "one of " + ", ".join(self.words) if self.words else "a string"


@dataclass(frozen=True, slots=True)
class Filled:
    """A string that is not empty."""

    schema = FILLED
    description = "a non-empty string"

    def read(self, name: str, given: Any) -> str:
        if not isinstance(given, str):
            raise PayloadError.of(name, given, self.description)
        if not given:
            raise ParameterError.of(name, given, self.description)
        return given


@dataclass(frozen=True, slots=True)
class Object:
    """A JSON object, whatever is in it."""

    schema = OBJECT
    description = "an object"

    def read(self, name: str, given: Any) -> dict[str, Any]:
        if not isinstance(given, dict):
            raise PayloadError.of(name, given, self.description)
        return given


@dataclass(frozen=True, slots=True)
class Tree(Object):
    """A JSON object that goes to the engine as it is: its depth and integers are limited to what encoders accept."""

    def read(self, name: str, given: Any) -> dict[str, Any]:
        tree = Object.read(self, name, given)
        level: list[Any] = [tree]
        for _ in range(DEPTH):
            members = [inner for value in level for inner in (value.values() if isinstance(value, dict) else value)]
            for inner in members:
                if isinstance(inner, int) and not SMALLEST <= inner <= LARGEST:
                    raise ParameterError.of(name, inner, f"integers from {SMALLEST} to {LARGEST} in it")
            level = [inner for inner in members if isinstance(inner, dict | list)]
            if not level:
                return tree
        raise ParameterError.because(Fault(name, expected=f"at most {DEPTH} levels"))


@dataclass(frozen=True, slots=True)
class Anything:
    """For what is refused whatever it is."""

    schema = ANY
    description = "anything"

    def read(self, name: str, given: Any) -> Any:
        return given


@dataclass(frozen=True, slots=True)
class Refused:
    """What must not be there, in this place; null is not there."""

    description: str
    """What is expected in its place."""
    schema = NULL

    def read(self, name: str, given: Any) -> Any:
        raise ParameterError.of(name, given, self.description)
