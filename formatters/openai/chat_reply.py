"""Chat completions, whole and streamed (docs/decisions.md: Chat chunks).

A chunk has what one Delta brought, reasoning before text before calls; the first chunk of each choice has its role,
the last its finish_reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from msgspec import UNSET

from ...model.events import CallDelta, Delta, Finish
from ..base import encode, event_record
from ..common.blocks import Growing
from ..common.encoder import around
from ..conversation.custom_tools import input_of
from .bodies import (
    ChatBody,
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatDelta,
    CustomInput,
    FinishWord,
    Function,
    FunctionChunk,
    Message,
    TokenIds,
    ToolCall,
    ToolCallChunk,
    Usage,
)
from .logprobs import ChatLogprobs, ShownTokens, TokenLogprob, chat_entries, prompt_logprobs
from .reply import DONE, FINISH_WORDS, PLAIN, ChatOptions, ChunkEncoder, OpenAIEncoder

__all__ = ["StreamChat", "WholeChat"]


@dataclass(slots=True)
class _Choice:
    """A choice in the making."""

    texts: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])
    calls: dict[int, Growing] = field(default_factory=dict[int, Growing])
    shown: ShownTokens = field(default_factory=ShownTokens)
    entries: list[TokenLogprob] = field(default_factory=list[TokenLogprob])
    ids: list[int] = field(default_factory=list[int])

    def call(self, delta: CallDelta) -> None:
        call = self.calls.setdefault(delta.index, Growing("call", delta.index))
        call.call_id = call.call_id or delta.id or ""
        call.name = call.name or delta.name or ""
        call.pieces.append(delta.arguments)


def _tool_call(call: Growing, custom: frozenset[str]) -> ToolCall:
    """A call of a function, or of one of the `custom` tools."""
    if call.name not in custom:
        return ToolCall(call.call_id, Function(call.name, call.text))
    return ToolCall(call.call_id, UNSET, "custom", CustomInput(call.name, input_of(call.text)))


@dataclass(slots=True)
class WholeChat(OpenAIEncoder):
    """One body."""

    shape: ChatOptions = PLAIN
    choices: dict[int, _Choice] = field(default_factory=dict[int, _Choice])

    def _take(self, delta: Delta, prompt: int) -> list[bytes]:
        state = self.choices.setdefault(prompt * self.n + delta.index, _Choice())
        state.texts.append(delta.text)
        state.reasoning.append(delta.reasoning)
        for call in delta.calls:
            state.call(call)
        if self.shape.logprobs:
            state.entries += chat_entries(state.shown.push(delta.tokens), ids=self.shape.ids_for_text)
        if self.shape.token_ids:
            state.ids += [token.id for token in delta.tokens]
        return []

    def _close(self) -> list[bytes]:
        identity = self.identity
        body = ChatBody(
            id=identity.id,
            created=identity.created,
            model=identity.model,
            choices=[self._choice(index, self.choices[index]) for index in sorted(self.choices)],
            usage=self.whole_usage(details=self.shape.completion_details),
            prompt_logprobs=prompt_logprobs(self.started.get(0)) if self.shape.prompt_logprobs else None,
            prompt_token_ids=self.prompt_ids() if self.shape.prompt_ids else UNSET,
            kv_transfer_params=self.kv_transfer_params(),
        )
        return [encode(body)]

    def _choice(self, index: int, state: _Choice) -> ChatChoice:
        text = self.shape.echo + "".join(state.texts)
        calls = [call for _, call in sorted(state.calls.items())]
        legacy = self.shape.legacy
        thought = "".join(state.reasoning)
        reasoning = thought if thought or self.shape.reasoning else UNSET
        message = Message(
            content=None if calls and not text else text,
            function_call=Function(calls[0].name, calls[0].text) if calls and legacy else None,
            tool_calls=[] if legacy else [_tool_call(call, self.shape.custom) for call in calls],
            reasoning=reasoning,
            reasoning_content=reasoning if self.shape.reasoning_content else UNSET,
        )
        logprobs = ChatLogprobs(state.entries) if self.shape.logprobs else None
        finish, ids = self.finishes[index], state.ids if self.shape.token_ids else UNSET
        return ChatChoice(index, message, logprobs, _word(finish, bool(calls), self.shape), finish.stop, ids)


def _word(finish: Finish, called: bool, shape: ChatOptions) -> FinishWord:
    """A tool call takes precedence over the end of sequence; a response that was cut off keeps its own reason."""
    word = FINISH_WORDS[finish.reason]
    if not called or word != "stop":
        return word
    return "function_call" if shape.legacy else "tool_calls"


@dataclass(slots=True)
class _Streamed:
    """What has been sent of a choice."""

    shown: ShownTokens | None
    head: bytes = b""
    tail: bytes = b""
    """The bytes around a text, where nothing else is new in a chunk; none where it has logprobs or the usage."""
    thought: Sequence[bytes] = ()
    """Those around reasoning, once some has come alone."""
    called: bool = False
    custom: int = -1
    """Which call is one of a custom tool whose input is not whole yet."""
    pieces: list[str] = field(default_factory=list[str])
    """Its arguments."""


@dataclass(slots=True)
class StreamChat(ChunkEncoder):
    """A chunk for every Delta that brings anything."""

    shape: ChatOptions = PLAIN
    choices: dict[int, _Streamed] = field(default_factory=dict[int, _Streamed])

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

    def _take(self, delta: Delta, prompt: int) -> list[bytes]:
        choice = prompt * self.n + delta.index
        state = self.choices.get(choice)
        text, finish = delta.text, delta.finish
        if state and state.head and finish is None and not delta.calls:
            # Nearly every Delta.
            thought = delta.reasoning
            if text and not thought:
                return [state.head + encode(text) + state.tail]
            if thought and not text:
                state.thought = state.thought or self._around_thought(choice)
                return [encode(thought).join(state.thought)]
        records: list[bytes] = []
        if state is None:
            state = self._begin(choice, records)
        usage = self._usage_so_far(choice, delta) if self.shape.continuous_usage else None
        logprobs = None
        if state.shown is not None:
            logprobs = ChatLogprobs(chat_entries(state.shown.push(delta.tokens), ids=self.shape.ids_for_text))
        ids: TokenIds = [token.id for token in delta.tokens] if self.shape.token_ids else UNSET
        new = self._delta(delta, state)
        if finish is not None:
            if new is None:
                new = ChatDelta() if state.called else ChatDelta(content="")
            word = _word(finish, state.called, self.shape)
            records.append(self._record(usage, ChatChunkChoice(choice, new, logprobs, word, finish.stop, ids)))
        elif new is not None or (logprobs is not None and logprobs.content) or ids:
            new = new or ChatDelta(content="")
            records.append(self._record(usage, ChatChunkChoice(choice, new, logprobs, token_ids=ids)))
        return records

    def _begin(self, choice: int, records: list[bytes]) -> _Streamed:
        """Begins a choice, with a chunk of its role and one of what is echoed, which count no token."""
        self.begun = True
        shape = self.shape
        usage = self._usage_before() if shape.continuous_usage else None
        state = self.choices[choice] = _Streamed(ShownTokens() if shape.logprobs else None)
        no_logprobs = ChatLogprobs([]) if shape.logprobs else None
        first = ChatChunkChoice(choice, ChatDelta("assistant", content=""), no_logprobs)
        if shape.prompt_ids:
            records.append(event_record(self._chunk(usage, first, self.prompt_ids())))
        else:
            records.append(self._record(usage, first))
        if shape.echo:
            records.append(self._record(usage, ChatChunkChoice(choice, ChatDelta(content=shape.echo), no_logprobs)))
        if not shape.logprobs and not shape.continuous_usage and not shape.token_ids:
            state.head, state.tail = around(self._record(None, ChatChunkChoice(choice, ChatDelta(content=""))))
        return state

    def _around_thought(self, choice: int) -> list[bytes]:
        """What stands around reasoning, under one name or two."""
        twice = self.shape.reasoning_content
        thought = ChatDelta(reasoning="", reasoning_content="" if twice else UNSET)
        return self._record(None, ChatChunkChoice(choice, thought)).rsplit(b'""', 1 + twice)

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
