"""What a request wants its text to conform to: OpenAI's `response_format`, and guided decoding by vLLM's names.

    {"response_format": {...}} | {"structured_outputs": {...}} | {"guided_regex": ...} --> AskedGuide

Whether a schema, an expression or a grammar can be compiled, the engine's side finds out; here they are not empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from ...model.errors import Fault, ParameterError, PayloadError, UnsupportedError
from ...model.generation import StructuredOutput
from ...model.options import Settings
from ..base import encode
from .fields import Parameter, unserved
from .forms import Form, Listed, Made, Tagged
from .kinds import TEXTS, TEXTS_LENGTH, Anything, Boolean, Kind, Object, Refused, Text, Texts, Tree
from .schemas import FILLED, OFF, ON, array, one_of

__all__ = [
    "GUIDES", "JSON_GUIDE", "NAMED_SCHEMA", "REGEX_GUIDE", "AskedGuide", "guide_rows", "guides_of_others",
    "no_schema", "one_guide", "read_guide",
]  # fmt: skip


class AskedGuide(NamedTuple):
    """What an answer must conform to, and the field that asks for it."""

    output: StructuredOutput | None = None
    field: str = ""

    @property
    def own(self) -> dict[str, str]:
        """For ClientFields.own."""
        return {} if self.output is None else {f"sampling.{KEY}": self.field}


def read_guide(values: Mapping[str, Any]) -> AskedGuide:
    """The guide that a request asks for by GUIDES, which have been read, at most one; raises ParameterError."""
    found, found_name = AskedGuide(), ""
    for name in GUIDES:
        guide: AskedGuide = values.get(name, AskedGuide())
        if guide.output is None:
            continue
        if found.output is None:
            found, found_name = guide, name
        else:
            found = one_guide(found, found_name, guide, name)
    return found


def one_guide(guide: AskedGuide, name: str, other: AskedGuide, other_name: str) -> AskedGuide:
    """The first of two guides that are the same but for their names; raises ParameterError, naming both.

    Clients that do not know which names a server has send one by several (guidance).
    """
    if other.output != guide.output:
        raise ParameterError.because(Fault(other_name, f"cannot be combined with {name}"))
    return guide


@dataclass(frozen=True, slots=True)
class Document:
    """A JSON object that is not empty, or it as text, which is what it becomes."""

    description: str
    members: tuple[str, ...] = ()
    """One of these it must have; none: any."""
    schema = one_of({"type": "object", "minProperties": 1}, FILLED)

    def read(self, name: str, given: Any) -> str:
        document = given
        if isinstance(given, str):
            try:
                document = msgspec.json.decode(given)
            except (msgspec.DecodeError, RecursionError):
                raise PayloadError.of(name, given, self.description) from None
        if not isinstance(document, dict):
            raise PayloadError.of(name, given, self.description)
        if not document or (self.members and not any(map(document.get, self.members))):
            raise ParameterError.of(name, given, self.description)
        return encode(Tree().read(name, document)).decode()


@dataclass(frozen=True, slots=True)
class Written:
    """A string that is more than white space."""

    schema = FILLED
    description = "a non-empty string"

    def read(self, name: str, given: Any) -> str:
        text = Text().read(name, given)
        if not text.strip():
            raise ParameterError.of(name, given, self.description)
        return text


@dataclass(frozen=True, slots=True)
class Choices:
    """A list of at least one string."""

    schema = array(FILLED | {"maxLength": TEXTS_LENGTH}, 1, TEXTS)
    description = "a non-empty list of non-empty strings"

    def read(self, name: str, given: Any) -> tuple[str, ...]:
        if not isinstance(given, list):
            raise PayloadError.of(name, given, "a list of non-empty strings")
        if not given:
            raise ParameterError.of(name, given, self.description)
        return Texts().read(name, given)


@dataclass(frozen=True, slots=True)
class Wanted:
    """true: any object is asked for."""

    schema = ON
    description = "true"

    def read(self, name: str, given: Any) -> bool:
        if given is not True:
            raise ParameterError.of(name, given, self.description)
        return True


@dataclass(frozen=True, slots=True)
class Unserved:
    """A switch that may be off."""

    schema = OFF
    description = "not supported"

    def read(self, name: str, given: Any) -> None:
        if given:
            raise UnsupportedError.because(Fault(name, "not supported"))


def _guide(sets: str, kind: Kind) -> Made:
    """What becomes a field of StructuredOutput."""
    return Made(kind, lambda name, read: AskedGuide(StructuredOutput(**{sets: read}), name))


JSON_GUIDE = _guide("json_schema", Document("a JSON schema, a non-empty object"))
REGEX_GUIDE = _guide("regex", Written())
TAG = "a structural tag, an object with format or structures, or it as JSON text"
KINDS: Mapping[str, Made] = {
    "json": JSON_GUIDE,
    "regex": REGEX_GUIDE,
    "choice": _guide("choice", Choices()),
    "grammar": _guide("grammar", Written()),
    "json_object": _guide("json_object", Wanted()),
    "structural_tag": _guide("structural_tag", Document(TAG, ("format", "structures"))),
}
"""The members of `structured_outputs`."""
UNSERVED = ("disable_any_whitespace", "disable_additional_properties", "whitespace_pattern")


def _only(name: str, read: dict[str, Any]) -> AskedGuide:
    """The one that `structured_outputs` asks for."""
    kinds = [key for key in read if key in KINDS]
    if len(kinds) != 1:
        raise ParameterError.of(name, kinds, "exactly one of " + ", ".join(KINDS))
    asked: AskedGuide = read[kinds[0]]
    return asked


def no_schema(kind: str, *names: str) -> Mapping[str, Refused]:
    """Fields of a schema beside a type that has none: the answer would not conform to it."""
    return dict.fromkeys(names, Refused(f"none with the type {kind!r}"))


class TagForm(Form):
    """A structural tag is the form itself, as in vLLM's server."""

    def read(self, name: str, given: Any, settings: Settings, tag: str = "") -> dict[str, Any]:
        return {"schema": KINDS["structural_tag"].read(name, given, settings)}


