"""JSON Schemas (2020-12) of what requests may hold, made of the tables that requests are read by, for /openapi.json.

    Kind --kind_schema--> schema;   {name: Parameter} --fields_schema--> an object's properties

A schema says what a single field may be. Which fields go together, the readers judge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..base import JsonSchema
from .fields import (
    IDS,
    LARGEST_ID,
    TEXTS,
    TEXTS_LENGTH,
    Anything,
    Boolean,
    Ids,
    Integer,
    Kind,
    Number,
    Object,
    Parameter,
    Text,
    Texts,
    Tree,
)

__all__ = ["FILLED", "STRING", "array", "fields_schema", "kind_schema", "nullable", "objects", "one_of"]

STRING: JsonSchema = {"type": "string"}
FILLED: JsonSchema = {"type": "string", "minLength": 1}


def array(items: JsonSchema, least: int = 0, most: int | None = None) -> JsonSchema:
    """A list."""
    return {"type": "array", "items": items, "minItems": least} | ({} if most is None else {"maxItems": most})


def one_of(*schemas: JsonSchema) -> JsonSchema:
    """Any of some schemas."""
    return schemas[0] if len(schemas) == 1 else {"anyOf": [*schemas]}


def nullable(schema: JsonSchema) -> JsonSchema:
    """The schema, or null, which is the same as leaving a field out."""
    return one_of(schema, {"type": "null"}) if schema and schema != {"type": "null"} else schema


def objects(required: Iterable[str] = (), **properties: JsonSchema) -> JsonSchema:
    """An object; fields that are not required may be null. What else is in it is not looked at."""
    needed = [*required]
    shown = {name: schema if name in needed else nullable(schema) for name, schema in properties.items()}
    return {"type": "object", "properties": shown} | ({"required": needed} if needed else {})


def _boolean(kind: Boolean) -> JsonSchema:
    return {"enum": [True, False, *kind.words]} if kind.words else {"type": "boolean"}


def _number(kind: Number) -> JsonSchema:
    return {"type": "number", "exclusiveMinimum" if kind.above else "minimum": kind.low, "maximum": kind.high}


def _texts(kind: Texts) -> JsonSchema:
    filled = {**FILLED, "maxLength": TEXTS_LENGTH}
    return one_of(filled, array(filled, most=TEXTS), *([{"type": "boolean"}] if kind.flag else []))


SCHEMAS: Mapping[type, Callable[[Any], JsonSchema]] = {
    Boolean: _boolean,
    Integer: lambda kind: {"type": "integer", "minimum": kind.low, "maximum": kind.high},
    Number: _number,
    Texts: _texts,
    Ids: lambda _: array({"type": "integer", "minimum": 0, "maximum": LARGEST_ID}, most=IDS),
    Text: lambda kind: {"enum": [*kind.words]} if kind.words else STRING,
    Object: lambda _: {"type": "object"},
    Tree: lambda _: {"type": "object"},
    Anything: lambda _: {},
}


def kind_schema(kind: Kind) -> JsonSchema:
    """What a value may be. A dialect's own kind says so itself, in a property `schema`."""
    made = SCHEMAS.get(type(kind))
    schema: JsonSchema = made(kind) if made else getattr(kind, "schema", {})
    return schema


def _row(row: Parameter) -> JsonSchema:
    default = row.default
    if row.only:
        if default is None:
            return {"type": "null"}
        # 0 is 0.0, but 0 is not false.
        return nullable({"const": default})
    schema = nullable(kind_schema(row.kind))
    return {**schema, "default": default} if isinstance(default, str | int | float) else schema


def fields_schema(rows: Iterable[Parameter]) -> dict[str, JsonSchema]:
    """The properties of an object that a table reads."""
    return {row.name: _row(row) for row in rows}
