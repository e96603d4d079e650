"""Values with quotes around them, or with a comment behind them, which java.util.Properties and the environment keep.

option.model_id="owner/model"          the id has two quotes
option.dtype=fp32 # saves no memory    the type has a comment
"""

from __future__ import annotations

import json
import re

__all__ = ["meant"]

_COMMENT = re.compile(r"(?:^|\s+)#.*", re.DOTALL)
_TEMPLATE = re.compile(r"\{[{%#]")
_QUOTES = ('"', "'")


def meant(text: str) -> tuple[str, str] | None:
    """What is too much, in words, and `text` without it; None: it is as it was meant.

    JSON and templates may have quotes and # in them: there only what stands around the whole counts.
    """
    if _TEMPLATE.search(text) and not _is_json(text):
        return None
    found: list[str] = []
    for what, cut in (("comment", _without_comment), ("quotes", _without_quotes)):
        shorter = cut(text)
        if shorter != text:
            found.append(f"the {what}")
            text = shorter
    return (" and ".join(reversed(found)), text) if found else None


def _without_comment(text: str) -> str:
    if text.startswith(_QUOTES) and (end := text.find(text[0], 1)) > 0 and not text.endswith(text[0]):
        return text[: end + 1] + _COMMENT.sub("", text[end + 1 :], count=1)
    try:
        _, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        end = 0
    return text[:end] + _COMMENT.sub("", text[end:], count=1)


def _without_quotes(text: str) -> str:
    if len(text) < 2 or text[0] != text[-1] or text[0] not in _QUOTES:
        return text
    inner = text[1:-1].strip()
    return inner if text[0] not in inner or _is_json(inner) else text


def _is_json(text: str) -> bool:
    """Whether it is a whole object or list."""
    try:
        return isinstance(json.loads(text), (dict, list))
    except (ValueError, RecursionError):
        return False
