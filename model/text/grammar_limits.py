"""How large a guide may be and what of it may be repeated: what one client sends must not hold up the others.

    text --check_regex, check_grammar, check_schema--> nothing, or ValueError, which says why

Guides are matched in the engine's steps, which all requests share. With xgrammar (0.2.8; 600 tokens, a vocabulary of
32,000) nearly every expression costs below 10 ms a step, however large its counts are. Two kinds cost seconds, and are
refused: counts within counts, `((a{1,100}){1,100}){1,100}`, and the repetition of what may be empty, `(a*){1,100}`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["check_grammar", "check_regex", "check_schema"]

LONGEST = 64 << 10
"""Characters of a guide."""
COUNTS = 1000
"""The product of counts within counts."""
DEPTH = 200
"""Groups within groups."""
MEMBERS = 10_000
"""Of a schema: values, in all its objects and arrays."""

# What is not closed goes to the end: were it no match, each beginning would look through all the rest.
CLASS = r"\[\^?(?:\\.|[^\]\\])*(?:\]|\\?\Z)"
LITERAL = r'"(?P<text>(?:\\.|[^"\\\n])*)(?:"|(?=\n)|\\?\Z)'
OPTIONAL = 300
"""Properties of an object that are not required: xgrammar's work grows with the cube of their number."""

REPEATED = r"(?P<repeat>[*+?]|\{\s?(?P<least>[0-9]{1,18})\s?(?P<comma>,)?\s?(?P<most>[0-9]{0,18})\s?\})"
REGEX = re.compile(
    rf"\\.|{CLASS}|(?P<open>\((?:\?:)?)|(?P<close>\))|(?P<bar>\|)|{REPEATED}|(?P<blank>[\^$])|.", re.DOTALL
)
GRAMMAR = re.compile(
    rf"{LITERAL}|{CLASS}|(?P<open>\()|(?P<close>\))|(?P<bar>\|)|{REPEATED}"
    r"|(?P<rule>[A-Za-z_][\w.-]*)\s?::=|(?P<name>[A-Za-z_][\w.-]*)|(?P<blank>\#[^\n]*|\s+)|.",
    re.DOTALL,
)


@dataclass(slots=True)
class _Part:
    """A group, a rule, or an item of one."""

    counts: int = 1
    """The largest product of counts within counts."""
    empty: bool = True
    """Whether it may be empty: the branch that is being read, while it is."""
    branches: bool = False
    """Whether one of the branches before may be."""
    last: _Part | None = None
    """What a repetition would repeat."""

    def add(self, item: _Part | None) -> None:
        """Goes on with an item; None: the last one has ended."""
        if (last := self.last) is not None:
            self.counts = max(self.counts, last.counts)
            self.empty = self.empty and last.empty
        self.last = item

    def branch(self) -> None:
        """Begins another branch."""
        self.add(None)
        self.branches, self.empty = self.branches or self.empty, True

    def end(self) -> _Part:
        """The whole of it, as an item."""
        self.branch()
        return _Part(self.counts, self.branches)

    def repeat(self, least: int, most: int | None) -> None:
        """Repeats the last item; raises ValueError."""
        if (item := self.last) is None:
            return
        if most is None or most > 1:
            if item.empty:
                raise ValueError("it repeats what may be empty, expected at least one character in what is repeated")
            if item.counts > 1 and (most or 1) * item.counts > COUNTS:
                raise ValueError(f"it has counts within counts, expected a product of at most {COUNTS}")
        self.last = _Part(item.counts * (most or 1), item.empty or least == 0)


def check_regex(text: str) -> None:
    """A regular expression."""
    _read(_short(text), REGEX, {})


def check_grammar(text: str) -> None:
    """A grammar in EBNF. What a rule that is made of itself adds up to is not known, and taken for a character."""
    text = _short(text)
    rules: dict[str, str] = {}
    heads = [match for match in GRAMMAR.finditer(text) if match["rule"]]
    for head, after in zip(heads, [*heads[1:], None], strict=False):
        rules[head["rule"]] = text[head.end() : after.start() if after else len(text)]
    known: dict[str, _Part] = {}
    for name in _inner_first(rules):
        known[name] = _read(rules[name], GRAMMAR, known)


def check_schema(text: str) -> None:
    """A JSON schema, as JSON text."""
    short = _short(text)
    try:
        schema = json.loads(short)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError:
        # The compiler tells what is wrong with it.
        return
    members = 0
    for value in _values(schema):
        members += len(value)
        if members > MEMBERS:
            raise ValueError(f"it is too large, expected at most {MEMBERS} values")
        if isinstance(value, dict):
            properties, required = value.get("properties"), value.get("required")
            needed = len(required) if isinstance(required, list) else 0
            if isinstance(properties, dict) and len(properties) - needed > OPTIONAL:
                raise ValueError(f"it has too many optional properties, expected at most {OPTIONAL} in an object")
            patterns = value.get("patternProperties")
            for pattern in (value.get("pattern"), *(patterns if isinstance(patterns, dict) else ())):
                if isinstance(pattern, str):
                    check_regex(pattern)


def _short(text: str) -> str:
    """The text, with one blank for several."""
    if len(text) > LONGEST:
        raise ValueError(f"it is too long, expected at most {LONGEST} characters")
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


def _inner_first(rules: dict[str, str]) -> list[str]:
    """The rules, each after those that it is made of, as far as that goes."""
    uses = {
        name: [match["name"] for match in GRAMMAR.finditer(body) if match["name"] in rules]
        for name, body in rules.items()
    }
    order: dict[str, None] = {}
    seen: set[str] = set()
    for first in rules:
        stack = [(first, iter(uses[first]))]
        if first in seen:
            continue
        seen.add(first)
        while stack:
            name, rest = stack[-1]
            inner = next((one for one in rest if one not in seen), None)
            if inner is None:
                order[name] = None
                stack.pop()
            else:
                seen.add(inner)
                stack.append((inner, iter(uses[inner])))
    return list(order)


def _read(text: str, tokens: re.Pattern[str], known: dict[str, _Part]) -> _Part:
    """What an expression, or a rule's body, adds up to; raises ValueError for what is refused.

    What is no expression at all, the compiler tells.
    """
    groups = [_Part()]
    for token in tokens.finditer(text):
        group = groups[-1]
        kind = token.lastgroup
        if kind in ("least", "comma", "most"):
            kind = "repeat"
        if kind == "open":
            if len(groups) > DEPTH:
                raise ValueError(f"it is nested too deeply, expected at most {DEPTH} groups within groups")
            group.add(None)
            groups.append(_Part())
        elif kind == "close" and len(groups) > 1:
            groups.pop()
            groups[-1].add(group.end())
        elif kind == "bar":
            group.branch()
        elif kind == "repeat":
            group.repeat(*_times(token))
        elif kind == "name":
            group.add(known.get(token["name"], _Part(empty=False)))
        elif kind != "blank":
            group.add(_Part(empty=kind == "text" and not token["text"]))
    while len(groups) > 1:
        groups[-2].add(groups.pop().end())
    return groups[0].end()


def _times(token: re.Match[str]) -> tuple[int, int | None]:
    """How often something is repeated, at least and at most."""
    if token["least"] is None:
        return {"*": (0, None), "+": (1, None), "?": (0, 1)}[token["repeat"]]
    least, most = int(token["least"]), token["most"]
    return least, (int(most) if most else None) if token["comma"] else least
