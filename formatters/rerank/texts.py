"""What the texts in the bodies may be, and how they are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from ...model.errors import Fault, ParameterError, PayloadError, UnsupportedError
from ..common.schemas import FILLED, STRING, array, objects, one_of

__all__ = ["MAX_TEXTS", "Inputs", "Query", "Text", "Texts"]

MAX_TEXTS = 1024
"""Texts of one field: where texts are embedded, both of a pair are a generation."""


@dataclass(frozen=True, slots=True)
class Text:
    """One, and what the client calls it."""

    text: str
    field: str


@dataclass(frozen=True, slots=True)
class Query:
    """A text that is not empty, or an object with one."""

    schema = one_of(FILLED, objects(["text"], text=FILLED))
    description = "a text to rank by"

    def read(self, name: str, given: Any) -> Text:
        text = _text(given, name)
        if not text:
            raise ParameterError.of(name, given, "a non-empty string")
        return Text(text, name)


TEXT = one_of(STRING, objects(["text"], text=STRING))


@dataclass(frozen=True, slots=True)
class Texts:
    """At least one text, each a string or an object with a string `text`; a single one is a list of one."""

    schema = one_of(TEXT, array(TEXT, 1, MAX_TEXTS))
    description = "a list of texts, each a string or an object with a field text"

    def read(self, name: str, given: Any) -> tuple[Text, ...]:
        if isinstance(given, str | dict):
            return (Text(_text(given, name), name),)
        if not isinstance(given, list) or not given:
            raise PayloadError.of(name, given, self.description)
        if len(given) > MAX_TEXTS:
            raise ParameterError.because(Fault(name, expected=f"at most {MAX_TEXTS} texts", given=str(len(given))))
        return tuple(Text(_text(one, f"{name}[{index}]"), f"{name}[{index}]") for index, one in enumerate(given))


def _text(given: Any, field: str) -> str:
    if isinstance(given, str):
        return given
    if not isinstance(given, dict):
        raise PayloadError.of(field, given, "a string, or an object with a field text")
    members = cast("dict[str, Any]", given)
    if "content" in members:
        place = f"{field}.content"
        raise UnsupportedError.because(Fault(place, "expected a field text in its place: images are not ranked here"))
    text = members.get("text")
    if not isinstance(text, str):
        raise PayloadError.of(f"{field}.text", text, "a string")
    return text


Input = tuple[str, str | None, str]
"""A text, the second one of a pair, and what the client calls them."""
FEW = array(STRING, 1, 2)


@dataclass(frozen=True, slots=True)
class Inputs:
    """What TEI's server classifies, and whether it is a single one."""

    schema = one_of(FILLED, FEW, array(FEW, 1, MAX_TEXTS))
    description = "a text, a pair of texts, or a list of lists of one or two texts"

    def read(self, name: str, given: Any) -> tuple[list[Input], bool]:
        if isinstance(given, str):
            return [_input(name, [given], self.description)], True
        if not isinstance(given, list) or not given:
            raise PayloadError.of(name, given, self.description)
        if isinstance(given[0], str):
            return [_input(name, given, self.description)], True
        if len(given) > MAX_TEXTS:
            raise ParameterError.because(Fault(name, expected=f"at most {MAX_TEXTS} of them", given=str(len(given))))
        return [_input(f"{name}[{index}]", one, "a list of one or two texts") for index, one in enumerate(given)], False


def _input(name: str, texts: Any, expected: str) -> Input:
    if not isinstance(texts, list) or not 1 <= len(texts) <= 2 or not all(isinstance(text, str) for text in texts):
        raise PayloadError.of(name, texts, expected)
    if not texts[0]:
        raise ParameterError.of(name, texts[0], "a text that is not empty")
    return texts[0], texts[1] if len(texts) == 2 else None, name
