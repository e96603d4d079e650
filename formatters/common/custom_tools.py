"""Custom tools: OpenAI's tools whose input is any text, where a function's is a JSON object.

{"description", "format"} --custom_function--> a function with one string, which is all that templates know
"input" --arguments_of--> its arguments, and back again: input_of

A grammar is part of the description: the model is to follow it, but an engine guides JSON and not what is within a
string of it.
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

__all__ = ["CUSTOM", "INPUT", "SYNTAXES", "arguments_of", "as_function", "custom_function", "input_of", "read_grammar"]

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
    """The tool that a custom one of chat's is, in the form that templates take; raises RequestError."""
    custom = Object().read(place, given)
    name = Text().read(f"{place}.name", custom.get("name"))
    if not name:
        raise ParameterError.of(f"{place}.name", name, "a non-empty string")
    for key, value in custom.items():
        if value is not None and key not in FIELDS:
            handle_unknown_field(key, FIELDS, settings, "tools[].custom.")
    description, grammar = None, None
    if custom.get("description") is not None:
        description = Text().read(f"{place}.description", custom["description"])
    if custom.get("format") is not None:
        form = Object().read(f"{place}.format", custom["format"])
        if Text(("text", "grammar")).read(f"{place}.format.type", form.get("type")) == "grammar":
            where = f"{place}.format.grammar"
            grammar = read_grammar(Object().read(where, form.get("grammar")), where)
    return {"type": "function", "function": {"name": name, **custom_function(description, grammar)}}


def read_grammar(given: Mapping[str, Any], place: str) -> tuple[str, str]:
    """Syntax and definition; raises RequestError."""
    syntax = Text(SYNTAXES).read(f"{place}.syntax", given.get("syntax"))
    return syntax, Text().read(f"{place}.definition", given.get("definition"))


def custom_function(description: str | None, grammar: tuple[str, str] | None) -> dict[str, Any]:
    """The function that a custom tool is to the model, without its name; `grammar`: see read_grammar."""
    texts = [description] if description else []
    if grammar is not None:
        texts.append("The input conforms to this grammar ({}):\n{}".format(*grammar))
    described = {"description": "\n\n".join(texts)} if texts else {}
    return {**described, "parameters": {**PARAMETERS}}


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
