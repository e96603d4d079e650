"""What a process' start has allocated is no garbage."""

from __future__ import annotations

import gc

__all__ = ["freeze"]


def freeze() -> None:
    """Leaves what there is out of all further garbage collections; once, when a process has started.

    Modules, options and a tokenizer stay as long as the process does, and a collection that looks through all of them
    again holds up every stream. What is no garbage now is still freed when nobody refers to it any more, but not where
    its parts refer to each other.
    """
    gc.collect()
    gc.freeze()