BESIDE = ("schema", "value")
"""Where the schema is that some clients give with `json_object`: llama.cpp's and others' `schema`, TGI's `value`."""
NAMED_SCHEMA = Form({"name": Text(), "description": Text(), "schema": JSON_GUIDE, "strict": Boolean()}, ("schema",))
FORMAT = Tagged(
    "type",
    {
        "text": Form(no_schema("text", "json_schema", *BESIDE)),
        "json_object": Form({**no_schema("json_object", "json_schema"), **dict.fromkeys(BESIDE, JSON_GUIDE)}),
        "json_schema": Form({"json_schema": NAMED_SCHEMA, **no_schema("json_schema", *BESIDE)}, ("json_schema",)),
        "structural_tag": TagForm({"format": Object(), "structures": Listed(Anything())}),
    },
    refused=ParameterError,
)


def _asked(name: str, read: tuple[str, dict[str, Any]]) -> AskedGuide:
    """What a `response_format` asks for."""
    kind, form = read
    if kind == "text":
        return AskedGuide()
    found: list[AskedGuide] = [form[key] for key in BESIDE if key in form]
    if kind == "json_schema":
        found = [form["json_schema"]["schema"]]
    if not found:
        return AskedGuide(StructuredOutput(json_object=True), name)
    return found[0] if len(found) == 1 else one_guide(found[0], found[0].field, found[1], found[1].field)


GUIDES: Mapping[str, Made] = {
    "response_format": Made(FORMAT, _asked),
    "structured_outputs": Made(Form({**KINDS, **dict.fromkeys(UNSERVED, Unserved())}), _only),
    **{f"guided_{name}": guide for name, guide in KINDS.items() if name != "structural_tag"},
}
"""The fields of a request."""


def guide_rows(*names: str) -> tuple[Parameter, ...]:
    """Rows for fields of GUIDES, for dialects that take a StructuredOutput by one key."""
    return tuple(
        Parameter(name, Made(GUIDES[name], lambda place, asked: asked.output, "as in OpenAI chat"), None, KEY)
        for name in names
    )


KEY = "structured_output"


def guides_of_others(*served: str) -> tuple[Parameter, ...]:
    """Rows for guides by the names of other APIs, but for those that a dialect serves: to ignore one would give an
    answer in another form than the one that was asked for.
    """
    names = (*GUIDES, "guided_whitespace_pattern", "output_format", "grammar")
    return unserved(*(name for name in names if name not in served))
