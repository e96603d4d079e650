"""JSON Schemas (2020-12) of what requests may hold, for /openapi.json, put together.

A schema says what a single field may be. Which fields go together, the readers judge.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..dialect import JsonSchema

__all__ = [
    "ANY", "BOOLEAN", "FILLED", "INTEGER", "NULL", "OBJECT", "OFF", "ON", "STRING", "array", "nullable", "objects",
    "one_of",
]  # fmt: skip

STRING: JsonSchema = {"type": "string"}
BOOLEAN: JsonSchema = {"type": "boolean"}
INTEGER: JsonSchema = {"type": "integer"}
FILLED: JsonSchema = {"type": "string", "minLength": 1}
"""A string that is not empty."""
OBJECT: JsonSchema = {"type": "object"}
NULL: JsonSchema = {"type": "null"}
ON: JsonSchema = {"const": True}
OFF: JsonSchema = {"const": False}
ANY: JsonSchema = {}


def array(items: JsonSchema, ge: int = 0, le: int | None = None) -> JsonSchema:
    """A list."""
    return {"type": "array", "items": items, "minItems": ge} | ({} if le is None else {"maxItems": le})


def one_of(*schemas: JsonSchema) -> JsonSchema:
    """Any of some schemas."""
    return schemas[0] if len(schemas) == 1 else {"anyOf": [*schemas]}


def nullable(schema: JsonSchema) -> JsonSchema:
    """The schema, or null, which is the same as leaving a field out."""
    return one_of(schema, NULL) if schema and schema != NULL else schema


def objects(required: Iterable[str] = (), **properties: JsonSchema) -> JsonSchema:
    """An object; fields that are not required may be null. Other members are not checked."""
    needed = [*required]
    shown = {name: schema if name in needed else nullable(schema) for name, schema in properties.items()}
    return {"type": "object", "properties": shown} | ({"required": needed} if needed else {})
