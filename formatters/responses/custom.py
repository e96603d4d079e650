"""The input of custom tools (conversation/custom_tools.py) as a stream.

'{"input":"a"}' --CustomInput--> "a", in pieces as they come
"""

from __future__ import annotations

import re
from contextlib import suppress

import msgspec

from ..conversation.custom_tools import INPUT, input_of

__all__ = ["CustomInput"]

HEAD = re.compile(rf'\s*\{{\s*"{INPUT}"\s*:\s*"')
HEAD_LENGTH = 64
"""Within how many characters arguments that are as asked for come to their text: the others are not looked through
again and again."""
SURROGATE = "[dD][89abAB][0-9a-fA-F]{2}"
TEXT = re.compile(
    rf'(?: [^"\\]+ | \\[^u] | \\u(?: {SURROGATE}(?:\\u[^"\\]{{4}} | (?=[^\\]|\\[^u])) | (?!{SURROGATE})[^"\\]{{4}}) )*',
    re.VERBOSE | re.DOTALL,
)
"""As much of a JSON string as is whole: half an escape or half a pair of surrogates is not."""
ESCAPE = re.compile(rf'\\u{SURROGATE}\\u[^"\\]{{4}}|\\u.{{4}}|\\.', re.DOTALL)


def _unescaped(found: re.Match[str]) -> str:
    """The character of an escape; a faulty one stays as it is."""
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(f'"{found[0]}"', type=str)
    return found[0]


class CustomInput:
    """Reads the input of one call from the pieces of its arguments, as they come.

    Arguments that are not as asked for are the input themselves, known at their end.
    """

    __slots__ = ("_ended", "_pending", "_within")

    def __init__(self) -> None:
        self._pending = ""
        self._within = False
        """Whether the text has begun."""
        self._ended = False

    def push(self, piece: str) -> str:
        """What a piece adds to the input."""
        if self._ended:
            return ""
        self._pending += piece
        if not self._within:
            head = HEAD.match(self._pending) if len(self._pending) - len(piece) < HEAD_LENGTH else None
            if head is None or head.end() > HEAD_LENGTH:
                return ""
            self._within = True
            self._pending = self._pending[head.end() :]
        found = TEXT.match(self._pending)
        whole = found[0] if found else ""
        self._pending = self._pending[len(whole) :]
        self._ended = self._pending.startswith('"')
        return ESCAPE.sub(_unescaped, whole) if "\\" in whole else whole

    def rest(self) -> str:
        """What is left of the input at the end of the arguments."""
        if self._within:
            return "" if self._ended else self._pending
        return input_of(self._pending)
