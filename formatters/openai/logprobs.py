"""Log-probabilities in the two forms of OpenAI answers.

    Token, Token, ... --ShownTokens.push--> (Token, bytes), ... --> chat's entries, or the columns of text completions

A token has an entry if the text shows it: its own piece, or its part of a character. So the entries' bytes, joined,
are the UTF-8 of the text, and so are their `token`s, a character that spans tokens being with the one that completes
it. What the text does not show has none: an end of sequence, a stop token, what a stop string cut off, the beginning
of a character that never came. Where reasoning or tool calls are split off, the entries are of all that was generated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ...model.events import LOWEST_LOGPROB, Started, Token, TopToken

__all__ = [
    "ChatLogprobs", "PromptLogprob", "PromptLogprobs", "ShownTokens", "TextColumns", "TextLogprobs", "TokenLogprob",
    "TopLogprob", "chat_entries", "prompt_logprobs",
]  # fmt: skip


class TopLogprob(msgspec.Struct, frozen=True):
    """One of the most likely tokens at a position."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(msgspec.Struct, frozen=True):
    """The streaming document, Content/Refusal Token Objects."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct, frozen=True):
    """The streaming document, LogProbs Object."""

    content: list[TokenLogprob]
    refusal: None = None


class PromptLogprob(msgspec.Struct, frozen=True):
    """A member of an entry of `prompt_logprobs`, as vLLM has it."""

    logprob: float
    rank: int | None
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]
"""For each token of the prompt, by token id; null for the first."""


class TextLogprobs(msgspec.Struct, frozen=True):
    """The form of text completions. `text_offset` counts characters of the choice's text."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


Shown = tuple[Token, bytes]
"""A token, and its bytes of the text."""


class ShownTokens:
    """The tokens of one sequence that its text shows, as far as that is known."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: list[Token] = []
        """Tokens without text: parts of a character, if it is completed."""

    def push(self, tokens: Iterable[Token]) -> list[Shown]:
        """Adds tokens and returns those that are certain now. What is still held at the end is not shown."""
        shown: list[Shown] = []
        for token in tokens:
            if not token.text:
                # A special token is skipped wherever it stands: its bytes are no part of the text.
                if not token.special:
                    self._held.append(token)
                continue
            text = token.text.encode()
            held = b"".join(part.raw for part in self._held)
            # They differ where a stop string cuts the token, where bytes are no character, or where none are known.
            whole = held and text.startswith(held)
            shown += [(part, part.raw if whole else b"") for part in self._held]
            shown.append((token, text[len(held) :] if whole else text))
            self._held.clear()
        return shown


def chat_entries(shown: Iterable[Shown], *, ids: bool = False) -> list[TokenLogprob]:
    """The entries of `logprobs.content`; `ids`: with tokens' ids in the place of their text."""
    if ids:
        return [TokenLogprob(name_of(token), _finite(token), list(raw), _named(token)) for token, raw in shown]
    return [TokenLogprob(token.text, _finite(token), list(raw), _top(token, raw)) for token, raw in shown]


def name_of(token: Token | TopToken) -> str:
    """What a token is called where its text does not do (vLLM's return_tokens_as_token_ids)."""
    return f"token_id:{token.id}"


def _named(token: Token) -> list[TopLogprob]:
    return [TopLogprob(name_of(top), top.logprob, list(top.raw or top.text.encode())) for top in token.top]


def _top(token: Token, raw: bytes) -> list[TopLogprob]:
    """The most likely tokens; the chosen one among them is written as in its entry."""
    return [
        TopLogprob(token.text, top.logprob, list(raw))
        if top.id == token.id and token.text
        else TopLogprob(top.text, top.logprob, list(top.raw or top.text.encode()))
        for top in token.top
    ]


def _finite(token: Token) -> float:
    return LOWEST_LOGPROB if token.logprob is None else token.logprob


class TextColumns:
    """The log-probabilities of one text completion as it grows: remembers where in the text it is."""

    __slots__ = ("_ids", "_offset")

    def __init__(self, *, ids: bool = False) -> None:
        """`ids`: with tokens' ids in the place of their text."""
        self._ids = ids
        self._offset = 0

    def take(self, tokens: Iterable[Token]) -> TextLogprobs:
        """The columns of further tokens."""
        columns = TextLogprobs([], [], [], [])
        for token in tokens:
            columns.tokens.append(name_of(token) if self._ids else token.text)
            columns.token_logprobs.append(token.logprob)
            columns.top_logprobs.append(_by_id(token) if self._ids else _by_text(token))
            columns.text_offset.append(self._offset)
            self._offset += len(token.text)
        return columns

    def echo(self, prefill: Sequence[Token], text: str) -> TextLogprobs:
        """The columns of a prompt's tokens, where the choice's text begins with `text`.

        A token that the tokenizer has put before a text prompt (a beginning of sequence) has an entry but no place in
        the text: its offset is that of the next token. What was cut off a prompt has a place but no entry. (vLLM's
        server counts characters from the first token on, and is off by the length of what is not in the text.)
        """
        added = 0
        shown = "".join(token.text for token in prefill)
        while not text.endswith(shown) and added < len(prefill) and prefill[added].special:
            shown = shown.removeprefix(prefill[added].text)
            added += 1
        columns = self.take(prefill)
        place = max(0, len(text) - len(shown))
        for index, token in enumerate(prefill):
            columns.text_offset[index] = place
            if index >= added:
                place = min(place + len(token.text), len(text))
        self._offset = len(text)
        return columns


def _by_text(token: Token) -> dict[str, float] | None:
    """The chosen token and the most likely ones; null for the first token of an echoed prompt."""
    if token.logprob is None:
        return None
    # A part of a character has no text of its own, and would hide another such part: the likelier goes first.
    entries = {token.text: token.logprob}
    for top in token.top:
        if top.id != token.id:
            entries.setdefault(top.text, top.logprob)
    return entries


def _by_id(token: Token) -> dict[str, float] | None:
    if token.logprob is None:
        return None
    return {name_of(token): token.logprob} | {name_of(top): top.logprob for top in token.top}


def prompt_logprobs(started: Started | None) -> PromptLogprobs:
    """A prompt's tokens, each with the most likely ones in its place, in vLLM's form: the prompt's own first."""
    entries: PromptLogprobs = []
    if started is None:
        return entries
    ranks = started.ranks or (None,) * len(started.prefill)
    for token, own_rank in zip(started.prefill, ranks, strict=True):
        if token.logprob is None:
            entries.append(None)
            continue
        entry = {str(token.id): PromptLogprob(token.logprob, own_rank, token.text)}
        for rank, top in enumerate(token.top, 1):
            entry.setdefault(str(top.id), PromptLogprob(top.logprob, rank, top.text))
        entries.append(entry)
    return entries
