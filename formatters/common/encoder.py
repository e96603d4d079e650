"""The part of every encoder's state that hosts read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...model.errors import LmiError
from ..base import JSON

__all__ = ["EncoderState"]


@dataclass(slots=True, kw_only=True)
class EncoderState:
    """The attributes of a ResponseEncoder (formatters/base.py), as they are before the first record."""

    content_type: str = JSON
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    failure: LmiError | None = None
    finished: bool = False
