"""Guided decoding in the process of vLLM's core, put right there.

    make_client --guiding(executor)--> the core makes its executor: mend --> each request is guided by its own backend

What vLLM's StructuredOutputManager does (0.26.0, 0.28.0, 0.32.0): it makes the backend that its first guide names, and
compiles all later ones by it, whatever they name. So a schema that only guidance enforces is let through by xgrammar
without a word, or a structural tag of xgrammar's fails. And a guide begins either with the first token or behind the
end of the reasoning, though a model may think or not.

An executor is the one thing of ours that the core's process loads before its guides; of what its workers do wrong
allowed_ids.py is called in them by it.
"""

from __future__ import annotations

import copyreg
from functools import cache
from typing import Any

from ..library.parts import part
from ..library.version import mixes_rows
from .allowed_ids import keep_rows

__all__ = ["MARKS", "guiding", "maybe_after", "mend"]

MARKS = "lmi_reasoning_marks"
"""The name in `SamplingParams.extra_args`, which no client's field reaches, of the two tokens between which a model
may think before it is guided."""

FULL = -1
"""A word of a mask that allows all of its tokens."""


@cache
def guiding(base: type[Any]) -> type[Any]:
    """vLLM's executor `base`, made to mend the guides of the core that makes it. It can be pickled."""
    meta = type(f"Guiding{type(base).__name__}", (type(base),), {})

    def begin(self: Any, *given: Any, **named: Any) -> None:
        mend()
        base.__init__(self, *given, **named)
        # Ray's workers, on other hosts, may lack this package.
        if mixes_rows() and not (self.uses_ray or self.vllm_config.use_v2_model_runner):
            self.collective_rpc(keep_rows)

    made: type[Any] = meta(base.__name__, (base,), {"__init__": begin, "__module__": base.__module__})
    # A class is pickled by its name, unless its own class has another way.
    copyreg.pickle(meta, lambda _: (guiding, (base,)))
    return made


@cache
def mend() -> None:
    """To be called once, before the first guide."""
    manager = part("vllm.v1.structured_output:StructuredOutputManager")
    begin = manager.grammar_init

    def grammar_init(self: Any, request: Any) -> None:
        guide = request.structured_output_request and request.sampling_params.structured_outputs
        if not guide:
            return
        views: dict[str, _View] = vars(self).setdefault("lmi_views", {})
        if guide._backend not in views:
            views[guide._backend] = _View(self)
        view = views[guide._backend]
        begin(view, request)
        if self.backend is None:
            # What masks are allocated by, which are as wide for each (backends.py).
            self.backend = view.backend

    manager.grammar_init = grammar_init


class _View:
    """A StructuredOutputManager as it is to one of the backends."""

    backend: Any = None

    def __init__(self, manager: Any) -> None:
        self._manager = manager

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manager, name)

    def _create_grammar(self, request: Any) -> Any:
        """In a thread of the manager's."""
        grammar = type(self._manager)._create_grammar(self, request)
        marks = (request.sampling_params.extra_args or {}).get(MARKS)
        return grammar if marks is None else maybe_after(grammar, *marks)


def maybe_after(grammar: Any, start: int, end: int) -> Any:
    """`grammar`, which begins with the first token, or behind `end` where that is `start`."""
    return _class()(grammar, start, end)


@cache
def _class() -> Any:
    base: Any = part("vllm.v1.structured_output.backend_types:StructuredOutputGrammar")

    class MaybeAfter(base):  # type: ignore[misc]
        """Counts what is no concern of the grammar's: the reasoning, with its marks."""

        def __init__(self, grammar: Any, start: int, end: int) -> None:
            self._grammar = grammar
            self._start, self._end = start, end
            self.reset()

        def reset(self) -> None:
            self._grammar.reset()
            self._thought = 0
            """Tokens of the reasoning."""
            self._open = False
            self._guided = 0
            """Tokens that the grammar has taken."""

        def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
            thought = self._reasoning(tokens)
            if thought:
                self._thought += thought
                self._open = tokens[thought - 1] != self._end
            rest = tokens[thought:]
            if not rest:
                return True
            if not self._grammar.accept_tokens(request_id, rest):
                return False
            self._guided += len(rest)
            return True

        def validate_tokens(self, tokens: list[int]) -> list[int]:
            thought = self._reasoning(tokens)
            rest = tokens[thought:]
            return tokens[:thought] + (self._grammar.validate_tokens(rest) if rest else [])

        def rollback(self, num_tokens: int) -> None:
            guided = min(num_tokens, self._guided)
            if guided:
                self._grammar.rollback(guided)
                self._guided -= guided
            if thought := num_tokens - guided:
                self._thought -= thought
                self._open = self._thought > 0

        def fill_bitmask(self, bitmask: Any, batch_index: int) -> None:
            if self._open:
                bitmask[batch_index].fill_(FULL)
                return
            self._grammar.fill_bitmask(bitmask, batch_index)
            if not self._thought and not self._guided:
                word, bit = divmod(self._start, 32)
                # The words are signed.
                bitmask[batch_index, word] |= (1 << bit) - (1 << 32 if bit == 31 else 0)

        def is_terminated(self) -> bool:
            return not self._open and bool(self._guided) and bool(self._grammar.is_terminated())

        def _reasoning(self, tokens: list[int]) -> int:
            """How many of the next tokens belong to the reasoning."""
            if self._guided or (self._thought and not self._open):
                return 0
            if not self._open and tokens[:1] != [self._start]:
                return 0
            return tokens.index(self._end) + 1 if self._end in tokens else len(tokens)

    return MaybeAfter
