"""Reasoning that a client carries without showing it: Anthropic's `signature`, Responses' `encrypted_content`.

    reasoning --carried--> "lmi1_..." in the answer,  and with the next request back again: --uncarried--> reasoning

So a prompt goes on after what was generated, to the token, though the client never saw it. It is packed, not secret.
"""

from __future__ import annotations

import base64
import binascii
import zlib

__all__ = ["LIMIT", "carried", "uncarried"]

MARK = "lmi1_"
LIMIT = 1 << 23
"""Bytes of all that one request carries; a client can make a few kilobytes that unpack to gigabytes."""


def carried(reasoning: str) -> str:
    """What the client is given for reasoning."""
    return MARK + base64.urlsafe_b64encode(zlib.compress(reasoning.encode(errors="replace"))).decode()


def uncarried(given: str, limit: int = LIMIT) -> str:
    """The reasoning in what a client sends back; nothing where it is not ours, has been cut, or has more bytes."""
    if not given.startswith(MARK):
        return ""
    try:
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(base64.urlsafe_b64decode(given[len(MARK) :]), max(limit, 1))
        return "" if unpacker.unconsumed_tail or not unpacker.eof else text.decode()
    except (binascii.Error, ValueError, zlib.error):
        return ""
