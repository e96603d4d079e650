"""What a request wants its text to conform to: OpenAI's `response_format`, and guided decoding by vLLM's names.

    {"response_format": {...}} | {"structured_outputs": {...}} | {"guided_regex": ...} --> AskedGuide

Whether a schema, an expression or a grammar can be compiled, the engine's side finds out; here they are not empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from ...model.errors import ParameterError, PayloadError, UnsupportedError
from ...model.generation import StructuredOutput
from ...model.options import Settings
from ..base import JsonSchema, Payload, encode
from .fields import handle_unknown_field
from .kinds import TEXTS, TEXTS_LENGTH, Object, Text, Texts, Tree
from .schemas import FILLED, STRING, array, objects, one_of

__all__ = [
    "GUIDES", "AskedGuide", "Schema", "json_guide", "one_guide", "read_guide", "refuse_schema", "regex_guide",
]  # fmt: skip


class AskedGuide(NamedTuple):
    """What an answer must conform to, and the field that asks for it."""

    output: StructuredOutput | None = None
    field: str = ""

    @property
    def own(self) -> dict[str, str]:
        """For ClientFields.own."""
        return {} if self.output is None else {"sampling.structured_output": self.field}


def read_guide(payload: Payload, settings: Settings) -> AskedGuide:
    """The guide that a request asks for, at most one; raises RequestError."""
    found, found_name = AskedGuide(), ""
    for name, kind in GUIDES.items():
        given = payload.get(name)
        guide = AskedGuide() if given is None else kind.read(name, given, settings)
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
        raise ParameterError(f"{other_name}: cannot be combined with {name}", other_name)
    return guide


def refuse_schema(form: Mapping[str, Any], names: Iterable[str], place: str) -> None:
    """Raises ParameterError for a schema beside a type that has none: the answer would not conform to it."""
    for name in names:
        if form.get(name) is not None:
            expected = f"none with the type {form.get('type')!r}"
            raise ParameterError.of(f"{place}.{name}", form[name], expected)


def _response_format(name: str, given: Any, settings: Settings) -> AskedGuide:
    kind = Object().read(name, given).get("type")
    shown = f"{name}.type"
    if kind == "structural_tag":
        # The tag is the form itself, as in vLLM's server.
        return _structural_tag(name, given, settings)
    Text(("text", "json_object", "json_schema", "structural_tag")).read(shown, kind)
    for key, value in given.items():
        if value is not None and key not in FORMAT_KEYS:
            handle_unknown_field(key, FORMAT_KEYS, settings, f"{name}.")
    if kind == "text":
        refuse_schema(given, ("json_schema", *OBJECT_SCHEMAS), name)
        return AskedGuide()
    if kind == "json_object":
        refuse_schema(given, ("json_schema",), name)
        return _object_schema(name, given) or AskedGuide(StructuredOutput(json_object=True), name)
    refuse_schema(given, OBJECT_SCHEMAS, name)
    inner = Object().read(f"{name}.json_schema", given.get("json_schema"))
    for key, kind_of in (("name", str), ("description", str), ("strict", bool)):
        value = inner.get(key)
        if value is not None and not isinstance(value, kind_of):
            expected = "a string" if kind_of is str else "true or false"
            raise PayloadError.of(f"{name}.json_schema.{key}", value, expected)
    for key in inner:
        if key not in SCHEMA_KEYS:
            handle_unknown_field(key, SCHEMA_KEYS, settings, f"{name}.json_schema.")
    return json_guide(f"{name}.json_schema.schema", inner.get("schema"), settings)


def _object_schema(name: str, form: Mapping[str, Any]) -> AskedGuide | None:
    """The schema beside `json_object`, if there is one."""
    found: AskedGuide | None = None
    for key in OBJECT_SCHEMAS:
        if form.get(key) is not None:
            guide = json_guide(f"{name}.{key}", form[key])
            found = guide if found is None else one_guide(found, found.field, guide, guide.field)
    return found


OBJECT_SCHEMAS = ("schema", "value")
"""Where the schema is that some clients give with `json_object`: llama.cpp's and others' `schema`, TGI's `value`."""
FORMAT_KEYS = ("type", "json_schema", *OBJECT_SCHEMAS)
SCHEMA_KEYS = ("name", "description", "schema", "strict")


def _structured(name: str, given: Any, settings: Settings) -> AskedGuide:
    entries = {key: value for key, value in Object().read(name, given).items() if value is not None}
    for key, value in entries.items():
        if key in UNSERVED and value:
            raise UnsupportedError(f"{name}.{key}: not supported", f"{name}.{key}")
        if key not in KINDS and key not in UNSERVED:
            handle_unknown_field(key, (*KINDS, *UNSERVED), settings, f"{name}.")
    kinds = [key for key in entries if key in KINDS]
    if len(kinds) != 1:
        raise ParameterError.of(name, kinds, "exactly one of " + ", ".join(KINDS))
    (kind,) = kinds
    return KINDS[kind](f"{name}.{kind}", entries[kind], settings)


