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

What costs xgrammar is a text that can be divided in many ways. They are counted, roughly: repetitions within
repetitions multiply, whether or not something parts them. What is refused falsely guidance takes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Costs", "grammar_costs", "regex_costs", "schema_costs"]

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
"""Properties of an object that are not required."""
MAX_ITEMS = 10_000
MAX_PATTERNS = 8
"""Of a schema that may intersect them."""
INTERSECTING = frozenset({"allOf", "anyOf", "oneOf", "$ref"})

SLOW = 1 << 62
"""Too many ways, and what contains them has no fewer."""
WAYS = f"it has counts within counts, expected a product of at most {MAX_WAYS}"

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
EMBEDDED = re.compile(r"%json\s*")


@dataclass(frozen=True, slots=True)
class Costs:
    """Why a backend would take too long for a guide; None: it does not."""

    xgrammar: str | None = None
    guidance: str | None = None


def regex_costs(text: str) -> Costs:
    """A regular expression."""
    return _costs(_ways(_short(text), REGEX, {}))


def grammar_costs(text: str) -> Costs:
    """A grammar in EBNF, where what a rule that is made of itself adds up to is not known, and taken for nothing; or in
    Lark's form, which guidance reads, with JSON schemas in it.
    """
    text = _short(text)
    heads = [match for match in GRAMMAR.finditer(text) if match["rule"]]
    ends = [*(match.start() for match in heads[1:]), len(text)]
    rules = {head["rule"]: text[head.end() : end] for head, end in zip(heads, ends, strict=False)}
    known: dict[str, int] = {}

    def read(name: str, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested too deeply, expected at most {MAX_DEPTH} rules within rules")
        known[name] = 1
        for match in GRAMMAR.finditer(rules[name]):
            if (inner := match["name"]) in rules and inner not in known:
                read(inner, depth + 1)
        known[name] = _ways(rules[name], GRAMMAR, known)

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
    return Costs(_costs(max(known.values(), default=1)).xgrammar, guidance)


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


def _ways(text: str, tokens: re.Pattern[str], known: Mapping[str, int]) -> int:
    """In how many ways a text of an expression, or of a rule's body, can be divided among its repetitions, roughly;
    raises ValueError for what is nested too deeply.

    The compiler reports what is not an expression at all.
    """
    # Of each open group its ways, and those of the item that may be repeated yet.
    groups = [1]
    last = [1]
    for token in tokens.finditer(text):
        kind, said = token.lastgroup, token[0]
        if kind == "open":
            if len(groups) > MAX_DEPTH:
                raise ValueError(f"it is nested too deeply, expected at most {MAX_DEPTH} groups within groups")
            groups.append(1)
            last.append(1)
        elif kind == "close" and len(groups) > 1:
            last.pop()
            last[-1] = groups.pop()
        elif kind == "repeat":
            last[-1] = _repeated(last[-1], said)
        elif kind != "blank":
            last[-1] = known.get(said, 1)
        groups[-1] = max(groups[-1], last[-1])
    return max(groups)


def _repeated(ways: int, said: str) -> int:
    """The ways of what is repeated so often; a count alone may be any."""
    if said == "?":
        return ways
    least, comma, most = said.strip("{}").partition(",")
    if said in ("*", "+") or (comma and not most.strip()):
        times = UNBOUNDED if ways == 1 else UNBOUNDED_AROUND
    else:
        times = max(int(most if comma else least), 1)
    return SLOW if ways > 1 and ways * times > MAX_WAYS and times > 1 else ways * times
