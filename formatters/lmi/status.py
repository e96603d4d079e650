"""The statuses of LMI's errors, in all of its schemas (docs/decisions.md: LMI errors)."""

from __future__ import annotations

from ...model.errors import ForbiddenError, LmiError, MediaTypeError, OverloadedError, TooLargeError, UnauthorizedError

__all__ = ["OWN_STATUS", "REFUSED", "status_of"]

REFUSED = 424
"""Of every error that comes before the first token."""

OWN_STATUS = (MediaTypeError, UnauthorizedError, ForbiddenError, OverloadedError, TooLargeError)
"""Errors that have a status of their own: those of requests that have not been read."""


def status_of(error: LmiError) -> int:
    """The status of an error that comes before the first token."""
    return error.status if isinstance(error, OWN_STATUS) else REFUSED
