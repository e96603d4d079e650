"""Guided decoding on the transformers engine, by xgrammar where it is installed (it comes with vLLM).

Guide, or what a tool call must look like --compile--> grammar --Match--> which tokens may come next
"""

from __future__ import annotations

import importlib.util
import json
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..errors import ParameterError, UnsupportedError, one_line
from ..generation import StructuredOutput
from ..text.grammar_limits import check_grammar, check_regex, check_schema

__all__ = ["Guides", "Match"]

log = logging.getLogger(__name__)

PLACE = re.compile(r"^\[[\d:]+\] \S+:\d+: ")
"""Where in its own sources xgrammar found the fault."""


IGNORED = {
    "multipleOf": ("integer", "number"),
    **dict.fromkeys(("uniqueItems", "contains", "minContains", "maxContains"), ("array",)),
    **dict.fromkeys(("patternProperties", "propertyNames"), ("object",)),
}
"""What xgrammar passes over in a JSON schema, with the types that it would mean something for; vLLM refuses the same
(vllm/v1/structured_output/backend_xgrammar.py)."""


class Match:
    """One sequence's place in a grammar."""

    def __init__(self, matcher: Any, words: int, ended: Callable[[Sequence[int]], bool] | None) -> None:
        import xgrammar

        self._matcher = matcher
        self._bits = xgrammar.allocate_token_bitmask(1, words)
        self._words = words
        self._ended = ended
        self._reasoning: list[int] = []

    @property
    def complete(self) -> bool:
        """Whether nothing more may come."""
        return self._ended is None and bool(self._matcher.is_terminated())

    def mask(self, logits: Any) -> None:
        """Sets the logits of words that the grammar does not allow to minus infinity."""
        import torch

        if self._ended is not None or self.complete:
            return
        self._matcher.fill_next_token_bitmask(self._bits)
        allowed = ((self._bits[0][:, None] >> torch.arange(32)) & 1).bool().flatten()[: self._words]
        logits.masked_fill_(~allowed.to(logits.device), float("-inf"))

    def accept(self, token: int) -> None:
        """Goes on by a token; until the reasoning has ended, the grammar has not begun."""
        if self._ended is not None:
            self._reasoning.append(token)
            if self._ended(self._reasoning):
                self._ended = None
        elif not self.complete:
            self._matcher.accept_token(token)


class Guides:
    """Compiles guides for one tokenizer; raises UnsupportedError where xgrammar is not installed."""

    def __init__(self, tokenizer: Any, words: int, eos_ids: Sequence[int], *, any_whitespace: bool) -> None:
        self._tokenizer = tokenizer
        self._words = words
        self._eos_ids = sorted(eos_ids)
        self._any_whitespace = any_whitespace
        self._compiler: Any = None

    def compile(self, guide: StructuredOutput | None, forced: Any, tools_field: str) -> Callable[..., Match] | None:
        """What makes a Match for a sequence; None without a guide. Raises ParameterError for one that is broken.

        `forced` (vLLM's StructuredOutputsParams) is how a tool call that must be made has to look; it goes first.
        """
        field = tools_field if forced is not None or guide is None else guide.field
        if guide is None and forced is None:
            return None
        if importlib.util.find_spec("xgrammar") is None:
            raise UnsupportedError(f"{field}: guided decoding on the transformers engine needs xgrammar", field)
        import xgrammar

        grammar = self._grammar(guide, forced, field)
        return lambda ended=None: Match(xgrammar.GrammarMatcher(grammar), self._words, ended)

    def _grammar(self, guide: StructuredOutput | None, forced: Any, field: str) -> Any:
        compiler = self._ready()
        if forced is not None:
            if forced.structural_tag is not None:
                return _compiled(field, compiler.compile_structural_tag, forced.structural_tag)
            schema = forced.json if isinstance(forced.json, str) else json.dumps(forced.json)
            return _compiled(field, self._schema, schema, check_schema)
        assert guide is not None
        if guide.json_schema is not None:
            return _compiled(field, self._schema, guide.json_schema, check_schema)
        if guide.json_object:
            return _compiled(field, self._schema, '{"type": "object"}')
        if guide.regex is not None:
            return _compiled(field, compiler.compile_regex, guide.regex, check_regex)
        if guide.grammar is not None:
            lark = "::=" not in guide.grammar and hasattr(compiler, "compile_lark")
            compile_ = compiler.compile_lark if lark else compiler.compile_grammar
            return _compiled(field, compile_, guide.grammar, check_grammar)
        choices = " | ".join(json.dumps(choice) for choice in guide.choice)
        return _compiled(field, compiler.compile_grammar, f"root ::= {choices}")

    def _schema(self, schema: str) -> Any:
        for keyword in _ignored(json.loads(schema)):
            raise ValueError(f"{keyword} is not supported")
        return self._compiler.compile_json_schema(schema, any_whitespace=self._any_whitespace)

    def _ready(self) -> Any:
        import xgrammar

        if self._compiler is None:
            info = xgrammar.TokenizerInfo.from_huggingface(
                self._tokenizer, vocab_size=self._words, stop_token_ids=self._eos_ids
            )
            self._compiler = xgrammar.GrammarCompiler(info, max_threads=4)
        return self._compiler


def _ignored(schema: Any) -> Iterator[str]:
    """The keywords of a schema that would be passed over."""
    if isinstance(schema, dict):
        given = schema.get("type")
        kinds = set(given) if isinstance(given, list) else {given}
        yield from (keyword for keyword in schema if kinds.intersection(IGNORED.get(keyword, ())))
    for inner in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from _ignored(inner)


def _compiled(
    param: str, compile_: Callable[[str], Any], source: str, check: Callable[[str], None] | None = None
) -> Any:
    """Raises ParameterError where `source` cannot be compiled, or is refused by `check` (guide_limits.py)."""
    try:
        if check is not None and source.strip():
            check(source)
    except ValueError as error:
        raise ParameterError(f"{param}: {error}", param) from None
    try:
        if not source.strip():
            raise ValueError("it is empty")
        return compile_(source)
    except Exception as error:
        reason = PLACE.sub("", one_line(str(error)))[:300]
        raise ParameterError(f"{param}: it cannot be compiled: {reason}", param) from error
