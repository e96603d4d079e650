"""Every keyword of JSON Schema: a value that fits is let through, one that does not is not, or it is refused by name.

The backends themselves are asked, with bytes for tokens. What none enforces is let through, as by vLLM's `auto`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

from lmi.model.vllm.guides.backends import GuideBackends

from ....kit.api.errors import ParameterError
from ....kit.rows import each_row

pytestmark = pytest.mark.engine

INTEGER = {"type": "integer"}
A_INTEGER = {"properties": {"a": INTEGER}}
NO_B = {"type": "object", "properties": {"a": {}, "b": {}}}
OBJECT = {"type": "object"}

ENFORCED, LET_THROUGH, REFUSED = "enforced", "let through", "refused"

KEYWORDS: dict[str, tuple[Any, Any, Any, str]] = {
    "type": (INTEGER, 1, "a", ENFORCED),
    "types": ({"type": ["integer", "null"]}, None, "a", ENFORCED),
    "enum": ({"enum": ["a", 1]}, "a", "c", ENFORCED),
    "const": ({"const": "a"}, "a", "c", ENFORCED),
    "multipleOf": ({**INTEGER, "multipleOf": 5}, 10, 7, ENFORCED),
    "multipleOf of numbers": ({"type": "number", "multipleOf": 0.5}, 1.5, 1.3, ENFORCED),
    "multipleOf alone": ({"multipleOf": 5}, 10, 7, ENFORCED),
    "maximum": ({**INTEGER, "maximum": 5}, 3, 9, ENFORCED),
    "exclusiveMaximum": ({**INTEGER, "exclusiveMaximum": 5}, 4, 5, ENFORCED),
    "minimum": ({"type": "number", "minimum": 5}, 7.5, 3, ENFORCED),
    "minimum alone": ({"minimum": 5}, 7, 3, ENFORCED),
    "exclusiveMinimum": ({**INTEGER, "exclusiveMinimum": 5}, 6, 5, ENFORCED),
    "maxLength": ({"type": "string", "maxLength": 2}, "ab", "abc", ENFORCED),
    "minLength": ({"type": "string", "minLength": 2}, "ab", "a", ENFORCED),
    "minLength alone": ({"minLength": 2}, "ab", "a", ENFORCED),
    "pattern": ({"type": "string", "pattern": "^a+$"}, "aa", "b", ENFORCED),
    "pattern and maxLength": ({"type": "string", "pattern": "^a+$", "maxLength": 2}, "aa", "aaa", ENFORCED),
    "format": ({"type": "string", "format": "date"}, "2020-01-01", "x", ENFORCED),
    "format alone": ({"format": "date"}, "2020-01-01", "x", ENFORCED),
    "format of nobody": ({"type": "string", "format": "binary"}, "a", 5, REFUSED),
    "items": ({"type": "array", "items": INTEGER}, [1], ["a"], ENFORCED),
    "items alone": ({"items": INTEGER}, [1], ["a"], ENFORCED),
    "items of places": ({"type": "array", "items": [INTEGER]}, [1], ["a"], ENFORCED),
    "prefixItems": ({"type": "array", "prefixItems": [INTEGER]}, [1], ["a"], ENFORCED),
    "additionalItems": ({"type": "array", "items": [INTEGER], "additionalItems": False}, [1], [1, 2], ENFORCED),
    "unevaluatedItems": ({"type": "array", "prefixItems": [INTEGER], "unevaluatedItems": False}, [1], [1, 2], ENFORCED),
    "maxItems": ({"type": "array", "maxItems": 1}, [1], [1, 2], ENFORCED),
    "minItems": ({"type": "array", "minItems": 1}, [1], [], ENFORCED),
    "contains": ({"type": "array", "contains": INTEGER}, [1], ["a"], REFUSED),
    "minContains": ({"type": "array", "contains": INTEGER, "minContains": 2}, [1, 2], [1], REFUSED),
    "maxContains": ({"type": "array", "contains": INTEGER, "maxContains": 1}, [1], [1, 2], REFUSED),
    "uniqueItems": ({"type": "array", "items": INTEGER, "uniqueItems": True}, [1, 2], [1, 1], REFUSED),
    "properties": ({**OBJECT, **A_INTEGER}, {"a": 1}, {"a": "x"}, ENFORCED),
    "required": ({**OBJECT, **A_INTEGER, "required": ["a"]}, {"a": 1}, {}, ENFORCED),
    "required of others": ({**OBJECT, "required": ["a"]}, {"a": 1}, {}, ENFORCED),
    "additionalProperties": ({**OBJECT, **A_INTEGER, "additionalProperties": False}, {"a": 1}, {"b": 1}, ENFORCED),
    "additionalProperties of a kind": ({**OBJECT, "additionalProperties": INTEGER}, {"a": 1}, {"b": "x"}, ENFORCED),
    "unevaluatedProperties": ({**OBJECT, **A_INTEGER, "unevaluatedProperties": False}, {"a": 1}, {"b": 1}, ENFORCED),
    "patternProperties": (
        {**OBJECT, "patternProperties": {"^a": INTEGER, "^b": {"type": "null"}}, "additionalProperties": False},
        {"ab": 1}, {"b": 1}, ENFORCED,
    ),
    "patternProperties and properties": (
        {**OBJECT, "properties": {"b": INTEGER}, "patternProperties": {"^a": INTEGER}}, {"b": 1, "ab": 1}, {"ab": "x"},
        ENFORCED,
    ),
    "propertyNames and properties": (
        {**OBJECT, **A_INTEGER, "propertyNames": {"pattern": "^a"}}, {"a": 1}, {"b": 1}, REFUSED,
    ),
    "maxProperties": ({**OBJECT, "maxProperties": 1}, {"a": 1}, {"a": 1, "b": 2}, ENFORCED),
    "minProperties": ({**OBJECT, "minProperties": 1}, {"a": 1}, {}, ENFORCED),
    "dependentRequired": ({**NO_B, "dependentRequired": {"a": ["b"]}}, {"b": 1}, {"a": 1}, LET_THROUGH),
    "dependentSchemas": ({**NO_B, "dependentSchemas": {"a": {"required": ["b"]}}}, {"b": 1}, {"a": 1}, LET_THROUGH),
    "dependencies": ({**NO_B, "dependencies": {"a": ["b"]}}, {"b": 1}, {"a": 1}, LET_THROUGH),
    "allOf": ({"allOf": [INTEGER, {"minimum": 5}]}, 7, 3, ENFORCED),
    "allOf of one": ({"allOf": [INTEGER]}, 1, "a", ENFORCED),
    "allOf beside others": (
        {**OBJECT, **A_INTEGER, "required": ["a"], "allOf": [{"required": ["b"]}]},
        {"a": 1, "b": 1}, {"a": 1}, ENFORCED,
    ),
    "anyOf": ({"anyOf": [INTEGER, {"type": "null"}]}, 1, "a", ENFORCED),
    "anyOf beside others": ({**INTEGER, "anyOf": [{"minimum": 5}, {"maximum": -5}]}, 7, 0, ENFORCED),
    "oneOf": ({"oneOf": [INTEGER, {"type": "null"}]}, 1, "a", ENFORCED),
    "oneOf of what overlaps": ({"oneOf": [INTEGER, {**INTEGER, "minimum": 5}]}, 1, 7, LET_THROUGH),
    "not": ({"type": "string", "not": {"const": "a"}}, "b", "a", LET_THROUGH),
    "if": (
        {**NO_B, "if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]}},
        {"a": 2}, {"a": 1}, LET_THROUGH,
    ),
    "$ref": ({"$defs": {"i": INTEGER}, "type": "array", "items": {"$ref": "#/$defs/i"}}, [1], ["a"], ENFORCED),
    "$ref beside others": ({"$defs": {"i": INTEGER}, "$ref": "#/$defs/i", "minimum": 5}, 7, 3, ENFORCED),
    "$ref of itself": (
        {**OBJECT, "properties": {"a": {"$ref": "#"}}, "additionalProperties": False}, {"a": {}}, {"a": 1}, ENFORCED,
    ),
    "$anchor": ({"$defs": {"i": {"$anchor": "q", **INTEGER}}, "items": {"$ref": "#q"}}, [1], ["a"], ENFORCED),
    "$dynamicRef": (
        {"$defs": {"i": {"$dynamicAnchor": "q", **INTEGER}}, "type": "array", "items": {"$dynamicRef": "#q"}},
        [1], ["a"], LET_THROUGH,
    ),
    "contentEncoding": ({"type": "string", "contentEncoding": "base64"}, "YQ==", "?", LET_THROUGH),
    "annotations": (
        {"$schema": "http://json-schema.org/draft-07/schema#", "$id": "http://x/y", "$comment": "c", "title": "t",
         "description": "d", "default": 1, "examples": [1], "deprecated": True, "readOnly": True, **INTEGER},
        1, "a", ENFORCED,
    ),
    "false": ({**OBJECT, "properties": {"a": False}}, {}, {"a": 1}, ENFORCED),
}  # fmt: skip


class Bytes:
    """What the backends ask of a tokenizer."""

    is_fast = True
    eos_token_id = 256
    bos_token_id = None
    tokens = (*(bytes([byte]) for byte in range(256)), b"</s>")
    special_token_ids = (256,)

    def __len__(self) -> int:
        return len(self.tokens)

    def __call__(self, text: str | bytes) -> list[int]:
        return [*(text.encode() if isinstance(text, str) else text)]


@pytest.fixture(scope="module")
def backends() -> GuideBackends:
    return _backends("auto")


def _backends(name: str) -> GuideBackends:
    config = SimpleNamespace(
        structured_outputs_config=SimpleNamespace(backend=name),
        model_config=SimpleNamespace(get_vocab_size=lambda: 257, is_diffusion=False),
    )
    return GuideBackends(config, Bytes(), by_request=True)


@cache
def _compiler() -> Any:
    import xgrammar

    info = xgrammar.TokenizerInfo(
        [*Bytes.tokens], vocab_type=xgrammar.VocabType.RAW, vocab_size=257, stop_token_ids=[256]
    )
    return xgrammar.GrammarCompiler(info, max_threads=1)


def by_xgrammar(schema: str, text: str) -> bool:
    import xgrammar

    matcher = xgrammar.GrammarMatcher(_compiler().compile_json_schema(schema))
    return bool(matcher.accept_string(text)) and bool(matcher.accept_token(256))


def by_guidance(schema: str, text: str) -> bool:
    import llguidance
    from vllm.v1.structured_output.backend_guidance import serialize_guidance_grammar
    from vllm.v1.structured_output.backend_types import StructuredOutputOptions

    grammar = serialize_guidance_grammar(StructuredOutputOptions.JSON, schema)
    matcher = llguidance.LLMatcher(llguidance.LLTokenizer(llguidance.TokenizerWrapper(Bytes())), grammar, log_level=0)
    return bool(matcher.consume_tokens([*text.encode()])) and matcher.is_accepting()


TAKES: dict[str, Callable[[str, str], bool]] = {"xgrammar": by_xgrammar, "guidance": by_guidance}


def outcome(backends: GuideBackends, schema: Any, fits: Any, other: Any) -> str:
    from vllm.sampling_params import StructuredOutputsParams

    source = json.dumps(schema)
    try:
        made = backends.compiled("here", StructuredOutputsParams(json=source))
    except ParameterError as error:
        return REFUSED if error.message.startswith("here: it cannot be compiled: #/") else error.message
    takes = TAKES[str(made._backend)]
    # Between values xgrammar asks for blanks where it asks for more than one.
    if not any(takes(source, json.dumps(fits, separators=marks)) for marks in ((", ", ": "), (",", ":"))):
        return f"{made._backend} does not let it through"
    return LET_THROUGH if takes(source, json.dumps(other)) else ENFORCED


@each_row(("schema", "fits", "other", "expected"), KEYWORDS.values(), ids=KEYWORDS)
def test_a_keyword_is_enforced_or_refused(
    backends: GuideBackends, schema: Any, fits: Any, other: Any, expected: str
) -> None:
    assert outcome(backends, schema, fits, other) == expected


def test_what_is_refused_is_named_with_its_place(backends: GuideBackends) -> None:
    from vllm.sampling_params import StructuredOutputsParams

    schema = {"properties": {"a": {"anyOf": [{"type": "null"}, {"type": "array", "uniqueItems": True}]}}}
    with pytest.raises(ParameterError) as caught:
        backends.compiled("prompt.tools[0].parameters", StructuredOutputsParams(json=json.dumps(schema)))
    expected = "prompt.tools[0].parameters: it cannot be compiled: #/properties/a/anyOf/1/uniqueItems: "
    assert caught.value.message.startswith(expected)
    assert caught.value.param == "prompt.tools[0].parameters"


@pytest.mark.parametrize(("name", "expected"), [("xgrammar", "refused"), ("guidance", "enforced")])
def test_a_backend_of_the_users_choice_is_the_only_one(name: str, expected: str) -> None:
    from vllm.sampling_params import StructuredOutputsParams

    backends, asked = _backends(name), StructuredOutputsParams(json='{"type": "integer", "multipleOf": 5}')
    if expected == "refused":
        with pytest.raises(ParameterError, match=r"^here: it cannot be compiled: ."):
            backends.compiled("here", asked)
    else:
        assert backends.compiled("here", asked) is asked


@pytest.mark.parametrize("source", ['{"type": "nonsense"}', '{"type": "array", "uniqueItems": true}', ""])
def test_other_backends_are_left_to_vllm_but_for_what_is_empty(source: str) -> None:
    from vllm.sampling_params import StructuredOutputsParams

    backends, asked = _backends("outlines"), StructuredOutputsParams(json=source)
    if source:
        assert backends.compiled("here", asked) is asked
    else:
        with pytest.raises(ParameterError, match=r"^here: it cannot be compiled: it is empty$"):
            backends.compiled("here", asked)


PATTERNS = {"anyOf": [{"type": "string", "pattern": f"a{{{count}}}"} for count in range(1, 10)]}
SLOW: dict[str, tuple[dict[str, str], str]] = {
    "counts": ({"regex": "((a{1,100}){1,100}){1,100}"}, "guidance"),
    "repeated characters": ({"regex": "([a-z]{1,500}.){1,500}"}, "guidance"),
    "counts of rules": ({"grammar": 'root ::= x{1,99}\nx ::= y{1,99}\ny ::= "a"{1,99}'}, "guidance"),
    "counts in a schema": ({"json": '{"type": "string", "pattern": "((a*)*)*"}'}, "guidance"),
    "many items": ({"json": '{"type": "array", "maxItems": 1000000000, "items": {"multipleOf": 3}}'}, "xgrammar"),
    "patterns that it may intersect": ({"json": json.dumps(PATTERNS)}, "xgrammar"),
}
"""What takes one backend too long, and the one that is asked then."""


@each_row(("asked", "other"), SLOW.values(), ids=SLOW)
def test_a_backend_that_would_take_too_long_is_not_asked(
    backends: GuideBackends, asked: dict[str, Any], other: str
) -> None:
    from vllm.sampling_params import StructuredOutputsParams

    made = StructuredOutputsParams(**asked)
    assert backends.compiled("here", made)._backend == other
    (alone,) = {"xgrammar", "guidance"} - {other}
    with pytest.raises(ParameterError, match=r"^here: it(s| has) .*expected (a product of )?at most"):
        _backends(alone).compiled("here", made)
    with pytest.raises(ParameterError, match=r"^here: it(s| has) .*expected (a product of )?at most"):
        _backends("outlines").compiled("here", made)
