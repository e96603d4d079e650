"""Objects and lists of a request, declared once: a declaration reads what a client sent and describes it as a schema.

    Form({"name": Filled(), "strict": Boolean(), "id": None}, ("name",))     an object of known fields
    Tagged("type", {"text": Form(...), "image": Form(...)})                  one of several objects, by a field
    Listed(Filled(), 1, 64)                                                  a list
    TextOr(Listed(...), "a list of items")                                   a string, or what a form reads
    Made(Form(...), make)                                                    what is made of one

What is read has the fields that are there, and no nulls: they are the same as leaving a field out. What is wrong is
named by its place, such as messages[2].content[0].text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...model.errors import Fault, ParameterError, PayloadError, RequestError, UnsupportedError
from ...model.options import Settings
from ..dialect import JsonSchema
from .fields import handle_unknown_field
from .kinds import Filled, Kind, Nested, Text, read_field
from .schemas import array, objects, one_of

__all__ = ["Form", "Listed", "Loose", "Made", "Tagged", "TextOr", "Unread"]


@dataclass(frozen=True, slots=True)
class Form(Nested):
    """An object of known fields."""

    fields: Mapping[str, Kind | Nested | None]
    """None: whatever it is, it has no effect (docs/decisions.md: Wrong types)."""
    required: tuple[str, ...] = ()
    texts: Mapping[str, bool] = field(init=False, repr=False, compare=False)
    """The fields that may be any string, and whether an empty one: there are thousands of them in a long history, and
    the place of one is only put together where it is no string."""

    def __post_init__(self) -> None:
        texts = {
            name: kind != Filled()
            for name, kind in self.fields.items()
            if kind in (Text(), Filled()) or (isinstance(kind, Nested) and kind.any_text)
        }
        object.__setattr__(self, "texts", texts)

    @property
    def schema(self) -> JsonSchema:
        shown = {name: {} if kind is None else kind.schema for name, kind in self.fields.items()}
        return objects(self.required, **shown)

    @property
    def description(self) -> str:
        return "an object with " + ", ".join(name for name, kind in self.fields.items() if kind is not None)

    def read(self, name: str, given: Any, settings: Settings, tag: str = "") -> dict[str, Any]:
        """`tag`: a field that has been read already."""
        if not isinstance(given, dict):
            raise PayloadError.of(name, given, "an object")
        read: dict[str, Any] = {}
        fields, texts = self.fields, self.texts
        for key, value in given.items():
            if value is None or key == tag:
                continue
            if type(value) is str and (value or texts.get(key)) and key in texts:
                read[key] = value
                continue
            kind = fields.get(key, self)
            if kind is self:
                handle_unknown_field(key, (*self.fields, tag), settings, f"{INDEX.sub('[]', name)}.")
            elif kind is not None:
                read[key] = read_field(kind, f"{name}.{key}", value, settings)
        for key in self.required:
            if key not in read:
                kind = self.fields[key]
                assert kind is not None
                # Says what is expected in its place.
                read_field(kind, f"{name}.{key}", None, settings)
        return read


class Loose(Form):
    """An object that is not read: whatever is in it has no effect."""

    def read(self, name: str, given: Any, settings: Settings, tag: str = "") -> dict[str, Any]:
        return {}


INDEX = re.compile(r"\[\d+\]")


@dataclass(frozen=True, slots=True)
class Tagged(Nested):
    """One of several objects, which a field tells apart."""

    tag: str
    forms: Mapping[str, Form]
    """Each without the tag."""
    where: str = ""
    """What an error adds to the tags that are expected."""
    infer: Callable[[dict[str, Any]], str | None] | None = None
    """The tag of an object that has none."""
    other: Form | None = None
    """What an object with another tag is."""
    refused: type[RequestError] = UnsupportedError
    """The error for a string that is no tag."""

    @property
    def schema(self) -> JsonSchema:
        return one_of(*(self._schema(tag, form) for tag, form in self.forms.items()), *self._others())

    def _schema(self, tag: str, form: Form) -> JsonSchema:
        required = form.required if self.infer is not None else (self.tag, *form.required)
        shown = {name: {} if kind is None else kind.schema for name, kind in form.fields.items()}
        return objects(required, **{self.tag: {"const": tag}, **shown})

    def _others(self) -> list[JsonSchema]:
        if self.other is None:
            return []
        schema = self.other.schema
        tag = {"type": "string", "not": {"enum": [*self.forms]}}
        required = [self.tag, *schema.get("required", ())]
        return [{**schema, "properties": {self.tag: tag, **schema["properties"]}, "required": required}]

    @property
    def description(self) -> str:
        return f"an object with {self.tag} " + ", ".join(map(repr, self.forms))

    def read(self, name: str, given: Any, settings: Settings) -> tuple[str, dict[str, Any]]:
        """The tag, and the other fields."""
        if not isinstance(given, dict):
            raise PayloadError.of(name, given, "an object")
        tag = given.get(self.tag)
        if tag is None and self.infer is not None:
            tag = self.infer(given)
        if isinstance(tag, str):
            form = self.forms.get(tag, self.other)
            if form is not None:
                return tag, form.read(name, given, settings, self.tag)
        refused = self.refused if isinstance(tag, str) else PayloadError
        raise refused.of(f"{name}.{self.tag}", tag, " or ".join(map(repr, self.forms)) + self.where)


@dataclass(frozen=True, slots=True)
class Unread(Nested):
    """A field that may have no effect: who reads the object decides, and reads it by `form` then."""

    form: Kind | Nested

    @property
    def schema(self) -> JsonSchema:
        return self.form.schema

    @property
    def description(self) -> str:
        return self.form.description

    def read(self, name: str, given: Any, settings: Settings) -> Any:
        return given


@dataclass(frozen=True, slots=True)
class Made(Nested):
    """What is made of what a form reads."""

    form: Kind | Nested
    make: Callable[[str, Any], Any] = field(repr=False)
    """Given the place, and what was read; it may raise RequestError."""
    said: str = ""
    """The description, where it is not the form's."""

    @property
    def schema(self) -> JsonSchema:
        return self.form.schema

    @property
    def description(self) -> str:
        return self.said or self.form.description

    def read(self, name: str, given: Any, settings: Settings) -> Any:
        return self.make(name, read_field(self.form, name, given, settings))


