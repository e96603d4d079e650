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
from typing import Any, Literal, Protocol

from ...events import CallDelta, Token
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


MOST_HELD = 256
"""Characters that a parser holds back at most: what marks begin with. What it has not said of more, it leaves out."""
Lane = Literal["", "reasoning", "text"]
"""What a token belongs to; empty: that is not known."""


class MakeParser(Protocol):
    """Makes a parser of vLLM's (vllm.parser)."""

    def __call__(self, *, reasoning: bool, calls: bool) -> Any:
        """One for answers with reasoning, and with calls; None where there is nothing to parse."""


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
        """Tokens of calls that are held back."""
        self._plain = plain
        self._count = count
        self._at_once = False
        """Whether the parser has read all of the answer at once, and not as a stream."""
        self._lane: Lane = ""
        """What the parser has made of the last token, all of it: what it will make of the next plain one."""
        self._behind: list[str] = []
        self._behind_ids: list[int] = []
        """Plain tokens that it has not been given yet."""
        self._due = ""
        """What it has been given of the last tokens and has not said yet, where that is known."""
        self._told_due = 0
        """How many characters of that, from its beginning on, have been told already, as plain tokens are."""
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
                part.reasoning += token.text
            elif lane == "text":
                part.text += token.text
            else:
                self._take(part, token.text, [token.id], last)
            if holding is not None:
                self._unsent.append(token)
                if not holding.begun:
                    part.tokens += self._unsent
                    self._unsent = []
        if holding is None:
            part.tokens = tokens
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
        self._begin(begins=bool(begins) or self._prompt.ended_by(ids))
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
            return self._count(ids)
        if not hasattr(parser, "count_reasoning_tokens"):  # vLLM 0.26
            parser = reader
        return int(parser.count_reasoning_tokens(ids)) if parser is not None else 0

    def _begin(self, *, begins: bool) -> None:
        """`begins`: whether the answer begins its own reasoning.

        Then parsers are told nothing of the prompt: they would find an earlier answer's reasoning, which has ended.
        """
        prompt = self._prompt
        self._begun = True
        self._thinks = prompt.open or begins or not prompt.known
        self._before = None if begins and not prompt.open else prompt.ids
        self._parser = self._make(reasoning=self._thinks and self._marked is None, calls=self._calls)

    def goes_on(self, token_id: int, text: str) -> Lane:
        """What the next token, not the last, is of, where that is known without the parser; it is not to be fed then.

        The parser gets it together with those that follow. Of reasoning that is not shown nothing is known.
        """
        lane, plain = self._lane, self._plain
        if not lane or plain is None or not plain.has(token_id, text):
            return ""
        if lane == "reasoning":
            if not self._show_reasoning:
                return ""
            self._told.reasoning.append(text)
        else:
            if self._shown.empty or self._forced or not (self._holding is None or self._holding.passes(text)):
                return ""
            self._told.text.append(text)
        self._ids.append(token_id)
        self._texts.append(text)
        self._behind_ids.append(token_id)
        self._behind.append(text)
        return lane

    def _catch_up(self) -> None:
        """Gives the parser what it has not been given, of which it is known what it is."""
        text, ids = "".join(self._behind), self._behind_ids
        self._behind, self._behind_ids = [], []
        message = self._parser.parse_delta(text, ids, self._request, self._before, finished=False)
        said = _said(message)
        # It holds back what some of its marks begin with: '"' before '>', 'c' before 'all:'.
        self._due = text[len(said) :] if text.startswith(said) else ""
        self._told_due = len(self._due)

    def _new(self, text: str, message: Any, calls: Sequence[CallDelta]) -> tuple[str | None, str | None]:
        """Reasoning and text that are new in the parser's message on `text`."""
        reasoning, content = (None, None) if message is None else (message.reasoning, message.content)
        fed, told, said = self._due + text, self._due[: self._told_due], _said(message)
        self._due, self._told_due = "", 0
        if not calls and not (reasoning and content):
            if fed.startswith(said) and len(fed) - len(said) <= MOST_HELD:
                self._due = fed[len(said) :]
                self._told_due = max(len(told) - len(said), 0)
            # Or what it had not said was a mark.
            if text and said in (fed, text) and not self._due:
                self._lane = "reasoning" if reasoning else "text"
        if told:
            if reasoning:
                reasoning = _rest_of_told(reasoning, told)
            elif content:
                content = _rest_of_told(content, told)
        return reasoning, content

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
            self._lane = ""
            try:
                if self._behind:
                    self._catch_up()
                message = self._parser.parse_delta(content, ids, self._request, self._before, finished=last)
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
                reasoning, content = self._new(text, message, calls)
            elif message is not None:
                reasoning, content = reasoning or message.reasoning, message.content
        self._add(part, reasoning, *self._held(content, calls, last=last))

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


def _said(message: Any) -> str:
    """The reasoning or else the text of a message of vLLM's parsers."""
    return "" if message is None else message.reasoning or message.content or ""


def _rest_of_told(said: str, told: str) -> str:
    """What is new in what a parser says, where it begins with what has been told."""
    if said.startswith(told):
        return said[len(told) :]
    return "" if told.startswith(said) else said