UNSERVED = ("disable_any_whitespace", "disable_additional_properties", "whitespace_pattern")


def json_guide(name: str, given: Any, settings: Settings | None = None) -> AskedGuide:
    """Text that conforms to a schema, which is given as an object or as text."""
    expected = "a JSON schema, a non-empty object"
    schema = given
    if isinstance(given, str):
        try:
            schema = msgspec.json.decode(given)
        except (msgspec.DecodeError, RecursionError):
            raise PayloadError.of(name, given, expected) from None
    if not isinstance(schema, dict):
        raise PayloadError.of(name, given, expected)
    if not schema:
        raise ParameterError.of(name, given, expected)
    return AskedGuide(StructuredOutput(json_schema=encode(Tree().read(name, schema)).decode()), name)


def _json_object(name: str, given: Any, settings: Settings) -> AskedGuide:
    if given is not True:
        raise ParameterError.of(name, given, "true")
    return AskedGuide(StructuredOutput(json_object=True), name)


@dataclass(frozen=True, slots=True)
class Schema:
    """A JSON schema, as an object or as text; `json_guide` reads it."""

    @property
    def schema(self) -> JsonSchema:
        return SCHEMA

    @property
    def description(self) -> str:
        return "a JSON schema"

    def read(self, name: str, given: Any) -> Any:
        json_guide(name, given)
        return given


def regex_guide(name: str, given: Any, settings: Settings | None = None) -> AskedGuide:
    """Text that matches an expression."""
    return AskedGuide(StructuredOutput(regex=_text(name, given)), name)


def _grammar(name: str, given: Any, settings: Settings) -> AskedGuide:
    return AskedGuide(StructuredOutput(grammar=_text(name, given)), name)


def _structural_tag(name: str, given: Any, settings: Settings) -> AskedGuide:
    expected = "a structural tag, an object with format or structures, or it as JSON text"
    tag = given
    if isinstance(given, str):
        try:
            tag = msgspec.json.decode(given)
        except (msgspec.DecodeError, RecursionError):
            raise PayloadError.of(name, given, expected) from None
    if not isinstance(tag, dict):
        raise PayloadError.of(name, given, expected)
    if not (tag.get("format") or tag.get("structures")):
        raise ParameterError.of(name, given, expected)
    return AskedGuide(StructuredOutput(structural_tag=encode(Tree().read(name, tag)).decode()), name)


def _choice(name: str, given: Any, settings: Settings) -> AskedGuide:
    if not isinstance(given, list):
        raise PayloadError.of(name, given, "a list of non-empty strings")
    if not given:
        raise ParameterError.of(name, given, "a non-empty list of non-empty strings")
    return AskedGuide(StructuredOutput(choice=Texts().read(name, given)), name)


def _whitespace(name: str, given: Any, settings: Settings) -> AskedGuide:
    raise UnsupportedError(f"{name}: not supported", name)


def _text(name: str, given: Any) -> str:
    text = Text().read(name, given)
    if not text.strip():
        raise ParameterError.of(name, given, "a non-empty string")
    return text


Read = Callable[[str, Any, Settings], AskedGuide]

KINDS: dict[str, Read] = {
    "json": json_guide,
    "regex": regex_guide,
    "choice": _choice,
    "grammar": _grammar,
    "json_object": _json_object,
    "structural_tag": _structural_tag,
}
"""The members of `structured_outputs`."""


class Guide(NamedTuple):
    """A field that asks for a guide: how it is read, and what it may be."""

    read: Read
    schema: JsonSchema


SCHEMA = one_of({"type": "object", "minProperties": 1}, FILLED)
"""A JSON schema, as an object or as text."""

RESPONSE_FORMAT: JsonSchema = one_of(
    objects(["type"], type={"const": "text"}),
    objects(["type"], type={"const": "json_object"}, schema=SCHEMA, value=SCHEMA),
    objects(
        ["type", "json_schema"],
        type={"const": "json_schema"},
        json_schema=objects(["schema"], schema=SCHEMA, name=STRING, description=STRING, strict={"type": "boolean"}),
    ),
    objects(["type"], type={"const": "structural_tag"}, format={"type": "object"}, structures={"type": "array"}),
)

GUIDES: Mapping[str, Guide] = {
    "response_format": Guide(_response_format, RESPONSE_FORMAT),
    "structured_outputs": Guide(_structured, {"type": "object"}),
    "guided_json": Guide(json_guide, SCHEMA),
    "guided_json_object": Guide(_json_object, {"const": True}),
    "guided_regex": Guide(regex_guide, FILLED),
    "guided_choice": Guide(_choice, array({**FILLED, "maxLength": TEXTS_LENGTH}, 1, TEXTS)),
    "guided_grammar": Guide(_grammar, FILLED),
    "guided_whitespace_pattern": Guide(_whitespace, {"type": "null"}),
}
"""The fields of a request."""
