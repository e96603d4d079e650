"""An answer to a conversation, split into reasoning, text and tool calls by vLLM's parsers.

    token, token, ... --Splitter.feed--> reasoning, text, calls;  a whole answer --Splitter.whole--> the same

Of a stream the parsers see one token at a time, however many came in a step: what several tokens at once do to them is
theirs to get wrong. An answer that is not streamed they parse as a whole, which they do better.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from ..events import CallDelta, Delta, Token
from .forced_calls import ForcedCalls

__all__ = ["Part", "Reasoning", "Splitter", "mistrals_id", "new_id", "split", "split_whole"]

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
    What earlier messages have thought, or quote of these tokens, says nothing of the answer.
    """

    def __init__(
        self, start: int | None, end: int | None, prompt_ids: list[int], ends: Collection[int] = frozenset()
    ) -> None:
        """`ends`: the tokens that end a message."""
        self.ids = prompt_ids
        """Of the prompt; of one that may be told apart, what stands behind its last message that has ended."""
        self._start = start
        self._end = end
        self.known = start is not None and end is not None
        """Whether this is known at all: some models mark their reasoning in other ways."""
        if self.known:
            last = len(prompt_ids) - 1
            ended = next((at for at in range(last, -1, -1) if prompt_ids[at] in ends), -1)
            self.ids = prompt_ids[min(ended + 1, last) :] if ended >= 0 else prompt_ids

    @property
    def open(self) -> bool:
        """Whether the prompt ends within the reasoning."""
        for token_id in reversed(self.ids):
            if token_id in (self._start, self._end):
                return token_id == self._start
        return False

    def may_begin_with(self, ids: list[int]) -> bool:
        """Whether an answer that begins with `ids` may begin with reasoning."""
        return not self.known or self.open or self._begins(ids)

    def told(self, ids: list[int]) -> list[int] | None:
        """What vLLM's parsers are told of the prompt of a streamed answer that begins with `ids`.

        Nothing where the answer begins its own reasoning: they would find an earlier answer's, which has ended.
        """
        return None if self._begins(ids) and not self.open else self.ids

    def _begins(self, ids: list[int]) -> bool:
        return self.known and ids[:1] == [self._start]


