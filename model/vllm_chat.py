"""Conversations on vLLM: the model's chat template, and the splitting of answers into reasoning, text and tool calls.

    Conversation --request--> vLLM's ChatCompletionRequest --render--> prompt
    token, token, ... --Splitter.feed--> reasoning, text, calls

vLLM's parsers see one token at a time, streamed or not and however many tokens came in a step: what several tokens at
once do to them is theirs to get wrong, and a whole answer could differ from the streamed one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import OptionError, ParameterError
from .events import CallDelta, Token
from .generation import Conversation
from .options import Settings

if TYPE_CHECKING:
    from vllm.v1.engine.llm_engine import LLMEngine

__all__ = ["ChatSide", "Part", "Splitter", "chat_template"]

FORCED = "hermes"
"""A tool parser for calls that a request forces where the options name none: forced calls are JSON that vLLM's guided
decoding lays down, and are read alike by every parser."""


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
        """Whether it can be told at all: some models mark their reasoning in other ways."""

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

    def feed(self, tokens: Iterable[Token], *, ended: bool) -> Part:
        """Takes the next tokens; with `ended` they are the last, and nothing is held back any more."""
        part = Part()
        tokens = list(tokens)
        for position, token in enumerate(tokens, 1):
            self._take(part, token.text, [token.id], ended and position == len(tokens))
        if ended and not tokens:
            self._take(part, "", [], True)
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
            return
        message = self._parser.parse_delta(text, ids, self._request, self._prompt.ids, finished=last)
        if message is None:
            return
        part.text += message.content or ""
        if self._show_reasoning:
            part.reasoning += message.reasoning or ""
        part.calls += [new for call in message.tool_calls or () if (new := self._call(call)) is not None]

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


class ChatSide:
    """What a model's conversations need; raises OptionError where the options name what vLLM does not have."""

    def __init__(self, llm: LLMEngine, settings: Settings) -> None:
        self._llm = llm
        self._settings = settings
        self._template = chat_template(settings)
        # Fails at start, not at the first request that needs a parser.
        _parser(settings.tool_call_parser, settings.reasoning_parser, settings)
        reasoner = self.reasoner()
        vocabulary = llm.get_tokenizer().get_vocab() if reasoner is not None else {}
        self._start = vocabulary.get(getattr(reasoner, "reasoning_start_str", None) or "")
        self._end = vocabulary.get(getattr(reasoner, "reasoning_end_str", None) or "")

    def request(self, conversation: Conversation) -> Any:
        """vLLM's own form of the request, as its parsers want it; raises ParameterError."""
        from pydantic import ValidationError
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

        fields: dict[str, Any] = {
            "messages": list(conversation.messages),
            "add_generation_prompt": conversation.add_generation_prompt,
            "continue_final_message": conversation.continue_final_message,
            "add_special_tokens": conversation.add_special_tokens,
            "chat_template_kwargs": conversation.template_arguments or None,
            "parallel_tool_calls": conversation.parallel_tool_calls,
        }
        if conversation.tools:
            forced = conversation.function is not None or conversation.tool_choice == "required"
            fields["tools"] = [_strict(tool) for tool in conversation.tools] if forced else [*conversation.tools]
            fields["tool_choice"] = conversation.tool_choice or "auto"
            if conversation.function:
                fields["tool_choice"] = {"type": "function", "function": {"name": conversation.function}}
        try:
            request = ChatCompletionRequest(**fields)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(step) for step in first["loc"])
            raise ParameterError(f"{place or 'messages'}: {first['msg']}", place or "messages") from None
        parser = self._parser_for(conversation, request)
        return request if parser is None else parser.adjust_request(request)

    def render(self, request: Any) -> Any:
        """The prompt, as vLLM takes it. Raises what templates raise; see `template_errors`."""
        chat = request.build_chat_params(self._template, self._settings.chat_template_content_format)
        if request.tools and request.tool_choice != "none":
            tools = [tool.model_dump() for tool in request.tools]
            chat = chat.with_defaults({"tools": tools})
        from vllm.renderers.params import TokenizeParams

        tokenize = TokenizeParams(max_total_tokens=None, add_special_tokens=request.add_special_tokens)
        _, rendered = self._llm.renderer.render_chat([request.messages], chat, tokenize)
        (prompt,) = rendered
        return prompt

    def splitter(self, conversation: Conversation, request: Any, prompt_ids: list[int]) -> Splitter | None:
        """A splitter for one sequence; None where the answer is text as it is."""
        thinking = self._parser_for(conversation, request)
        if thinking is None:
            return None
        return Splitter(
            thinking,
            self._parser_for(conversation, request, reasoning=False),
            request,
            Reasoning(self._start, self._end, prompt_ids),
            one_call=not conversation.parallel_tool_calls,
            show_reasoning=conversation.include_reasoning,
        )

    def reasoner(self) -> Any:
        """vLLM's parser of the reasoning, or None."""
        return getattr(self._new(None, self._settings.reasoning_parser, None, {}), "reasoning_parser", None)

    def guided_at_once(self, prompt_ids: list[int]) -> bool:
        """Whether guided decoding is to begin with the first token, not after reasoning that may never come."""
        reasoning = Reasoning(self._start, self._end, prompt_ids)
        return reasoning.known and not reasoning.open

    def _parser_for(self, conversation: Conversation, request: Any, *, reasoning: bool = True) -> Any:
        """A new parser, with a tool parser only where tools may be called; None where there is nothing to parse."""
        reasoner = self._settings.reasoning_parser if reasoning else None
        return self._new(self._tool_parser(conversation), reasoner, request.tools, request.chat_template_kwargs or {})

    def _new(self, tool_parser: str | None, reasoning_parser: str | None, tools: Any, arguments: dict[str, Any]) -> Any:
        parser = _parser(tool_parser, reasoning_parser, self._settings)
        if parser is None:
            return None
        config = self._llm.model_config
        return parser(self._llm.get_tokenizer(), tools, chat_template_kwargs=arguments, model_config=config)

    def _tool_parser(self, conversation: Conversation) -> str | None:
        """The name of the tool parser that a conversation needs; raises ParameterError where there is none."""
        choice = conversation.tool_choice
        if conversation.tools and choice != "none":
            if conversation.function or choice == "required":
                return self._settings.tool_call_parser or FORCED
            if self._settings.tool_call_parser:
                return self._settings.tool_call_parser
            raise ParameterError(
                "tool_choice: expected none, required or a function (auto needs option.tool_call_parser), got 'auto'",
                "tool_choice",
            )
        return None


def _parser(tool_parser: str | None, reasoning_parser: str | None, settings: Settings) -> Any:
    """vLLM's combined parser class of these names; None without any."""
    from vllm.parser import ParserManager

    try:
        return ParserManager.get_parser(
            tool_parser_name=tool_parser,
            reasoning_parser_name=reasoning_parser,
            enable_auto_tools=tool_parser is not None,
            model_name=settings.model_id,
        )
    except Exception as error:
        option = "tool_call_parser" if "tool" in str(error).lower() else "reasoning_parser"
        raise OptionError(f"option.{option}: {error}", option) from error


def _strict(tool: dict[str, Any]) -> dict[str, Any]:
    """`tool` with arguments that must fit its schema unless it says otherwise; newer vLLM takes any JSON by default."""
    return {**tool, "function": {"strict": True, **tool["function"]}}


def chat_template(settings: Settings) -> str | None:
    """The text of option.chat_template."""
    given = settings.chat_template
    if given is None or "{" in given:
        return given
    path = Path(settings.model_dir, given)
    try:
        return path.read_text()
    except OSError as error:
        raise OptionError(f"option.chat_template: {path}: {error.strerror}", "chat_template") from None
