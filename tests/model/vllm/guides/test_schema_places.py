"""Places in JSON schemas: what is at fault in one that does not compile, and what xgrammar would let through."""

from __future__ import annotations

from typing import Any

from lmi.model.vllm.guides.schema_places import TRIALS, fault_place, passed_over, schemas_in

from ....kit.rows import each_row


def test_the_schemas_within_a_schema_come_before_it() -> None:
    schema = {
        "properties": {"a/b": {"items": [{"type": "null"}]}, "c~": True},
        "$defs": {"d": {"not": {}}},
        "enum": [{"type": "no schema"}],
    }
    assert [place for place, _ in schemas_in(schema)] == [
        "#/properties/a~1b/items/0", "#/properties/a~1b", "#/$defs/d/not", "#/$defs/d", "#",
    ]  # fmt: skip


def without(*keywords: str) -> Any:
    """A compiler that does not take these keywords, wherever they are."""
    return lambda schema: not any(keyword in one for _, one in schemas_in(schema) for keyword in keywords)


FAULTS: dict[str, tuple[Any, tuple[str, ...], str]] = {
    "at the top": ({"type": "array", "uniqueItems": True}, ("uniqueItems",), "#/uniqueItems"),
    "within": (
        {"type": "object", "properties": {"a": {"type": "array", "items": {"not": {}, "type": "string"}}}},
        ("not",),
        "#/properties/a/items/not",
    ),
    "two in one": ({"properties": {"a": {"if": {}, "not": {}}}}, ("if", "not"), "#/properties/a/if"),
    "in a definition": (
        {"properties": {"a": {"$ref": "#/$defs/d"}}, "$defs": {"d": {"contains": {}}}},
        ("contains",),
        "#/$defs/d/contains",
    ),
    "nowhere": ({"type": "object"}, ("not",), ""),
    "no schema": (5, ("not",), ""),
}


@each_row(("schema", "keywords", "place"), FAULTS.values(), ids=FAULTS)
def test_the_place_of_a_fault(schema: Any, keywords: tuple[str, ...], place: str) -> None:
    assert fault_place(schema, without(*keywords)) == place


def test_a_large_schema_is_not_compiled_without_end() -> None:
    compiled: list[Any] = []

    def compiles(schema: Any) -> bool:
        compiled.append(schema)
        return "not" not in schema

    schema = {"properties": {f"p{index}": {"type": "string"} for index in range(1000)}, "not": {}}
    assert fault_place(schema, compiles) == ""
    assert len(compiled) == TRIALS


LOST: dict[str, tuple[Any, list[str]]] = {
    "without a type": ({"minimum": 5}, ["#/minimum"]),
    "with it": ({"type": "integer", "minimum": 5, "maximum": 7}, []),
    "with one of several": ({"type": ["string", "null"], "maxLength": 5}, []),
    "of another type": ({"type": "string", "minimum": 5}, ["#/minimum"]),
    "a pattern and a length": ({"type": "string", "pattern": "a", "maxLength": 5}, ["#/maxLength"]),
    "never read": ({"type": "array", "items": {}, "uniqueItems": True}, ["#/uniqueItems"]),
    "and false": ({"type": "array", "items": {}, "uniqueItems": False}, []),
    "branches alone": ({"title": "T", "anyOf": [{"type": "string"}, {"type": "null"}], "default": None}, []),
    "branches beside others": ({"type": "integer", "anyOf": [{"type": "integer"}], "minimum": 1}, ["#/anyOf"]),
    "branches beside branches": ({"anyOf": [{}], "oneOf": [{}]}, ["#/anyOf", "#/oneOf"]),
    "allOf": ({"allOf": [{"type": "integer"}, {"type": "number"}]}, ["#/allOf"]),
    "a reference": ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}, "description": "d"}, []),
    "a reference elsewhere": ({"$ref": "a.json"}, ["#/$ref"]),
    "required and unknown": ({"type": "object", "properties": {"a": {}}, "required": ["b"]}, ["#/required"]),
    "no items": ({"type": "array", "minItems": 1}, ["#/minItems"]),
    "no properties": ({"type": "object", "maxProperties": 1}, ["#/maxProperties"]),
    "an extension": ({"anyOf": [{"type": "string"}], "x-order": 1}, []),
    "names like keywords": ({"type": "object", "properties": {"not": {"type": "string"}, "minimum": {}}}, []),
}


@each_row(("schema", "places"), LOST.values(), ids=LOST)
def test_what_xgrammar_takes_no_notice_of(schema: Any, places: list[str]) -> None:
    """Each alike in test_backends_keywords.py, where xgrammar is asked itself."""
    assert passed_over(schema) == places
