"""What is told of a prompt of which only its tokens are wanted (Generation.tokenize)."""

from __future__ import annotations

from collections.abc import Sequence

from ..events import Started, Token
from ..generation import Generation
from .tokenizer import Tokenizer

__all__ = ["told_tokens"]


def told_tokens(generation: Generation, ids: Sequence[int], tokenizer: Tokenizer, context: int) -> Started:
    """How many tokens a prompt has, and which context the model; each token and their text where they are wanted."""
    prefill: tuple[Token, ...] = ()
    if generation.tokens:
        special = tokenizer.special_ids
        names = zip(ids, tokenizer.names(ids), strict=True)
        prefill = tuple(Token(token_id, name, special=token_id in special) for token_id, name in names)
    text = tokenizer.text(ids) if generation.echo else ""
    return Started(len(ids), prefill=prefill, text=text, context=context)
