"""Conversations on the transformers engine: the tokenizer's own chat template, and vLLM's parsers if installed.

    Conversation --render--> prompt ids
    Conversation --ChatRenderer.request (model/vllm/chat.py)--> what vLLM's parsers need, where any is needed

Without vLLM, options that name a parser are refused at start, and tool calls by request.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable
from typing import Any, cast

from ..errors import OptionError, ParameterError, RequestError, UnsupportedError
from ..generation import Conversation
from ..options import Settings
from ..text.chat_template import chat_template
from ..text.parsers import Splitter
from ..vllm.chat import ChatRenderer

__all__ = ["Chat"]

PARTS = re.compile(r"\{%-?\s*for\s+\w+\s+in\s+(?:\w+(?:\.|\[['\"]))?content\b")
"""A template's loop over a message's content, which it then takes in parts; others take text. (vLLM looks for the same
in the template's syntax tree: vllm/renderers/hf.py, _detect_content_format.)"""

_TEXT = {"text", "input_text", "output_text", "refusal", "thinking"}


class _NoEngine:
    """What ChatRenderer takes of vLLM's engine besides rendering."""

    model_config = None
    renderer = None

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def get_tokenizer(self) -> Any:
        return self._tokenizer


class Chat:
    """What a model's conversations need; raises OptionError where the options name what is not there."""

    def __init__(self, tokenizer: Any, settings: Settings) -> None:
        self._tokenizer = tokenizer
        self._settings = settings
        self._template = chat_template(settings)
        self._parsers: ChatRenderer | None = None
        for name in ("tool_call_parser", "reasoning_parser"):
            if (parser := getattr(settings, name)) is not None:
                if importlib.util.find_spec("vllm") is None:
                    raise OptionError(
                        f"option.{name}: {parser} is one of vLLM's parsers, and vLLM is not installed", name
                    )
                self._side()

    def request(self, conversation: Conversation) -> Any:
        """vLLM's own form of the request, as its parsers want it; None where there is nothing to parse."""
        choice = conversation.tool_choice
        forced = conversation.function is not None or choice == "required"
        tools = bool(conversation.tools) and choice != "none"
        if tools and not forced and self._settings.tool_call_parser is None:
            raise ParameterError(
                "tool_choice: expected none, required or a function (auto needs option.tool_call_parser), got 'auto'",
                "tool_choice",
            )
        if not tools and self._settings.reasoning_parser is None:
            return None
        if importlib.util.find_spec("vllm") is None:
            raise UnsupportedError("tool_choice: calls are read by vLLM's parsers, and vLLM is not installed", "tools")
        return self._side().request(conversation)

    def render(
        self, conversation: Conversation, request: Any, field: str, shortened: Callable[[str], str]
    ) -> list[int]:
        """The prompt's ids, of what `shortened` leaves of the text that the template made of the messages.

        Raises ParameterError where the template refuses them, and what `shortened` raises.
        """
        tools: list[Any] | None = None
        if conversation.tools and conversation.tool_choice != "none":
            tools = [tool.model_dump() for tool in request.tools]
        try:
            text = self._tokenizer.apply_chat_template(
                [*map(self._message, conversation.messages)],
                **{
                    "tools": tools,
                    "chat_template": self._template,
                    "add_generation_prompt": conversation.add_generation_prompt,
                    "continue_final_message": conversation.continue_final_message,
                    **conversation.template_arguments,
                    "tokenize": False,
                },
            )
        except RequestError:
            raise
        except Exception as error:
            raise ParameterError(f"{field}: the chat template refuses it: {error}", field) from error
        return list(self._tokenizer(shortened(text), add_special_tokens=conversation.add_special_tokens)["input_ids"])

    def splitter(self, conversation: Conversation, request: Any, prompt_ids: list[int]) -> Splitter | None:
        """A splitter for one sequence; None where the answer is text as it is."""
        return None if request is None else self._side().splitter(conversation, request, prompt_ids)

    def reasoning_end(self, prompt_ids: list[int]) -> Any:
        """What tells by the ids so far whether the reasoning is over; None where no reasoning is to be waited for."""
        if self._settings.reasoning_parser is None or self._side().guided_at_once(prompt_ids):
            return None
        return self._side().reasoner().is_reasoning_end

    def _side(self) -> ChatRenderer:
        if self._parsers is None:
            self._parsers = ChatRenderer(cast(Any, _NoEngine(self._tokenizer)), self._settings)
        return self._parsers

    def _message(self, message: dict[str, Any]) -> dict[str, Any]:
        """A message in the form that templates expect: text or parts, and the arguments of calls as objects."""
        taken = {name: value for name, value in message.items() if value is not None}
        if taken.get("role") == "developer" and "developer" not in self._source:
            taken["role"] = "system"
        taken["content"] = self._content(taken.get("content"))
        if taken.get("tool_calls"):
            taken["tool_calls"] = [_call(call) for call in taken["tool_calls"]]
        return taken

    @property
    def _source(self) -> str:
        return self._template or str(getattr(self._tokenizer, "chat_template", None) or "")

    def _content(self, content: Any) -> Any:
        form = self._settings.chat_template_content_format
        in_parts = form == "openai" or (form == "auto" and PARTS.search(self._source) is not None)
        if content is None or isinstance(content, str):
            if not in_parts:
                return content or ""
            return [] if content is None else [{"type": "text", "text": content}]
        texts = [_text(part) for part in content]
        return [{"type": "text", "text": text} for text in texts] if in_parts else "\n".join(texts)


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
