"""Faults of options: all of them in one error of one line."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import MAX_SHOWN_CHARACTERS, OptionError

__all__ = ["refuse", "shown"]


def refuse(faults: Iterable[tuple[str, str]]) -> None:
    """Raises one OptionError for all `faults`, if any: pairs of an option's name and what is wrong with it."""
    found = list(faults)
    if len(found) == 1:
        raise OptionError(found[0][1], found[0][0])
    if found:
        listed = "; ".join(f"({number}) {message}" for number, (_, message) in enumerate(found, 1))
        raise OptionError(f"{len(found)} options are wrong: {listed}", found[0][0], found)


def shown(text: str) -> str:
    """`text` in quotes, cut to what a message may repeat."""
    return repr(text if len(text) <= MAX_SHOWN_CHARACTERS else text[:MAX_SHOWN_CHARACTERS] + "...")
