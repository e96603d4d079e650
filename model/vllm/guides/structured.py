"""What a request is guided by: its own guide, the calls that it forces, or either of them.

    StructuredOutput, tools --structured_outputs--> StructuredOutputsParams, compiled by a backend (backends.py)

What would hold up the others is not compiled (model/text/grammar_limits.py).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ...errors import Fault, ParameterError
from ...generation import Conversation, StructuredOutput
from ...text.structural_tags import check_structural_tag
from .backends import GUIDANCE, XGRAMMAR, GuideBackends, bounded
from .joined import joined

if TYPE_CHECKING:
    from vllm.sampling_params import StructuredOutputsParams

__all__ = ["of_tools", "structured_outputs"]

GUIDE, TOOLS = "sampling.structured_output", "prompt.tools"
"""Paths of what asks for guided decoding."""


def structured_outputs(
    guide: StructuredOutput | None,
    conversation: Conversation | None,
    request: Any,
    backends: GuideBackends,
    tool_format: Any = None,
) -> tuple[StructuredOutputsParams | None, str | None]:
    """What vLLM is to be guided by, and the path of what asked for it; raises ParameterError, naming the path.

    A forced tool call (`request`, the conversation in vLLM's form) takes precedence over the request's own guide, and
    what strict tools ask for where there is none. Where tools may be called beside a guide, either holds:
    `tool_format` is the form of such calls, None where that is not known and the guide holds alone, as it does where
    the options name a backend that takes no formats. A grammar of calls has the guide in it.
    """
    calls = getattr(request, "structured_outputs", None)
    has_guide = calls is not None and calls.grammar is not None
    if calls is not None and conversation is not None and (guide is None or conversation.forced or has_guide):
        if has_guide and guide is not None and guide.json_schema is not None:
            bounded(GUIDE, _of(guide), XGRAMMAR, GUIDANCE)
        return of_tools(calls, conversation, backends, strict=False), TOOLS
    if guide is None:
        return None, None
    own = backends.compiled(GUIDE, asked := _of(guide))
    if tool_format is None or conversation is None or not backends.takes_formats:
        return own, GUIDE
    either = joined(asked, own, tool_format)
    return (own if either is None else of_tools(either, conversation, backends, strict=True)), GUIDE


def _of(guide: StructuredOutput) -> StructuredOutputsParams:
    from vllm.sampling_params import StructuredOutputsParams

    if guide.json_schema is not None:
        return StructuredOutputsParams(json=guide.json_schema)
    if guide.json_object:
        return StructuredOutputsParams(json_object=True)
    if guide.regex is not None:
        return StructuredOutputsParams(regex=guide.regex)
    if guide.grammar is not None:
        return StructuredOutputsParams(grammar=guide.grammar)
    if guide.structural_tag is not None:
        try:
            # Those of tool calls are vLLM's own, and made of what it knows.
            check_structural_tag(guide.structural_tag)
        except ValueError as error:
            raise ParameterError.because(Fault(GUIDE, f"{error}")) from None
        return StructuredOutputsParams(structural_tag=guide.structural_tag)
    return StructuredOutputsParams(choice=list(guide.choice))


def of_tools(
    guide: StructuredOutputsParams, conversation: Conversation, backends: GuideBackends, *, strict: bool
) -> StructuredOutputsParams:
    """`guide`, compiled; raises ParameterError, naming the tool whose schema is at fault where it is one's alone.

    `strict`: the schemas of strict tools alone are in it.
    """
    from vllm.sampling_params import StructuredOutputsParams

    schemas = {
        f"{TOOLS}[{index}].parameters": StructuredOutputsParams(json=json.dumps(schema))
        for index, tool in enumerate(conversation.tools)
        if (schema := tool["function"].get("parameters")) and (tool["function"].get("strict") is True or not strict)
    }
    # Structural tags are xgrammar's.
    compiling = (XGRAMMAR,) if guide.grammar is None else (XGRAMMAR, GUIDANCE)
    for path, schema in schemas.items():
        bounded(path, schema, *compiling)
    try:
        # A grammar is made of the schemas, and larger than they are.
        return backends.compiled(TOOLS, guide, bound=guide.grammar is None)
    except ParameterError:
        for path, schema in schemas.items():
            backends.compiled(path, schema)
        raise
