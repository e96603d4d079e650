"""What only DJL Serving's container has, and this machine need not have."""

from __future__ import annotations

__all__ = ["of_container"]


def of_container(error: BaseException) -> bool:
    """Whether user code failed for the lack of djl_python alone."""
    cause = error.__cause__
    return isinstance(cause, ModuleNotFoundError) and (cause.name or "").partition(".")[0] == "djl_python"
