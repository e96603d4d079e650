"""Attributes of a request: those of its headers, as DJL Serving reads them (RequestParser.parseRequest, 0.36)."""

from __future__ import annotations

from ..kit.api.handler import ATTRIBUTES_HEADER, attributes_of
from ..kit.rows import each_row


@each_row(
    ("header", "attributes"),
    [
        ("", {}),
        ("dialect=tgi", {"dialect": "tgi"}),
        (" a = b ;c=d=e;none; =f", {"a": "b", "c": "d=e", "": "f"}),
        ("trace=abc,dialect=minimal", {"trace": "abc,dialect=minimal"}),
        ("abc,dialect=minimal", {"abc,dialect": "minimal"}),
        ("dialect=lmi;dialect=tgi", {"dialect": "tgi"}),
        ("Dialect=tgi", {"Dialect": "tgi", "dialect": "tgi"}),
    ],
)
def test_custom_attributes_are_separated_by_semicolons(header: str, attributes: dict[str, str]) -> None:
    assert attributes_of([(ATTRIBUTES_HEADER, header)]) == attributes
    assert attributes_of([("X-Amzn-SageMaker-Custom-Attributes", header)]) == attributes


def test_a_header_is_an_attribute_and_what_comes_later_goes_first() -> None:
    custom = (ATTRIBUTES_HEADER, "dialect=tgi")
    assert attributes_of([("Dialect", "lmi")]) == {"Dialect": "lmi", "dialect": "lmi"}
    assert attributes_of([("dialect", "lmi"), custom])["dialect"] == "tgi"
    assert attributes_of([custom, ("dialect", "lmi")])["dialect"] == "lmi"
