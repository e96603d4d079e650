"""Custom tools: OpenAI's tools whose input is any text, where a function's is a JSON object.

{"name", "description", "format"} --as_function--> a function with one string, which is all that templates know
{"name", "input"} --arguments_of--> its arguments, and back again: input_of
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ...model.errors import ParameterError
from ...model.options import Settings
from ..base import JsonSchema, encode
from .fields import handle_unknown_field
from .kinds import Object, Text
from .schemas import FILLED, STRING, objects, one_of

__all__ = ["CUSTOM", "arguments_of", "as_function", "input_of"]

INPUT = "input"
"""The name of the function's only parameter."""
PARAMETERS: Mapping[str, Any] = {
    "type": "object",
    "properties": {INPUT: {"type": "string"}},
    "required": [INPUT],
    "additionalProperties": False,
}
SYNTAXES = ("lark", "regex")
FIELDS = ("name", "description", "format")
CUSTOM: JsonSchema = objects(
    ["name"],
    name=FILLED,
    description=STRING,
    format=one_of(
        objects(["type"], type={"const": "text"}),
        objects(
            ["type", "grammar"],
            type={"const": "grammar"},
            grammar=objects(["syntax", "definition"], syntax={"enum": [*SYNTAXES]}, definition=STRING),
        ),
    ),
)


def as_function(given: Any, place: str, settings: Settings) -> dict[str, Any]:
    """The tool that a custom one is, in the form that templates take; raises RequestError.

    A grammar is part of its description: the model is to follow it, but an engine guides JSON and not what is within
    a string of it.
    """
    custom = Object().read(place, given)
    name = Text().read(f"{place}.name", custom.get("name"))
    if not name:
        raise ParameterError.of(f"{place}.name", name, "a non-empty string")
    for key, value in custom.items():
        if value is not None and key not in FIELDS:
            handle_unknown_field(key, FIELDS, settings, "tools[].custom.")
    texts: list[str] = []
    if custom.get("description") is not None:
        texts.append(Text().read(f"{place}.description", custom["description"]))
    if custom.get("format") is not None:
        texts += _grammar(Object().read(f"{place}.format", custom["format"]), f"{place}.format")
    described = {"description": "\n\n".join(texts)} if texts else {}
    return {"type": "function", "function": {"name": name, **described, "parameters": {**PARAMETERS}}}


def _grammar(form: Mapping[str, Any], place: str) -> list[str]:
    if Text(("text", "grammar")).read(f"{place}.type", form.get("type")) == "text":
        return []
    place += ".grammar"
    grammar = Object().read(place, form.get("grammar"))
    syntax = Text(SYNTAXES).read(f"{place}.syntax", grammar.get("syntax"))
    definition = Text().read(f"{place}.definition", grammar.get("definition"))
    return [f"The input conforms to this grammar ({syntax}):\n{definition}"]


def arguments_of(given: str) -> str:
    """The arguments of the function for an input."""
    return encode({INPUT: given}).decode()


def input_of(arguments: str) -> str:
    """The input in arguments; these themselves where they have none, as where they were cut off."""
    try:
        given = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return arguments
    found = given.get(INPUT) if isinstance(given, dict) else None
    return found if isinstance(found, str) else arguments
