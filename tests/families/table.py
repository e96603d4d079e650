"""The table of families: what a model of each writes, and what that is to become.

NAME.toml --family--> Family, with its Cases

A file is one family's, which one reads and adds to:

    models = "Qwen 2.5"                # who writes so
    tool_parsers = ["hermes"]          # vLLM's names; each case is tried with each of them
    reasoning_parsers = ["qwen3"]
    tokens = ["<tool_call>", ...]      # that the family's vocabulary has; `special_tokens`: that are left out of texts
    prompt = "<|im_start|>assistant\n" # what prompts end with
    end = "<|im_end|>"                 # the token that ends a message
    model = { architectures = ["Cohere2ForCausalLM"], model_type = "cohere2" }  # what config.json has
    tools = '''[{"name": ..., "parameters": ...}]'''  # in place of TOOLS

    [[case]]
    name = "one call"                  # unique in its file
    text = '''...'''                   # what the model writes
    content = "..."                    # what is to become of it; without: nothing
    calls = ['get_weather {"city": "Paris"}']  # the name, and the arguments as JSON
    reasoning = "..."                  # with this, if empty, the reasoning parser is on
    tool_choice = "auto"               # "none": no tool may be called; "off": the request has no tools
    cut = true                         # the answer ended before the model ended it
    prompt = "..."                     # in place of the family's
    template_arguments = { enable_thinking = false }
    streamed = false                   # nobody can tell before the answer has ended: a stream is not tried
    neither = ["0.26", "0.32"]         # the versions of vLLM where nobody gets it right: its server does not, nor do we
    streams = ["0.26", "0.32"]         # those where nobody gets every stream right, but the whole answer is
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from ..kit.toml import read_toml

__all__ = ["ENDS", "NAMES", "VERDICTS", "Call", "Case", "Family", "family"]

FOLDER = Path(__file__).parent
NAMES = [path.stem for path in sorted(FOLDER.glob("*.toml"))]
"""The families."""
ENDS = ("0.26", "0.32")
"""Both ends of the range of versions."""
VERDICTS = ("neither", "streams")
"""What a case says of versions where we do not get it right."""

Call = tuple[str, Any]
"""A name, and arguments decoded."""


def _tool(name: str, **properties: Any) -> dict[str, Any]:
    return {"name": name, "parameters": {"type": "object", "properties": properties}}


TEXT = {"type": "string"}
TOOLS = [
    _tool("get_weather", city=TEXT, unit=TEXT),
    _tool("get_time"),
    _tool("add", a={"type": "integer"}, b={"type": "integer"}),
    _tool("run_code", code=TEXT),
    _tool(
        "book",
        hotel=TEXT,
        guests={"type": "array", "items": {"type": "object", "properties": {"name": TEXT, "age": {"type": "integer"}}}},
        options={"type": "object", "properties": {"breakfast": {"type": "boolean"}, "price": {"type": "number"}}},
        note={"anyOf": [TEXT, {"type": "null"}]},
    ),
]
"""What a family's cases may call."""


@dataclass(frozen=True, slots=True)
class Case:
    """One answer."""

    name: str
    text: str
    content: str = ""
    calls: tuple[Call, ...] = ()
    reasoning: str | None = None
    tool_choice: str = "auto"
    cut: bool = False
    prompt: str | None = None
    template_arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    streamed: bool = True
    neither: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Family:
    """Models that write alike."""

    name: str
    models: str
    cases: tuple[Case, ...]
    tool_parsers: tuple[str, ...] = ()
    reasoning_parsers: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    special_tokens: tuple[str, ...] = ()
    prompt: str = ""
    end: str = "<|im_end|>"
    model: dict[str, Any] = field(default_factory=dict[str, Any])
    tools: tuple[dict[str, Any], ...] = ()


@cache
def family(name: str) -> Family:
    """The family of one of NAMES; raises TypeError or ValueError for what its file may not hold."""
    path = FOLDER / f"{name}.toml"
    given = read_toml(path)
    cases = tuple(_case(path, case) for case in given.pop("case"))
    models: str = given.pop("models")
    tools = json.loads(given.pop("tools", "null")) or TOOLS
    lists: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
    return Family(path.stem, models, cases, tools=tuple(tools), **lists)


def _case(path: Path, given: dict[str, Any]) -> Case:
    try:
        calls = tuple(_call(call) for call in given.pop("calls", ()))
        versions: dict[str, Any] = {key: tuple(given.pop(key, ())) for key in VERDICTS}
        if not set().union(*versions.values()) <= set(ENDS):
            raise ValueError(f"{', '.join(VERDICTS)}: expected some of {ENDS}")
        return Case(calls=calls, **versions, **given)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path.name}, {given.get('name')!r}: {error}") from error


def _call(text: str) -> Call:
    name, _, arguments = text.partition(" ")
    return name, json.loads(arguments)
