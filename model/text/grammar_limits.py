"""How large a guide may be and what of it may be repeated: what one client sends must not hold up the others.

    text --check_regex, check_grammar, check_schema--> nothing, or ValueError, which says why

Guides are matched in the engine's steps, which all requests share, by native code that nothing can end. That is where
the time goes, so a bound in time on the compiler would not help: xgrammar 0.2.8 compiles `((a{1,100}){1,100}){1,100}`
in 9 ms, and its first step takes longer than 30 s.

What costs is a text that can be divided in many ways. They are counted, roughly: repetitions within repetitions
multiply, as in `(a{1,70}){1,70}` and `(a*){1,100}`, unless each time has a character that is nowhere repeated, as the
line's end in `(- [^\\n]{1,80}\\n){1,20}`, or one of several, as in `([a-z]{1,70}[,;]){1,20}`. That is no proof, but
keeps out what costs seconds within a short answer.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["check_grammar", "check_regex", "check_schema"]

MAX_CHARACTERS = 64 << 10
MAX_WAYS = 1000
"""The product of counts within counts."""
UNBOUNDED, UNBOUNDED_AROUND = 200, 5
"""What `*` and `+` count as: in the middle, and around something that is counted."""
MAX_DEPTH = 200
"""Groups within groups, and rules within rules."""
MAX_VALUES = 10_000
"""Of a schema: values, in all its objects and arrays."""
MAX_OPTIONAL = 300
"""Properties of an object that are not required: xgrammar's work grows with the cube of their number."""

ESCAPE = r"\\(?:x[0-9A-Fa-f]{1,2}|u\{[0-9A-Fa-f]{1,6}\}|u[0-9A-Fa-f]{1,4}|U[0-9A-Fa-f]{1,8}|[pP]\{\w*\}|.)"
# What is not closed goes to the end: were it no match, each beginning would look through all the rest.
CLASS = r"\[\^?(?:\\.|[^\]\\])*(?:\]|\\?\Z)"
COMMON = r"(?P<close>\))|(?P<bar>\|)|(?P<repeat>[*+?]|\{\s?[0-9]{1,18}\s?,?\s?[0-9]{0,18}\s?\})"
REGEX = re.compile(rf"(?P<open>\((?:\?:)?)|{COMMON}|(?P<blank>[\^$])|(?P<item>{ESCAPE}|{CLASS}|.)", re.DOTALL)
GRAMMAR = re.compile(
    rf"(?P<open>\()|{COMMON}|(?P<rule>[A-Za-z_][\w.-]*)\s?::=|(?P<name>[A-Za-z_][\w.-]*)|(?P<blank>\#[^\n]*|\s+)"
    rf'|(?P<item>"(?:\\.|[^"\\\n])*(?:"|(?=\n)|\\?\Z)|{CLASS}|.)',
    re.DOTALL,
)

# Sets of characters are integers: a bit for each of ASCII, and one for all others.
ASCII = (1 << 128) - 1
ALL = (1 << 129) - 1
LETTERS = re.compile(rf"{ESCAPE}|[^\\]", re.DOTALL)
RANGES = re.compile(rf"({ESCAPE}|[^\\])(?:-({ESCAPE}|[^\\]))?", re.DOTALL)


def _bits(characters: str) -> int:
    return sum({1 << min(ord(one), 128) for one in characters})


ESCAPES = {
    "d": _bits(string.digits), "w": _bits(string.ascii_letters + string.digits + "_"), "s": _bits(string.whitespace),
    "n": _bits("\n"), "r": _bits("\r"), "t": _bits("\t"),
}  # fmt: skip


@dataclass(slots=True)
class _Part:
    """A group, a rule, or an item of one."""

    ways: int = 1
    """In how many ways a text can be divided among its repetitions, roughly."""
    characters: int = 0
    """What it may have; rather too many than too few."""
    marks: int = 0
    """What each text of it has; rather too few."""
    repeated: int = 0
    """What may be in its repetitions."""
    one_of: int = 0
    """Of these each text has one at least; none where that is not known. Of several such sets the smallest, which is
    the likeliest to part what is repeated."""

    def take(self, other: _Part) -> None:
        """Goes on with another part."""
        self.ways = max(self.ways, other.ways)
        self.characters |= other.characters
        self.marks |= other.marks
        self.one_of = min(self.one_of or other.one_of, other.one_of or self.one_of, key=int.bit_count)
        self.repeated |= other.repeated

    def times(self, least: int, most: int | None) -> _Part:
        """The part, so many times; raises ValueError where that can be divided in too many ways."""
        if most is not None and most <= 1:
            marks, one_of = (self.marks, self.one_of) if least else (0, 0)
            return _Part(self.ways, self.characters, marks, self.repeated, one_of)
        if self.marks & ~self.repeated or (self.one_of and not self.one_of & self.repeated):
            ways = most or UNBOUNDED
        elif (
            ways := self.ways * (most or (UNBOUNDED if self.ways == 1 else UNBOUNDED_AROUND))
        ) > MAX_WAYS and self.ways > 1:
            raise ValueError(f"it has counts within counts, expected a product of at most {MAX_WAYS}")
        return _Part(ways, self.characters, 0, self.characters)


