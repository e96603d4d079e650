"""What text making needs of a tokenizer, for fast (Rust) and slow tokenizers alike.

Most vocabularies are made of bytes (ByteLevel; ByteFallback, with a token for each byte). Their texts are those of the
tokens' bytes, one after the other: valid characters as soon as they are complete, U+FFFD for what is no UTF-8, and
nothing for an unfinished character at the end. transformers decodes them like that, but for two things: it writes
U+FFFD for an unfinished character at the end, and for all bytes of a row of byte tokens of which one is invalid. The
`DecodeStream` of its core differs: it repeats the prompt where that ends within a character, and loses characters of
such a row.
"""

from __future__ import annotations

import codecs
import importlib.util
import json
import logging
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from .detokenizer import Decode

__all__ = ["Tokenizer"]

log = logging.getLogger(__name__)

WINDOW = 32
"""How many of the prompt's last tokens a decoder starts from: enough for a leading space and for any character."""

BYTE_LEVEL = ["ByteLevel"]
BYTE_FALLBACK = ["Replace", "ByteFallback", "Fuse"]
STRIPPED = [*BYTE_FALLBACK, "Strip"]
"""Decoders of vocabularies of bytes; the last one leaves out a space at the beginning of a text."""
BYTE = re.compile("<0x([0-9A-Fa-f]{2})>")
"""A token of BYTE_FALLBACK that stands for a byte; in others a space is written as this:"""
SPACE = "\N{LOWER ONE EIGHTH BLOCK}"


class Tokenizer:
    """Wraps a transformers tokenizer (or one of vLLM's own of the same shape)."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._fast: Any = getattr(tokenizer, "_tokenizer", None) if getattr(tokenizer, "is_fast", False) else None
        added = self._fast.get_added_tokens_decoder() if self._fast is not None else {}
        # An added token may be special without being in the list: decoders skip it all the same.
        skipped = frozenset(token_id for token_id, token in added.items() if token.special)
        self.special_ids = frozenset[int]((*tokenizer.all_special_ids, *skipped))
        self._pieces: dict[int, str] = {}
        self._raw: dict[int, bytes] = {}
        self._added = {token_id: token.content for token_id, token in added.items()}
        decoders = _decoders(self._fast) if self._fast is not None else []
        self._bytes = _TokenBytes.of(self._fast, decoders, frozenset())
        self._shown_bytes = _TokenBytes.of(self._fast, decoders, skipped)

    def stream(
        self, prompt_ids: Sequence[int], skip_special_tokens: bool, spaces_between_special_tokens: bool
    ) -> Decode:
        """A decoder for what follows `prompt_ids`."""
        window = list(prompt_ids[-WINDOW:])
        known = self._shown_bytes if skip_special_tokens else self._bytes
        if known is not None:
            return known.stream(window)
        if self._fast is None:
            return _each(_slow_stream(self._tokenizer, window, skip_special_tokens, spaces_between_special_tokens))
        decode = _fast_stream(self._fast, window, skip_special_tokens)
        if skip_special_tokens or spaces_between_special_tokens:
            return _each(decode)
        return _each(_without_spaces(decode, self._added))

    def piece(self, token_id: int) -> str:
        """A token's text on its own; parts of characters become U+FFFD."""
        if token_id not in self._pieces:
            known = self._bytes
            self._pieces[token_id] = known.text(token_id) if known is not None else self._tokenizer.decode([token_id])
        return self._pieces[token_id]

    def names(self, ids: Sequence[int]) -> list[str]:
        """What the vocabulary calls these tokens: for byte-level ones not their text."""
        names = self._tokenizer.convert_ids_to_tokens([*ids])
        return [name.decode(errors="replace") if isinstance(name, bytes) else str(name) for name in names]

    def text(self, ids: Sequence[int]) -> str:
        """What these tokens stand for, special ones included; parts of characters become U+FFFD."""
        return str(self._tokenizer.decode([*ids]))

    def joined(self, ids: Sequence[int]) -> str:
        """The texts of these tokens one after the other, special ones included: of a prompt those of its Tokens."""
        return self.stream([], False, True)([*ids])

    def raw(self, token_id: int) -> bytes:
        """A token's bytes, exact for parts of characters where the vocabulary is byte-level or has byte tokens."""
        if self._bytes is not None:
            return self._bytes[token_id]
        if token_id not in self._raw:
            self._raw[token_id] = self._bytes_of(token_id)
        return self._raw[token_id]

    def _bytes_of(self, token_id: int) -> bytes:
        text = self.piece(token_id)
        if "\N{REPLACEMENT CHARACTER}" not in text:
            return text.encode()
        piece = self._tokenizer.convert_ids_to_tokens([token_id])[0]
        if isinstance(piece, bytes):
            return piece
        if byte := BYTE.fullmatch(piece):
            return bytes.fromhex(byte[1])
        if all(character in _BYTE_OF for character in piece):
            return bytes(_BYTE_OF[character] for character in piece)
        return text.encode()


