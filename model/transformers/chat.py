"""Conversations on the transformers engine: what the tokenizer's chat template makes of them."""

from __future__ import annotations

import json
import re
from typing import Any

from ..errors import ParameterError, RequestError, UnsupportedError
from ..generation import Conversation
from ..options import Settings
from ..text.chat_template import chat_template

__all__ = ["render", "template_of"]

PARTS = re.compile(r"\{%-?\s*for\s+\w+\s+in\s+(?:\w+(?:\.|\[['\"]))?content\b")
"""A template's loop over a message's content, which it then takes in parts; others take text. (vLLM looks for the same
in the template's syntax tree: vllm/renderers/hf.py, _detect_content_format.)"""

_TEXT = {"text", "input_text", "output_text", "refusal", "thinking"}


def template_of(tokenizer: Any, settings: Settings) -> tuple[str, bool]:
    """The chat template, "" without any, and whether it takes a message's content in parts; raises OptionError."""
    template = chat_template(settings) or getattr(tokenizer, "chat_template", None) or ""
    form = settings.chat_template_content_format
    text = template if isinstance(template, str) else ""
    return text, form == "openai" or (form == "auto" and PARTS.search(text) is not None)


def render(tokenizer: Any, template: tuple[str, bool], conversation: Conversation, field: str) -> str:
    """The text that the template makes of the messages.

    Raises ParameterError where the template refuses them, UnsupportedError for tools.
    """
    tools = conversation.tools_field
    if conversation.tools and conversation.tool_choice != "none":
        raise UnsupportedError(
            f"{tools}: the transformers engine does not parse tool calls, expected tool_choice none", tools
        )
    source, in_parts = template
    try:
        return str(
            tokenizer.apply_chat_template(
                [_message(message, source, in_parts) for message in conversation.messages],
                **{
                    "chat_template": source or None,
                    "add_generation_prompt": conversation.add_generation_prompt,
                    "continue_final_message": conversation.continue_final_message,
                    **conversation.template_arguments,
                    "tokenize": False,
                },
            )
        )
    except RequestError:
        raise
    except Exception as error:
        raise ParameterError(f"{field}: the chat template refuses it: {error}", field) from error


def _message(message: dict[str, Any], source: str, in_parts: bool) -> dict[str, Any]:
    """A message in the form that templates expect: text or parts, and the arguments of calls as objects."""
    taken = {name: value for name, value in message.items() if value is not None}
    if taken.get("role") == "developer" and "developer" not in source:
        taken["role"] = "system"
    content = taken.get("content")
    texts = [content] if isinstance(content, str) else [_text(part) for part in content or ()]
    taken["content"] = [{"type": "text", "text": text} for text in texts] if in_parts else "\n".join(texts)
    if taken.get("tool_calls"):
        taken["tool_calls"] = [_call(call) for call in taken["tool_calls"]]
    return taken


def _text(part: Any) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type", "text")
    if kind not in _TEXT:
        raise UnsupportedError(
            f"messages: the transformers engine takes text only, got a part of type {kind!r}", "messages"
        )
    text = part.get("text", part.get(kind))
    if not isinstance(text, str):
        raise ParameterError(f"messages: expected a text in a part of type {kind!r}", "messages")
    return text


def _call(call: dict[str, Any]) -> dict[str, Any]:
    function = dict(call.get("function") or {})
    arguments = function.get("arguments")
    if isinstance(arguments, str) and arguments:
        try:
            arguments = json.loads(arguments)
        except ValueError as error:
            raise ParameterError(f"messages: the arguments of a tool call are not JSON: {error}", "messages") from None
    return {**call, "function": {**function, "arguments": arguments or {}}}