def check_regex(text: str) -> None:
    """A regular expression."""
    _read(_short(text), REGEX, {})


def check_grammar(text: str) -> None:
    """A grammar in EBNF. What a rule that is made of itself adds up to is not known, and taken for nothing."""
    text = _short(text)
    heads = [match for match in GRAMMAR.finditer(text) if match["rule"]]
    ends = [*(match.start() for match in heads[1:]), len(text)]
    rules = {head["rule"]: text[head.end() : end] for head, end in zip(heads, ends, strict=False)}
    known: dict[str, _Part] = {}

    def read(name: str, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested too deeply, expected at most {MAX_DEPTH} rules within rules")
        known[name] = _Part(characters=ALL)
        for match in GRAMMAR.finditer(rules[name]):
            if (inner := match["name"]) in rules and inner not in known:
                read(inner, depth + 1)
        known[name] = _read(rules[name], GRAMMAR, known)

    for name in rules:
        if name not in known:
            read(name, 1)


def check_schema(text: str) -> None:
    """A JSON schema, as JSON text."""
    short = _short(text)
    try:
        schema = json.loads(short)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError:
        # The compiler reports what is wrong with it.
        return
    members = 0
    for value in _values(schema):
        members += len(value)
        if members > MAX_VALUES:
            raise ValueError(f"it is too large, expected at most {MAX_VALUES} values")
        if isinstance(value, dict):
            properties, required = value.get("properties"), value.get("required")
            needed = len(required) if isinstance(required, list) else 0
            if isinstance(properties, dict) and len(properties) - needed > MAX_OPTIONAL:
                raise ValueError(f"it has too many optional properties, expected at most {MAX_OPTIONAL} in an object")
            patterns = value.get("patternProperties")
            for pattern in (value.get("pattern"), *(patterns if isinstance(patterns, dict) else ())):
                if isinstance(pattern, str):
                    check_regex(pattern)


def _short(text: str) -> str:
    """The text, with one blank for several."""
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"it is too long, expected at most {MAX_CHARACTERS} characters")
    return LINES.sub("\n", BLANKS.sub(" ", text))


BLANKS = re.compile(r"[^\S\n]+")
LINES = re.compile(r"(?: ?\n)+ ?")


def _values(schema: Any) -> Iterator[dict[str, Any] | list[Any]]:
    """The objects and arrays of a schema."""
    stack = [schema]
    while stack:
        value = stack.pop()
        if isinstance(value, dict | list):
            yield value
            stack += value.values() if isinstance(value, dict) else value


def _read(text: str, tokens: re.Pattern[str], known: Mapping[str, _Part]) -> _Part:
    """What an expression, or a rule's body, adds up to; raises ValueError for what is refused.

    The compiler reports what is not an expression at all.
    """
    # Of each open group: its branches, and the item that may be repeated yet.
    groups = [[_Part()]]
    last: list[_Part | None] = [None]

    def add(item: _Part | None) -> None:
        if (before := last[-1]) is not None:
            groups[-1][-1].take(before)
        last[-1] = item

    def end() -> _Part:
        add(None)
        last.pop()
        whole, *others = groups.pop()
        for branch in others:
            marks = whole.marks & branch.marks
            one_of = whole.one_of | branch.one_of if whole.one_of and branch.one_of else 0
            whole.take(branch)
            whole.marks, whole.one_of = marks, one_of
        return whole

    for token in tokens.finditer(text):
        kind, said = token.lastgroup, token[0]
        if kind == "open":
            if len(groups) > MAX_DEPTH:
                raise ValueError(f"it is nested too deeply, expected at most {MAX_DEPTH} groups within groups")
            groups.append([_Part()])
            last.append(None)
        elif kind == "close" and len(groups) > 1:
            whole = end()
            add(whole)
        elif kind == "bar":
            add(None)
            groups[-1].append(_Part())
        elif kind == "repeat":
            if (item := last[-1]) is not None:
                last[-1] = item.times(*_times(said))
        elif kind == "name":
            add(known.get(said, _Part(characters=ALL)))
        elif kind != "blank":
            add(_item(said))
    while len(groups) > 1:
        whole = end()
        add(whole)
    return end()


def _item(said: str) -> _Part:
    """A character, a class or a literal."""
    if said[0] == '"':
        letters = [_letter(one) for one in LETTERS.findall(said[1:-1])]
        known = [bits for bits in letters if bits.bit_count() == 1]
        return _Part(1, _union(letters), _union(known), one_of=next(iter(known), 0))
    if said[0] == "[" and len(said) > 1:
        bits = _class(said[1:].removesuffix("]"))
        return _Part(1, bits, one_of=bits)
    characters = ALL if said == "." else _letter(said)
    return _Part(1, characters, characters if characters.bit_count() == 1 else 0, one_of=characters)


def _union(sets: Iterable[int]) -> int:
    union = 0
    for bits in sets:
        union |= bits
    return union


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


def _times(said: str) -> tuple[int, int | None]:
    """How often something is repeated, at least and at most."""
    if said in ("*", "+", "?"):
        return int(said == "+"), 1 if said == "?" else None
    least, comma, most = said[1:-1].partition(",")
    return int(least), (int(most) if most.strip() else None) if comma else int(least)