class _TokenBytes(dict[int, bytes]):
    """What tokens add to a text, in bytes, found as they are asked for; nothing for those that are skipped."""

    def __init__(self, core: Any, decoders: list[str], skipped: frozenset[int]) -> None:
        super().__init__()
        self._core = core
        self._read = _byte_level if decoders == BYTE_LEVEL else _byte_fallback
        # As the decoders do: a part of a character is one U+FFFD with ByteLevel, one for each byte with ByteFallback.
        self._errors = "replace" if decoders == BYTE_LEVEL else "lmi.each_byte"
        self._strips = decoders == STRIPPED
        self._skipped = skipped
        self._texts: dict[int, str] = {}
        """Of tokens that are whole characters by themselves, so that no decoder is asked each time."""

    @classmethod
    def of(cls, core: Any, decoders: list[str], skipped: frozenset[int]) -> _TokenBytes | None:
        """Those of a tokenizer's Rust core; None where its vocabulary is not made of bytes."""
        return cls(core, decoders, skipped) if decoders in (BYTE_LEVEL, BYTE_FALLBACK, STRIPPED) else None

    def __missing__(self, token_id: int) -> bytes:
        # Models have more ids than tokens: weights are padded.
        token = None if token_id in self._skipped else self._core.id_to_token(token_id)
        self[token_id] = raw = self._read(token or "")
        return raw

    def text(self, token_id: int) -> str:
        """A token's text on its own."""
        return self[token_id].decode(errors=self._errors)

    def stream(self, window: list[int]) -> Decode:
        """A decoder for what follows these tokens."""
        decoder, known, texts = codecs.getincrementaldecoder("utf-8")(self._errors), self.__getitem__, self._texts
        read, state = decoder.decode, decoder.getstate
        begun = bool(read(b"".join(map(known, window))))
        # Whether the decoder has the beginning of a character.
        waits = bool(state()[0])

        def decode(ids: int | list[int]) -> str:
            nonlocal waits
            if not isinstance(ids, int):
                text = read(b"".join(map(known, ids)))
                waits = bool(state()[0])
                return text
            if not waits and (whole := texts.get(ids)) is not None:
                return whole
            text = read(known(ids))
            waited, waits = waits, bool(state()[0])
            if not (waited or waits):
                texts[ids] = text
            return text

        def decode_first(ids: int | list[int]) -> str:
            nonlocal begun
            text = decode(ids)
            if begun or not text:
                return text
            begun = True
            return text.removeprefix(" ")

        return decode_first if self._strips and not begun else decode


def _decoders(core: Any) -> list[str]:
    """The kinds of a Rust core's decoders, none where it has others than those of many models."""
    if (decoder := getattr(core, "decoder", None)) is None:
        return []
    # What pickles are made of. fastokens' core, which stands in for the library's, has it in its file alone.
    pickled = getattr(decoder, "__getstate__", lambda: None)()
    state = json.loads(pickled) if isinstance(pickled, bytes) else json.loads(core.to_str()).get("decoder")
    if state is None:
        return []
    steps = state["decoders"] if state["type"] == "Sequence" else [state]
    usual = {
        "Replace": {"pattern": {"String": SPACE}, "content": " "},
        "Strip": {"content": " ", "start": 1, "stop": 0},
    }
    if any(step | usual.get(step["type"], {}) != step for step in steps):
        return []
    return [step["type"] for step in steps]


def _each_byte(error: Any) -> tuple[str, int]:
    """Of bytes that are no UTF-8: U+FFFD for each."""
    return "\N{REPLACEMENT CHARACTER}" * (error.end - error.start), error.end


codecs.register_error("lmi.each_byte", _each_byte)


def _byte_level(token: str) -> bytes:
    """Of a token of a ByteLevel vocabulary; added tokens are written as they are."""
    if all(character in _BYTE_OF for character in token):
        return bytes(_BYTE_OF[character] for character in token)
    return token.encode()


def _byte_fallback(token: str) -> bytes:
    """Of a token of a ByteFallback vocabulary."""
    byte = BYTE.fullmatch(token)
    return bytes.fromhex(byte[1]) if byte else token.replace(SPACE, " ").encode()


def _each(decode: Callable[[int], str]) -> Decode:
    """Takes several one by one."""

    def decode_all(ids: int | list[int]) -> str:
        return decode(ids) if isinstance(ids, int) else "".join(map(decode, ids))

    return decode_all


