"""Token ids of the parts of prompts that come again: tools, instructions, and the earlier messages of a conversation.

    text --KnownParts.encode--> ids;  None: it has no parts

The tokenizers library takes a text apart at special tokens before it does anything else, so that what begins with one
has the same ids wherever it stands. An agent sends all of its conversation with each request: what is new of it is its
last message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

__all__ = ["KnownParts", "parts_of"]

MOST = 1 << 19
"""Characters of the parts that are kept, and as many again of those before them."""
MOST_PARTS = 4096
"""Of one prompt, each of which takes a few microseconds by itself."""
TRIED = " x\n\u00e9  \n\n1 "
"""What stands around each mark where it is tried whether prompts can be taken apart."""


def parts_of(fast: Any, templates: Iterable[str], encode: Callable[[str], list[int]]) -> KnownParts | None:
    """Those of a tokenizer of the tokenizers library, at the special tokens that chat templates write, if its prompts
    can be taken apart there; None where they cannot. `encode` gives a text's ids.
    """
    written = "".join(templates)
    if getattr(fast, "encode_special_tokens", False):
        return None
    marks = _marks(fast.get_added_tokens_decoder(), written)
    parts = KnownParts(marks, encode) if marks else None
    tried = TRIED + "".join(mark + TRIED for mark in marks) + "".join(marks)
    return None if parts is None or parts.encode(tried) != encode(tried) else parts


class KnownParts:
    """One tokenizer's; on any thread."""

    def __init__(self, marks: Iterable[str], encode: Callable[[str], list[int]]) -> None:
        """`marks`: the tokens that parts begin with; `encode` gives a text's ids."""
        self._marks = re.compile("|".join(map(re.escape, sorted(marks, key=len, reverse=True))))
        self._encode = encode
        self._new: dict[str, list[int]] = {}
        self._old: dict[str, list[int]] = {}
        """Parts that have not come since the new ones began; what comes again becomes new."""
        self._size = 0
        """Characters of the new ones."""

    def encode(self, text: str) -> list[int] | None:
        """The ids of a text; None where it has no marks, or so many that each by itself would take longer."""
        starts = [found.start() for found in self._marks.finditer(text)]
        if not 0 < len(starts) <= MOST_PARTS:
            return None
        ids: list[int] = []
        for start, end in pairwise((0, *starts, len(text))):
            part = text[start:end]
            known = self._new.get(part)
            ids += self._made(part) if known is None else known
        return ids

    def _made(self, part: str) -> list[int]:
        if not part:
            return []
        known = self._old.get(part)
        if known is None:
            known = self._encode(part)
        if len(part) <= MOST // 4:
            if self._size > MOST:
                self._old, self._new, self._size = self._new, {}, 0
            self._new[part] = known
            self._size += len(part)
        return known


def _marks(added: Mapping[int, Any], written: str) -> list[str]:
    """The special tokens in `written` that are found whatever stands around them, and in no other token."""
    tokens = [token for token in added.values() if token.content]
    found: list[str] = []
    for token in tokens:
        mark: str = token.content
        if token.special and mark in written:
            longer = [other for other in tokens if other.content.startswith(mark)]
            bound = any(one.lstrip or one.single_word or one.normalized for one in longer)
            if not bound and not any(_overlap(other.content, mark) for other in tokens):
                found.append(mark)
    return found


def _overlap(token: str, mark: str) -> bool:
    """Whether the mark, or what it begins with, stands within the token, after its beginning."""
    rests = (token[at:] for at in range(1, len(token)) if token[at] == mark[0])
    return any(rest.startswith(mark) or mark.startswith(rest) for rest in rests)
