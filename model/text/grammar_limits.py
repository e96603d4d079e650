"""How large a guide may be, and which of vLLM's backends would take too long for it: what one client sends must not
hold up the others.

    text --regex_costs, grammar_costs, schema_costs--> Costs, or ValueError for what is too large for any

Guides are compiled and matched by native code that nothing can end, in threads and steps that all requests share. What
was measured (xgrammar 0.2.8, llguidance 1.7.6):

    guidance    bounds the work of a step, and ends the text, at once where an object has more than 500 properties that
                are optional. It does not bound its compiler: memory grows with `maxItems` (1.2 GB for a million), time
                and memory fourfold with each pattern that it has to intersect (13 of them: 8 s, 220 MB)
    xgrammar    compiles `((a{1,100}){1,100}){1,100}` in 20 ms, and its 60th step takes a second, each later one longer;
                its compiler takes the cube of the optional properties of an object: 7 s for 3,000
    outlines    compiles `a{1,1000000}` for minutes: it is asked only where an option names it

What costs xgrammar is a text that can be divided in many ways (repetitions.py). What is refused falsely guidance takes,
where it is asked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .repetitions import ESCAPE, MAX_WAYS, SLOW, Part, item

__all__ = ["Costs", "grammar_costs", "regex_costs", "schema_costs"]

MAX_CHARACTERS = 64 << 10
MAX_DEPTH = 200
"""Groups within groups, and rules within rules."""
MAX_VALUES = 10_000
"""Of a schema: values, in all its objects and arrays."""
MAX_OPTIONAL = 300
"""Properties of an object that are not required."""
MAX_ITEMS = 10_000
MAX_PATTERNS = 8
"""Of a schema that may intersect them."""
INTERSECTING = frozenset({"allOf", "anyOf", "oneOf", "$ref"})

WAYS = f"it has counts within counts, expected a product of at most {MAX_WAYS}"

# What is not closed goes to the end: were it no match, each beginning would look through all the rest.
CLASS = r"\[\^?(?:\\.|[^\]\\])*(?:\]|\\?\Z)"
COMMON = r"(?P<close>\))|(?P<bar>\|)|(?P<repeat>[*+?]|\{\s?[0-9]{1,18}\s?,?\s?[0-9]{0,18}\s?\})"
REGEX = re.compile(rf"(?P<open>\((?:\?:)?)|{COMMON}|(?P<blank>[\^$])|(?P<item>{ESCAPE}|{CLASS}|.)", re.DOTALL)
GRAMMAR = re.compile(
    rf"(?P<open>\()|{COMMON}|(?P<rule>[A-Za-z_][\w.-]*)\s?::=|(?P<name>[A-Za-z_][\w.-]*)|(?P<blank>\#[^\n]*|\s+)"
    rf'|(?P<item>"(?:\\.|[^"\\\n])*(?:"|(?=\n)|\\?\Z)|{CLASS}|.)',
    re.DOTALL,
)
EMBEDDED = re.compile(r"%json\s*")


@dataclass(frozen=True, slots=True)
class Costs:
    """Why a backend would take too long for a guide; None: it does not."""

    xgrammar: str | None = None
    guidance: str | None = None


def regex_costs(text: str) -> Costs:
    """A regular expression."""
    return _costs(_read(_short(text), REGEX, {}).ways)


def grammar_costs(text: str) -> Costs:
    """A grammar in EBNF, where a rule that is made of itself divides a text in one way, unless it begins with itself
    and has itself again; or in Lark's form, which guidance reads, with JSON schemas in it.
    """
    text = _short(text)
    heads = [match for match in GRAMMAR.finditer(text) if match["rule"]]
    ends = [*(match.start() for match in heads[1:]), len(text)]
    rules = {head["rule"]: text[head.end() : end] for head, end in zip(heads, ends, strict=False)}
    known: dict[str, Part] = {}

    def read(name: str, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested too deeply, expected at most {MAX_DEPTH} rules within rules")
        known[name] = Part.unknown(name)
        for match in GRAMMAR.finditer(rules[name]):
            if (inner := match["name"]) in rules and inner not in known:
                read(inner, depth + 1)
        part = known[name] = _read(rules[name], GRAMMAR, known)
        if name in part.begins and part.recursions > 1:
            part.ways = part.run = SLOW

    for name in rules:
        if name not in known:
            read(name, 1)
    guidance = None
    for place in EMBEDDED.finditer(text):
        try:
            schema, _ = json.JSONDecoder().raw_decode(text, place.end())
        except (ValueError, RecursionError):
            # The compiler reports what is wrong with it.
            continue
        guidance = schema_costs(json.dumps(schema)).guidance or guidance
    return Costs(_costs(max((part.ways for part in known.values()), default=1)).xgrammar, guidance)


def schema_costs(text: str) -> Costs:
    """A JSON schema, as JSON text."""
    short = _short(text)
    try:
        schema = json.loads(short)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError:
        # The compiler reports what is wrong with it.
        return Costs()
    members = patterns = 0
    intersects = False
    xgrammar = guidance = None
    for value in _values(schema):
        members += len(value)
        if members > MAX_VALUES:
            raise ValueError(f"it is too large, expected at most {MAX_VALUES} values")
        if not isinstance(value, dict):
            continue
        intersects = intersects or not INTERSECTING.isdisjoint(value)
        properties, required = value.get("properties"), value.get("required")
        needed = len(required) if isinstance(required, list) else 0
        if isinstance(properties, dict) and len(properties) - needed > MAX_OPTIONAL:
            raise ValueError(f"it has too many optional properties, expected at most {MAX_OPTIONAL} in an object")
        for name in ("minItems", "maxItems"):
            if isinstance(count := value.get(name), int | float) and count > MAX_ITEMS:
                guidance = f"its {name} is too large, expected at most {MAX_ITEMS}"
        several = value.get("patternProperties")
        for pattern in (value.get("pattern"), *(several if isinstance(several, dict) else ())):
            if isinstance(pattern, str):
                patterns += 1
                xgrammar = regex_costs(pattern).xgrammar or xgrammar
    if intersects and patterns > MAX_PATTERNS:
        guidance = f"it has too many patterns, expected at most {MAX_PATTERNS} with {', '.join(sorted(INTERSECTING))}"
    return Costs(xgrammar, guidance)


def _costs(ways: int) -> Costs:
    return Costs(xgrammar=WAYS if ways >= SLOW else None)


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


def _read(text: str, tokens: re.Pattern[str], known: Mapping[str, Part]) -> Part:
    """What an expression, or a rule's body, adds up to; raises ValueError for what is nested too deeply.

    The compiler reports what is not an expression at all.
    """
    groups = [_Group()]
    for token in tokens.finditer(text):
        kind, said = token.lastgroup, token[0]
        if kind == "open":
            if len(groups) > MAX_DEPTH:
                raise ValueError(f"it is nested too deeply, expected at most {MAX_DEPTH} groups within groups")
            groups.append(_Group())
        elif kind == "close" and len(groups) > 1:
            whole = groups.pop().whole()
            groups[-1].add(whole)
        elif kind == "bar":
            groups[-1].branch()
        elif kind == "repeat":
            groups[-1].last = groups[-1].last.times(*_times(said))
        elif kind == "name":
            groups[-1].add(known.get(said) or Part.unknown())
        elif kind != "blank":
            groups[-1].add(item(said))
    while len(groups) > 1:
        whole = groups.pop().whole()
        groups[-1].add(whole)
    return groups[0].whole()


@dataclass(slots=True)
class _Group:
    """One that is being read."""

    branches: Part | None = None
    """Those before this one."""
    before: Part = field(default_factory=Part)
    last: Part = field(default_factory=Part)
    """What may be repeated yet."""

    def add(self, part: Part) -> None:
        self.before, self.last = self.before.then(self.last), part

    def branch(self) -> None:
        self.branches, self.before, self.last = self.whole(), Part(), Part()

    def whole(self) -> Part:
        own = self.before.then(self.last)
        return own if self.branches is None else self.branches.otherwise(own)


def _times(said: str) -> tuple[int, int | None]:
    """How often something is repeated, at least and at most."""
    if said in ("*", "+", "?"):
        return int(said == "+"), 1 if said == "?" else None
    least, comma, most = said[1:-1].partition(",")
    return int(least), (int(most) if most.strip() else None) if comma else int(least)
