"""Where in an answer of gpt-oss a guide holds, or a call is forced: a structural tag over all of the answer.

    analysis?  preamble?  (a call of one of these tools | the final message, which the guide describes)

As vLLM's server has it from 0.28 on (parser/harmony.py); 0.26 has none for calls that are forced. Beyond it, reasoning
cannot end the answer, `<|call|>` may end a call, and with tools on `auto` a guided answer may be a call as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["answer_tag", "guided_format"]

Format = dict[str, Any]

ANY: Format = {"type": "any_text"}
MARKS = ("<|start|>", "<|channel|>", "<|message|>", "<|call|>", "<|return|>", "<|endoftext|>")
FORMATS = ("", " json", " <|constrain|>json")
"""What models write of a content's format."""


def answer_tag(functions: Iterable[Mapping[str, Any]], final: Format | None, *, preamble: bool) -> str:
    """xgrammar's structural tag, as JSON, of an answer that calls one of `functions` (OpenAI's form), or ends with
    `final`; None: it must call. `preamble`: whether it may say something before.
    """
    ways = [_call(function) for function in functions]
    if final is not None:
        begins = [_text(f"<|channel|>final{written}<|message|>") for written in FORMATS]
        ways.append(_sequence(_or(begins), final, _end("<|end|>")))
    before = [_before("analysis"), *([_before("commentary")] if preamble else [])]
    return json.dumps({"type": "structural_tag", "format": _sequence(*before, _or(ways))})


def guided_format(guide: Any) -> Format | None:
    """What vLLM's StructuredOutputsParams describe, in the form of a tag; None: nothing."""
    if guide.json is not None:
        return _schema(json.loads(guide.json) if isinstance(guide.json, str) else guide.json)
    if guide.json_object:
        return _schema({"type": "object"})
    if guide.regex is not None:
        return {"type": "regex", "pattern": guide.regex}
    if guide.choice is not None:
        return _or([_text(choice) for choice in guide.choice])
    if guide.grammar is not None:
        return {"type": "grammar", "grammar": guide.grammar}
    if guide.structural_tag is not None:
        tag = json.loads(guide.structural_tag)
        if "structures" not in tag:
            return dict(tag["format"])
        tags = [
            {"begin": one["begin"], "content": _schema(one["schema"]), "end": one["end"]} for one in tag["structures"]
        ]
        return {"type": "triggered_tags", "triggers": tag["triggers"], "tags": tags}
    return None


def _call(function: Mapping[str, Any]) -> Format:
    """A call: the recipient stands before the channel or behind it, and the channel may be a wrong one."""
    to = f"to=functions.{function['name']}"
    begins = [
        _text(f"{begin}{written}<|message|>")
        for channel in ("<|channel|>commentary", "<|channel|>analysis")
        for begin in (f" {to}{channel}", f"{channel} {to}")
        for written in FORMATS
    ]
    schema = function.get("parameters") if function.get("strict") is not False else None
    return _sequence(_or(begins), _schema(schema or {"type": "object"}), _end("<|call|>", "<|end|>"))


def _before(channel: str) -> Format:
    """A message in front, if there is one. No mark but its end is in it: it could end the answer."""
    content = {**ANY, "excludes": [*MARKS]}
    tag = {"type": "tag", "begin": f"<|channel|>{channel}<|message|>", "content": content, "end": "<|end|>"}
    return {"type": "optional", "content": _sequence(tag, _text("<|start|>assistant"))}


def _end(*marks: str) -> Format:
    """What may end a message; the token that ends the answer needs no other."""
    return {"type": "optional", "content": _or([*map(_text, marks)])}


def _schema(schema: Any) -> Format:
    return {"type": "json_schema", "json_schema": schema}


def _text(text: str) -> Format:
    return {"type": "const_string", "value": text}


def _or(formats: list[Format]) -> Format:
    return formats[0] if len(formats) == 1 else {"type": "or", "elements": formats}


def _sequence(*formats: Format) -> Format:
    return {"type": "sequence", "elements": [*formats]}
