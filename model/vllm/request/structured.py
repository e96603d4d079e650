"""Guided decoding on vLLM.

What a request asks for is compiled here first: a grammar that vLLM's core cannot compile ends the core for everyone.
What would hold up the others is refused before (model/text/grammar_limits.py).
"""

from __future__ import annotations

import copy
import json
import re
from typing import TYPE_CHECKING, Any

from ...errors import ParameterError, one_line, raised_by_us
from ...generation import Conversation, StructuredOutput
from ...text.grammar_limits import check_grammar, check_regex, check_schema
from ...text.structural_tags import check_structural_tag
from ..library.parts import part

if TYPE_CHECKING:
    from vllm.sampling_params import StructuredOutputsParams

__all__ = ["TOOLS", "structured_outputs", "template_errors"]

GUIDE, TOOLS = "sampling.structured_output", "prompt.tools"
"""Paths of what asks for guided decoding."""
PLACE = re.compile(r"^\[[\d:]+\] \S+:\d+: ")
"""Where in its own sources xgrammar found the fault."""


def structured_outputs(
    guide: StructuredOutput | None, conversation: Conversation | None, request: Any, backend: str
) -> tuple[StructuredOutputsParams | None, str | None]:
    """What vLLM is to be guided by, and the path of what asked for it; raises ParameterError, naming the path.

    A forced tool call (`request`, the conversation in vLLM's form) takes precedence over the request's own guide.
    What is not for xgrammar (`backend`, vLLM's name for it) vLLM checks when it is given the request.
    """
    from vllm.sampling_params import StructuredOutputsParams

    forced = getattr(request, "structured_outputs", None)
    if forced is not None and conversation is not None:
        if guide is not None and guide.json_schema is not None and forced.grammar is not None:
            # It may be part of the grammar.
            _bounded(GUIDE, StructuredOutputsParams(json=guide.json_schema))
        return _of_tools(forced, conversation, backend), TOOLS
    if guide is None:
        return None, None
    if guide.json_schema is not None:
        made = StructuredOutputsParams(json=guide.json_schema)
    elif guide.json_object:
        made = StructuredOutputsParams(json_object=True)
    elif guide.regex is not None:
        made = StructuredOutputsParams(regex=guide.regex)
    elif guide.grammar is not None:
        made = StructuredOutputsParams(grammar=guide.grammar)
    elif guide.structural_tag is not None:
        made = StructuredOutputsParams(structural_tag=guide.structural_tag)
        try:
            # Those of tool calls are vLLM's own, and made of what it knows.
            check_structural_tag(guide.structural_tag)
        except ValueError as error:
            raise ParameterError(f"{GUIDE}: {error}", GUIDE) from None
    else:
        made = StructuredOutputsParams(choice=list(guide.choice))
    _check(GUIDE, made, backend)
    return made, GUIDE


def _of_tools(forced: StructuredOutputsParams, conversation: Conversation, backend: str) -> StructuredOutputsParams:
    """`forced` again; raises ParameterError, naming the tool whose schema is at fault where it is one's alone."""
    from vllm.sampling_params import StructuredOutputsParams

    for index, tool in enumerate(conversation.tools):
        if schema := tool["function"].get("parameters"):
            _bounded(_schema(index), StructuredOutputsParams(json=json.dumps(schema)))
    if forced.grammar is not None:
        # In Lark's form: mistral-common has made it of the schemas, and vLLM reads it when it is given the request.
        return forced
    try:
        _check(TOOLS, forced, backend)
    except ParameterError:
        for index, tool in enumerate(conversation.tools):
            schema = tool["function"].get("parameters")
            if schema:
                _check(_schema(index), StructuredOutputsParams(json=json.dumps(schema)), backend)
        raise
    return forced


def _schema(index: int) -> str:
    """The path of a tool's schema."""
    return f"{TOOLS}[{index}].parameters"


def _bounded(path: str, made: StructuredOutputsParams) -> None:
    """Raises ParameterError for what is too large, or would make the engine's steps slow."""
    checks = {"json": check_schema, "regex": check_regex, "grammar": check_grammar}
    for name, check in checks.items():
        source = getattr(made, name)
        try:
            if isinstance(source, str) and source.strip():
                check(source)
        except ValueError as error:
            raise ParameterError(f"{path}: {error}", path) from None


def _check(path: str, made: StructuredOutputsParams, backend: str) -> None:
    """Raises ParameterError where vLLM could not compile it, by vLLM's own check."""
    from vllm import SamplingParams

    try:
        # The check lets these pass, and the core ends with them.
        for name in ("json", "grammar"):
            source = getattr(made, name)
            if isinstance(source, str) and not source.strip():
                raise ValueError("it is empty")
    except ValueError as error:
        raise ParameterError(f"{path}: it cannot be compiled: {error}", path) from None
    _bounded(path, made)
    if backend != "xgrammar":
        return
    validate = part("vllm.v1.structured_output.backend_xgrammar:validate_xgrammar_grammar")
    try:
        # It writes what it makes of a grammar into what it is given.
        checked = copy.copy(made)
        validate(SamplingParams(structured_outputs=checked))
    except Exception as error:
        if raised_by_us(error):
            raise
        reason = PLACE.sub("", one_line(str(error.__cause__ or error)))[:300]
        raise ParameterError(f"{path}: it cannot be compiled: {reason}", path) from error
    if made.grammar is not None and checked.grammar != made.grammar:
        # It was in Lark's form, and is in EBNF now.
        _bounded(path, checked)


def template_errors() -> tuple[type[Exception], ...]:
    """What rendering a conversation raises where the conversation is at fault."""
    from jinja2 import TemplateError

    return (TemplateError, LookupError, AttributeError, ArithmeticError, RecursionError)
