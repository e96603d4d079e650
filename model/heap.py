"""What a process' start has allocated is no garbage."""

from __future__ import annotations

import gc

__all__ = ["freeze"]

YOUNG = 20_000
"""New objects after which garbage is looked for among them; Python's own 700 are those of a few requests, and requests
leave none. Every hundredth time it is looked for among all: with ten thousand requests open that took a quarter of a
process's time, and 0.8 s at once in which no stream went on (docs/scaling.md)."""


def freeze() -> None:
    """Leaves what there is out of all further garbage collections; once, when a process has started.

    Modules, options and a tokenizer stay as long as the process does, and a collection that looks through all of them
    again holds up every stream. What is no garbage now is still freed when nobody refers to it any more, but not where
    its parts refer to each other. Later garbage is collected as ever, but less often (YOUNG).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
