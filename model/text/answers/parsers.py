"""An answer to a conversation, split into reasoning, text and tool calls by vLLM's parsers.

    token, token, ... --Splitter.feed--> reasoning, text, calls;  a whole answer --Splitter.whole--> the same

Of a stream the parsers see one token at a time, however many came in a step: what several tokens at once do to them is
theirs to get wrong. Only words in the midst of reasoning or of text they get together, once a mark may follow: a call
takes them longer than all else takes that is done for a token. An answer that is not streamed they parse as a whole,
which they do better: so is a stream at its end where it has left something out, and each call of families whose streams
they read wrong (held_calls.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from ...events import CallDelta, Token
from .ahead import Ahead, Lane
from .call_ids import new_id
from .call_reader import CallForm
from .forced_calls import ForcedCalls
from .held_calls import HeldCalls, is_object
from .marked_reasoning import MarkedReasoning, Marks
from .part import Part
from .reasoning import Reasoning
from .shown_calls import ShownCalls
from .text_marks import PlainTokens
from .told import Told, ends_with, rest_of

__all__ = ["MakeParser", "Splitter"]

log = logging.getLogger(__name__)


class MakeParser(Protocol):
    """Makes a parser of vLLM's (vllm.parser)."""

    def __call__(self, *, reasoning: bool, calls: bool, whole: bool = False) -> Any:
        """One for answers with reasoning, and with calls; None where there is nothing to parse.

        whole: for an answer that is not streamed, so that it may be one that has read others.
        """


