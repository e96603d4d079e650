"""Places in a JSON schema: of what a compiler does not take, and of what one lets through without a word.

    schema, compiles --fault_place--> the innermost schema that does not compile by itself, and the keyword at fault
    schema --passed_over--> the keywords that xgrammar takes no notice of

What xgrammar (0.2.8) does with each keyword, tests/model/vllm/guides/test_backends_keywords.py finds out; the table
here says in which company a keyword is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["fault_place", "passed_over", "schemas_in"]

MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
SINGLE = (
    "items", "additionalItems", "unevaluatedItems", "contains", "additionalProperties", "unevaluatedProperties",
    "propertyNames", "not", "if", "then", "else", "contentSchema",
)  # fmt: skip
"""Keywords whose values are schemas: by name, in a list, or one."""
DEFINITIONS = ("$defs", "definitions")
TRIALS = 100
"""How often a schema is compiled at most to find what is wrong with it."""

OF_TYPE = {
    "multipleOf": ("integer", "number"), "minimum": ("integer", "number"), "maximum": ("integer", "number"),
    "exclusiveMinimum": ("integer", "number"), "exclusiveMaximum": ("integer", "number"),
    "minLength": ("string",), "maxLength": ("string",), "pattern": ("string",), "format": ("string",),
    "minItems": ("array",), "maxItems": ("array",), "minProperties": ("object",), "maxProperties": ("object",),
    "required": ("object",),
}  # fmt: skip
"""Keywords that xgrammar reads only where the schema says its type."""
NEVER = (
    "multipleOf", "contains", "minContains", "maxContains", "uniqueItems", "patternProperties", "propertyNames",
    "dependentRequired", "dependentSchemas", "dependencies", "not", "if", "$dynamicRef", "$anchor", "$dynamicAnchor",
)  # fmt: skip
"""Keywords that it passes over, or reads in its own way."""
BRANCHES = ("allOf", "anyOf", "oneOf", "$ref")
"""What it takes by itself alone: keywords beside it are lost."""
ANNOTATIONS = (
    "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$schema", "$id", "$comment",
    "$defs", "definitions", "nullable", "discriminator", "type", "example", "externalDocs", "xml",
)  # fmt: skip
"""What restricts nothing, or no more than the branches beside it."""


def schemas_in(schema: Any, place: str = "#") -> Iterator[tuple[str, dict[str, Any]]]:
    """The schemas within a schema and itself, each behind those in it, with their places as JSON pointers."""
    if not isinstance(schema, dict):
        return
    for keyword, value in schema.items():
        inner = f"{place}/{_escaped(keyword)}"
        if keyword in MAPS and isinstance(value, dict):
            for name, one in value.items():
                yield from schemas_in(one, f"{inner}/{_escaped(name)}")
        elif keyword in LISTS and isinstance(value, list):
            for index, one in enumerate(value):
                yield from schemas_in(one, f"{inner}/{index}")
        elif keyword in SINGLE:
            yield from schemas_in(value, inner)
    yield place, schema


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def fault_place(schema: Any, compiles: Callable[[Any], bool]) -> str:
    """The place of what does not compile: of a keyword, or of a schema; "" where TRIALS compilations do not show it."""
    definitions = {name: schema[name] for name in DEFINITIONS if isinstance(schema, dict) and name in schema}
    left = TRIALS

    def tried(one: Any) -> bool:
        nonlocal left
        left -= 1
        return compiles({**one, **definitions, **one})

    # The definitions come first: what is wrong with one would be with each schema.
    for place, one in schemas_in({**definitions, **schema} if definitions else schema):
        if left <= 0:
            break
        if tried(one):
            continue
        # Without it all is well, or with it alone nothing is.
        for helps in (True, False):
            for keyword in one if left > len(one) else ():
                rest = {name: value for name, value in one.items() if (name != keyword) is helps or name == "type"}
                if keyword != "type" and tried(rest) is helps:
                    return f"{place}/{_escaped(keyword)}"
        return place
    return ""


def passed_over(schema: Any) -> list[str]:
    """The places of keywords that xgrammar takes no notice of, or not as they are meant."""
    return [f"{place}/{_escaped(keyword)}" for place, one in schemas_in(schema) for keyword in _lost(one)]


def _lost(schema: dict[str, Any]) -> Iterator[str]:
    given = schema.get("type")
    types = {one for one in (given if isinstance(given, list) else [given]) if isinstance(one, str)}
    branches = [keyword for keyword in BRANCHES if keyword in schema]
    beside = any(keyword not in (*branches, *ANNOTATIONS) and keyword[:2] != "x-" for keyword in schema)
    for keyword, value in schema.items():
        if keyword in branches:
            lost = beside or len(branches) > 1 or _is_unread(keyword, value)
        else:
            lost = keyword in NEVER and value is not False
            lost = lost or (not branches and (_lacks(schema, keyword) or _has_no_type(keyword, types)))
        if lost:
            yield keyword


def _is_unread(keyword: str, value: Any) -> bool:
    """Whether a branch is none that it reads."""
    if keyword == "allOf":
        return isinstance(value, list) and len(value) > 1
    return keyword == "$ref" and not (value == "#" or str(value).startswith("#/"))


def _has_no_type(keyword: str, types: set[Any]) -> bool:
    return keyword in OF_TYPE and types.isdisjoint(OF_TYPE[keyword])


def _lacks(schema: dict[str, Any], keyword: str) -> bool:
    """Whether a keyword has none of those beside it that it needs to be read, or one that it must not have."""
    properties, value = schema.get("properties"), schema[keyword]
    known = properties if isinstance(properties, dict) else {}
    if keyword in ("minLength", "maxLength"):
        return "pattern" in schema or "format" in schema
    if keyword == "required":
        return isinstance(value, list) and any(not isinstance(name, str) or name not in known for name in value)
    if keyword in ("minItems", "maxItems"):
        return schema.keys().isdisjoint(("items", "prefixItems"))
    return keyword in ("minProperties", "maxProperties") and not known and "additionalProperties" not in schema
