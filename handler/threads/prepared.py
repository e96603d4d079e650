"""What a request comes to once it has been read."""

from __future__ import annotations

from dataclasses import dataclass

from ...formatters import ParsedRequest
from ..user_code.content_filter import FilteredEncoder

__all__ = ["Prepared"]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that has been parsed."""

    call: ParsedRequest
    on_threads: bool = True
    """Whether the reply is fed on threads, for it runs user code; else on the engine's, as any other."""
    filtered: FilteredEncoder | None = None
    """The content filter's part of the reply."""
