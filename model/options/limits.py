"""The options that limit what a model takes on, and their values.

What is beyond a limit is refused at once, or ended with an error: nothing waits or grows for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from .row import Kind, Option

__all__ = ["LIMIT_OPTIONS", "Limits", "limits_of"]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The values. None does not limit."""

    max_queued_requests: int = 1000
    """How many requests may be open beyond max_rolling_batch_size, which is how many sequences run at once."""
    max_prompt_tokens: int | None = None
    """Of one prompt, with what its chat template adds. The model's context limits it too."""
    max_tokens_in_flight: int | None = None
    """Of all generations that are in the engine: for each sequence the prompt's tokens and those it may generate."""
    max_body_bytes: int = 72 << 20
    """Room for images of max_image_bytes in base64."""
    max_unsent_bytes: int = 8 << 20
    """Of an answer that is not complete, as long as its client does not read it."""
    max_answer_bytes: int = 128 << 20
    """Of an answer that is not streamed (answer_size.py)."""
    request_timeout: float = 3600.0
    """Seconds, from a request's arrival to the end of its answer."""
    user_code_timeout: float = 60.0
    """Seconds that one call of a function of the user's may take."""


def limits_of(values: Mapping[str, Any]) -> Limits:
    """The limits, from the values of options that were given."""
    return Limits(**{name: values[name] for name in Limits.__struct_fields__ if name in values})


def _limit(name: str, kind: Kind, help: str, default: str = "", least: float = 1) -> Option:
    value = getattr(Limits(), name)
    return Option(name, kind, help, default=default or f"{value:.0f}", least=least)


LIMIT_OPTIONS: tuple[Option, ...] = (
    _limit(
        "max_queued_requests",
        "int",
        "How many requests may be open beyond max_rolling_batch_size; further ones are refused at once (429).",
        least=0,
    ),
    _limit("max_prompt_tokens", "int", "Longest prompt, in tokens, with what its template adds.", "the context's"),
    _limit(
        "max_tokens_in_flight",
        "int",
        "Tokens of all running sequences together: their prompts and what they may generate. Requests beyond are "
        "refused at once (429).",
        "none",
    ),
    _limit("max_body_bytes", "int", "Longest body of a request (else 413)."),
    _limit(
        "max_unsent_bytes",
        "int",
        "Bytes of one unfinished answer that may wait for its client to read them; then the request is ended.",
    ),
    _limit(
        "max_answer_bytes",
        "int",
        "Longest answer that is not streamed; the request that comes to more is ended. A token that is shown by itself "
        "counts 128, and so does each likely token beside it.",
    ),
    _limit(
        "request_timeout", "float", "Seconds from a request's arrival to the end of its answer (else 504).", least=0.001
    ),
    _limit("user_code_timeout", "float", "Seconds that one call of your own code may take.", least=0.001),
)
