"""Conversations of texts alone, by the model's chat template itself.

    messages --PlainChat.text--> the prompt's text;  None: vLLM's renderer is to make it

vLLM's renderer and transformers find out anew for each request what the same template always gets: form of contents,
variables, special tokens. That takes three times as long as a short conversation's text. Here it is found out once, by
vLLM's own functions, and tried: where it does not give the same texts as vLLM's renderer, that one makes all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from ....errors import StartError
from ...library.parts import part

__all__ = ["PlainChat", "plain_chat"]

log = logging.getLogger(__name__)

TEXT = {"role", "content"}
ROLES = ("system", "user", "assistant")
"""What vLLM hands on as it is."""
HF = "vllm.renderers.hf:"
ASKED = {"role": "user", "content": " Two\nlines "}
TRIALS: tuple[list[dict[str, str]], ...] = (
    [ASKED],
    [{"role": "system", "content": "Be brief."}, ASKED],
    [ASKED, {"role": "assistant", "content": "<b>&amp;</b>"}, {"role": "user", "content": "\u00e9"}],
)


def plain_chat(renderer: Any, model_config: Any, request: Any, chat: Any) -> PlainChat | None:
    """What makes texts as `renderer` does for conversations like `request`, whose ChatParams are `chat`; None where
    that is not known to be the same. Where these have tools, it is for conversations with any, else for those without.
    """
    if type(renderer) is not part(f"{HF}HfRenderer"):
        return None
    try:
        made = PlainChat(renderer.get_tokenizer(), model_config, request, chat)
        for messages in TRIALS:
            if (text := made.text(request, made.tools, messages)) is not None:
                _, given = renderer.render_messages(messages, chat)
                if given["prompt"] != text:
                    raise ValueError(f"it makes {given['prompt']!r} and not {text!r}")
    except (ImportError, AttributeError, KeyError, TypeError, ValueError, StartError) as error:
        log.info("vLLM's renderer makes all prompts, some microseconds slower: %s", error)
        return None
    return made


class PlainChat:
    """One model's, for conversations with tools or for those without."""

    def __init__(self, tokenizer: Any, model_config: Any, request: Any, chat: Any) -> None:
        """Raises ValueError for a template that takes contents in another form than as texts."""
        from transformers.utils.chat_template_utils import _compile_jinja_template

        given = chat.get_apply_chat_template_kwargs()
        self.tools: list[dict[str, Any]] | None = given.get("tools")
        """Those that it is made with."""
        template = part(f"{HF}resolve_chat_template")(
            tokenizer, chat_template=given.pop("chat_template", None), tools=self.tools, model_config=model_config
        )
        form = part(f"{HF}resolve_chat_template_content_format")(
            chat_template=template, tools=self.tools, given_format=chat.chat_template_content_format,
            tokenizer=tokenizer, model_config=model_config,
        )  # fmt: skip
        if template is None or form != "string":
            raise ValueError(f"the template takes contents as {form}")
        self._render = _compile_jinja_template(template).render
        variables = part(f"{HF}resolve_chat_template_kwargs")(tokenizer, template, given, raise_on_unexpected=False)
        for own in OWN:
            variables.pop(own, None)
        self._variables: dict[str, Any] = {**tokenizer.special_tokens_map, **variables}
        self._asked = request.chat_template_kwargs
        """The variables of requests that say nothing of them."""

    def text(
        self,
        request: Any,
        tools: list[dict[str, Any]] | None = None,
        messages: Sequence[Mapping[str, Any]] | None = None,
    ) -> str | None:
        """The prompt of a request (of other `messages`); None where it is more than texts, or its template fails.

        tools: those that the template is shown.
        """
        asked: Sequence[Mapping[str, Any]] = request.messages if messages is None else messages
        if (
            request.chat_template is not None
            or request.continue_final_message
            or request.chat_template_kwargs != self._asked
            or not all(map(_is_text, asked))
        ):
            return None
        try:
            # In the order and with the values that transformers gives them (render_jinja_template).
            text: str = self._render(
                messages=asked, tools=tools, documents=None, add_generation_prompt=request.add_generation_prompt,
                **self._variables,
            )  # fmt: skip
        except Exception:  # noqa: BLE001 - vLLM's renderer says why
            return None
        return text


OWN = ("tools", "documents", "add_generation_prompt", "continue_final_message", "return_dict", "tokenize")
"""What apply_chat_template takes for itself, or gives to the template in any case."""


def _is_text(message: Mapping[str, Any]) -> bool:
    return message.keys() == TEXT and message["role"] in ROLES and type(message["content"]) is str
