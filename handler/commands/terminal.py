"""What commands show where a person reads it: colours, and of vLLM's lines what matters."""

from __future__ import annotations

import os
from typing import TextIO

__all__ = ["coloured", "quiet_engine"]


def coloured(text: str, codes: str, stream: TextIO) -> str:
    """`text` in a terminal's `codes` (ECMA-48, SGR), where `stream` is one and NO_COLOR does not forbid it."""
    plain = not codes or os.environ.get("NO_COLOR") or os.environ.get("TERM", "") in {"", "dumb"}
    return text if plain or not stream.isatty() else f"\x1b[{codes}m{text}\x1b[0m"


def quiet_engine(stream: TextIO) -> None:
    """Has an engine that is started from here on write vLLM's warnings alone, where `stream` is a terminal and the
    environment does not say otherwise; bars of progress are shown."""
    if stream.isatty():
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
