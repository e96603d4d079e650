"""Guides of gpt-oss's answers: what xgrammar takes and refuses, in the model's own tokens, as vLLM's core asks it."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import pytest

from .....kit.api.errors import RequestError
from .....kit.api.types import Conversation, StructuredOutput
from .....kit.engines.gpt_oss import front, gpt_oss, guide_backends
from .....kit.rows import each_row

pytestmark = pytest.mark.engine

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
STRICT = {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA, "strict": True}}
TOOLS = ({"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}},
         {"type": "function", "function": {"name": "get_time"}})  # fmt: skip
LOOSE = {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA, "strict": False}}
USER = {"role": "user", "content": "Hi"}
JSON = StructuredOutput(json_schema=json.dumps(SCHEMA))
ENDS = {200002: "<|return|>", 200007: "<|end|>", 200012: "<|call|>"}

HM = "<|channel|>analysis<|message|>Hm. {}<|end|><|start|>assistant"
LOOK = "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant"
CALL = "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
TIME = "<|channel|>commentary to=functions.get_time <|constrain|>json<|message|>{}"
PARIS = '{"city": "Paris"}'
FINAL = "<|channel|>final<|message|>"


def asking(*tools: Any, **fields: Any) -> Conversation:
    return Conversation(messages=(USER,), tools=tools, **fields)


@cache
def compiler() -> Any:
    import xgrammar

    # As vLLM's backend makes it.
    info = xgrammar.TokenizerInfo.from_huggingface(front().get_tokenizer(), vocab_size=201_088)
    return xgrammar.GrammarCompiler(info)


def guided(conversation: Conversation, guide: StructuredOutput | None = None, backend: str = "auto") -> Any:
    """The guide in vLLM's form, compiled; None: there is none."""
    from .....kit.api.engine import structured_outputs

    renderer = gpt_oss()
    request = renderer.request(conversation)
    backends = guide_backends(backend)
    made, path = structured_outputs(guide, conversation, request, backends)
    return renderer.placed(conversation, request, made, path, backends)[0]


