"""Custom tools: OpenAI's tools whose input is any text, where a function's is a JSON object.

description, grammar --custom_function--> a function with one string, which is all that templates know
"input" --arguments_of--> its arguments, and back again: input_of

A grammar is part of the description: the model is to follow it, but an engine guides JSON and not what is within a
string of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ..base import encode
from ..common.forms import Form
from ..common.kinds import Text

__all__ = ["GRAMMAR", "INPUT", "arguments_of", "custom_function", "input_of"]

INPUT = "input"
"""The name of the function's only parameter."""
PARAMETERS: Mapping[str, Any] = {
    "type": "object",
    "properties": {INPUT: {"type": "string"}},
    "required": [INPUT],
    "additionalProperties": False,
}
GRAMMAR = Form({"syntax": Text(("lark", "regex")), "definition": Text()}, ("syntax", "definition"))


def custom_function(description: str | None, grammar: Mapping[str, Any] | None) -> dict[str, Any]:
    """The function that a custom tool is to the model, without its name; `grammar`: the fields of GRAMMAR."""
    texts = [description] if description else []
    if grammar is not None:
        texts.append(f"The input conforms to this grammar ({grammar['syntax']}):\n{grammar['definition']}")
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
