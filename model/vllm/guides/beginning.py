"""Where the guide of an answer begins: with its first token, or behind the reasoning that comes before.

    the prompt leaves reasoning open                            behind its end, as vLLM's core finds it
    the parser says that none comes (template arguments,        at once
      marks that the template closed), or none is to be shown
    else, where each mark is one token                          behind the reasoning if the answer begins with one
    else                                                        behind its end, as vLLM's core finds it

vLLM's server (chat_completion/serving.py) has the same but for the third: it waits for the end of reasoning that may
never come, and the answer of a model that does not think is not guided at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...text.answers.reasoning import Reasoning

__all__ = ["Beginning", "beginning"]

NEVER_END = frozenset({"granite", "hunyuan_a13b"})
"""vLLM's parsers that learn of the reasoning's end from a stream that the core does not feed them: their guides would
never begin (0.26.0, 0.32.0)."""
FROM_PARSER = ("_grammar_from_tool_parser", "_grammar_from_parser")
"""Whether a request's grammar is a parser's own, with a rule for the reasoning: its names in 0.26 and 0.32."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """Of one answer's guide."""

    at_once: bool
    """Whether the core is to guide the first token."""
    reasons: bool = True
    """Whether reasoning may come."""
    marks: tuple[int, int] | None = None
    """Tokens between which reasoning may come first, though the guide begins at once otherwise."""
    arguments: dict[str, Any] | None = None
    """What the core is to make its reasoning parser with."""


def beginning(
    name: str | None,
    parser: Any,
    request: Any,
    reasoning: Reasoning,
    marks: tuple[int, int] | None,
) -> Beginning:
    """Of the answer to a conversation (`request`, in vLLM's form).

    `parser` is vLLM's reasoning parser of this `name`, made with the request's template arguments, None where no
    reasoning is to be shown; `marks` are its tokens where the core can wait for them (in_core.py).
    """
    if any(getattr(request, flag, False) for flag in FROM_PARSER):
        return Beginning(at_once=True)
    if parser is None or name in NEVER_END:
        return Beginning(at_once=True, reasons=False)
    arguments = {"chat_template_kwargs": request.chat_template_kwargs or {}}
    if reasoning.open:
        return Beginning(at_once=False, arguments=arguments)
    # Of no tokens at all some parsers say that reasoning has ended.
    if parser.is_reasoning_end(reasoning.ids or [*reasoning.prompt[-1:]]):
        return Beginning(at_once=True, reasons=False)
    return Beginning(at_once=marks is not None, marks=marks, arguments=arguments)
