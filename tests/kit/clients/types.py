"""What clients of other people's may send, by their own types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["unknown_fields"]


def unknown_fields(theirs: Any, fields: Mapping[str, Any], tag: str = "type") -> set[str]:
    """The fields of a client's type, a TypedDict, that are not among a form's, whose `tag` is read before them."""
    return {*theirs.__annotations__} - {*fields, tag}
