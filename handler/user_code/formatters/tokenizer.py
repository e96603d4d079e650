"""The model's tokenizer, for user code that asks for it."""

from __future__ import annotations

import threading
from typing import Any, cast

from ....model.options import Settings

__all__ = ["Tokenizer"]


class Tokenizer:
    """The model's tokenizer, loaded when it is first used: transformers takes seconds to import."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._loaded: Any = None

    def load(self) -> Any:
        """The tokenizer of transformers."""
        with self._lock:
            if self._loaded is None:
                from transformers import AutoTokenizer

                settings = self._settings
                self._loaded = cast(Any, AutoTokenizer).from_pretrained(
                    settings.engine_arguments.get("tokenizer") or settings.model_id,
                    revision=settings.engine_arguments.get("tokenizer_revision") or settings.revision,
                    trust_remote_code=settings.trust_remote_code,
                )
            return self._loaded

    def __getattr__(self, name: str) -> Any:
        return getattr(self.load(), name)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.load()(*arguments, **named)

    def __len__(self) -> int:
        return len(self.load())
