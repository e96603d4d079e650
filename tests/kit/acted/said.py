"""What the acted engine says, found by another way than its own: a prompt's tokens, again and again, as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["Said"]


class Said:
    """Of a model directory."""

    def __init__(self, model_dir: Path) -> None:
        from transformers import AutoTokenizer

        self._tokenizer: Any = AutoTokenizer.from_pretrained(str(model_dir))

    def text(self, prompt: str, tokens: int, *, chat: bool) -> str:
        """The answer of so many tokens to a prompt, or to a chat of one message."""
        if chat:
            messages = [{"role": "user", "content": prompt}]
            ids = self._tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        else:
            ids = self._tokenizer.encode(prompt)
        whole = [ids[at % len(ids)] for at in range(tokens)]
        return str(self._tokenizer.decode(whole, skip_special_tokens=True))
