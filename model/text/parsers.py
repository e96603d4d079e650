"""An answer to a conversation, split into reasoning, text and tool calls by vLLM's parsers.

    token, token, ... --Splitter.feed--> reasoning, text, calls

The parsers see one token at a time, streamed or not and however many tokens came in a step: what several tokens at
once do to them is theirs to get wrong, and a whole answer could differ from the streamed one.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from ..events import CallDelta, Delta, Token

__all__ = ["Part", "Reasoning", "Splitter", "split"]

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Part:
    """What some tokens brought."""

    text: str = ""
    reasoning: str = ""
    calls: list[CallDelta] = field(default_factory=list[CallDelta])


class Reasoning:
    """Whether the answer to a prompt begins with reasoning.

    vLLM's parsers for models that think between two tokens take an answer for reasoning until the second token comes,
    and so all of an answer that has none. But a model that thinks has the first token in its prompt or writes it first.
    """

    def __init__(self, start: int | None, end: int | None, prompt_ids: list[int]) -> None:
        self.ids = prompt_ids
        self._start = start
        self._end = end
        self.known = start is not None and end is not None
        """Whether this is known at all: some models mark their reasoning in other ways."""

    @property
    def open(self) -> bool:
        """Whether the prompt ends within the reasoning."""
        for token_id in reversed(self.ids):
            if token_id in (self._start, self._end):
                return token_id == self._start
        return False

    def may_begin_with(self, ids: list[int]) -> bool:
        """Whether an answer that begins with `ids` may begin with reasoning."""
        return not self.known or self.open or ids[:1] == [self._start]


class Splitter:
    """Splits one sequence's answer as its tokens come."""

    def __init__(
        self, thinking: Any, plain: Any, request: Any, reasoning: Reasoning, *, one_call: bool, show_reasoning: bool
    ) -> None:
        self._thinking = thinking
        self._plain = plain
        self._parser: Any = None
        self._begun = False
        self._request = request
        self._prompt = reasoning
        self._one_call = one_call
        self._show_reasoning = show_reasoning
        self._named: set[int] = set()
        self._ids: list[int] = []
        self._texts: list[str] = []
        self._told = False
        """Whether the parser has made anything of them."""

    def feed(self, tokens: Iterable[Token], *, ended: bool) -> Part:
        """Takes the next tokens; with `ended` they are the last, and nothing is held back any more."""
        part = Part()
        tokens = list(tokens)
        for position, token in enumerate(tokens, 1):
            self._take(part, token.text, [token.id], ended and position == len(tokens))
        if ended and not tokens:
            self._take(part, "", [], True)
        if ended and not self._told:
            self._take_whole(part)
        return part

    @property
    def reasoning_tokens(self) -> int:
        """How many of the tokens so far belong to the reasoning."""
        parser = getattr(self._parser, "reasoning_parser", None)
        return int(parser.count_reasoning_tokens(self._ids)) if parser is not None else 0

    def _take(self, part: Part, text: str, ids: list[int], last: bool) -> None:
        if not self._begun:
            self._begun = True
            self._parser = self._thinking if self._prompt.may_begin_with(ids) else self._plain
        self._ids += ids
        if self._parser is None:
            part.text += text
            self._told = True
            return
        message = self._parser.parse_delta(text, ids, self._request, self._prompt.ids, finished=last)
        if not self._told:
            self._texts.append(text)
        if message is None:
            return
        self._told = self._told or bool(message.content or message.reasoning or message.tool_calls)
        part.text += message.content or ""
        if self._show_reasoning:
            part.reasoning += message.reasoning or ""
        part.calls += [new for call in message.tool_calls or () if (new := self._call(call)) is not None]

    def _take_whole(self, part: Part) -> None:
        """For parsers that make nothing of single tokens (vLLM's phi4_mini_json): an answer is parsed at its end."""
        whole = "".join(self._texts)
        if self._parser is None or not whole:
            return
        reasoning, text, calls = None, whole, None
        try:
            reasoning, text, calls = self._parser.parse(whole, self._request, enable_auto_tools=True)
        except Exception:
            # A call that was cut off, say.
            log.debug("a tool call or reasoning parser failed: the response is treated as plain text", exc_info=True)
        part.text += text or ""
        if self._show_reasoning:
            part.reasoning += reasoning or ""
        for index, call in enumerate(calls or ()):
            if index == 0 or not self._one_call:
                call_id = getattr(call, "id", None) or f"chatcmpl-tool-{uuid.uuid4().hex}"
                part.calls.append(CallDelta(index, call_id, call.name, call.arguments))

    def _call(self, call: Any) -> CallDelta | None:
        """One of vLLM's deltas. Clients join what they get: id and name are given once a call."""
        if self._one_call and call.index > 0:
            return None
        function = call.function
        arguments = (function.arguments or "") if function else ""
        name = function.name if function else None
        if call.index in self._named:
            return CallDelta(call.index, arguments=arguments) if arguments else None
        if name is None:
            return CallDelta(call.index, arguments=arguments) if arguments else None
        self._named.add(call.index)
        return CallDelta(call.index, call.id, name, arguments)


def split(splitter: Splitter | None, delta: Delta, *, shown: bool) -> Delta:
    """`delta`, taken apart where there is a splitter; its tokens only where they are `shown`."""
    if splitter is None:
        return delta
    finish = delta.finish
    part = splitter.feed(delta.tokens, ended=finish is not None)
    if finish is not None:
        finish = replace(finish, reasoning_tokens=splitter.reasoning_tokens)
    tokens = delta.tokens if shown else ()
    return Delta(delta.index, part.text, tokens, finish, part.reasoning, tuple(part.calls))
