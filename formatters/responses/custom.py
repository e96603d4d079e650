"""Custom tools, whose input is a text: to the model they are functions with one argument, a string.

    {"type": "custom", "description", "format"} --custom_function--> {"description", "parameters": {"input": a string}}
    "a" --custom_arguments--> '{"input":"a"}' --CustomInput--> "a", in pieces as they come

The text is not held to its format: the model is shown it.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import msgspec

from ..base import JsonSchema, encode
from ..common.kinds import Object, Text
from ..common.schemas import STRING, objects, one_of

__all__ = ["FORMAT_SCHEMA", "CustomInput", "custom_arguments", "custom_function", "read_form"]

ARGUMENT = "input"
SYNTAXES = ("lark", "regex")
FORMAT_SCHEMA: JsonSchema = one_of(
    objects(["type"], type={"const": "text"}),
    objects(
        ["type", "syntax", "definition"], type={"const": "grammar"}, syntax={"enum": [*SYNTAXES]}, definition=STRING
    ),
)


def read_form(given: Any, place: str) -> dict[str, Any]:
    """The format of a custom tool's input; raises RequestError."""
    form = Object().read(place, {"type": "text"} if given is None else given)
    if Text(("text", "grammar")).read(f"{place}.type", form.get("type")) == "text":
        return {"type": "text"}
    return {
        "type": "grammar",
        "syntax": Text(SYNTAXES).read(f"{place}.syntax", form.get("syntax")),
        "definition": Text().read(f"{place}.definition", form.get("definition")),
    }


def custom_function(description: str | None, form: dict[str, Any]) -> dict[str, Any]:
    """The function that a custom tool is to the model, without its name."""
    told = "The whole input of the tool, as plain text."
    if form["type"] == "grammar":
        told += f" It must match this {form['syntax']} grammar:\n{form['definition']}"
    function = {} if description is None else {"description": description}
    parameters = {
        "type": "object",
        "properties": {ARGUMENT: {"type": "string", "description": told}},
        "required": [ARGUMENT],
        "additionalProperties": False,
    }
    return {**function, "parameters": parameters}


def custom_arguments(text: str) -> str:
    """The arguments of a call with this input, as JSON text."""
    return encode({ARGUMENT: text}).decode()


HEAD = re.compile(rf'\s*\{{\s*"{ARGUMENT}"\s*:\s*"')
HEAD_LENGTH = 64
"""Within how many characters arguments that are as asked for come to their text: the others are not looked through
again and again."""
SURROGATE = "[dD][89abAB][0-9a-fA-F]{2}"
TEXT = re.compile(
    rf'(?: [^"\\]+ | \\[^u] | \\u(?: {SURROGATE}(?:\\u[^"\\]{{4}} | (?=[^\\]|\\[^u])) | (?!{SURROGATE})[^"\\]{{4}}) )*',
    re.VERBOSE | re.DOTALL,
)
"""As much of a JSON string as is whole: half an escape or half a pair of surrogates is not."""
ESCAPE = re.compile(rf'\\u{SURROGATE}\\u[^"\\]{{4}}|\\u.{{4}}|\\.', re.DOTALL)


def _unescaped(found: re.Match[str]) -> str:
    """The character of an escape; a faulty one stays as it is."""
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(f'"{found[0]}"', type=str)
    return found[0]


class CustomInput:
    """Reads the input of one call from the pieces of its arguments, as they come.

    Arguments that are not as asked for are the input themselves, known at their end.
    """

    __slots__ = ("_ended", "_pending", "_within")

    def __init__(self) -> None:
        self._pending = ""
        self._within = False
        """Whether the text has begun."""
        self._ended = False

    def push(self, piece: str) -> str:
        """What a piece adds to the input."""
        if self._ended:
            return ""
        self._pending += piece
        if not self._within:
            head = HEAD.match(self._pending) if len(self._pending) - len(piece) < HEAD_LENGTH else None
            if head is None or head.end() > HEAD_LENGTH:
                return ""
            self._within = True
            self._pending = self._pending[head.end() :]
        found = TEXT.match(self._pending)
        whole = found[0] if found else ""
        self._pending = self._pending[len(whole) :]
        self._ended = self._pending.startswith('"')
        return ESCAPE.sub(_unescaped, whole) if "\\" in whole else whole

    def rest(self) -> str:
        """What is left of the input at the end of the arguments."""
        if self._within:
            return "" if self._ended else self._pending
        with suppress(msgspec.DecodeError, RecursionError):
            read = msgspec.json.decode(self._pending)
            if isinstance(read, dict) and isinstance(read.get(ARGUMENT), str):
                return str(read[ARGUMENT])
        return self._pending
