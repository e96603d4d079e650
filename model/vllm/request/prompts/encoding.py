"""Text to token ids by the tokenizers library itself.

    text --TextEncoder--> ids --TextEncoder.prompt--> the prompt as vLLM takes it

What transformers and vLLM put around it for one text takes several times as long as a short prompt's tokens
(docs/performance.md, Tried). They stay the judges: where a tokenizer is none of transformers' own on that library, or
gives other tokens for a few texts, it is asked itself.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from ...core import Core
from ...library.parts import part
from .known_parts import parts_of

__all__ = ["TextEncoder", "text_encoder"]

log = logging.getLogger(__name__)

OURS = ("__call__", "encode", "_encode_plus", "_batch_encode_plus", "_call_one")
"""Methods that make ids of a text; a class of a model's own may have its own."""
KNOWN = ("transformers.tokenization_utils", "vllm.tokenizers.hf")
"""Modules whose methods do no more than the library does."""
TEXTS = (
    "",
    "a",
    " Two  words,\n\tand 3 lines.\r\n\n",
    "\u00e9\u0301 \u4e16\u754c \U0001f30d \u200d\ufeff",
    "<s>[INST] x </s>",
)


def text_encoder(core: Core, template: str | None = None) -> TextEncoder | None:
    """A model's; None: it has two prompts, one of them for its encoder, or vLLM has a renderer for it alone.

    template: that of conversations, where it is not the tokenizer's own.
    """
    simple = type(core.renderer) is part("vllm.renderers.hf:HfRenderer") and not core.model_config.is_encoder_decoder
    return TextEncoder(core.renderer, template) if simple else None


class TextEncoder:
    """Makes token ids of texts as vLLM's tokenizer does; on any thread."""

    def __init__(self, renderer: Any, template: str | None = None) -> None:
        """`renderer`: vLLM's, of a model whose prompt is one text; `template`: as for `text_encoder`."""
        self._renderer = renderer
        self._tokenizer = renderer.get_tokenizer()
        self._fast: Any = _fast(self._tokenizer)
        self.direct = self._fast is not None
        """Whether the library is asked, and not transformers."""
        templates = (template or "", str(getattr(self._tokenizer, "chat_template", None) or ""))
        self._parts = parts_of(self._fast, templates, self._ids) if self.direct else None

    def encode(self, text: str, *, special: bool) -> list[int]:
        """The text's ids; `special`: with the tokens that the tokenizer puts around a text."""
        if not self.direct:
            ids: list[int] = self._tokenizer(text, add_special_tokens=special)["input_ids"]
            return ids
        known = None if special or self._parts is None else self._parts.encode(text)
        return self._ids(text, special=special) if known is None else known

    def _ids(self, text: str, *, special: bool = False) -> list[int]:
        # The positions of tokens in the text, which take as long as the tokens, are left out.
        (encoding,) = self._fast.encode_batch_fast([text], add_special_tokens=special)
        found: list[int] = encoding.ids
        return found

    def prompt(self, text: str, *, special: bool) -> Any:
        """The text as vLLM takes prompts, with `prompt_token_ids`."""
        made = {"prompt": text, "prompt_token_ids": self.encode(text, special=special)}
        return self._renderer.process_for_engine(made, time.time())


def _fast(tokenizer: Any) -> Any:
    """The library's own tokenizer within one of transformers', which nothing cuts or fills up; None: there is none."""
    fast: Any = getattr(tokenizer, "_tokenizer", None)
    if not getattr(tokenizer, "is_fast", False) or not hasattr(fast, "encode_batch_fast"):
        return None
    methods = (getattr(type(tokenizer), name, None) for name in OURS)
    if any(method is not None and not method.__module__.startswith(KNOWN) for method in methods):
        return None
    fast.no_truncation()
    fast.no_padding()
    marks = (*tokenizer.all_special_tokens[:4],)
    for text in (*TEXTS, "".join(f"{mark} x{mark}\n" for mark in marks)):
        for special in (False, True):
            (made,) = fast.encode_batch_fast([text], add_special_tokens=special)
            if made.ids != tokenizer(text, add_special_tokens=special)["input_ids"]:
                log.info("the tokenizer has an encoding of its own, each prompt takes some microseconds more")
                return None
    return fast
