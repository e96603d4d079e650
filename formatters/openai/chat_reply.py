"""Chat completions, whole and streamed (specs 000 and 001; wire-decisions: OpenAI).

A chunk has what one Delta brought, reasoning before text before calls; the first chunk of each choice has its role,
the last its finish_reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec import UNSET

from ...model.events import CallDelta, Delta
from ..base import SSE, encode, event_record
from ..conversation.custom_tools import input_of
from .bodies import (
    ChatBody,
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatDelta,
    ChatLogprobs,
    CustomInput,
    FinishWord,
    Function,
    FunctionChunk,
    Message,
    TokenIds,
    TokenLogprob,
    ToolCall,
    ToolCallChunk,
    Usage,
)
from .logprobs import ShownTokens, chat_entries, prompt_logprobs
from .reply import DONE, PLAIN, ChatOptions, Identity, OpenAIEncoder, StreamFrame

__all__ = ["StreamChat", "WholeChat", "chat_encoder"]


def chat_encoder(model: str, shape: ChatOptions, *, streams: bool) -> OpenAIEncoder:
    """The reply for a request of this shape."""
    identity = Identity.new("chatcmpl-", model)
    if streams:
        return StreamChat(identity, shape.n, content_type=SSE, shape=shape)
    return WholeChat(identity, shape.n, shape=shape)


@dataclass(slots=True)
class _CallText:
    """A call in the making."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])

    def function(self) -> Function:
        """The function that is called."""
        return Function(self.name, "".join(self.arguments))

    def shown(self, custom: frozenset[str]) -> ToolCall:
        """The call, of a function or of one of the `custom` tools."""
        if self.name not in custom:
            return ToolCall(self.id, self.function())
        return ToolCall(self.id, UNSET, "custom", CustomInput(self.name, input_of("".join(self.arguments))))


@dataclass(slots=True)
class _Choice:
    """A choice in the making."""

    texts: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])
    calls: dict[int, _CallText] = field(default_factory=dict[int, _CallText])
    shown: ShownTokens = field(default_factory=ShownTokens)
    entries: list[TokenLogprob] = field(default_factory=list[TokenLogprob])
    ids: list[int] = field(default_factory=list[int])
    word: FinishWord = "stop"

    def call(self, delta: CallDelta) -> None:
        call = self.calls.setdefault(delta.index, _CallText())
        call.id = call.id or delta.id or ""
        call.name = call.name or delta.name or ""
        call.arguments.append(delta.arguments)


@dataclass(slots=True)
class WholeChat(OpenAIEncoder):
    """One body."""

    shape: ChatOptions = PLAIN
    choices: dict[int, _Choice] = field(default_factory=dict[int, _Choice])

    def _take(self, delta: Delta, choice: int, word: FinishWord | None) -> list[bytes]:
        state = self.choices.setdefault(choice, _Choice())
        state.texts.append(delta.text)
        state.reasoning.append(delta.reasoning)
        for call in delta.calls:
            state.call(call)
        if self.shape.logprobs:
            state.entries += chat_entries(state.shown.push(delta.tokens), ids=self.shape.ids_for_text)
        if self.shape.token_ids:
            state.ids += [token.id for token in delta.tokens]
        if word is not None:
            state.word = _word(word, bool(state.calls), self.shape)
        return []

    def _close(self) -> list[bytes]:
        identity = self.identity
        body = ChatBody(
            id=identity.id,
            created=identity.created,
            model=identity.model,
            choices=[self._choice(index, self.choices[index]) for index in sorted(self.choices)],
            usage=self.usage(),
            prompt_logprobs=prompt_logprobs(self.started.get(0)) if self.shape.prompt_logprobs else None,
            prompt_token_ids=self.prompt_ids() if self.shape.prompt_ids else UNSET,
            kv_transfer_params=self.kv_transfer_params(),
        )
        return [encode(body)]

    def _choice(self, index: int, state: _Choice) -> ChatChoice:
        text = "".join(state.texts)
        calls = [call for _, call in sorted(state.calls.items())]
        legacy = self.shape.legacy
        reasoning = "".join(state.reasoning) if self.shape.reasoning else UNSET
        message = Message(
            content=None if calls and not text else text,
            function_call=calls[0].function() if calls and legacy else None,
            tool_calls=[] if legacy else [call.shown(self.shape.custom) for call in calls],
            reasoning=reasoning,
            reasoning_content=reasoning if self.shape.reasoning_content else UNSET,
        )
        logprobs = ChatLogprobs(state.entries) if self.shape.logprobs else None
        ids = state.ids if self.shape.token_ids else UNSET
        return ChatChoice(index, message, logprobs, state.word, self.finishes[index].stop, ids)


def _word(word: FinishWord, called: bool, shape: ChatOptions) -> FinishWord:
    """A tool call takes precedence over the end of sequence; a response that was cut off keeps its own reason."""
    if not called or word != "stop":
        return word
    return "function_call" if shape.legacy else "tool_calls"


@dataclass(slots=True)
class _Streamed:
    """What has been sent of a choice."""

    shown: ShownTokens | None
    called: bool = False
    custom: int = -1
    """Which call is one of a custom tool whose input is not whole yet."""
    pieces: list[str] = field(default_factory=list[str])
    """Its arguments."""


