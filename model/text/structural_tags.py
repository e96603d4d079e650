"""What a structural tag may be made of: a guide of guides, which says after which words which of them holds.

    text --check_structural_tag--> nothing, or ValueError, which says why

The guides in it are held to the limits of those that stand alone (grammar_limits.py). What repeats others, or goes by
single tokens, is refused: nothing bounds in how many ways a text can be divided among repetitions of any guide.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from .grammar_limits import Costs, grammar_costs, regex_costs, schema_costs

__all__ = ["FORMATS", "check_structural_tag"]

MAX_CHARACTERS = 64 << 10
MAX_DEPTH = 16
"""Formats within formats."""

Member = tuple[str, Callable[[str], Costs] | None]
"""What is a format's own, and what xgrammar, which alone takes it, would have of it."""

FORMATS: Mapping[str, Member | None] = {
    "const_string": None,
    "any_text": None,
    "json_schema": ("json_schema", schema_costs),
    "qwen_xml_parameter": ("json_schema", schema_costs),
    "regex": ("pattern", regex_costs),
    "grammar": ("grammar", grammar_costs),
    "sequence": ("elements", None),
    "or": ("elements", None),
    "optional": ("content", None),
    "tag": ("content", None),
    "triggered_tags": ("tags", None),
    "tags_with_separator": ("tags", None),
}
"""By type: the member with the guide, or that with the formats in it."""
TAKES_LONG = ("max_tokens", "max_chars", "max_whitespace_cnt")
"""Counts, which a text within a repetition would have to be divided by."""


def check_structural_tag(text: str) -> None:
    """A structural tag, as JSON text: of xgrammar's form, with `format`, or its former one, with `structures`."""
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"it is too long, expected at most {MAX_CHARACTERS} characters")
    try:
        tag = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    if not isinstance(tag, dict):
        raise ValueError("expected an object")
    structures = tag.get("structures")
    if structures is None:
        _check_format(tag.get("format"), 1)
        return
    for structure in structures if isinstance(structures, list) else ():
        # The compiler reports what else is wrong with it.
        if isinstance(structure, dict):
            _check(schema_costs(json.dumps(structure.get("schema"))))


def _check(costs: Costs) -> None:
    if costs.xgrammar:
        raise ValueError(costs.xgrammar)


def _check_format(given: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ValueError(f"it is nested too deeply, expected at most {MAX_DEPTH} formats within formats")
    if not isinstance(given, dict):
        raise ValueError("expected a format to be an object with a type")
    # Tags within triggered tags have no type of their own.
    kind = given.get("type", "tag")
    if not isinstance(kind, str) or kind not in FORMATS:
        raise ValueError(f"it has a format of the type {kind!r}, expected one of {', '.join(FORMATS)}")
    for name in TAKES_LONG:
        if given.get(name) is not None:
            raise ValueError(f"it has {name}, which is not supported")
    for name in ("begin", "end"):
        if isinstance(given.get(name), dict):
            raise ValueError(f"it has a token as the {name} of a tag, expected a string")
    member = FORMATS[kind]
    if member is None:
        return
    name, costs = member
    inner = given.get(name)
    if costs is not None:
        _check(costs(inner if isinstance(inner, str) else json.dumps(inner)))
        return
    for one in inner if isinstance(inner, list) else [inner]:
        _check_format(one, depth + 1)
