"""`option.content_filter=module:function`: the user's own judge of prompts and of what is generated.

    function(text, stage) -> None, or why the text is not acceptable        plain or `async def`

`stage` is "prompt" before anything is generated, with the prompt, and "text" later, with all that one sequence has
brought so far: reasoning, text and calls, in their order. A prompt that is flagged is refused.

What is judged is what is sent, in whatever field:

    reasoning, text, calls      as they come
    a stop string               after the text that it ends
    tokens                      their texts joined, where those are not the text: parsers hold back what is a token
                                already. A reply that has not asked for tokens gets none
    the likeliest in a place    each after what stands before it; one that is flagged is left out
    the prompt's tokens         with the prompt, without the likeliest in their places

    text                        admit, before the engine gets it
    messages, token ids         held --> engine: template, tokenizer --> Rendered --> judge_prompt --> Engine.release

So whatever of a request the chat template brings into the prompt is judged, as the model would get it.

Text that is flagged ends its sequence: what was accepted before stays, the rest is not sent, and the finish reason is
content_filter. Where several tokens of plain text came together, they are judged one by one before they are dropped:
what stays does not depend on how fast they came. A filter that fails fails the request.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from msgspec.structs import replace as replace_fields

from ...formatters import ParsedRequest
from ...formatters.base import ResponseEncoder
from ...model.errors import ContentFilterError, LmiError, OptionError, UserCodeError
from ...model.events import CallDelta, Delta, Event, Failed, Finish, Started, Token, TopToken
from ...model.generation import Generation
from ...model.log import content_is_shown, current
from ..response_store import Kept, kept_of
from ..threads.pool import Workers
from .filtered_text import JudgedPieces, JudgedSequence
from .loading import Function
from .safe_reply import end_of_stream

__all__ = ["ContentFilter", "FilteredEncoder"]

log = logging.getLogger(__name__)

OPTION = "content_filter"
NO_REASON = "no reason given"


class ContentFilter:
    """The user's function, by the name that the option gives it."""

    def __init__(self, function: object, text: str, workers: Workers) -> None:
        if not callable(function):
            raise OptionError.of(OPTION, f"{text!r} is not a function")
        self._stages = _takes(function, 2)
        if not self._stages and not _takes(function, 1):
            given = inspect.signature(function)
            raise OptionError.of(OPTION, f"{text!r}: expected (text, stage), got {given}")
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
        """Judges a prompt; raises ContentFilterError for one that is flagged, which names `field`."""
        reason = self.judge(prompt, "prompt")
        if reason is not None:
            raise ContentFilterError(f"{field}: flagged by the content filter: {reason}", field)

    def around(self, call: ParsedRequest) -> tuple[ParsedRequest, FilteredEncoder]:
        """The call with its answer judged; what is no text is to be judged before any of its generations starts.

        Raises ContentFilterError for text that is flagged.
        """
        held = False
        judged: set[tuple[str, str]] = set()
        for number, generation in enumerate(call.generations):
            if not isinstance(generation.prompt, str):
                held = True
                continue
            texts = [(generation.prompt, call.fields.name("prompt", number))]
            if (scoring := generation.scoring) is not None and scoring.document:
                texts.append((scoring.document, call.fields.name("scoring.document", number)))
            if (asked := generation.transcription) is not None and asked.hotwords:
                texts.append((asked.hotwords, call.fields.name("transcription.hotwords", number)))
            for text in texts:
                # A query is one of many pairs.
                if text not in judged:
                    self.admit(*text)
                    judged.add(text)
        generations = tuple(
            # What is generated is judged while it is, and counted where it is cut off, streamed to the client or not;
            # beams come whole.
            replace_fields(generation, stream=generation.sampling.beams is None, tokens=True, held=held)
            for generation in call.generations
        )
        encoder = FilteredEncoder(call.reply, self, call.generations)
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