@dataclass(frozen=True, slots=True)
class Listed(Nested):
    """A list."""

    kind: Kind | Nested
    least: int = 0
    most: int | None = None
    noun: str = "entries"

    @property
    def schema(self) -> JsonSchema:
        return array(self.kind.schema, self.least, self.most)

    @property
    def description(self) -> str:
        return f"a list of {self.noun}"

    def read(self, name: str, given: Any, settings: Settings) -> list[Any]:
        entries, kind = enumerate(self.entries(name, given)), self.kind
        if isinstance(kind, Nested):
            return [kind.read(f"{name}[{index}]", one, settings) for index, one in entries]
        return [kind.read(f"{name}[{index}]", one) for index, one in entries]

    def entries(self, name: str, given: Any) -> list[Any]:
        """The entries, which are not read yet; raises RequestError where it is no list, or none of this length."""
        if not isinstance(given, list):
            raise PayloadError.of(name, given, self.description)
        if len(given) < self.least:
            raise ParameterError.of(name, given, f"{self.description}, at least {self.least}")
        if self.most is not None and len(given) > self.most:
            raise ParameterError.because(
                Fault(name, expected=f"at most {self.most} {self.noun}", given=str(len(given)))
            )
        return given


@dataclass(frozen=True, slots=True)
class TextOr(Nested):
    """A string, or what a form reads."""

    form: Nested
    noun: str
    """What the form reads, in words."""
    words: tuple[str, ...] = ()
    """What the string may be; none: anything."""

    @property
    def schema(self) -> JsonSchema:
        return one_of(Text(self.words).schema, self.form.schema)

    @property
    def description(self) -> str:
        return f"{'one of ' + ', '.join(self.words) if self.words else 'a string'}, or {self.noun}"

    def read(self, name: str, given: Any, settings: Settings) -> Any:
        if isinstance(given, str):
            return Text(self.words).read(name, given)
        if not isinstance(given, dict | list):
            raise PayloadError.of(name, given, self.description)
        return self.form.read(name, given, settings)