@dataclass(slots=True)
class StreamChat(OpenAIEncoder):
    """A chunk for every Delta that brings anything."""

    shape: ChatOptions = PLAIN
    frame: StreamFrame = field(init=False)
    choices: dict[int, _Streamed] = field(default_factory=dict[int, _Streamed])

    def __post_init__(self) -> None:
        self.frame = StreamFrame(self._chunk())

    def _chunk(
        self, usage: Usage | None = None, choice: ChatChunkChoice | None = None, prompt_ids: TokenIds = UNSET
    ) -> ChatChunk:
        identity = self.identity
        return ChatChunk(
            id=identity.id,
            created=identity.created,
            model=identity.model,
            choices=[] if choice is None else [choice],
            usage=usage if self.shape.usage else UNSET,
            prompt_token_ids=prompt_ids,
        )

    def _record(self, usage: Usage | None, choice: ChatChunkChoice) -> bytes:
        return self.frame.record(choice) if usage is None else event_record(self._chunk(usage, choice))

    def _take(self, delta: Delta, choice: int, word: FinishWord | None) -> list[bytes]:
        records: list[bytes] = []
        usage = self.usage_so_far(choice, delta) if self.shape.continuous_usage else None
        state = self.choices.get(choice)
        if state is None:
            self.begun = True
            state = self.choices[choice] = _Streamed(ShownTokens() if self.shape.logprobs else None)
            first = ChatChunkChoice(choice, ChatDelta("assistant", content=""), self._no_logprobs())
            if self.shape.prompt_ids:
                records.append(event_record(self._chunk(usage, first, self.prompt_ids())))
            else:
                records.append(self._record(usage, first))
        text = delta.text
        ids: TokenIds = [token.id for token in delta.tokens] if self.shape.token_ids else UNSET
        plain = word is None and state.shown is None and usage is None and not delta.reasoning and not delta.calls
        plain = plain and ids is UNSET
        if text and plain:
            # Nearly every Delta.
            records.append(self.frame.record(ChatChunkChoice(choice, ChatDelta(UNSET, UNSET, UNSET, text))))
            return records
        logprobs = None
        if state.shown is not None:
            logprobs = ChatLogprobs(chat_entries(state.shown.push(delta.tokens), ids=self.shape.ids_for_text))
        new = self._delta(delta, state)
        if word is not None:
            if new is None:
                new = ChatDelta() if state.called else ChatDelta(content="")
            word = _word(word, state.called, self.shape)
            stop = delta.finish.stop if delta.finish else None
            records.append(self._record(usage, ChatChunkChoice(choice, new, logprobs, word, stop, ids)))
        elif new is not None or (logprobs is not None and logprobs.content) or ids:
            new = new or ChatDelta(content="")
            records.append(self._record(usage, ChatChunkChoice(choice, new, logprobs, token_ids=ids)))
        return records

    def _no_logprobs(self) -> ChatLogprobs | None:
        return ChatLogprobs([]) if self.shape.logprobs else None

    def _delta(self, delta: Delta, state: _Streamed) -> ChatDelta | None:
        """What is new; None if nothing is."""
        calls = delta.calls
        functions = [call for call in calls if call.index == 0] if self.shape.legacy else []
        if self.shape.legacy:
            calls = ()
        if self.shape.custom:
            chunks = self._custom_chunks(calls, state, ended=delta.finish is not None)
        else:
            chunks = [_call_chunk(call) for call in calls]
        if not (delta.text or delta.reasoning or chunks or functions):
            return None
        state.called = state.called or bool(chunks or functions)
        return ChatDelta(
            reasoning=delta.reasoning or UNSET,
            reasoning_content=(self.shape.reasoning_content and delta.reasoning) or UNSET,
            content=delta.text or UNSET,
            tool_calls=chunks or UNSET,
            function_call=_function_chunk(functions) if functions else UNSET,
        )

    def _custom_chunks(self, calls: Iterable[CallDelta], state: _Streamed, *, ended: bool) -> list[ToolCallChunk]:
        """What is new of calls; the input of a custom tool comes in one piece, when its arguments are whole."""
        chunks: list[ToolCallChunk] = []
        for call in calls:
            if call.index != state.custom:
                chunks += _input_chunk(state)
            if call.name in self.shape.custom:
                state.custom = call.index
                begun = CustomInput(call.name, "")
                chunks.append(ToolCallChunk(call.index, call.id or UNSET, "custom", UNSET, begun))
            if call.index == state.custom:
                state.pieces.append(call.arguments)
            else:
                chunks.append(_call_chunk(call))
        return chunks + _input_chunk(state) if ended else chunks

    def _close(self) -> list[bytes]:
        if not self.shape.usage:
            return [DONE]
        return [event_record(self._chunk(self.usage())), DONE]


def _input_chunk(state: _Streamed) -> list[ToolCallChunk]:
    """The input of the open call of a custom tool, if there is one; it ends."""
    index, state.custom = state.custom, -1
    if index < 0:
        return []
    arguments, state.pieces = "".join(state.pieces), []
    return [ToolCallChunk(index, UNSET, UNSET, UNSET, CustomInput(UNSET, input_of(arguments)))]


def _function_chunk(deltas: list[CallDelta]) -> FunctionChunk:
    """Several deltas of one function as one."""
    name = deltas[0].name
    return FunctionChunk(UNSET if name is None else name, "".join(delta.arguments for delta in deltas))


def _call_chunk(call: CallDelta) -> ToolCallChunk:
    function = FunctionChunk(UNSET if call.name is None else call.name, call.arguments)
    if call.id is None and call.name is None:
        return ToolCallChunk(call.index, UNSET, UNSET, function)
    return ToolCallChunk(call.index, UNSET if call.id is None else call.id, "function", function)
