"""Guided decoding on vLLM.

What a request asks for is compiled here first: a grammar that vLLM's core cannot compile ends the core for everyone.
"""

from __future__ import annotations

import json
import re
from typing import Any

from .errors import ParameterError, one_line
from .generation import Guide

__all__ = ["structured_outputs", "template_errors"]


PLACE = re.compile(r"^\[[\d:]+\] \S+:\d+: ")
"""Where in its own sources xgrammar found the fault."""


def structured_outputs(guide: Guide | None, request: Any) -> Any:
    """vLLM's StructuredOutputsParams, or None; raises ParameterError where it cannot be compiled.

    A tool call that must be made (`request`, in vLLM's form) goes before a guide of the request's own.
    """
    forced = getattr(request, "structured_outputs", None)
    if forced is None and guide is None:
        return None
    import xgrammar
    from vllm.sampling_params import StructuredOutputsParams

    if forced is not None:
        if forced.structural_tag is not None:
            _compiled("tools", xgrammar.Grammar.from_structural_tag, forced.structural_tag)
        schema = forced.json
        if schema is not None:
            _compiled(
                "tools", xgrammar.Grammar.from_json_schema, schema if isinstance(schema, str) else json.dumps(schema)
            )
        return forced
    assert guide is not None
    if guide.json_schema is not None:
        _compiled(guide.field or "response_format", xgrammar.Grammar.from_json_schema, guide.json_schema)
        return StructuredOutputsParams(json=guide.json_schema)
    if guide.json_object:
        return StructuredOutputsParams(json_object=True)
    if guide.regex is not None:
        _compiled(guide.field or "regex", xgrammar.Grammar.from_regex, guide.regex)
        return StructuredOutputsParams(regex=guide.regex)
    if guide.grammar is not None:
        _compiled(guide.field or "grammar", xgrammar.Grammar.from_ebnf, guide.grammar)
        return StructuredOutputsParams(grammar=guide.grammar)
    return StructuredOutputsParams(choice=list(guide.choice))


def _compiled(param: str, compile_: Any, source: str) -> None:
    """Raises ParameterError where `source` cannot be compiled."""
    try:
        compile_(source)
    except Exception as error:
        reason = PLACE.sub("", one_line(str(error)))[:300]
        raise ParameterError(f"{param}: it cannot be compiled: {reason}", param) from error


def template_errors() -> tuple[type[Exception], ...]:
    """What rendering a conversation raises where the conversation is at fault."""
    from jinja2 import TemplateError

    return (TemplateError, KeyError, AttributeError)
