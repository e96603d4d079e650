"""What takes a backend of guides too long, and what is too large for each."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmi.model.text.grammar_limits import Costs, grammar_costs, regex_costs, schema_costs

from ...kit.rows import each_row

COUNTS = "counts within counts"
DEEP = "nested too deeply"
LONG = "too long"
LARGE = "too large"

REGEX: list[tuple[str, str | None]] = [
    (r"((25[0-5]|2[0-4]\d|1\d\d|\d{1,2})\.){3}\d{1,3}", None),
    ("[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}", None),
    (r"\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2})?)?", None),
    (r"[\w.+-]+@([\w-]+\.)+[a-z]{2,}", None),
    ('"(\\\\.|[^"])*"', None),
    ("(yes|no|)", None),
    ("([a-z]+ ?)+", None),
    ("([a-z]{2,20} ){1,50}", None),
    ("a{1,1000000}", None),
    ("(?:ab){10}(cd){10}" * 9, None),
    ("[()*{]{3}[]]", None),
    (r"\(\*\)\{", None),
    ("a{,5}{b}", None),
    ("(", None),
    (")*", None),
    ("*", None),
    ("((a{1,31}){1,31})", None),
    ("((a{1,32}){1,32})", COUNTS),
    ("((a{1,100}){1,100}){1,100}", COUNTS),
    ("((ab){2}c){501}", None),
    ("((ab){2}a){501}", None),
    ("((aa){2}a){501}", COUNTS),
    ("((aa){2}a){500}", None),
    ("(((a{2,}){50}b)?){12}", COUNTS),
    ("(((a{3}){50}b)?){12}", None),
    ("(((a{3}){50}b)?){21}", COUNTS),
    ("((x|(a{10}){10}){100})", None),
    ("((x|(a{10}){10}){101})", COUNTS),
    ("(a*)*b", None),
    ("((a*)*)*b", COUNTS),
    ("(a*){1,100}", COUNTS),
    ("(a+){1,100}b", COUNTS),
    ("(a{1,70}a){1,70}", COUNTS),
    ("(a{1,70}[a-z]){1,70}", COUNTS),
    ("(a{1,70}b){1,70}", None),
    ("((a{1,70}b)?){1,70}", COUNTS),
    (r"([\w\-]{1,63}\.){1,100}[a-z]{2,}", None),
    ("([0-9]*,?)*", None),
    (r"(\w* ?){1,5}", None),
    ("(yes|no|)+", None),
    (r"(- [^\n]{1,80}\n){1,20}", None),
    (r"([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.){1,126}[a-z]{2,63}", None),
    (
        r"(([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9\-]*[a-zA-Z0-9])\.)*([A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9\-]*[A-Za-z0-9])",
        None,
    ),
    ("(a?){20}", None),
    ("(a|b*)+", None),
    ("(a|)+", None),
    ("()*", None),
    ("(a*){0,1}", None),
    ("(^a?$){2}", None),
    ("(" * 200 + "a" + ")" * 200, None),
    ("(" * 201 + "a" + ")" * 201, DEEP),
    ("a" * 65536, None),
    ("a" * 65537, LONG),
    ("a{" + "9" * 5000 + "}", None),
    ("((a{  1 ,   100  }){1,100})", COUNTS),
    # A text shows what it is divided by.
    (r"^(/[^/]{1,255})+$", None),
    (r"^(\w{1,20} ){1,60}$", None),
    (r"^([0-9a-f]{32}\n){1,40}$", None),
    (r"^(\w+,){0,50}\w+$", None),
    (r"([^\n]{1,100}\n){3,12}", None),
    (r"([^\n]{1,100}\n\n){3,12}", None),
    (r"(\w{1,20}[,;]\s+){1,60}", None),
    (r"((\w{1,20}\s){1,60}!){1,60}", None),
    (r"((\w{1,20}\s){1,60}\w){1,60}", COUNTS),
    (r"([^\n]{1,100}(\n|\r)){3,50}", COUNTS),
    (r"([^\r\n]{1,100}(\n|\r\n)){3,50}", None),
    (r"(\w{1,20}( |[,;])){1,60}", None),
    (r"(\w{1,20}(x |y,)){1,60}", None),
    (r"(\w{1,20} (x |y)){1,60}", COUNTS),
    (r"(\w{1,20}(:?;)?){1,60}", COUNTS),
    (r"(\w{1,20},?){1,60}", COUNTS),
    (r"(\w{1,60},\w{1,60}){1,60}", COUNTS),
    (r"([,;]\w{1,60},){1,60}", COUNTS),
    (r"(,{1,60},){1,60}", COUNTS),
    ("([a-z]{1,500}.){1,500}", COUNTS),
    ("([^,]{1,60}[^;]){1,60}", COUNTS),
    ("([^é]{1,60}é){1,60}", COUNTS),
    (r"(\S{1,60}\s){1,60}", COUNTS),
    (r"([\u00a0]{1,60}\s){1,60}", COUNTS),
    (r"([0-z]{1,60}\x61){1,60}", COUNTS),
    ("((a+)+){1,9}", COUNTS),
    ("((a+b?)+){1,9}", COUNTS),
    # Alternatives, and what follows one another.
    ("(" + "|".join(f"a{{1,{count}}}" for count in range(100, 160)) + "){1,6}", COUNTS),
    ("(" + "|".join(f"a{{1,{count}}}" for count in range(800, 900)) + ")", COUNTS),
    ("([a-z]{1,400}|[0-9]{1,400}|-){1,2}", None),
    ("([a-z]{1,400}|[0-9a]{1,400}|-){1,2}", COUNTS),
    ("(?:a{1,100})" * 30, None),
    ("(?:a{1,100})" * 31, COUNTS),
    ("(a{1,100}a?)" * 31, COUNTS),
    ("(?:a{1,100}b)" * 99, None),
    ("(?:a{1,100})" * 20 + "(?:a{1,1100}b)", COUNTS),
    (r"(?:\w+\s+)" * 99, None),
    (r"(?:\w+\s*)" * 99, COUNTS),
    ("(a{1,30}a{1,30}){1,16}", None),
    ("(a{1,30}a{1,30}){1,17}", COUNTS),
    (r"(\w+|\d+)+", None),
    ("|".join(["a*"] * 16), COUNTS),
]

ARITHMETIC = """
root ::= expr
expr ::= term (("+" | "-") term)*
term ::= factor (("*" | "/") factor)*
factor ::= [0-9]+ | "(" expr ")"
"""

JSON = r"""
root ::= value
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" ws (pair ("," ws pair)*)? "}" ws
pair ::= string ":" ws value
array ::= "[" ws elements? "]" ws
elements ::= value ("," ws value)*
string ::= "\"" ([^"\\] | "\\" ["\\/bfnrtu])* "\"" ws
number ::= "-"? [0-9]+ ("." [0-9]+)? ([eE] [-+]? [0-9]+)? ws
ws ::= [ \t\n]*
"""

GRAMMAR: list[tuple[str, str | None]] = [
    ('root ::= "yes" | "no"', None),
    ('root ::= ("a" "b"?){1,30} # (x*)*\n', None),
    ('root ::= item ("," item)*\nitem ::= [a-z]+', None),
    ('root ::= "(x*)*" [()*]+', None),
    ("root ::= x{1,100}\nx ::= y{1,100}\ny ::= [a]{1,100}", COUNTS),
    ('y ::= "a"{1,100}\nx ::= y{1,100}\nroot ::= x', COUNTS),
    ('root ::= x*\nx ::= "a"*', None),
    ('root ::= "a" ws* "b"\nws ::= [ \\t\\n]*', None),
    ('root ::= line{1,50}\nline ::= "- " [^\\n]{1,200} "\\n"', None),
    (ARITHMETIC, COUNTS),
    ('root ::= x{1,9}\nx ::= "a"*', COUNTS),
    ('root ::= x{1,9}\nx ::= "a"* "b"', None),
    ("\n".join(f"x{n} ::= x{n + 1}" for n in range(300)), DEEP),
    ('root ::= x+\nx ::= y y\ny ::= ""', None),
    ('root ::= root "a" | "b"', None),
    ("root ::= a\na ::= b\nb ::= root", None),
    ('root ::= root root | "a"', COUNTS),
    ('root ::= root "+" root | "a"', COUNTS),
    ('root ::= x x | "a"\nx ::= root', COUNTS),
    ('x ::= root\nroot ::= x x | "a"', COUNTS),
    ('root ::= ws root root | "a"\nws ::= " "*', COUNTS),
    ('root ::= root+ | "a"', COUNTS),
    ('root ::= "(" root ")" root | "a"', None),
    (JSON, None),
    (JSON.replace(" ws ", " ").replace("root ::= value", "root ::= object"), None),
    ("", None),
    ('start: "a" | "b"', None),
    ('root ::= "' + "a" * 65536 + '"', LONG),
    ("root ::= " + "(" * 300 + '"a"' + ")" * 300, DEEP),
]

SCHEMA: list[tuple[Any, str | None]] = [
    ({"type": "object", "properties": {"a": {"type": "string", "pattern": "[a-z]+", "maxLength": 5000}}}, None),
    ({"type": "array", "maxItems": 100, "items": {"type": "array", "maxItems": 100}}, None),
    ({"items": {"type": "array", "minItems": 10_000}}, None),
    ({"items": {"type": "array", "minItems": 10_001}}, "its minItems is too large"),
    ({"items": {"type": "array", "maxItems": 1e9}}, "its maxItems is too large"),
    ({"properties": {name: {"pattern": "a"} for name in "abcdefghi"}}, None),
    ({"properties": {name: {"pattern": "a"} for name in "abcdefgh"}, "allOf": []}, None),
    ({"properties": {name: {"pattern": "a"} for name in "abcdefghi"}, "allOf": []}, "too many patterns"),
    ({"properties": {name: {"pattern": "a"} for name in "abcdefghi"} | {"j": {"$ref": "#"}}}, "too many patterns"),
    ({"type": "object", "properties": {"pattern": {"type": "string"}}}, None),
    ({"type": "string", "pattern": "((a*)*)*"}, COUNTS),
    ({"properties": {"a": {"items": [{"pattern": "((a{99}){99}){99}"}]}}}, COUNTS),
    ({"type": "object", "patternProperties": {"((a*)*)*": {}}}, COUNTS),
    ({"properties": {f"p{number}": {} for number in range(300)}}, None),
    ({"properties": {f"p{number}": {} for number in range(301)}}, "too many optional properties"),
    ({"properties": {f"p{number}": {} for number in range(301)}, "required": ["p0"]}, None),
    ({"properties": [], "required": {}, "pattern": 5, "patternProperties": "(a*)*"}, None),
    ({"type": "string", "pattern": "(" * 30000 + "a" + ")" * 30000}, DEEP),
    ({"enum": [0] * 10001}, LARGE),
    ({"enum": [0] * 9000}, None),
    ({"const": "a" * 70000}, LONG),
]

CASES: list[tuple[Callable[[str], Costs], str, str | None]] = [
    *((regex_costs, text, fault) for text, fault in REGEX),
    *((grammar_costs, text, fault) for text, fault in GRAMMAR),
    *((schema_costs, json.dumps(schema), fault) for schema, fault in SCHEMA),
    (schema_costs, "x", None),
    (schema_costs, "[" * 60_000, DEEP),
]


@each_row(("costs", "text", "fault"), CASES, ids=range(len(CASES)))
def test_a_guide(costs: Callable[[str], Costs], text: str, fault: str | None) -> None:
    said = fault_of(costs, text)
    assert said is None if fault is None else fault in str(said)
    assert "\n" not in str(said)


def test_each_backend_by_itself() -> None:
    """What takes one too long, another may be quick at."""
    slow, long = '{"pattern": "((a*)*)*"}', '{"maxItems": 10001}'
    assert (schema_costs(slow).xgrammar is None, schema_costs(slow).guidance is None) == (False, True)
    assert (schema_costs(long).xgrammar is None, schema_costs(long).guidance is None) == (True, False)
    assert regex_costs("((a*)*)*").guidance is None
    assert grammar_costs(f"start: %json {long}").guidance == "its maxItems is too large, expected at most 10000"
    assert grammar_costs("start: %json {").guidance is None


pieces = st.sampled_from(
    [
        "(",
        ")",
        "|",
        "*",
        "+",
        "?",
        "{2}",
        "{1,3}",
        "{0,}",
        "{",
        "}",
        "[",
        "]",
        "^",
        "a",
        '"',
        "\\",
        " ",
        "::=",
        "x",
        "#",
        ",",
    ]
)


@settings(max_examples=500)
@given(st.lists(pieces, max_size=40).map("".join) | st.text(max_size=30))
def test_nothing_else_is_raised(text: str) -> None:
    for costs in (regex_costs, grammar_costs, grammar_of):
        assert (fault_of(costs, text) or "it is fine").startswith("it ")


def fault_of(costs: Callable[[str], Costs], text: str) -> str | None:
    """Why a guide is too large for any backend, or too slow for one; None: it is not."""
    try:
        found = costs(text)
    except ValueError as error:
        return str(error)
    return found.xgrammar or found.guidance


def grammar_of(body: str) -> Costs:
    return grammar_costs(f"root ::= {body}\nx ::= {body}")


UNITS = [
    "(",
    "a*",
    "a{1,2}",
    "[",
    '"',
    "\\",
    "x ",
    "x ::= x\n",
    "{",
    "|",
    "#",
    "(a)",
    " ",
    "{1" + " " * 9,
    "{1" + " " * 30000,
    "\n ",
    "{1\n",
    "aa::",
    "[\\",
]


@pytest.mark.timing
@pytest.mark.parametrize("unit", UNITS)
def test_checking_takes_no_longer_than_the_length_explains(unit: str) -> None:
    text = unit * (65536 // len(unit))
    start = time.thread_time()
    for costs in (regex_costs, grammar_costs):
        fault_of(costs, text)
    assert time.thread_time() - start < 2
