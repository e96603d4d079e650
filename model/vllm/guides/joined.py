"""A guide beside tools that may be called: the answer is calls in the model's own form, or what the guide asks for.

vLLM's parsers know that form, as a structural tag, and join both from 0.28 on where a tool is strict; 0.26 forgets the
guide then, and either lets no call be made where none is strict. Here both hold on all versions.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vllm.sampling_params import StructuredOutputsParams

__all__ = ["joined", "tool_format"]

ANY_ARGUMENTS = {"type": "object"}


def tool_format(parser: Any, request: Any) -> Any:
    """The format of a structural tag for the calls of `request`, by vLLM's combined parser; None where it has none.

    Calls alone: the form for `auto` allows any text beside them. The arguments fit the schemas of strict tools only.
    """
    tool_parser = getattr(parser, "tool_parser", None)
    if tool_parser is None or getattr(tool_parser, "structural_tag_model", None) is None:
        return None
    tools = [_loosened(tool) for tool in request.tools]
    tag = tool_parser.get_structural_tag(
        request.model_copy(update={"tools": tools, "tool_choice": "required"}), reasoning=False
    )
    return None if tag is None else tag.model_dump()["format"]


def _loosened(tool: Any) -> Any:
    """A tool of vLLM's form; one that is not strict with arguments of any kind."""
    function = tool.function
    strict = getattr(function, "strict", None) is True
    parameters = dict(function.parameters or ANY_ARGUMENTS) if strict else ANY_ARGUMENTS
    changes = {"parameters": parameters, "strict": True}
    return tool.model_copy(update={"function": function.model_copy(update=changes)})


def joined(
    asked: StructuredOutputsParams, compiled: StructuredOutputsParams, tools: Any
) -> StructuredOutputsParams | None:
    """A structural tag of `tools`, a format, or of what was `asked` for; None where that is not for xgrammar, which
    alone takes formats (`compiled`: what a backend made of it).
    """
    from vllm.sampling_params import StructuredOutputsParams

    if getattr(compiled, "_backend", None) not in (None, "xgrammar"):
        return None
    own = _format(asked, compiled)
    if own is None:
        return None
    tag = {"type": "structural_tag", "format": {"type": "or", "elements": [tools, own]}}
    return StructuredOutputsParams(structural_tag=json.dumps(tag))


def _format(asked: StructuredOutputsParams, compiled: StructuredOutputsParams) -> dict[str, Any] | None:
    if asked.json is not None:
        schema = json.loads(asked.json) if isinstance(asked.json, str) else asked.json
        return {"type": "json_schema", "json_schema": schema}
    if asked.json_object:
        return {"type": "json_schema", "json_schema": {"type": "object"}}
    if asked.regex is not None:
        return {"type": "regex", "pattern": asked.regex}
    if asked.choice is not None:
        return {"type": "or", "elements": [{"type": "const_string", "value": one} for one in asked.choice]}
    if compiled.grammar is not None:
        return {"type": "grammar", "grammar": compiled.grammar}
    if asked.structural_tag is not None:
        return json.loads(asked.structural_tag).get("format")  # type: ignore[no-any-return]
    return None
