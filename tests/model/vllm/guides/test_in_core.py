"""What the core's process does for guides: a backend for each request, and reasoning that may come before."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from lmi.model.vllm.guides.in_core import guiding, maybe_after

from ....kit.api.types import Generation, Sampling, StructuredOutput
from ....kit.engines.backends import deltas, run

pytestmark = pytest.mark.engine

START, END, A, B, C = 31, 40, 1, 2, 3
"""Tokens: of the marks, and of a grammar that takes A, B and C in this order. START's bit is the sign of its word."""


class InOrder:
    """A grammar of tokens."""

    def __init__(self, *tokens: int) -> None:
        self._tokens = tokens
        self._at = 0

    def reset(self) -> None:
        self._at = 0

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        fits = 0
        while fits < len(tokens) and self._tokens[self._at + fits : self._at + fits + 1] == (tokens[fits],):
            fits += 1
        return tokens[:fits]

    def accept_tokens(self, _: str, tokens: list[int]) -> bool:
        if len(self.validate_tokens(tokens)) < len(tokens):
            return False
        self._at += len(tokens)
        return True

    def rollback(self, count: int) -> None:
        self._at -= count
        assert self._at >= 0

    def is_terminated(self) -> bool:
        return self._at == len(self._tokens)

    def fill_bitmask(self, mask: Any, row: int) -> None:
        mask[row].fill_(0)
        if not self.is_terminated():
            mask[row, 0] = 1 << self._tokens[self._at]


def made() -> Any:
    return maybe_after(InOrder(A, B, C), START, END)


