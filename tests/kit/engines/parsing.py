"""What splits a model's answers, without its engine: the chat side of one, over any tokenizer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec

from lmi.model.text.answers.call_reader import form_of

from ..answers.openai import SETTINGS

__all__ = ["chat_renderer", "form_of"]


def chat_renderer(tokenizer: Any, model_config: Any, **options: Any) -> Any:
    """The ChatRenderer of an engine with these options."""
    from lmi.model.vllm.request.chat import ChatRenderer

    # Without a processor of images: the model has text alone.
    core: Any = SimpleNamespace(
        get_tokenizer=lambda: tokenizer,
        model_config=model_config,
        renderer=SimpleNamespace(mm_processor=None),
        end_ids=lambda: frozenset({tokenizer.eos_token_id}),
    )
    return ChatRenderer(core, msgspec.structs.replace(SETTINGS, **options))
