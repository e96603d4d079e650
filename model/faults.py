"""What is wrong with a field or an option, as data, and the one place that makes words of it.

Messages are one line, and repeat no more of what was given than MAX_SHOWN_CHARACTERS.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

__all__ = ["OPTION", "Fault", "most_like", "one_line", "shown", "text_of"]

MAX_SHOWN_CHARACTERS = 120
"""How many characters of an offending value a message repeats."""
OPTION = "option."
"""What stands before an option's name in serving.properties and in messages."""


class Fault(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """What is wrong with one field of a request, or with one option, as data: `sentence` alone makes words of it."""

    name: str | None = None
    """The field, or the option without `option.`."""
    why: str = ""
    """What the other fields do not say."""
    expected: str = ""
    given: str = ""
    """As it may be shown (`shown`); the sentence has it beside what was expected, or is to be written."""
    instead: str = ""
    """What to write for an option: `NAME=VALUE`, or several with ` and ` between them."""
    similar: str = ""
    """A name or value that may have been meant: no more than a question."""
    source: str | None = None
    """The variable or file that the option came from, which is named in its place; empty: `why` names everything."""

    def sentence(self, prefix: str) -> str:
        """Of one line; `prefix` stands before the name."""
        about = f"{prefix}{self.name}" if self.source is None else self.source
        text = f"expected {self.expected}" + (f", got {self.given}" if self.given else "") if self.expected else ""
        write = f"write {self.instead}" if self.instead else ""
        if write and not text:
            text, write = write + (f" ({self.why})" if self.why else ""), ""
            text += f", got {self.given}" if self.given else ""
        elif self.why:
            text += f": {self.why}" if text else self.why
        text += f"; did you mean {self.similar}?" if self.similar else ""
        text += f": {write}" if write else ""
        return one_line(f"{about}: {text}" if about else text)

    def come_from(self, source: str | None) -> Fault:
        """The same of an option that came from `source`, a variable or a file; None: from nowhere in particular."""
        if source is None or self.source is not None:
            return self
        similar = self.similar
        if self.name and similar.startswith(OPTION) and source.lower().endswith(self.name):
            similar = source[: -len(self.name)] + similar.removeprefix(OPTION).upper()
        return msgspec.structs.replace(self, source=source, similar=similar)


def text_of(faults: Sequence[Fault]) -> str:
    """The message of an error about options, one at least."""
    told = [fault.sentence(OPTION) for fault in faults]
    listed = "; ".join(f"({number}) {one}" for number, one in enumerate(told, 1))
    return told[0] if len(told) == 1 else f"{len(told)} options are wrong: {listed}"


def one_line(text: str) -> str:
    """`text` with every run of white space, line breaks included, as a single space, and nothing that does not print.

    Control characters would act on the terminal of whoever reads the log, and halves of surrogate pairs are no text.
    """
    joined = " ".join(text.split())
    if joined.isprintable():
        return joined
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in joined)


def most_like(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """The name of `known` that is most like `name` (difflib's ratio) and not the same; empty: none is."""
    return next((other for other in difflib.get_close_matches(name, known, n=1, cutoff=cutoff) if other != name), "")


def shown(given: object) -> str:
    """The beginning of its repr. No more of it is made: that of a large body's value takes longer than to read it."""
    shown = ""
    for part in _repr_parts(given):
        shown += part
        if len(shown) > MAX_SHOWN_CHARACTERS:
            return shown[:MAX_SHOWN_CHARACTERS] + "..."
    return shown


def _repr_parts(value: Any) -> Iterator[str]:
    """Of what JSON has; together at least as long as what is shown, or the whole."""
    if not isinstance(value, dict | list):
        yield repr(value[: MAX_SHOWN_CHARACTERS + 1] if isinstance(value, str) else value)
        return
    begin, end = "{}" if isinstance(value, dict) else "[]"
    yield begin
    for number, member in enumerate(value):
        yield ", " if number else ""
        yield from _repr_parts(member)
        if isinstance(value, dict):
            yield ": "
            yield from _repr_parts(value[member])
    yield end
