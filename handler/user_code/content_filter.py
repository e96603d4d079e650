"""`option.content_filter=module:function`: the user's own judge of prompts and of what is generated.

    function(text, stage) -> None, or why the text is not acceptable        plain or `async def`

`stage` is "prompt" before anything is generated, with the prompt, and "text" later, with all that one sequence has
brought so far: reasoning, text and calls, in their order. A prompt that is flagged is refused.

    text                        admit, before the engine gets it
    messages, token ids         held --> engine: template, tokenizer --> Rendered --> judge_prompt --> Engine.release

So whatever of a request the chat template brings into the prompt is judged, as the model would get it.

Text that is flagged ends its sequence: what was accepted before stays, the rest is not sent, and the finish reason is
content_filter. Where several tokens of plain text came together, they are judged one by one before they are dropped:
what stays does not depend on how fast they came. A filter that fails fails the request.

Nothing is sent that has not been judged, in whatever field a dialect or a formatter of the user's puts it: a dialect
gets tokens only where it asked for them, and where these say more than the text, as while a parser holds a call back,
what they say together is judged too. Of the tokens that might have come instead (`top`), each is judged by itself, and
left out where it is flagged.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import msgspec

from ...formatters import ParsedRequest
from ...formatters.base import ResponseEncoder
from ...model.errors import ContentFilterError, LmiError, OptionError, UserCodeError
from ...model.events import Delta, Event, Failed, Finish, Started, Token
from ...model.generation import Generation
from ...model.log import content_is_shown, current
from .loading import Function
from .pool import Workers
from .safe_reply import end_of_stream

__all__ = ["ContentFilter", "FilteredEncoder"]

log = logging.getLogger(__name__)

OPTION = "content_filter"
NO_REASON = "no reason given"


class ContentFilter:
    """The user's function, by the name that the option gives it."""

    def __init__(self, function: object, text: str, workers: Workers) -> None:
        if not callable(function):
            raise OptionError(f"option.{OPTION}: {text!r} is not a function", OPTION)
        self._stages = _takes(function, 2)
        if not self._stages and not _takes(function, 1):
            given = inspect.signature(function)
            raise OptionError(f"option.{OPTION}: {text!r}: expected (text, stage), got {given}", OPTION)
        self._function = Function(function, f"content filter {text}", workers)

    def judge(self, text: str, stage: str) -> str | None:
        """Why `text` is not acceptable, or None; raises UserCodeError."""
        verdict = self._function(text, stage) if self._stages else self._function(text)
        if verdict is None or verdict is False or verdict == "":
            return None
        if verdict is True:
            return NO_REASON
        if isinstance(verdict, str):
            return verdict
        members = cast("Mapping[str, Any]", verdict) if isinstance(verdict, Mapping) else {}
        reason = members.get("reason") or getattr(verdict, "reason", None)
        if isinstance(reason, str):
            return reason
        raise self._function.refuse(verdict, "None, a reason (str) or an object with the attribute reason")

    def admit(self, prompt: str, field: str) -> None:
        """Judges a prompt, which the client calls `field`; raises ContentFilterError for one that is flagged."""
        reason = self.judge(prompt, "prompt")
        if reason is not None:
            raise ContentFilterError(f"{field}: flagged by the content filter: {reason}", field)

    def around(self, call: ParsedRequest) -> tuple[ParsedRequest, FilteredEncoder]:
        """The call with its answer judged; what is no text is to be judged before any of its generations starts.

        Raises ContentFilterError for text that is flagged.
        """
        held = False
        judged: set[tuple[str, str]] = set()
        for generation in call.generations:
            if not isinstance(generation.prompt, str):
                held = True
                continue
            texts = [(generation.prompt, generation.prompt_field)]
            if (scoring := generation.scoring) is not None and scoring.document:
                texts.append((scoring.document, scoring.document_field))
            for text in texts:
                # A query is one of many pairs.
                if text not in judged:
                    self.admit(*text)
                    judged.add(text)
        shown = tuple(generation.tokens for generation in call.generations)
        generations = tuple(
            # What is generated is judged while it is, and counted where it is cut off, streamed to the client or not.
            msgspec.structs.replace(generation, stream=True, tokens=True, held=held)
            for generation in call.generations
        )
        encoder = FilteredEncoder(call.reply, self, generations, shown)
        return replace(call, generations=generations, reply=encoder, stream=call.streamed), encoder


def _takes(function: Callable[..., Any], count: int) -> bool:
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:
        # Functions of extension modules may have no signature.
        return count == 2
    return True


@dataclass(slots=True)
class _Sequence:
    """What has come of one sequence."""

    text: str = ""
    tokens_text: str = ""
    """The same as its tokens have it, where they are shown: a parser holds some of it back, or leaves it out."""
    tokens: int = 0
    ended: bool = False


