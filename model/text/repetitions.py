"""In how many ways a text can be divided among the repetitions of an expression, or of a grammar's rule.

    a, [^\\n], "- " --item--> Part --then, otherwise, times--> Part: its ways

Repetitions within repetitions multiply, those that follow one another and those that are alternatives add up. Neither
does where a text shows what it is divided by: characters that occur at its end, or at its beginning, and nowhere else,
as the line's end in `(- [^\\n]{1,80}\\n){1,20}`; characters that what comes before has not. An exact count of one
character counts as one.
"""

from __future__ import annotations

import re
import string
from dataclasses import dataclass

__all__ = ["ESCAPE", "MAX_WAYS", "SLOW", "Part", "item"]

MAX_WAYS = 1000
"""The product of counts within counts."""
MAX_SUM = 3000
"""Of counts that follow one another, or are alternatives."""
UNBOUNDED, UNBOUNDED_AROUND = 200, 5
"""What `*` and `+` count as: in the middle, and around something that is counted."""
SLOW = 1 << 62
"""Too many ways, and what contains them has no fewer."""

ESCAPE = r"\\(?:x[0-9A-Fa-f]{1,2}|u\{[0-9A-Fa-f]{1,6}\}|u[0-9A-Fa-f]{1,4}|U[0-9A-Fa-f]{1,8}|[pP]\{\w*\}|.)"
LETTERS = re.compile(rf"{ESCAPE}|[^\\]", re.DOTALL)
RANGES = re.compile(rf"({ESCAPE}|[^\\])(?:-({ESCAPE}|[^\\]))?", re.DOTALL)

# Sets of characters are integers: a bit for each of ASCII, and one for all others.
ASCII = (1 << 128) - 1
ALL = (1 << 129) - 1


def _bits(characters: str) -> int:
    return sum({1 << min(ord(one), 128) for one in characters})


ESCAPES = {
    "d": _bits(string.digits), "w": _bits(string.ascii_letters + string.digits + "_"),
    # xgrammar's has the no-break space.
    "s": _bits(string.whitespace + "\xa0"),
    "n": _bits("\n"), "r": _bits("\r"), "t": _bits("\t"),
}  # fmt: skip


