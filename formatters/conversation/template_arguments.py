"""Variables of the chat template: a client's own, and how much the model is to think, by one rule for all dialects.

    reasoning_effort: "none" | "low" | ...         chat, Azure; `reasoning.effort` of Responses
    thinking: {"type": "disabled", "budget_tokens"}, output_config: {"effort"}        Anthropic
        --think--> enable_thinking, thinking, reasoning_effort, thinking_budget       chat_template_kwargs

Templates ignore the variables that they do not know. What a client says in chat_template_kwargs itself stays; what it
does not say at all, option.default_chat_template_kwargs says (model/vllm/request/chat.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...model.errors import Fault, UnsupportedError
from ...model.options.settings import RESERVED_VARIABLES, Settings

__all__ = ["NONE", "read_template_arguments", "think"]

NONE = "none"
"""The effort that switches thinking off, as in vLLM's server."""


def think(
    arguments: dict[str, Any],
    settings: Settings,
    *,
    effort: str | None = None,
    thinks: bool | None = None,
    budget: int | None = None,
) -> None:
    """Adds the variables that a request's effort and thinking come to; None: it does not say.

    Without option.reasoning_parser thinking is not switched on: what the model thinks would be in the answer's text.
    """
    if thinks is None and effort is not None:
        thinks = effort != NONE
    known = thinks is False or (thinks and settings.reasoning_parser is not None)
    if known and "enable_thinking" not in arguments and "thinking" not in arguments:
        arguments["enable_thinking"] = arguments["thinking"] = thinks
    if effort is not None:
        arguments.setdefault("reasoning_effort", effort)
    if budget is not None:
        arguments.setdefault("thinking_budget", budget)


def read_template_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """The variables of `chat_template_kwargs`; raises UnsupportedError for what is none of the template's."""
    if "chat_template" in given:
        field = "chat_template_kwargs.chat_template"
        raise UnsupportedError.because(Fault(field, "not supported in a request, set option.chat_template"))
    for name in RESERVED_VARIABLES:
        if name in given:
            field = f"chat_template_kwargs.{name}"
            raise UnsupportedError.because(Fault(field, "not supported, expected variables of the chat template"))
    return dict(given)
