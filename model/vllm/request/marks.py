"""The tokens that reasoning stands between, by what a request tells the model.

chat_template_kwargs --ReasoningMarks.of--> (start, end)
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ..core import Core

__all__ = ["Marks", "ReasoningMarks"]

Marks = tuple["int | None", "int | None"]
"""The first and the last token of reasoning; None where it is not one token."""
MOST = 256
"""Variables of requests whose marks are kept."""


class ReasoningMarks:
    """Those of one reasoning parser, which may have others for less effort (K2 Horizon's)."""

    def __init__(self, core: Core, make: Callable[[dict[str, Any]], Any]) -> None:
        """`make` makes vLLM's reasoning parser for variables of the chat template; or gives None."""
        self._core = core
        self._make = make
        self._known: dict[bytes, Marks] = {}

    def of(self, arguments: Mapping[str, Any]) -> Marks:
        """The marks of an answer to a request with these variables."""
        # By its digest: a client's variables may be as long as its request.
        key = hashlib.sha256(msgspec.json.encode(arguments)).digest()
        marks = self._known.get(key)
        if marks is None:
            parser = self._make(dict(arguments))
            words = [getattr(parser, name, None) for name in ("reasoning_start_str", "reasoning_end_str")]
            vocabulary = self._core.get_tokenizer().get_vocab() if any(words) else {}
            start, end = (vocabulary.get(word) if word else None for word in words)
            if len(self._known) == MOST:
                self._known.clear()
            self._known[key] = marks = (start, end)
        return marks
