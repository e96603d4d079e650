"""Ids that nothing else has and nobody guesses, as uuid.uuid4 makes them, whose call of the kernel's for each costs a
request more than reading most of its fields (docs/performance.md, Tried).
"""

from __future__ import annotations

import os
from collections import deque

__all__ = ["new_hex", "new_uuid"]

AT_ONCE = 256
"""Ids of which the kernel is asked for the random bytes together."""

_made: deque[str] = deque()


def new_hex() -> str:
    """128 random bits in 32 hexadecimal digits. For any thread."""
    try:
        return _made.popleft()
    except IndexError:
        digits = os.urandom(16 * AT_ONCE).hex()
        _made.extend(digits[at : at + 32] for at in range(32, len(digits), 32))
        return digits[:32]


def new_uuid() -> str:
    """A UUID of version 4 (RFC 9562, 5.4)."""
    digits = new_hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"
