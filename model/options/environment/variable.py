"""A variable of another container: what it becomes, and when it counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

__all__ = ["Fate", "Variable", "boolean", "by_hand", "nothing", "option", "refused", "unread"]

Fate = Literal["option", "nothing", "refused", "by hand", "unread"]
"""`nothing`: it has no effect, which is said. `refused`: it would change answers, and cannot be served. `by hand`: so
would it, and only the user can say it in the words of here. `unread`: other software sets it too: nobody looks."""


@dataclass(frozen=True, slots=True)
class Variable:
    """The declaration."""

    name: str
    fate: Fate
    help: str = ""
    """What differs; of one that is refused or without effect why, `by hand` what to do. For messages and documents."""
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

    @property
    def what_to_do(self) -> str:
        """About one that cannot be served."""
        return self.help if self.fate == "by hand" else f"unset it: {self.help}"

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


def refused(name: str, why: str, *, generic: bool = True, secret: bool = False) -> Variable:
    """One that would change answers, and cannot be served."""
    return Variable(name, "refused", why, generic=generic, secret=secret)


def by_hand(name: str, what: str, *, generic: bool = True) -> Variable:
    """One of which only the user can say here what it says."""
    return Variable(name, "by hand", what, generic=generic)


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