class FilteredEncoder:
    """Passes on to another encoder, `inner`, what the filter accepts."""

    def __init__(
        self,
        inner: ResponseEncoder,
        judge: ContentFilter,
        generations: Sequence[Generation],
        shown: Sequence[bool],
    ) -> None:
        """`shown`: of which generations `inner` asked for the tokens."""
        self._inner = inner
        self._filter = judge
        self._generations = generations
        self._shown = shown
        self._verdicts: dict[str, bool] = {}
        """Which tokens that might have come are acceptable, by their text."""
        self._accepted_prompts = 0
        self._sequences: dict[tuple[int, int], _Sequence] = {}
        self.to_abort: list[int] = []
        """Where it notes the generations that nothing more is wanted of, by their number."""
        self.to_release: list[int] = []
        """Those that may start, by their number."""

    @property
    def status(self) -> int:
        """As of the reply inside, like the rest."""
        return self._inner.status

    @property
    def content_type(self) -> str:
        return self._inner.content_type

    @property
    def headers(self) -> Mapping[str, str]:
        return self._inner.headers

    @property
    def failure(self) -> LmiError | None:
        return self._inner.failure

    @property
    def finished(self) -> bool:
        return self._inner.finished

    def feed(self, event: Event, prompt: int = 0) -> list[bytes]:
        """The records that what is acceptable of `event` completes."""
        judged: Event | None = event
        try:
            if isinstance(event, Delta):
                judged = self._judged(event, prompt)
            elif isinstance(event, Started) and event.prefill:
                judged = msgspec.structs.replace(event, prefill=self._acceptable(event.prefill))
        except UserCodeError as error:
            judged = Failed.of(error)
        return [] if judged is None else self._inner.feed(judged, prompt)

    def _judged(self, event: Delta, prompt: int) -> Delta | None:
        """What is acceptable of `event`; None of a sequence that has ended. Raises UserCodeError."""
        state = self._sequences.setdefault((prompt, event.index), _Sequence())
        if state.ended:
            return None
        shown = self._shown[prompt]
        before = state.text
        new = event.reasoning + event.text + "".join((call.name or "") + call.arguments for call in event.calls)
        state.text += new
        new_tokens = "".join(token.text for token in event.tokens) if shown else ""
        state.tokens_text += new_tokens
        more_in_tokens = shown and state.tokens_text != state.text
        reason = self._filter.judge(state.text, "text") if new else None
        if reason is None and more_in_tokens and new_tokens:
            reason = self._filter.judge(state.tokens_text, "text")
        if reason is not None:
            kept = () if more_in_tokens else self._accepted(before, event)
            why = f": {reason}" if content_is_shown() else ""
            log.info("request %s: the content filter ended the response%s", current(), why)
            return self._end(state, event.index, kept, prompt)
        state.tokens += len(event.tokens)
        finish = event.finish
        if finish is not None:
            state.ended = True
            if not finish.last and self._all_ended(prompt):
                # The engine goes on with what was cut off.
                self.to_abort.append(prompt)
                finish = msgspec.structs.replace(finish, last=True)
        tokens = self._acceptable(event.tokens) if shown else ()
        return msgspec.structs.replace(event, tokens=tokens, finish=finish)

    def _acceptable(self, tokens: tuple[Token, ...]) -> tuple[Token, ...]:
        """`tokens`, which have been judged, without what might have come in their places and is flagged."""
        if not any(token.top for token in tokens):
            return tokens
        return tuple(
            msgspec.structs.replace(
                token, top=tuple(other for other in token.top if other.id == token.id or self._passes(other.text))
            )
            for token in tokens
        )

    def _passes(self, text: str) -> bool:
        if text not in self._verdicts:
            self._verdicts[text] = not text or self._filter.judge(text, "text") is None
        return self._verdicts[text]

    def judge_prompt(self, text: str, prompt: int) -> LmiError | None:
        """Why a generation may not start from this text; once all may, they are noted in `to_release`."""
        try:
            self._filter.admit(text, self._generations[prompt].prompt_field)
        except LmiError as error:
            return error
        self._accepted_prompts += 1
        if self._accepted_prompts == len(self._generations):
            self.to_release += range(len(self._generations))
        return None

    def end_of_stream(self, error: LmiError) -> list[bytes]:
        """See handler/user_code/safe_reply.py."""
        return end_of_stream(self._inner, error)

    def _all_ended(self, prompt: int) -> bool:
        ended = sum(one.ended for (of, _), one in self._sequences.items() if of == prompt)
        return ended == self._generations[prompt].sampling.n

    def _accepted(self, before: str, event: Delta) -> tuple[Token, ...]:
        """The tokens of a flagged `event` that come before what was flagged; none where they are not its text's."""
        texts = [token.text for token in event.tokens]
        if event.reasoning or event.calls or "".join(texts) != event.text:
            return ()
        # All of them together are flagged already.
        for count, text in enumerate(texts[:-1]):
            before += text
            if text and self._filter.judge(before, "text") is not None:
                return event.tokens[:count]
        return event.tokens[:-1]

    def _end(self, state: _Sequence, index: int, kept: tuple[Token, ...], prompt: int) -> Delta:
        """The end of a sequence, after `kept`, before what was flagged."""
        state.ended = True
        state.tokens += len(kept)
        last = self._all_ended(prompt)
        if last:
            self.to_abort.append(prompt)
        finish = Finish("content_filter", generated_tokens=state.tokens, last=last)
        tokens = self._acceptable(kept) if self._shown[prompt] else ()
        return Delta(index, "".join(token.text for token in kept), tokens, finish=finish)
