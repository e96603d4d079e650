"""Cohere's answers, read by one filter.

vLLM's parser --by_one_filter--> a parser of reasoning, text and calls --begun--> one that knows how an answer begins

Up to 0.28 vLLM puts together a filter of cohere_melody for the reasoning and another for the calls: each sees a part of
the marks, so text keeps its own (`<|START_RESPONSE|>`), and calls lose their names. Either of them reads all of an
answer by itself, which is what vLLM's parser of later versions does (vllm/parser/cohere_command.py of 0.32).

What comes before any mark a filter takes for text (cohere_command3) or for reasoning (cohere_command4), whatever the
prompt ends with. A guided answer has no marks, and would be reasoning.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

__all__ = ["COHERE", "begun", "by_one_filter"]

COHERE = frozenset({"cohere_command3", "cohere_command4"})
"""vLLM's names of the parsers. They are asked of every answer: text has marks, too."""
START, END = "<|START_THINKING|>", "<|END_THINKING|>"


def by_one_filter(made: Any) -> Any:
    """`made`, or what stands in its place where it has filters of cohere_melody."""
    source = made.tool_parser or made.reasoning_parser
    return _OneFilter(made, source.melody_streaming) if hasattr(source, "melody_streaming") else made


def begun(made: Any, *, thinks: bool) -> Any:
    """`made`, a parser of one of COHERE, told whether the prompt has begun the reasoning of the answer."""
    return _Begun(made, START if thinks else END)


class _Begun:
    """One that reads a mark before the answer."""

    def __init__(self, made: Any, mark: str) -> None:
        self._made = made
        self._mark = mark

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made, name)

    def parse(self, text: str, request: Any, **more: Any) -> Any:
        return self._made.parse(self._mark + text, request, **more)

    def parse_delta(self, text: str, *given: Any, finished: bool) -> Any:
        text, self._mark = self._mark + text, ""
        return self._made.parse_delta(text, *given, finished=finished)


class _OneFilter:
    """Has what the handler uses of vLLM's Parser; reads one answer, whole or as a stream."""

    def __init__(self, made: Any, melody: Any) -> None:
        self._made = made
        self._melody = melody
        self.tool_parser = made.tool_parser
        self.reasoning_parser = made.reasoning_parser

    def adjust_request(self, request: Any) -> Any:
        """vLLM's own; the marks stay in the text, with the parser of the reasoning alone, too."""
        request = self._made.adjust_request(request)
        request.skip_special_tokens = False
        return request

    def count_reasoning_tokens(self, ids: Sequence[int]) -> int:
        """How many tokens stand between the marks of reasoning."""
        parser = self.reasoning_parser
        if parser is None:
            return 0
        start, end, thinks, count = parser.start_token_id, parser.end_token_id, False, 0
        for token_id in ids:
            if token_id in (start, end):
                thinks = token_id == start
            else:
                count += thinks
        return count

    def parse(self, text: str, request: Any, **_: Any) -> tuple[str | None, str | None, Sequence[Any]]:
        """Reasoning, text and calls of all of an answer."""
        result = self._melody.process_full_text(text)
        return result.reasoning, result.content, result.tool_calls if self._may_call(request) else ()

    def parse_delta(self, text: str, _ids: list[int], request: Any, _prompt: Any, *, finished: bool) -> Any:
        """What new text of a stream brings, as vLLM's DeltaMessage."""
        results = [self._melody.write_decoded(text)]
        if finished:
            results.append(self._melody.flush_partials())
        return SimpleNamespace(
            reasoning="".join(result.reasoning or "" for result in results),
            content="".join(result.content or "" for result in results),
            tool_calls=[
                SimpleNamespace(
                    index=call.index,
                    id=call.id or None,
                    function=SimpleNamespace(name=call.name or None, arguments=call.arguments),
                )
                for result in results
                for call in (result.tool_calls if self._may_call(request) else ())
            ],
        )

    def _may_call(self, request: Any) -> bool:
        return self.tool_parser is not None and request.tool_choice != "none"