class Splitter:
    """Splits one sequence's answer: as its tokens come, or all of it."""

    def __init__(
        self,
        thinking: Any,
        plain: Any,
        request: Any,
        reasoning: Reasoning,
        *,
        forced: ForcedCalls | None = None,
        one_call: bool,
        show_reasoning: bool,
    ) -> None:
        """`thinking` and `plain` are vLLM's parsers for an answer with reasoning and for one without; None: no parser.

        With `forced`, what they leave as text is the JSON of a forced call.
        """
        self._thinking = thinking
        self._plain = plain
        self._parser: Any = None
        self._begun = False
        self._before: list[int] | None = None
        """What the parser is told of the prompt."""
        self._request = request
        self._prompt = reasoning
        self._forced = forced
        self._one_call = one_call
        self._show_reasoning = show_reasoning
        self._named: set[int] = set()
        self._call_ids: dict[int, str] = {}
        """Of calls that have one before they have a name."""
        self._last = -1
        """The last call that has begun."""
        self._empty = False
        """Whether that has no arguments yet."""
        self._ids: list[int] = []
        self._texts: list[str] = []
        self._told = False
        """Whether the parser has made anything of them."""

    def feed(self, tokens: Iterable[Token], *, ended: bool, cut: bool = False) -> Part:
        """Takes the next tokens; with `ended` they are the last, and nothing is held back any more.

        cut: whether the answer ended before the model ended it.
        """
        part = Part()
        tokens = list(tokens)
        for position, token in enumerate(tokens, 1):
            self._take(part, token.text, [token.id], ended and position == len(tokens))
        if ended:
            if not tokens:
                self._take(part, "", [], True)
            if not self._told:
                # Some parsers make nothing of single tokens (vLLM's phi4_mini_json).
                self._add(part, *self._parsed("".join(self._texts)))
            self._end(part, cut)
        return part

    def whole(self, text: str, ids: list[int], *, cut: bool) -> Part:
        """Takes an answer that is not streamed; `ids` are its tokens. vLLM's server has the parser parse it, too."""
        part = Part()
        self._ids = ids
        self._begin(ids)
        self._add(part, *self._parsed(text))
        self._end(part, cut)
        return part

    @property
    def reasoning_tokens(self) -> int:
        """How many of the tokens so far belong to the reasoning."""
        parser = getattr(self._parser, "reasoning_parser", None)
        return int(parser.count_reasoning_tokens(self._ids)) if parser is not None else 0

    def _begin(self, ids: list[int]) -> None:
        self._begun = True
        self._parser = self._thinking if self._prompt.may_begin_with(ids) else self._plain
        self._before = self._prompt.told(ids)
        if hasattr(self._parser, "set_prompt_token_ids"):  # vLLM 0.32
            self._parser.set_prompt_token_ids(self._prompt.ids)

    def _take(self, part: Part, text: str, ids: list[int], last: bool) -> None:
        if not self._begun:
            self._begin(ids)
        self._ids += ids
        if self._parser is None:
            self._told = True
            self._add(part, None, text, ())
            return
        message = self._parser.parse_delta(text, ids, self._request, self._before, finished=last)
        if not self._told:
            self._texts.append(text)
        if message is None:
            return
        self._told = self._told or bool(message.content or message.reasoning or message.tool_calls)
        calls = [new for call in message.tool_calls or () if (new := self._call(call)) is not None]
        self._add(part, message.reasoning, message.content, calls)

    def _parsed(self, text: str) -> tuple[str | None, str | None, Sequence[CallDelta]]:
        """Reasoning, text and calls of all of an answer."""
        parser = self._parser
        if parser is None:
            return None, text, ()
        more: dict[str, Any] = {}
        if hasattr(parser, "set_prompt_token_ids"):  # vLLM 0.32
            more["model_output_token_ids"] = self._ids
        try:
            reasoning, content, calls = parser.parse(text, self._request, enable_auto_tools=True, **more)
        except Exception:
            # A call that was cut off, say.
            log.debug("a tool call or reasoning parser failed: the response is treated as text", exc_info=True)
            reasoning, content, calls = None, None, None
        if not content and not calls:
            # Parsers drop calls that they cannot read.
            reasoning, content = self._without_calls(text)
        made = [
            CallDelta(index, call.id or new_id(), call.name, call.arguments) for index, call in enumerate(calls or ())
        ]
        return reasoning, content, made

    def _without_calls(self, text: str) -> tuple[str | None, str | None]:
        """Reasoning and text of all of an answer without calls."""
        try:
            reasoning, content = self._parser.extract_reasoning(text, self._request)
        except Exception:
            log.debug("a reasoning parser failed: the response is treated as text", exc_info=True)
            return None, text
        return reasoning, content

    def _add(self, part: Part, reasoning: str | None, text: str | None, calls: Sequence[CallDelta]) -> None:
        """Adds to `part` what has been read."""
        if reasoning and self._show_reasoning:
            part.reasoning += reasoning
        if text and self._forced is not None:
            text, calls = self._forced.feed(text, ended=False)
        if text:
            if self._empty and not text.isspace():
                self._fill(part)
            part.text += text
        for call in calls:
            if self._one_call and call.index > 0:
                continue
            if call.index != self._last:
                self._fill(part)
                self._last, self._empty = call.index, True
            self._empty = self._empty and not call.arguments
            part.calls.append(call)

    def _end(self, part: Part, cut: bool) -> None:
        if self._forced is not None:
            part.text += self._forced.feed("", ended=True)[0]
        if not cut:
            self._fill(part)

    def _fill(self, part: Part) -> None:
        """Ends a call: without arguments these are the empty object, as arguments are JSON."""
        if self._empty:
            self._empty = False
            part.calls.append(CallDelta(self._last, arguments="{}"))

    def _call(self, call: Any) -> CallDelta | None:
        """One of vLLM's deltas. Clients join what they get: id and name are given once a call."""
        function = call.function
        arguments = (function.arguments or "") if function else ""
        name = function.name if function else None
        if call.id:
            self._call_ids[call.index] = call.id
        if call.index in self._named or name is None:
            return CallDelta(call.index, arguments=arguments) if arguments else None
        self._named.add(call.index)
        return CallDelta(call.index, self._call_ids.get(call.index), name, arguments)


def new_id() -> str:
    """An id for a call, as vLLM makes them."""
    return f"chatcmpl-tool-{uuid.uuid4().hex}"


def mistrals_id() -> str:
    """An id of a call: mistral-common takes those of nine letters and digits alone."""
    return uuid.uuid4().hex[:9]


def split(splitter: Splitter | None, delta: Delta, *, shown: bool) -> Delta:
    """`delta` of a stream, taken apart where there is a splitter; its tokens only where they are `shown`."""
    if splitter is None:
        return delta
    finish = delta.finish
    part = splitter.feed(delta.tokens, ended=finish is not None, cut=finish is not None and finish.reason in CUT)
    return _with(part, delta, splitter, shown)


def split_whole(splitter: Splitter | None, delta: Delta, ids: list[int]) -> Delta:
    """`delta`, all of an answer that is not streamed, of these tokens; taken apart where there is a splitter."""
    finish = delta.finish
    if splitter is None or finish is None:
        return delta
    part = splitter.whole(delta.text, ids, cut=finish.reason in CUT)
    return _with(part, delta, splitter, shown=True)


def _with(part: Part, delta: Delta, splitter: Splitter, shown: bool) -> Delta:
    """`part` of an answer in place of the text of `delta`."""
    finish = delta.finish
    if finish is not None:
        finish = replace(finish, reasoning_tokens=splitter.reasoning_tokens)
    tokens = delta.tokens if shown else ()
    return Delta(delta.index, part.text, tokens, finish, part.reasoning, tuple(part.calls))


CUT = ("length", "abort")
"""How an answer ends that the model has not ended."""