def _fast_stream(tokenizer: Any, window: list[int], skip_special_tokens: bool) -> Callable[[int], str]:
    from tokenizers.decoders import DecodeStream

    # It would repeat a prompt that ends with U+FFFD.
    while tokenizer.decode(window, skip_special_tokens=skip_special_tokens).endswith("\N{REPLACEMENT CHARACTER}"):
        window = window[:-1]
    stream = DecodeStream(ids=window, skip_special_tokens=skip_special_tokens)

    def decode(token_id: int) -> str:
        nonlocal stream
        try:
            return stream.step(tokenizer, token_id) or ""
        except Exception:  # noqa: BLE001 - the library raises this very class
            # A few tokenizers' texts shrink as tokens are added, which breaks the stream's state: a new one goes on.
            stream = DecodeStream(skip_special_tokens=skip_special_tokens)
            return stream.step(tokenizer, token_id) or ""

    return decode


def _without_spaces(decode: Callable[[int], str], added: dict[int, str]) -> Callable[[int], str]:
    """Added tokens that follow one another get no space between them (transformers' spaces_between_special_tokens)."""
    after_added = False

    def joined(token_id: int) -> str:
        nonlocal after_added
        piece = decode(token_id)
        content = added.get(token_id)
        if content is not None and after_added and piece == f" {content}":
            piece = content
        after_added = content is not None
        return piece

    return joined


def _slow_stream(tokenizer: Any, window: list[int], skip_special_tokens: bool, spaces: bool) -> Callable[[int], str]:
    """For tokenizers without a Rust core (mistral-common's, SentencePiece's own): vLLM's incremental decoding."""
    if (vllms := _vllms_decoding()) is None:
        return _window_stream(tokenizer, window, skip_special_tokens, spaces)
    begin, decode_next = vllms
    tokens, prefix, read = begin(tokenizer, window, skip_special_tokens)
    ids = list(window)

    def decode(token_id: int) -> str:
        nonlocal prefix, read
        ids.append(token_id)
        new, piece, prefix, read = decode_next(tokenizer, ids, tokens, prefix, read, skip_special_tokens, spaces)
        tokens.extend(new)
        return str(piece)

    return decode


@cache
def _vllms_decoding() -> tuple[Callable[..., Any], Callable[..., Any]] | None:
    """What reads a prompt's tokens, and what adds one; None without vLLM, or, with a line in the log, where it has
    others.
    """
    if importlib.util.find_spec("vllm") is None:
        return None
    try:
        from vllm.tokenizers.detokenizer_utils import convert_prompt_ids_to_tokens, detokenize_incrementally
    except ImportError as error:
        log.warning("slow tokenizers are read by us, as this vLLM differs from those that were tested: %s", error)
        return None
    return convert_prompt_ids_to_tokens, detokenize_incrementally


def _window_stream(tokenizer: Any, window: list[int], skip_special_tokens: bool, spaces: bool) -> Callable[[int], str]:
    """The same without vLLM: what the last tokens decode to, less what they did without the newest."""
    ids = list(window)
    prefix, read = 0, len(ids)
    # As vLLM does, and transformers before 5: added tokens stand for themselves, with a space or nothing around them.
    added: dict[int, str] = {}
    if not getattr(tokenizer, "is_fast", False):
        added = {token_id: content for content, token_id in tokenizer.get_added_vocab().items()}
    skipped = set(tokenizer.all_special_ids) if skip_special_tokens else set[int]()

    def text(end: int) -> str:
        if not added:
            return str(tokenizer.decode(ids[prefix:end], skip_special_tokens=skip_special_tokens))
        parts: list[str | list[int]] = []
        for token_id in ids[prefix:end]:
            if token_id in skipped:
                continue
            if token_id in added:
                parts.append(added[token_id])
            elif parts and isinstance(parts[-1], list):
                parts[-1].append(token_id)
            else:
                parts.append([token_id])
        between = " " if spaces else ""
        return between.join(part if isinstance(part, str) else str(tokenizer.decode(part)) for part in parts)

    def decode(token_id: int) -> str:
        nonlocal prefix, read
        ids.append(token_id)
        before, after = text(read), text(len(ids))
        if len(after) <= len(before) or after.endswith("\N{REPLACEMENT CHARACTER}"):
            return ""
        prefix, read = read, len(ids)
        return after[len(before) :]

    return decode


def _byte_alphabet() -> dict[str, int]:
    """How byte-level BPE vocabularies write bytes (GPT-2's mapping): printable characters stand for themselves."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    alphabet = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in printable)
    alphabet.update({chr(256 + position): byte for position, byte in enumerate(others)})
    return alphabet


_BYTE_OF = _byte_alphabet()
