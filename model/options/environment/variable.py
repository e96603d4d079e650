"""A variable of another container: what it becomes, and when it counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

__all__ = ["Fate", "Variable", "boolean", "nothing", "option", "refused", "unread"]

Fate = Literal["option", "nothing", "refused", "unread"]
"""`nothing`: it has no effect, which is said. `unread`: other software sets it too, so that nobody looks."""


@dataclass(frozen=True, slots=True)
class Variable:
    """The declaration."""

    name: str
    fate: Fate
    help: str = ""
    """What differs; of a refused one what to write instead; of one without effect why. For messages and documents."""
    options: tuple[str, ...] = ()
    """What it becomes, without `option.`; the first one decides whether somebody has said it already."""
    convert: Callable[[str], str | tuple[str, ...]] = str
    """Its text as those options' texts; an empty one sets none. Raises ValueError with what was expected."""
    generic: bool = False
    """Whether other software sets it too: it counts beside a variable that names the model only."""
    copied: bool = False
    """Whether the LMI container's entry script hands it on as OPTION_*, or as TENSOR_PARALLEL_DEGREE."""

    secret: bool = False
    """Whether no message may show its text."""

    def texts(self, text: str) -> dict[str, str]:
        """The options that `text` means."""
        converted = self.convert(text)
        values = (converted,) if isinstance(converted, str) else converted
        return {name: value for name, value in zip(self.options, values, strict=True) if value}


def option(
    name: str,
    *options: str,
    convert: Callable[[str], str | tuple[str, ...]] = str,
    help: str = "",
    generic: bool = False,
    copied: bool = False,
) -> Variable:
    """One that becomes options."""
    return Variable(name, "option", help, options, convert, generic, copied)


def nothing(name: str, why: str, *, generic: bool = True) -> Variable:
    """One without effect."""
    return Variable(name, "nothing", why, generic=generic)


def refused(name: str, instead: str, *, generic: bool = True, secret: bool = False) -> Variable:
    """One that would change answers, and cannot be served."""
    return Variable(name, "refused", instead, generic=generic, secret=secret)


def unread(name: str, why: str) -> Variable:
    """One that is too common a name to be read."""
    return Variable(name, "unread", why)


def boolean(text: str) -> str:
    """A switch as the launchers of TGI read it, as ours."""
    lower = text.lower()
    if lower in {"true", "1"}:
        return "true"
    if lower in {"false", "0"}:
        return "false"
    raise ValueError("true or false")