class FilteredEncoder:
    """Passes on to another encoder, `inner`, what the filter accepts."""

    def __init__(self, inner: ResponseEncoder, judge: ContentFilter, generations: Sequence[Generation]) -> None:
        """`generations`: as `inner` wants them."""
        self._inner = inner
        self._filter = judge
        self._generations = generations
        self._accepted_prompts = 0
        self._counts = [generation.sampling.n for generation in generations]
        """How many sequences each has."""
        self._sequences: dict[tuple[int, int], JudgedSequence] = {}
        self._recordings: dict[int, JudgedPieces] = {}
        """By prompt."""
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

    @property
    def kept(self) -> Kept | None:
        return kept_of(self._inner)

    def feed(self, event: Event, prompt: int = 0) -> list[bytes]:
        """The records that what is acceptable of `event` completes."""
        if isinstance(event, Started):
            if event.recording is not None:
                self._counts[prompt] = len(event.recording.starts)
                self._recordings[prompt] = JudgedPieces(event.recording)
            event = replace_fields(event, prefill=tuple(replace_fields(token, top=()) for token in event.prefill))
        if not isinstance(event, Delta):
            return self._inner.feed(event, prompt)
        if (pieces := self._recordings.get(prompt)) is None:
            return self._feed(event, prompt, JudgedSequence())
        pieces.waiting.setdefault(event.index, []).append(event)
        records: list[bytes] = []
        while waiting := pieces.waiting.get(pieces.current):
            delta = waiting.pop(0)
            records += self._feed(delta, prompt, pieces.begun(delta))
            if (state := self._sequences[prompt, pieces.current]).ended:
                pieces.next(state)
        return records

    def _feed(self, event: Delta, prompt: int, new: JudgedSequence) -> list[bytes]:
        """`new`: what a sequence begins with."""
        state = self._sequences.setdefault((prompt, event.index), new)
        if state.ended:
            return []
        generation = self._generations[prompt]
        before = replace(state)
        for token in event.tokens:
            state.take(token)
        text = event.text if state.first_time is None else state.shown(event.tokens)
        state.text += event.reasoning + text + "".join(_said(call, state.raw) for call in event.calls)
        stop = _stop_string(event.finish, generation)
        kept = event.tokens
        try:
            reason = self._judge(before, state, stop, generation)
            if reason is not None:
                kept = self._accepted(before, event, stop, generation)
            shown = self._judged_tops(before, kept) if generation.tokens else ()
        except UserCodeError as error:
            return self._inner.feed(Failed.of(error), prompt)
        state.tokens += len(kept)
        if reason is not None:
            state.text = before.text + state.shown(kept)
            state.raw = before.raw + state.shown(kept)
            told = f": {reason}" if content_is_shown() else ""
            log.info("request %s: the content filter ended the response%s", current(), told)
            event = self._cut(state, Delta(event.index, "".join(token.text for token in kept), shown), prompt)
        elif (finish := event.finish) is not None:
            state.ended = True
            if not finish.last and self._all_ended(prompt):
                # The engine goes on with what was cut off.
                self.to_abort.append(prompt)
                finish = replace_fields(finish, last=True)
            event = replace_fields(event, tokens=shown, finish=finish)
        elif shown != event.tokens:
            event = replace_fields(event, tokens=shown)
        return self._inner.feed(event, prompt)

    def judge_prompt(self, text: str, prompt: int) -> LmiError | None:
        """Why a generation may not start from this text, as an engine would say it; once all may, they are noted in
        `to_release`.
        """
        try:
            self._filter.admit(text, "prompt")
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
        return ended == self._counts[prompt]

    def _judge(self, before: JudgedSequence, now: JudgedSequence, stop: str, generation: Generation) -> str | None:
        """Why what has come of a sequence since `before` is not acceptable, or None."""
        texts: list[str] = []
        if now.text != before.text or stop:
            texts.append(now.text + stop)
        if generation.tokens and now.raw != now.text and (now.raw != before.raw or stop):
            texts.append(now.raw + stop)
        return next((reason for text in texts if (reason := self._filter.judge(text, "text")) is not None), None)

    def _accepted(self, before: JudgedSequence, event: Delta, stop: str, generation: Generation) -> tuple[Token, ...]:
        """The tokens of a flagged `event` that come before what was flagged; none where they are not its text's."""
        tokens = event.tokens
        if event.reasoning or event.calls or "".join(token.text for token in tokens) != event.text:
            return ()
        # All of them together are flagged already, unless it is what they are followed by.
        last = len(tokens) if stop else len(tokens) - 1
        for count, token in enumerate(tokens[: max(last, 0)]):
            text = before.shown((token,))
            now = replace(before, text=before.text + text, raw=before.raw + text)
            if self._judge(before, now, "", generation) is not None:
                return tokens[:count]
            before = now
        return tokens[: max(last, 0)]

    def _judged_tops(self, before: JudgedSequence, tokens: tuple[Token, ...]) -> tuple[Token, ...]:
        """The next tokens, with those of the likeliest in their places that are acceptable there."""
        judged: list[Token] = []
        for token in tokens:
            top = tuple(one for one in token.top if self._may_stand(one, token, before))
            judged.append(token if top == token.top else replace_fields(token, top=top))
            before.take(token)
        return tuple(judged)

    def _may_stand(self, one: TopToken, token: Token, before: JudgedSequence) -> bool:
        """Whether it is acceptable in the place of `token`, which is."""
        text = (before.begun + one.raw).decode(errors="replace") if before.begun and one.raw else one.text
        return text == token.text or self._filter.judge(before.raw + text, "text") is None

    def _cut(self, state: JudgedSequence, kept: Delta, prompt: int) -> Delta:
        """The end of a sequence: `kept`, which came before what was flagged."""
        state.ended = True
        last = self._all_ended(prompt)
        if last:
            self.to_abort.append(prompt)
        return replace_fields(kept, finish=Finish("content_filter", generated_tokens=state.tokens, last=last))


def _said(call: CallDelta, raw: str) -> str:
    """What the model has said of it: some parsers take the id from its words."""
    own_id = call.id if call.id and call.id in raw else ""
    return own_id + (call.name or "") + call.arguments


def _stop_string(finish: Finish | None, generation: Generation) -> str:
    """What has ended the text and is told beside it."""
    if finish is None or not isinstance(finish.stop, str) or generation.sampling.include_stop:
        return ""
    return finish.stop
