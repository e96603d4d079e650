"""Text of Mistral's tokens, by their bytes: where special tokens are to stay, vLLM's tokenizer gives parts of
characters as U+FFFD, and SentencePiece's pieces as they are in its vocabulary.

    id --raw--> bytes --stream--> text; special tokens as vLLM's decoder has them: it leaves in what parsers look for
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from typing import Any

from ...text.detokenizer import Decode
from ...text.tokenizer import Tokenizer
from ..library.parts import part

__all__ = ["MistralTokens", "tokens_of"]

WINDOW = 4
"""How many of the prompt's last tokens may be parts of one character."""
BYTE = re.compile(r"<0x([0-9A-F]{2})>")
BLANK = "\N{LOWER ONE EIGHTH BLOCK}"
"""SentencePiece's for a space."""


class MistralTokens(Tokenizer):
    """For vLLM's MistralTokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        super().__init__(tokenizer)
        self._vocabulary: Any = tokenizer.tokenizer
        self._bytes_in: bool = tokenizer.is_tekken
        self._size: int = tokenizer.vocab_size
        self._hidden = frozenset(
            special for special in self.special_ids
            if not tokenizer.convert_ids_to_tokens([special], skip_special_tokens=True)
        )  # fmt: skip

    def stream(
        self, prompt_ids: Sequence[int], skip_special_tokens: bool, spaces_between_special_tokens: bool
    ) -> Decode:
        """As Tokenizer.stream; there are no spaces between special tokens."""
        hidden = self._hidden if skip_special_tokens else frozenset[int]()
        decoder = codecs.getincrementaldecoder("utf-8")("replace")

        def decode(ids: int | list[int]) -> str:
            if isinstance(ids, int):
                return "" if ids in hidden else decoder.decode(self.raw(ids))
            return decoder.decode(b"".join(self.raw(token_id) for token_id in ids if token_id not in hidden))

        decode(list(prompt_ids[-WINDOW:]))
        return decode

    def piece(self, token_id: int) -> str:
        """As Tokenizer.piece."""
        return self.raw(token_id).decode(errors="replace")

    def text(self, ids: Sequence[int]) -> str:
        """As Tokenizer.text."""
        return b"".join(map(self.raw, ids)).decode(errors="replace")

    def _bytes_of(self, token_id: int) -> bytes:
        if token_id >= self._size:
            # Of a model that has more: they stand for nothing.
            return b""
        if self._bytes_in and token_id not in self.special_ids:
            return bytes(self._vocabulary.id_to_byte_piece(token_id))
        piece: str = self._vocabulary.id_to_piece(token_id)
        if token_id in self.special_ids:
            return piece.encode()
        if found := BYTE.fullmatch(piece):
            return bytes([int(found[1], 16)])
        return piece.replace(BLANK, " ").encode()


def tokens_of(tokenizer: Any) -> Tokenizer:
    """What text making needs of one of vLLM's tokenizers."""
    is_mistral = part("vllm.utils.mistral:is_mistral_tokenizer")(tokenizer)
    return MistralTokens(tokenizer) if is_mistral else Tokenizer(tokenizer)