class Splitter:
    """Splits one sequence's answer: as its tokens come, or all of it."""

    def __init__(
        self,
        make: MakeParser,
        request: Any,
        reasoning: Reasoning,
        *,
        forced: ForcedCalls | None = None,
        marks: Marks | None = None,
        form: CallForm | None = None,
        text_start: str = "",
        by_tokens: bool = False,
        one_call: bool,
        show_reasoning: bool,
        added: Collection[str] = (),
        plain: PlainTokens | None = None,
        count: Callable[[list[int]], int] | None = None,
    ) -> None:
        """With `forced`, what the parsers leave as text is the JSON of a forced call.

        marks: of reasoning that is read here. form: of calls that are held back until each is whole. added: tokens of
        the vocabulary that are marks alone, and no loss where a parser leaves them out. text_start: what an answer
        without reasoning begins with; empty: anything. by_tokens: whether one that is not streamed is fed by its
        tokens, too. plain: tokens that change nothing in how an answer is read. count: counts the reasoning in all
        tokens of an answer, where vLLM's parser would make another one of its kind for that.
        """
        self._make = make
        self._request = request
        self._prompt = reasoning
        self._text_start = text_start
        self.by_tokens = by_tokens
        self._forced = forced
        self._marked = MarkedReasoning(marks) if marks else None
        self._holding: HeldCalls | None = None
        if form and forced is None:
            self._holding = HeldCalls(form, partial(make, reasoning=False, calls=True), request)
        self._calls = forced is None and self._holding is None
        """Whether the parser looks for calls."""
        self._one_call = one_call
        self._show_reasoning = show_reasoning
        self._added = added
        self._parser: Any = None
        self._thinks = True
        """Whether the answer may have reasoning."""
        self._before: list[int] | None = None
        """What parsers are told of the prompt."""
        self._begun = False
        """Whether all that is known."""
        self._cut = False
        """Whether the answer ended before the model ended it."""
        self._failed = False
        """Whether the parser has failed on the stream."""
        self._ids: list[int] = []
        self._texts: list[str] = []
        self._blank: list[tuple[str, int]] = []
        """What the answer begins with and says nothing yet of whether reasoning follows, as text and token."""
        self._unsent: list[Token] = []
        """Tokens of calls that are held back, and of text that waits."""
        self._count = count
        self._at_once = False
        """Whether the parser has read all of the answer at once, and not as a stream."""
        self._counted: int | None = None
        """How many of all tokens of the answer are reasoning, where that is plain."""
        self._ahead = Ahead(plain)
        self.next_text = ""
        """What is to be told of the last token that went on (`goes_on`), and of what waited for it."""
        self._told = Told()
        self._early: dict[int, tuple[str | None, str]] = {}
        """Of calls that have no name yet, the id and the arguments."""
        self._shown = ShownCalls(one_call=one_call)
        self.dropped = 0
        """How many characters of the answer no parser has made anything of."""

    def feed(self, tokens: Iterable[Token], *, ended: bool, cut: bool = False) -> Part:
        """Takes the next tokens; with `ended` they are the last, and nothing is held back any more.

        cut: whether the answer ended before the model ended it.
        """
        part = Part()
        tokens = list(tokens)
        self._cut = cut
        if ended and tokens and not self._texts:
            ids = [token.id for token in tokens]
            if not self.by_tokens or self._prompt.ended_by(ids):
                # It has come at once: there is no need to read it as a stream.
                part = self.whole("".join(token.text for token in tokens), ids, cut=cut)
                part.tokens = tokens
                return part
        holding = self._holding
        for position, token in enumerate(tokens, 1):
            last = ended and position == len(tokens)
            lane = "" if last else self.goes_on(token.id, token.text)
            if lane == "reasoning":
                part.reasoning += self.next_text
            elif lane == "text":
                part.text += self.next_text
            else:
                self._take(part, token.text, [token.id], last)
            self._unsent.append(token)
            waits = bool(lane) and not self.next_text
            if not (waits or (holding is not None and holding.begun)):
                part.tokens += self._unsent
                self._unsent = []
        if ended:
            if not tokens:
                self._take(part, "", [], True)
            self._complete(part)
            self._end(part, cut)
            part.tokens += self._unsent
        return part

    def whole(self, text: str, ids: list[int], *, cut: bool) -> Part:
        """Takes an answer that is not streamed; `ids` are its tokens. vLLM's server has the parser parse it, too."""
        part = Part()
        self._ids = ids
        begins = self._prompt.begun_by(ids)
        self._begin(begins=bool(begins) or self._prompt.ended_by(ids), whole=True)
        self._cut = cut
        text = text.lstrip() if begins else text
        tool_parser = getattr(self._parser, "tool_parser", None)
        by_engine = getattr(tool_parser, "engine_based_streaming", False) and self._marked is None
        if by_engine:
            # It is one machine for both, and leaves out of a whole answer what comes after a call.
            self._texts.append(text)
            self._parse(part, text, ids, last=True)
            self._complete(part)
            streamed = ["".join(given) for given in self._told.arguments.values()]
            # Mistral's has in the last arguments what comes after them.
            wrong = not cut and any(given and not is_object(given) for given in streamed)
            if wrong or not streamed:
                self._parser = self._make(reasoning=self._thinks, calls=self._calls)
                reasoning, content, calls = self._parsed(text)
                if calls and (not wrong or all(is_object(call.arguments) for call in calls)):
                    part = Part()
                    self._shown = ShownCalls(one_call=self._one_call)
                    self._add(part, reasoning, content, calls)
        else:
            thought = ""
            if self._marked is not None:
                thought, text = self._marked.feed(text, ended=True)
            reasoning, content, calls = self._parsed(text)
            self._at_once = True
            if self._count is not None and reasoning:
                self._counted = self._prompt.between(ids, text, reasoning)
            if not calls:
                self._note_dropped(text, content)
            self._add(part, thought or reasoning, *self._held(content, calls, last=True))
        self._end(part, cut)
        return part

    @property
    def reasoning_tokens(self) -> int:
        """How many of the tokens so far belong to the reasoning."""
        parser, ids = self._parser, [*self._prompt.mark, *self._ids]
        reader = getattr(parser, "reasoning_parser", None)
        if self._count is not None and self._at_once and getattr(reader, "engine_based_streaming", False):
            return self._count(ids) if self._counted is None else self._counted
        if not hasattr(parser, "count_reasoning_tokens"):  # vLLM 0.26
            parser = reader
        return int(parser.count_reasoning_tokens(ids)) if parser is not None else 0

    def _begin(self, *, begins: bool, whole: bool = False) -> None:
        """`begins`: whether the answer begins its own reasoning; `whole`: whether it is all there.

        Then parsers are told nothing of the prompt: they would find an earlier answer's reasoning, which has ended.
        """
        prompt = self._prompt
        self._begun = True
        self._thinks = prompt.open or begins or not prompt.known
        self._before = None if begins and not prompt.open else prompt.ids
        thinks = self._thinks and self._marked is None
        self._parser = self._make(reasoning=thinks, calls=self._calls, whole=whole)

    def goes_on(self, token_id: int, text: str) -> Lane:
        """What the next token, not the last, is of, where that is known without the parser; it is not to be fed then,
        and `next_text` is told. Of reasoning that is not shown nothing is known.
        """
        ahead, told = self._ahead, self._told
        lane = ahead.lane
        if lane == "reasoning":
            if not self._show_reasoning:
                return ""
            said = told.reasoning
        elif lane:
            if self._shown.empty or self._forced:
                return ""
            holding = self._holding
            # What passes is noted: the parser is not to be given it again.
            if holding is not None and not (ahead.is_plain(token_id, text) and holding.passes(text)):
                return ""
            said = told.text
        else:
            return ""
        new = ahead.take(token_id, text)
        if new is None:
            return ""
        self.next_text = new
        said.append(new)
        self._ids.append(token_id)
        self._texts.append(text)
        return lane

    def _take(self, part: Part, text: str, ids: list[int], last: bool) -> None:
        self._ids += ids
        self._texts.append(text)
        if not self._begun:
            # All before was white space, or begins what text begins with.
            begins = False if self._prompt.open else self._prompt.begun_by(ids)
            start = self._text_start
            said = "".join(self._texts) if start else ""
            if not last and (begins is None or (len(said) < len(start) and start.startswith(said))):
                self._blank.append((text, ids[0]))
                return
            self._begin(begins=bool(begins))
            if start and said.startswith(start):
                # As if the prompt had ended the reasoning.
                end = self._parser.reasoning_parser.reasoning_end_str
                self._before = self._parser.model_tokenizer.encode(end, add_special_tokens=False)
            for blank, token_id in () if begins else self._blank:
                self._parse(part, blank, [token_id], last=False)
        for blank, token_id in self._ahead.waiting():
            self._parse(part, blank, [token_id], last=False)
        self._parse(part, text, ids, last=last)

    def _parse(self, part: Part, text: str, ids: list[int], *, last: bool) -> None:
        """Has what is new of a stream parsed."""
        if self._failed:
            return
        reasoning: str | None = None
        content: str | None = text
        calls: Sequence[CallDelta] = ()
        if self._marked is not None:
            reasoning, content = self._marked.feed(text, ended=last)
        if self._parser is not None and (content or last or self._marked is None):
            ahead = self._ahead
            ahead.lane = ""
            try:
                ahead.catch_up(self._parse_delta)
                message = self._parse_delta(content, ids, finished=last)
            except Exception:
                log.debug("a parser failed on a stream: the answer is parsed at its end", exc_info=True)
                if self._holding is None:
                    self._failed = True
                    return
                # It read reasoning alone: what comes from here on is text, with calls.
                self._parser, message = None, None
                self._add(part, None, *self._held(content, (), last=last))
                return
            content = None
            if message is not None:
                calls = [new for call in message.tool_calls or () if (new := self._call(call)) is not None]
            if self._marked is None:
                reasoning, content = ahead.new(text, message, calls=bool(calls))
            elif message is not None:
                reasoning, content = reasoning or message.reasoning, message.content
        self._add(part, reasoning, *self._held(content, calls, last=last))

    def _parse_delta(self, text: str | None, ids: list[int], *, finished: bool = False) -> Any:
        """The parser's message on what is next of a stream; None: nothing is to be told yet."""
        return self._parser.parse_delta(text, ids, self._request, self._before, finished=finished)

    def _held(
        self, content: str | None, calls: Sequence[CallDelta], *, last: bool
    ) -> tuple[str | None, Sequence[CallDelta]]:
        """Text and calls, where calls are held back: those of them that are whole."""
        if self._holding is None or not (content or last):
            return content, calls
        return self._holding.feed(content or "", ended=last, cut=self._cut)

    def _complete(self, part: Part) -> None:
        """Adds what the parser of streams has left out, by the parser of whole answers."""
        told, text = self._told, "".join(self._texts)
        content, thought = "".join(told.text), "".join(told.reasoning)
        if not self._failed and (
            self._parser is None or not self._calls or told.arguments or ends_with(text, content or thought)
        ):
            return
        self._parser = self._make(reasoning=self._thinks and self._marked is None, calls=self._calls)
        reasoning, parsed, calls = self._parsed(text)
        if not calls:
            if not self._failed and (content or thought):
                # Of a text without calls the parser of streams may leave out marks on purpose.
                parsed = content
            self._note_dropped(text, parsed)
        more: Sequence[CallDelta] = [call for given in calls if (call := told.rest_of(given)) is not None]
        rest, more = self._held(rest_of(parsed or "", content), more, last=True)
        self._add(part, rest_of(reasoning or "", thought), rest, more)

    def _parsed(self, text: str) -> tuple[str | None, str | None, Sequence[CallDelta]]:
        """Reasoning, text and calls of all of an answer."""
        parser = self._parser
        if parser is None:
            return None, text, ()
        reasoning, content, calls = self._read(parser, text)
        # A call that was cut off may lack its name.
        calls = [call for call in calls or () if call.name.strip()]
        if not content and not calls:
            if getattr(parser, "tool_parser", parser) is not None:
                # Parsers drop calls that they cannot read.
                without = self._make(reasoning=self._thinks and self._marked is None, calls=False)
                again = (None, None, None) if without is None else self._read(without, text)
                # On 0.28 Ling 3's does not know reasoning where there are no tools.
                if again[0] or not reasoning:
                    reasoning, content, _ = again
            if not reasoning and not content:
                content = text
        made = [
            CallDelta(index, call.id or new_id(), call.name.strip(), call.arguments) for index, call in enumerate(calls)
        ]
        return reasoning, content, made

    def _read(self, parser: Any, text: str) -> tuple[str | None, str | None, Sequence[Any] | None]:
        """What one of vLLM's parsers makes of all of an answer; nothing where it fails."""
        more: dict[str, Any] = {}
        if hasattr(parser, "set_prompt_token_ids"):  # vLLM 0.32
            more["model_output_token_ids"] = self._ids
        # Without it, parsers look for the first mark of reasoning in what it and the text say.
        opening = self._prompt.opening if self._marked is None else ""
        try:
            reasoning, content, calls = parser.parse(opening + text, self._request, enable_auto_tools=True, **more)
        except Exception:
            # A call that was cut off, say.
            log.debug("a tool call or reasoning parser failed: the response is treated as text", exc_info=True)
            return None, None, None
        # Some take no notice of the mark.
        if reasoning:
            reasoning = reasoning.removeprefix(opening)
        elif content:
            content = content.removeprefix(opening)
        return reasoning, content, calls

    def _note_dropped(self, text: str, content: str | None) -> None:
        """`content` is all that has been made of the text of an answer without calls."""
        if content and (at := text.rfind(content.strip())) >= 0:
            left = text[at + len(content.strip()) :].strip()
            for word in self._added if left else ():
                left = left.replace(word, "")
            self.dropped = len(left.strip())
        if self.dropped:
            log.warning("a tool call or reasoning parser left %d characters out of an answer", self.dropped)

    def _add(self, part: Part, reasoning: str | None, text: str | None, calls: Sequence[CallDelta]) -> None:
        """Adds to `part` what has been read."""
        told = self._told
        if reasoning:
            told.reasoning.append(reasoning)
            if self._show_reasoning:
                part.reasoning += reasoning
        if text:
            told.text.append(text)
            if self._forced is not None:
                text, calls = self._forced.feed(text, ended=False)
        for call in calls:
            told.arguments.setdefault(call.index, []).append(call.arguments)
        self._shown.add(part, text or "", calls)

    def _end(self, part: Part, cut: bool) -> None:
        if self._forced is not None:
            part.text += self._forced.feed("", ended=True)[0]
        if not cut:
            self._shown.end(part)

    def _call(self, call: Any) -> CallDelta | None:
        """One of vLLM's deltas. Clients join what they get: id and name are given once a call. Mistral's grammars let
        white space be around the name."""
        function = call.function
        arguments = (function.arguments or "") if function else ""
        name = function.name if function else None
        if call.index in self._told.arguments:
            return CallDelta(call.index, arguments=arguments) if arguments else None
        call_id, early = self._early.get(call.index, (None, ""))
        call_id, arguments = call.id or call_id, early + arguments
        if name is None:
            self._early[call.index] = call_id, arguments
            return None
        # A delta may have more of it.
        self._told.arguments[call.index] = []
        return CallDelta(call.index, call_id, name.strip(), arguments)
