"""Structured output on the transformers engine, by xgrammar's logits processor for transformers.

xgrammar comes with vLLM; where it is not installed, structured output is refused.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..errors import ParameterError, UnsupportedError, one_line
from ..generation import StructuredOutput
from ..text.grammar_limits import check_grammar, check_regex, check_schema

__all__ = ["Grammars"]

PLACE = re.compile(r"^\[[\d:]+\] \S+:\d+: ")
"""Where in its own sources xgrammar found the fault."""

IGNORED = {
    "multipleOf": ("integer", "number"),
    **dict.fromkeys(("uniqueItems", "contains", "minContains", "maxContains"), ("array",)),
    **dict.fromkeys(("patternProperties", "propertyNames"), ("object",)),
}
"""What xgrammar passes over in a JSON schema, with the types that it would mean something for; vLLM refuses the same
(vllm/v1/structured_output/backend_xgrammar.py)."""


class Grammars:
    """Compiles what texts must conform to, for one tokenizer and a vocabulary of so many `words`."""

    def __init__(self, tokenizer: Any, words: int, eos_ids: Sequence[int], *, any_whitespace: bool) -> None:
        self._given = tokenizer, words, eos_ids
        self._any_whitespace = any_whitespace
        self._compiler: Any = None

    def processor(self, wanted: StructuredOutput) -> Callable[[], Any]:
        """What makes a sequence's logits processor; raises ParameterError for a grammar that is broken."""
        field = wanted.field
        if importlib.util.find_spec("xgrammar") is None:
            raise UnsupportedError(f"{field}: structured output on the transformers engine requires xgrammar", field)
        import xgrammar
        from xgrammar.contrib.hf import LogitsProcessor

        if self._compiler is None:
            tokenizer, words, eos_ids = self._given
            info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=words, stop_token_ids=[*eos_ids])
            self._compiler = xgrammar.GrammarCompiler(info, max_threads=4)
        source, check, compile_ = self._read(wanted)
        try:
            if source.strip():
                check(source)
        except ValueError as error:
            raise ParameterError(f"{field}: {error}", field) from None
        try:
            if not source.strip():
                raise ValueError("it is empty")
            compiled = compile_(source)
        except Exception as error:
            reason = PLACE.sub("", one_line(str(error)))[:300]
            raise ParameterError(f"{field}: it cannot be compiled: {reason}", field) from error
        return lambda: LogitsProcessor(compiled)

    def _read(self, wanted: StructuredOutput) -> tuple[str, Callable[[str], None], Callable[[str], Any]]:
        """What is asked for, what limits it, and what compiles it."""
        compiler = self._compiler
        if wanted.json_schema is not None:
            return wanted.json_schema, check_schema, self._schema
        if wanted.json_object:
            return '{"type": "object"}', check_schema, self._schema
        if wanted.regex is not None:
            return wanted.regex, check_regex, compiler.compile_regex
        if wanted.grammar is None:
            choices = " | ".join(map(json.dumps, wanted.choice))
            return f"root ::= {choices}", lambda _: None, compiler.compile_grammar
        lark = "::=" not in wanted.grammar and hasattr(compiler, "compile_lark")
        return wanted.grammar, check_grammar, compiler.compile_lark if lark else compiler.compile_grammar

    def _schema(self, schema: str) -> Any:
        for keyword in _ignored(json.loads(schema)):
            raise ValueError(f"{keyword} is not supported")
        return self._compiler.compile_json_schema(schema, any_whitespace=self._any_whitespace)


def _ignored(schema: Any) -> Iterator[str]:
    """The keywords of a schema that would be passed over."""
    if isinstance(schema, dict):
        given = schema.get("type")
        kinds = set(given) if isinstance(given, list) else {given}
        yield from (keyword for keyword in schema if kinds.intersection(IGNORED.get(keyword, ())))
    for inner in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from _ignored(inner)
