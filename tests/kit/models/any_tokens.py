"""A tokenizer that has whatever special token a family of models has."""

from __future__ import annotations

from typing import Any

__all__ = ["AnyTokenizer"]


class AnyTokens(dict[str, int]):
    """A vocabulary with whatever special token a family of models has."""

    def __contains__(self, token: object) -> bool:
        return True

    def __missing__(self, token: str) -> int:
        self[token] = 1_000_000 + len(self)
        return self[token]

    def get(self, token: str, default: Any = None) -> int:
        return self[token]


class AnyTokenizer:
    """The demo model's tokenizer with that vocabulary."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = AnyTokens(tokenizer.get_vocab())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def get_vocab(self) -> AnyTokens:
        return self._vocabulary

    @property
    def vocab(self) -> AnyTokens:
        return self._vocabulary

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        return self._vocabulary[tokens] if isinstance(tokens, str) else [self._vocabulary[token] for token in tokens]