def allowed(grammar: Any) -> set[int]:
    import torch

    mask = torch.zeros((2, 2), dtype=torch.int32)
    grammar.fill_bitmask(mask, 1)
    assert not mask[0].any()
    words = mask[1].tolist()
    return {token for token in range(64) if words[token // 32] >> token % 32 & 1}


EVERYTHING = set(range(64))
TAKEN: dict[str, tuple[list[int], set[int], bool]] = {
    "nothing": ([], {START, A}, False),
    "the first": ([A], {B}, False),
    "all": ([A, B, C], set(), True),
    "the start": ([START], EVERYTHING, False),
    "some reasoning": ([START, C, A, START], EVERYTHING, False),
    "its end": ([START, C, END], {A}, False),
    "what follows it": ([START, C, END, A, B], {C}, False),
    "all that follows it": ([START, END, A, B, C], set(), True),
}


@pytest.mark.parametrize(("tokens", "follow", "ended"), TAKEN.values(), ids=TAKEN)
@pytest.mark.parametrize("at_once", [False, True])
def test_what_a_grammar_takes_behind_reasoning(tokens: list[int], follow: set[int], ended: bool, at_once: bool) -> None:
    """Token by token, or several that were drafted."""
    grammar = made()
    for part in [tokens] if at_once else [[token] for token in tokens]:
        assert grammar.validate_tokens(part) == part
        assert grammar.accept_tokens("r", part)
    assert (allowed(grammar), grammar.is_terminated()) == (follow, ended)


@pytest.mark.parametrize(("tokens", "follow", "ended"), TAKEN.values(), ids=TAKEN)
def test_what_was_drafted_is_taken_back(tokens: list[int], follow: set[int], ended: bool) -> None:
    for count in range(len(tokens) + 1):
        grammar, kept = made(), made()
        assert grammar.accept_tokens("r", tokens)
        grammar.rollback(count)
        assert kept.accept_tokens("r", tokens[: len(tokens) - count])
        assert allowed(grammar) == allowed(kept)
        assert grammar.accept_tokens("r", tokens[len(tokens) - count :])
        assert (allowed(grammar), grammar.is_terminated()) == (follow, ended)


REFUSED: dict[str, tuple[list[int], list[int]]] = {
    "at first": ([B], []),
    "behind the first": ([A, START], [A]),
    "behind reasoning": ([START, B, END, START], [START, B, END]),
}


@pytest.mark.parametrize(("tokens", "valid"), REFUSED.values(), ids=REFUSED)
def test_what_it_does_not_take(tokens: list[int], valid: list[int]) -> None:
    grammar = made()
    assert grammar.validate_tokens(tokens) == valid
    assert not grammar.accept_tokens("r", tokens)


def test_an_executor_can_be_sent_to_the_core() -> None:
    """By vLLM's own name, under which other classes may know it."""
    from vllm.v1.executor.uniproc_executor import UniProcExecutor

    sent = guiding(UniProcExecutor)
    assert pickle.loads(pickle.dumps(sent)) is sent
    assert issubclass(sent, UniProcExecutor)
    assert sent.__name__ == UniProcExecutor.__name__


@pytest.fixture
def backend(plain_backend: Any) -> Any:
    return plain_backend


def guided(guide: dict[str, Any], **sampling: Any) -> Generation:
    chosen = Sampling(temperature=1.0, seed=5, max_tokens=40, structured_output=StructuredOutput(**guide), **sampling)
    return Generation(request_id="r", prompt="Hi", sampling=chosen, stream=False)


FIVES = {"json_schema": json.dumps({"type": "array", "items": {"multipleOf": 5, "type": "integer"}, "maxItems": 2})}
NAMES = {
    "json_schema": json.dumps(
        {
            "type": "object",
            "patternProperties": {"^[ab]$": {"enum": [1, 2]}},
            "additionalProperties": False,
            "maxProperties": 1,
        }
    )
}
TAG = {
    "structural_tag": json.dumps(
        {
            "type": "structural_tag",
            "format": {
                "type": "or",
                "elements": [
                    {"type": "tag", "begin": "<a>", "content": {"type": "regex", "pattern": "[xy]"}, "end": "</a>"},
                    {"type": "json_schema", "json_schema": {"enum": [1, 2]}},
                ],
            },
        }
    )
}
FORMER = {
    "structural_tag": json.dumps(
        {
            "type": "structural_tag",
            "structures": [{"begin": "<a>", "schema": {"enum": [1]}, "end": "</a>"}],
            "triggers": ["<a>"],
        }
    )
}
LETTERS = {"regex": "[xy]{3}"}
KINDS: dict[str, tuple[dict[str, Any], str, Any]] = {
    "by xgrammar": (LETTERS, "xgrammar", lambda text: len(text) == 3 and set(text) <= {"x", "y"}),
    "what only guidance enforces": (FIVES, "guidance", lambda text: all(one % 5 == 0 for one in json.loads(text))),
    "and once more": (NAMES, "guidance", lambda text: {*json.loads(text)} <= {"a", "b"}),
    "a tag's formats": (TAG, "xgrammar", lambda text: text in ("<a>x</a>", "<a>y</a>", "1", "2")),
    "a tag of the former form": (FORMER, "xgrammar", lambda text: "<a>" not in text or "<a>1</a>" in text),
}


ENDED = ("eos", "stop")
"""How an answer ends that the model has ended."""


def test_requests_are_guided_by_their_own_backends_at_once(backend: Any) -> None:
    """vLLM's core has the backend of the first one for all. Those of several run in the same steps."""
    wrong: dict[str, str] = {}
    asked = [guided(guide) for _ in range(2) for guide, _, _ in KINDS.values()]
    names = [backend.prepare(1, one).requests[0].sampling_params.structured_outputs._backend for one in asked]
    assert names == [name for _ in range(2) for _, name, _ in KINDS.values()]
    answers = run(backend, *asked)
    for (what, (_, _, fits)), events in zip([*KINDS.items(), *KINDS.items()], answers, strict=True):
        last = deltas(events)
        text = "".join(delta.text for delta in last)
        finish = last[-1].finish
        assert finish is not None
        if finish.reason in ENDED and not fits(text):
            wrong[what] = text
    assert wrong == {}
    ended = [deltas(events)[-1].finish for events in answers]
    assert sum(one is not None and one.reason in ENDED for one in ended) >= len(KINDS)