def taken(guide: Any, text: str) -> str | set[str]:
    """What may end an answer after a text; or the text up to the token that the guide refuses."""
    import xgrammar

    assert guide.structural_tag is not None
    matcher = xgrammar.GrammarMatcher(compiler().compile_structural_tag(guide.structural_tag))
    tokenizer = front().get_tokenizer()
    ids = tokenizer.encode(text, add_special_tokens=False)
    for place, token_id in enumerate(ids):
        if not matcher.accept_token(token_id):
            return str(tokenizer.decode(ids[:place]))
    mask = xgrammar.allocate_token_bitmask(1, 201_088)
    matcher.fill_next_token_bitmask(mask)
    words = mask[0].tolist()
    return {name for token_id, name in ENDS.items() if words[token_id // 32] >> token_id % 32 & 1}


CALLED, SAID, THINKS = {"<|return|>", "<|end|>", "<|call|>"}, {"<|return|>", "<|end|>"}, {"<|end|>"}
REQUIRED = asking(*TOOLS, tool_choice="required")
NAMED = asking(*TOOLS, tool_choice="auto", function="get_weather")
AUTO = asking(*TOOLS, tool_choice="auto")
PLAIN = Conversation(messages=(USER,))

CASES: dict[str, tuple[Conversation, StructuredOutput | None, str, str | set[str]]] = {
    "a call": (REQUIRED, None, CALL + PARIS, CALLED),
    "a call after reasoning": (REQUIRED, None, HM + CALL + PARIS, CALLED),
    "a call after a preamble": (REQUIRED, None, HM + LOOK + CALL + PARIS, CALLED),
    "a call, the recipient first": (
        REQUIRED, None, f"{HM} to=functions.get_weather<|channel|>commentary json<|message|>{PARIS}", CALLED
    ),
    "a call, and its end": (REQUIRED, None, CALL + PARIS + "<|call|>", {"<|return|>"}),
    "another tool": (REQUIRED, None, HM + TIME, CALLED),
    "no call, though one is required": (REQUIRED, None, HM + FINAL, HM + "<|channel|>"),
    "arguments that do not fit": (REQUIRED, None, CALL + '{"town": 1}', CALL + '{"'),
    "arguments that need not fit": (asking(LOOSE, tool_choice="required"), None, CALL + '{"town": 1}', CALLED),
    "reasoning that ends the answer": (
        REQUIRED, None, "<|channel|>analysis<|message|>Hm.<|return|>", "<|channel|>analysis<|message|>Hm."
    ),
    "reasoning goes on": (REQUIRED, None, "<|channel|>analysis<|message|>Hm.", THINKS),
    "a call by name": (NAMED, None, HM + CALL + PARIS, CALLED),
    "another one than that": (NAMED, None, HM + TIME, HM + "<|channel|>commentary to=functions.get"),
    "JSON": (PLAIN, JSON, HM + FINAL + PARIS, SAID),
    "JSON with the mark": (PLAIN, JSON, HM + "<|channel|>final <|constrain|>json<|message|>" + PARIS, SAID),
    "JSON without reasoning": (PLAIN, JSON, FINAL + PARIS, SAID),
    "JSON that does not fit": (PLAIN, JSON, HM + FINAL + '{"town": 1}', HM + FINAL + '{"'),
    "a call, without tools": (PLAIN, JSON, HM + CALL, HM + "<|channel|>"),
    "any object": (PLAIN, StructuredOutput(json_object=True), HM + FINAL + '{"a": [1]}', SAID),
    "a regular expression": (PLAIN, StructuredOutput(regex="[0-9]{2}"), FINAL + "42", SAID),
    "a choice": (PLAIN, StructuredOutput(choice=("yes", "no")), HM + FINAL + "no", SAID),
    "the one choice": (PLAIN, StructuredOutput(choice=("yes",)), HM + FINAL + "yes", SAID),
    "a grammar": (PLAIN, StructuredOutput(grammar='root ::= "a" "b"'), HM + FINAL + "ab", SAID),
    "a grammar in Lark's form": (PLAIN, StructuredOutput(grammar='start: "a" "b"'), HM + FINAL + "ab", SAID),
    "a tag": (
        PLAIN,
        StructuredOutput(
            structural_tag=json.dumps(
                {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": SCHEMA}}
            )
        ),
        HM + FINAL + PARIS,
        SAID,
    ),
    "a tag in the older form": (
        PLAIN,
        StructuredOutput(
            structural_tag=json.dumps(
                {
                    "type": "structural_tag",
                    "structures": [{"begin": "<a>", "schema": SCHEMA, "end": "</a>"}],
                    "triggers": ["<a>"],
                }
            )
        ),
        f"{HM}{FINAL}So: <a>{PARIS}</a> ",
        SAID,
    ),
    "JSON, where tools may be called": (AUTO, JSON, HM + FINAL + PARIS, SAID),
    "a call, where the answer is JSON": (AUTO, JSON, HM + LOOK + CALL + PARIS, CALLED),
    "text, where the answer is JSON": (AUTO, JSON, HM + FINAL + "So", HM + FINAL),
    "a strict tool": (asking(STRICT, tool_choice="auto"), None, CALL + '{"town": 1}', CALL + '{"'),
    "text beside a strict tool": (asking(STRICT, tool_choice="auto"), None, HM + FINAL + "So it is.", SAID),
}  # fmt: skip


@each_row("name", CASES)
def test_a_guide_holds_where_it_is_to_hold(name: str) -> None:
    conversation, guide, text, expected = CASES[name]
    found = taken(guided(conversation, guide), text)
    assert found == expected or (isinstance(found, set) and isinstance(expected, set) and found >= expected)


@pytest.mark.parametrize("conversation", [PLAIN, AUTO, asking(STRICT, tool_choice="none")], ids=str)
def test_no_guide_where_none_is_asked_for(conversation: Conversation) -> None:
    assert guided(conversation) is None


FIVES = {"type": "object", "properties": {"a": {"type": "integer", "multipleOf": 5}}}
SLOW = {"type": "object", "properties": {"a": {"type": "string", "pattern": "((a{1,100}){1,100}){1,100}"}}}
ONLY_XGRAMMAR = (
    "only xgrammar can guide it, which option.structured_outputs_config does not allow: "
    "expected the backend auto or xgrammar, got guidance"
)


def with_schema(schema: Any, **fields: Any) -> Conversation:
    function = {"name": "a", "parameters": schema, "strict": True}
    return asking({"type": "function", "function": function}, **fields)


def asked(schema: Any) -> StructuredOutput:
    return StructuredOutput(json_schema=json.dumps(schema))


REFUSED: dict[str, tuple[Conversation, StructuredOutput | None, str, str]] = {
    "what only guidance takes": (
        PLAIN, asked(FIVES), "auto",
        "sampling.structured_output: it cannot be compiled: #/properties/a/multipleOf: ",
    ),
    "what only guidance takes, beside tools": (
        AUTO, asked(FIVES), "auto",
        "sampling.structured_output: it cannot be compiled: #/properties/a/multipleOf: ",
    ),
    "a slow schema": (PLAIN, asked(SLOW), "auto", "sampling.structured_output: "),
    "a strict tool's slow schema": (
        with_schema(SLOW, tool_choice="auto"), None, "auto", "prompt.tools[0].parameters: "
    ),
    "a slow schema of a call by name": (
        with_schema(SLOW, tool_choice="auto", function="a"), None, "auto", "prompt.tools[0].parameters: "
    ),
    "guidance alone": (PLAIN, JSON, "guidance", f"sampling.structured_output: {ONLY_XGRAMMAR}"),
    "guidance alone, for a call": (REQUIRED, None, "guidance", f"prompt.tools: {ONLY_XGRAMMAR}"),
}  # fmt: skip


@each_row("name", REFUSED)
def test_what_xgrammar_cannot_guide_is_refused(name: str) -> None:
    conversation, guide, backend, message = REFUSED[name]
    with pytest.raises(RequestError, match=f"^{re.escape(message)}"):
        guided(conversation, guide, backend)


@pytest.mark.parametrize("grammar", ['root ::= "a" "b"', 'start: "a" "b"'], ids=["EBNF", "Lark"])
def test_a_grammar_where_the_options_name_xgrammar(grammar: str) -> None:
    made = guided(PLAIN, StructuredOutput(grammar=grammar), "xgrammar")
    assert taken(made, HM + FINAL + "ab") == {"<|return|>", "<|end|>"}