@dataclass(slots=True)
class Part:
    """A group, a rule, or an item of one; the empty text, if nothing else is said."""

    ways: int = 1
    run: int = 1
    """The ways of what it ends with, since the last place that divides it, added up."""
    ends: int = 0
    """What that may have."""
    characters: int = 0
    """What it may have; rather too many than too few, as all sets but head and tail."""
    first: int = 0
    head: int = 0
    """Each text begins with one of these, and has no other."""
    tail: int = 0
    """Each text ends with some of these, and has no others."""
    single: bool = False
    """Whether it ends with one of them."""
    least: int = 0
    most: int | None = 0
    """Its length; None: any."""
    begins: frozenset[str] = frozenset()
    """Rules that are being read, which it may begin with."""
    recursions: int = 0
    """How often such rules are in it."""

    @classmethod
    def of(cls, characters: int) -> Part:
        """One of the characters."""
        return cls(1, 1, characters, characters, characters, characters, characters, True, 1, 1)

    @classmethod
    def unknown(cls, *rules: str) -> Part:
        """Any text; of a rule that is being read."""
        return cls(1, 1, ALL, ALL, ALL, most=None, begins=frozenset(rules), recursions=len(rules))

    def then(self, other: Part) -> Part:
        """Both, one after the other."""
        if self.most == 0:
            return other
        if other.most == 0:
            return self
        run, ends = other.run, other.ends
        if self.ends & other.first:
            # What it begins with counts here, which is no more than all of it.
            run, ends = _sum(self.run, max(other.ways, other.run)), self.ends | other.characters
        elif not other.least:
            run, ends = max(self.run, run), self.ends | ends
        tail, single = other.tail, other.single
        if not other.characters & ~self.tail and other.least:
            tail, single = self.tail, False
        elif tail & self.characters:
            tail = 0
        return Part(
            self._ways(other, run), run, ends,
            self.characters | other.characters,
            self.first if self.least else self.first | other.first,
            0 if self.head & other.characters else self.head, tail, single,
            self.least + other.least, None if self.most is None or other.most is None else self.most + other.most,
            self.begins if self.least else self.begins | other.begins, self.recursions + other.recursions,
        )  # fmt: skip

    def otherwise(self, other: Part) -> Part:
        """The one or the other."""
        one, two = max(self.ways, self.run), max(other.ways, other.run)
        run = _sum(one, two) if self.first & other.first else max(one, two)
        characters = self.characters | other.characters
        return Part(
            self._ways(other, run), run, characters, characters, self.first | other.first,
            _both(self.head, self.characters, other.head, other.characters),
            _both(self.tail, self.characters, other.tail, other.characters), self.single and other.single,
            min(self.least, other.least),
            None if self.most is None or other.most is None else max(self.most, other.most),
            self.begins | other.begins, max(self.recursions, other.recursions),
        )  # fmt: skip

    def _ways(self, other: Part, added: int) -> int:
        """Those of both, which add up where they are counted: of what is unbounded there is no more than one count."""
        counted = self.most is not None and other.most is not None
        return max(self.ways, other.ways, added if counted or added == SLOW else 1)

    def times(self, least: int, most: int | None) -> Part:
        """The part, so many times."""
        once = most is not None and most <= 1
        ways, tail = self.ways, self.tail
        if not once:
            count = most or UNBOUNDED
            if self.head or (tail and (self.single or not tail & self.first)):
                ways = ways if least == most else max(ways, count)
            elif ways > 1:
                ways *= most or UNBOUNDED_AROUND
                ways = SLOW if ways > MAX_WAYS else ways
            elif least != most or not self.least == self.most == 1:
                ways = count
            tail = tail if tail == self.characters else 0
        return Part(
            ways, max(ways, self.run), self.characters, self.characters, self.first,
            self.head if once and least else 0, tail if least else 0, self.single and once,
            self.least * least,
            0 if self.most == 0 else None if self.most is None or most is None else self.most * most,
            self.begins, self.recursions if once else 2 * min(self.recursions, 1),
        )  # fmt: skip


def _sum(ways: int, more: int) -> int:
    if 1 in (ways, more):
        return max(ways, more)
    return SLOW if ways + more > MAX_SUM else ways + more


def _both(one: int, of_one: int, other: int, of_other: int) -> int:
    """What parts either of two texts, which have these characters."""
    if not one or not other or one & of_other & ~other or other & of_one & ~one:
        return 0
    return one | other


def item(said: str) -> Part:
    """A character, a class or a literal."""
    if said[0] == '"':
        literal = Part()
        for one in LETTERS.findall(said[1:].removesuffix('"')):
            literal = literal.then(Part.of(_letter(one)))
        return literal
    if said[0] == "[" and len(said) > 1:
        return Part.of(_class(said[1:].removesuffix("]")))
    return Part.of(ALL if said == "." else _letter(said))


def _class(inner: str) -> int:
    bits = 0
    for found in RANGES.finditer(inner.removeprefix("^")):
        low, high = (_letter(one) for one in (found[1], found[2] or found[1]))
        if ALL in (low, high) or (found[2] and max(low.bit_count(), high.bit_count()) > 1):
            return ALL
        # From the lowest bit to the highest.
        bits |= (high | max(high - low, 0)) if found[2] else low
    # Of the others a class has some.
    return ALL & ~(bits & ASCII) if inner.startswith("^") else bits


def _letter(said: str) -> int:
    """What a character or an escape stands for; all where that is not known."""
    if len(said) == 1:
        return _bits(said)
    kind, digits = said[1], said[2:].strip("{}")
    if digits:
        return _bits(chr(min(int(digits, 16), 128))) if kind in "xuU" else ALL
    return ESCAPES.get(kind, ALL if kind.isalnum() else _bits(kind))
