"""From token ids to text: each token with its exact piece, stop strings found wherever token boundaries fall.

    id --decode--> piece --push--> held text --take--> (text, tokens)

An engine's own per-token strings do not do: they are decoded one by one and so lose leading spaces and characters
that span tokens, and text that is held back for a stop string is not aligned to tokens. Here a token's piece is what
the decoder adds with it, so that the pieces joined are the text; a character that spans tokens belongs to the token
that completes it.
"""

from __future__ import annotations

from collections.abc import Callable

from ..events import Token, TopToken

__all__ = ["Decode", "Detokenizer", "StopFinder"]

Decode = Callable[[int | list[int]], str]
"""Adds a token id, or several, to a sequence and returns the text that is complete then and was not before."""


class Detokenizer:
    """The text of one sequence as it grows; with `keep_tokens` its tokens too."""

    __slots__ = ("_decode", "_keep_tokens", "_pieces", "_tokens", "count", "endless", "plain", "stop")

    def __init__(self, decode: Decode, keep_tokens: bool = False) -> None:
        self._decode = decode
        self._keep_tokens = keep_tokens
        self._pieces: list[str] = []
        self._tokens: list[Token] = []
        self.endless = True
        """Whether nothing in the text ends it."""
        self.plain = not keep_tokens
        """Whether `extend` and `text_of` may be called."""
        self.count = 0
        """Tokens so far, the one that completed a stop string included."""
        self.stop: str | None = None
        """The stop string that was found."""

    def push(
        self,
        token_id: int,
        logprob: float | None = None,
        special: bool = False,
        top: tuple[TopToken, ...] = (),
        raw: bytes = b"",
        *,
        hidden: bool = False,
    ) -> bool:
        """Adds a token, without its text where `hidden` (an end of sequence). True once a stop string is found."""
        if self.stop is not None:
            return True
        self.count += 1
        piece = "" if hidden else self._decode(token_id)
        if self._keep_tokens:
            self._tokens.append(Token(token_id, piece, logprob, special, top, raw))
        if piece:
            self._add(piece)
        return self.stop is not None

    def _add(self, piece: str) -> None:
        self._pieces.append(piece)

    def extend(self, ids: list[int]) -> None:
        """Adds tokens that are not kept."""
        self.count += len(ids)
        self._pieces.append(self._decode(ids))

    def text_of(self, ids: list[int]) -> str:
        """Adds tokens and takes their text, where all earlier text has been taken."""
        count = len(ids)
        self.count += count
        return self._decode(ids[0] if count == 1 else ids)

    def keep(self) -> None:
        """Tokens are kept from now on."""
        self._keep_tokens, self.plain = True, False

    def take(self) -> tuple[str, tuple[Token, ...]]:
        """The text that has become certain since the last call, and its tokens."""
        text = "".join(self._pieces)
        self._pieces.clear()
        if self.plain:
            return text, ()
        tokens = tuple(self._tokens)
        self._tokens.clear()
        return text, tokens

    def finish(self) -> tuple[str, tuple[Token, ...]]:
        """The rest of the text and of the tokens. The bytes of an unfinished character are dropped."""
        return self.take()


class StopFinder(Detokenizer):
    """The same for a sequence that stop strings end.

    Stop strings are looked for as each token comes. The first of `stops` (in their order) that occurs ends the
    sequence, and tokens pushed after it are dropped. Text that may be the beginning of a stop string is held back,
    unless `include_stop`. No stop string is found within the first `min_tokens` tokens.
    """

    __slots__ = (
        "_held",
        "_include_stop",
        "_longest",
        "_min_tokens",
        "_prefixes",
        "_stops",
        "_tail",
    )

    def __init__(
        self,
        decode: Decode,
        keep_tokens: bool = False,
        *,
        stops: tuple[str, ...],
        include_stop: bool = False,
        min_tokens: int = 0,
    ) -> None:
        super().__init__(decode, keep_tokens)
        self.plain = self.endless = False
        self._stops = stops
        self._include_stop = include_stop
        self._min_tokens = min_tokens
        self._longest = max(map(len, stops))
        self._prefixes = frozenset(stop[:end] for stop in stops for end in range(1, len(stop)))
        self._held = ""
        self._tail = ""

    def take(self) -> tuple[str, tuple[Token, ...]]:
        """As Detokenizer.take."""
        text = "".join(self._pieces)
        self._pieces.clear()
        if not self._keep_tokens:
            return text, ()
        rest, ready = len(text), 0
        while ready < len(self._tokens) and len(self._tokens[ready].text) <= rest:
            rest -= len(self._tokens[ready].text)
            ready += 1
        tokens = tuple(self._tokens[:ready])
        del self._tokens[:ready]
        # A token whose text is certain in part waits for the rest: the tokens' texts must join to the text.
        if rest:
            self._pieces.append(text[len(text) - rest :])
            text = text[: len(text) - rest]
        return text, tokens

    def finish(self) -> tuple[str, tuple[Token, ...]]:
        """As Detokenizer.finish."""
        if self._held:
            self._pieces.append(self._held)
            self._held = ""
        text = "".join(self._pieces)
        self._pieces.clear()
        if not self._keep_tokens:
            return text, ()
        rest = len(text)
        tokens: list[Token] = []
        for token in self._tokens:
            tokens.append(_clipped(token, rest))
            rest = max(0, rest - len(token.text))
        self._tokens.clear()
        return text, tuple(tokens)

    def _add(self, piece: str) -> None:
        """Looks for a stop string that `piece` completes, and decides what of the text so far is certain."""
        if self.count > self._min_tokens:
            before = self._tail if self._include_stop else self._held
            text = before + piece
            for stop in self._stops:
                # A match that ended before this piece would have been found then.
                start = text.find(stop, max(0, len(before) - len(stop) + 1))
                if start < 0:
                    continue
                self.stop = stop
                end = start + len(stop) if self._include_stop else start
                self._pieces.append(text[len(before) : end] if self._include_stop else text[:end])
                self._held = ""
                return
        if self._include_stop:
            self._pieces.append(piece)
            self._tail = (self._tail + piece)[-(self._longest - 1) :] if self._longest > 1 else ""
            return
        text = self._held + piece
        keep = min(self._longest - 1, len(text))
        while keep > 0 and text[len(text) - keep :] not in self._prefixes:
            keep -= 1
        self._pieces.append(text[: len(text) - keep])
        self._held = text[len(text) - keep :]


def _clipped(token: Token, most: int) -> Token:
    """`token` with so many characters of its text at most."""
    if len(token.text) <= most:
        return token
    cut = len(token.text[most:].encode())
    raw = token.raw[: max(0, len(token.raw) - cut)]
    return Token(token.id, token.text[:most], token.logprob, token.special, token.top, raw)
