"""Texts, and pairs of a query and a document, as token ids: cut to what a request allows, and put together.

    with a template      template(query, document)            only the document is cut, or a part of the template went
    separated            [CLS] query [SEP] document [SEP]     the longer one is cut first
    neither              query document                       cut as a whole

What is cut are tokens, not text, so that what is left is what it was. The tokenizer is a copy: what others do with
theirs, on other threads, such as to let it cut by itself, does not touch it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import ContextError, Fault, OptionError, UnsupportedError
from ...generation import Scoring
from ...text.prompt_limits import check_text, first, last

__all__ = ["ARGUMENTS", "PairTokenizer", "Render", "Tokens", "shares"]

Render = Callable[[str, str, Mapping[str, Any]], str]
"""Makes the text of a prompt, of a query, a document and a template's variables; raises RequestError."""

ARGUMENTS = "scoring.template_arguments"
"""The path of a template's variables."""
TRIES = 4
"""How often a document is cut until its prompt fits: at a new end other tokens may come."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """A prompt."""

    ids: list[int]
    second: int | None = None
    """Where tokens of type 1 begin; None: the model knows no types."""


class PairTokenizer:
    """Of one model. `render` is its template, if it has one for pairs."""

    def __init__(
        self,
        tokenizer: Any,
        context: int,
        render: Render | None,
        *,
        variables: str = "",
        separates: bool,
        lower_case: bool = False,
    ) -> None:
        """`context` is in tokens; `variables` the template's text, which has the names of those that it knows."""
        from tokenizers import Tokenizer

        fast = getattr(tokenizer, "backend_tokenizer", None)
        if fast is None:
            name = type(tokenizer).__name__
            raise OptionError.of("tokenizer", expected="one with a tokenizer.json to score with", given=name)
        self._tokenizer: Any = Tokenizer.from_str(fast.to_str())
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._context = context
        self._render = render
        self._variables = variables
        self._separates = separates
        self._lower_case = lower_case
        self.typed = "token_type_ids" in tokenizer.model_input_names
        """Whether the model is told which text of a pair a token belongs to."""

    @property
    def runs_together(self) -> bool:
        """Whether nothing parts a query from its document."""
        if self._render is not None:
            return False
        special = self._tokenizer.num_special_tokens_to_add
        return not self._separates or special(True) <= special(False)

    def single(self, text: str, scoring: Scoring, special: bool) -> Tokens:
        """A text by itself."""
        text = text.lower() if self._lower_case else text
        text = self._part(text, scoring, "prompt")
        encoding = self._encode(text)
        if (longest := self._longest(scoring)) is not None:
            self._cut(encoding, longest - (self._special(False) if special else 0), scoring)
        return Tokens([*self._tokenizer.post_process(encoding, None, special).ids])

    def ids(self, given: list[int], scoring: Scoring) -> Tokens:
        """Token ids, with whatever special tokens are among them."""
        longest = self._longest(scoring)
        if longest is None or len(given) <= longest:
            return Tokens(given)
        return Tokens(given[:longest] if scoring.cut == "right" else given[-longest:])

    def pair(self, query: str, document: str, scoring: Scoring) -> Tokens:
        """A query and a document; raises RequestError."""
        query = self._limited(self._part(query, scoring, "prompt"), scoring.query_tokens, scoring)
        document = self._limited(self._part(document, scoring, "scoring.document"), scoring.document_tokens, scoring)
        if self._render is not None:
            return self._by_template(self._render, query, document, scoring)
        if scoring.template_arguments:
            path = f"{ARGUMENTS}.{next(iter(scoring.template_arguments))}"
            raise UnsupportedError.because(Fault(path, "this model makes its prompts without a template"))
        if not self._separates:
            return self.single(query + document, scoring, special=True)
        return self._separated(query, document, scoring)

    def _separated(self, query: str, document: str, scoring: Scoring) -> Tokens:
        one, other = self._encode(query), self._encode(document)
        if (longest := self._longest(scoring)) is not None:
            kept = shares(len(one.ids), len(other.ids), longest - self._special(True))
            self._cut(one, kept[0], scoring)
            self._cut(other, kept[1], scoring)
        whole = self._tokenizer.post_process(one, other, True)
        ids = [*whole.ids]
        return Tokens(ids, _second(whole.type_ids) if self.typed else None)

    def _by_template(self, render: Render, query: str, document: str, scoring: Scoring) -> Tokens:
        if "instruction" in scoring.template_arguments and "instruction" not in self._variables:
            path = f"{ARGUMENTS}.instruction"
            raise UnsupportedError.because(Fault(path, "this model's template has none"))
        longest = self._longest(scoring)
        ids: list[int] = []
        for _ in range(TRIES):
            ids = [*self._tokenizer.encode(render(query, document, scoring.template_arguments)).ids]
            over = 0 if longest is None else len(ids) - longest
            if over <= 0:
                return Tokens(ids)
            left = len(self._encode(document).ids) - over
            if left < 1:
                break
            document = self._limited(document, left, scoring)
        raise ContextError(
            f"prompt: expected a query that leaves room for a document in the {longest} tokens of a prompt, got "
            f"a prompt of {len(ids)} tokens",
            "prompt",
        )

    def _longest(self, scoring: Scoring) -> int | None:
        """How many tokens a prompt may have that is cut; None: it is not."""
        if scoring.truncate is False:
            return None
        return self._context if scoring.truncate is True else min(scoring.truncate, self._context)

    def _part(self, text: str, scoring: Scoring, path: str, most: int | None = None) -> str:
        """What is to be tokenized of a text of which `most` tokens are used; raises ContextError for one that is far
        too long and is not cut.
        """
        if most is None and scoring.truncate is False:
            check_text(path, text, self._context, self._count, self._context)
            return text
        return (first if scoring.cut == "right" else last)(text, most or self._context, self._count)

    def _limited(self, text: str, most: int | None, scoring: Scoring) -> str:
        """The part of a text that its first tokens, or its last ones, stand for."""
        if most is None:
            return text
        offsets = self._encode(text).offsets
        if len(offsets) <= most:
            return text
        return text[: offsets[most - 1][1]] if scoring.cut == "right" else text[offsets[-most][0] :]

    def _cut(self, encoding: Any, room: int, scoring: Scoring) -> None:
        if len(encoding.ids) > room:
            encoding.truncate(max(0, room), direction=scoring.cut)

    def _encode(self, text: str) -> Any:
        return self._tokenizer.encode(text, add_special_tokens=False)

    def _count(self, text: str) -> int:
        return len(self._encode(text).ids)

    def _special(self, pair: bool) -> int:
        return int(self._tokenizer.num_special_tokens_to_add(pair))


def shares(one: int, other: int, room: int) -> tuple[int, int]:
    """How many tokens of each text stay where both have `room`: the longer one is cut first (`longest_first` of Hugging
    Face's tokenizers).
    """
    if one + other <= room:
        return one, other
    small = min(one, other, room // 2)
    return (small, room - small) if one <= other else (room - small, small)


def _second(types: list[int]) -> int:
    """Where type 1 begins: vLLM is told the one place, as these are all 0, then all 1."""
    second = types.index(1) if 1 in types else len(types)
    if any(kind != (place >= second) for place, kind in enumerate(types)):
        raise ValueError("vLLM takes types of tokens that are 0 first and then 1, the tokenizer gives others")
    return second
