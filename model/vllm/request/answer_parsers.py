"""vLLM's parsers of a model's answers: which of them a conversation needs, and what they are told.

Conversation, vLLM's request --AnswerParsers.splitter--> Splitter (text/answers/parsers.py)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from ...errors import Fault, OptionError, ParameterError
from ...events import Token
from ...generation import Conversation
from ...options import Settings
from ...text.answers.call_ids import MISTRAL, call_ids, calls_in
from ...text.answers.call_reader import CallForm, form_of
from ...text.answers.forced_calls import ForcedCalls
from ...text.answers.held_calls import HeldCalls
from ...text.answers.marked_reasoning import MARKED
from ...text.answers.parsers import Splitter
from ...text.answers.reasoning import Reasoning
from ...text.answers.text_marks import PlainTokens
from ...text.answers.text_splitter import TextSplitter
from ..core import Core
from ..guides.beginning import Beginning, beginning
from ..guides.joined import tool_format
from ..library.internals import keep_linear, keep_shapes, keep_texts
from ..library.parts import part
from .cohere import COHERE, begun, by_one_filter
from .marks import ReasoningMarks

__all__ = ["AnswerParsers"]

FORCED = "pythonic"
"""A tool parser for calls that a request forces where the options name none. It leaves these to vLLM's guided decoding,
which makes them JSON; others have the calls made in their own form from vLLM 0.32 on (structural tags)."""
BY_TOKENS = frozenset(
    {
        "deepseek_v32",
        "ernie45",
        "gemma4",
        "kimi_k3",
        "minicpm5",
        "plamo3",
        ("muse_glimmer", None),
        (None, "k2_horizon"),
    }
)
"""Names of tool and of reasoning parsers, or pairs, that read streams better than whole answers (tests/families)."""
BY_WORDS = frozenset({"muse_glimmer"})
"""Names of parsers whose marks may be words (`to=`)."""
KIMI_K3 = "kimi_k3"
TEXT_START = "<|open|>response<|sep|>"
"""What Kimi K3's text begins with. vLLM's parser of its reasoning takes a stream that does for reasoning."""
TEXT_ENDS = ("<|close|>response<|sep|>", "<|close|>message<|sep|>")
"""What Kimi K3's text and messages end with."""
KEPT = 16
"""How many parsers are kept for answers that are not streamed, each for other variables of the template."""
MOST_VARIABLES = 1024
"""Bytes of the variables for which one is kept."""
ID_TYPE = "vllm.parser.abstract_parser:get_tool_call_id_type"
TOOL_CHOICE = "prompt.tool_choice"
"""Path of what is refused."""


class AnswerParsers:
    """Those of one model; raises OptionError where the options name what vLLM does not have."""

    def __init__(self, core: Core, settings: Settings) -> None:
        self._core = core
        self._settings = settings
        self._classes: dict[tuple[str | None, str | None], Any] = {}
        """vLLM's combined classes of parsers, by the names of both."""
        self._kept: dict[bytes, Any] = {}
        """Parsers of reasoning alone, for answers that are not streamed, by the template's variables."""
        self._tokenizer = keep_texts(core.get_tokenizer())
        keep_shapes()
        by_mistral = part("vllm.utils.mistral:is_mistral_tokenizer")(core.get_tokenizer())
        self._ids: str = MISTRAL if by_mistral else part(ID_TYPE)(core.model_config)
        """Which ids calls have."""
        added = core.get_tokenizer().get_added_vocab()
        self._special = frozenset([*added.values(), *getattr(core.get_tokenizer(), "all_special_ids", ())])
        names = (settings.tool_call_parser, settings.reasoning_parser)
        self._added: tuple[str, ...] = (*(TEXT_ENDS if KIMI_K3 in names else ()), *added)
        """Tokens that are no part of a text."""
        # Fails at start, not at the first request that needs a parser. Some need a model's own tokens.
        tried = getattr(self._try("tool_call_parser", settings.tool_call_parser, None), "tool_parser", None)
        self._by_engine = getattr(tried, "engine_based_streaming", False)
        """Whether vLLM reads both streams and whole answers by one machine."""
        alone = self._try("reasoning_parser", None, settings.reasoning_parser)
        reasoner = getattr(alone, "reasoning_parser", None)
        self._marks = ReasoningMarks(core, self.reasoner)
        _, end = self._marks.of(settings.default_chat_template_kwargs or {})
        self.reasoning_end = None if reasoner is None else -1 if end is None else end
        """The token that ends reasoning; None: there is none, -1: it is not known."""
        self._ends = frozenset[int]() if reasoner is None else core.end_ids()
        # What a user's parser makes of words is not known.
        self.known = all(one is None or type(one).__module__.startswith("vllm.") for one in (tried, reasoner))
        """Whether all of them are vLLM's own."""
        self._resets = self.known and _resets(alone)
        """Whether a parser of reasoning begins anew with each whole answer."""
        self._plain = PlainTokens(added) if self.known and BY_WORDS.isdisjoint(names) else None

    def of(self, conversation: Conversation, request: Any) -> Any:
        """A parser for the answer to a request, vLLM's form of the conversation; None where there is nothing to parse.
        Raises ParameterError.
        """
        arguments = request.chat_template_kwargs or {}
        return self._new(self._tool_parser(conversation), self._settings.reasoning_parser, request.tools, arguments)

    def splitter(
        self, conversation: Conversation, request: Any, prompt_ids: list[int], *, reasons: bool = True
    ) -> Splitter | TextSplitter | None:
        """A splitter for one sequence; None where the answer is text as it is.

        `reasons`: whether reasoning may come.
        """
        guide = request.structured_outputs
        forced = None
        if guide is not None and guide.json is not None:
            # Only for a forced call; what it is, guided decoding says, and not the family of the model.
            function = None if _lists_calls(guide.json) else conversation.function
            forced = ForcedCalls(function, call_ids(self._ids, calls_in(conversation.messages)))
        tool_parser = self._tool_parser(conversation) if forced is None else None
        reasoner = self._settings.reasoning_parser if reasons else None
        if tool_parser is None and reasoner is None and forced is None:
            return None
        arguments = request.chat_template_kwargs or {}
        by_marks = not COHERE.isdisjoint((tool_parser, reasoner))
        form = None if conversation.tool_choice == "none" else self._held(tool_parser)

        def make(*, reasoning: bool, calls: bool, whole: bool = False) -> Any:
            thinks = reasoner if reasoning or by_marks else None
            if whole and thinks and not (calls and tool_parser) and (kept := self._again(arguments)) is not None:
                return kept
            made = self._new(tool_parser if calls else None, thinks, request.tools, arguments)
            if hasattr(made, "set_prompt_token_ids"):  # vLLM 0.32
                made.set_prompt_token_ids(prompt_ids)
            if by_marks and made is not None:
                return begun(made, thinks=self._reasoning(prompt_ids, arguments).open)
            return made

        one_call = not conversation.parallel_tool_calls
        if reasoner is None and forced is not None:
            return TextSplitter(forced, one_call=one_call)
        if reasoner is None and form is not None:
            held = HeldCalls(form, partial(make, reasoning=False, calls=True), request)
            return TextSplitter(held, one_call=one_call)
        return Splitter(
            make,
            request,
            self._reasoning(prompt_ids, arguments),
            forced=forced,
            marks=MARKED.get(reasoner or ""),
            form=form,
            text_start=TEXT_START if reasoner == KIMI_K3 else "",
            by_tokens=not BY_TOKENS.isdisjoint((tool_parser, reasoner, (tool_parser, reasoner))),
            one_call=one_call,
            show_reasoning=conversation.include_reasoning,
            added=self._added,
            plain=self._plain,
            count=partial(self._count, arguments) if self._resets else None,
        )

    def _held(self, tool_parser: str | None) -> CallForm | None:
        """How calls are held back; None where vLLM's parser reads the calls of streams."""
        form = form_of(tool_parser, self._settings.reasoning_parser)
        return None if form is None or (self._by_engine and not form.by_engine) else form

    def _again(self, arguments: Mapping[str, Any]) -> Any:
        """A parser of reasoning alone that reads one whole answer after another; None where one reads no more than one.

        vLLM's machine for all formats begins anew with each (ParserEngine._single_pass_parse). Of a user's class, or
        one that is told the prompt, nobody knows that.
        """
        if not self._resets:
            return None
        asked = msgspec.msgpack.encode(arguments)
        parser = self._kept.get(asked)
        if parser is None:
            parser = self._new(None, self._settings.reasoning_parser, None, arguments)
            # Variables of any size may come, and the parser keeps them.
            if len(self._kept) < KEPT and len(asked) <= MOST_VARIABLES:
                self._kept[asked] = parser
        return parser

    def _count(self, arguments: Mapping[str, Any], ids: list[int]) -> int:
        """How many of a whole answer's tokens are reasoning."""
        return int(self._again(arguments).reasoning_parser.count_reasoning_tokens(ids))

    def _text_of(self, token_id: int) -> str:
        text: str = self._tokenizer.decode([token_id])
        return text

    def reasoner(self, arguments: dict[str, Any]) -> Any:
        """vLLM's parser of the reasoning, for variables of the chat template; None where there is none."""
        return getattr(self._new(None, self._settings.reasoning_parser, None, arguments), "reasoning_parser", None)

    def _reasoning(self, prompt_ids: list[int], arguments: Mapping[str, Any]) -> Reasoning:
        """Where the reasoning of an answer begins."""
        start, end = self._marks.of(arguments)
        return Reasoning(start, end, prompt_ids, self._ends, self._text_of, self._special)

    def beginning(
        self, conversation: Conversation | None, request: Any, prompt_ids: list[int], *, waits: bool
    ) -> Beginning:
        """Where the guide of an answer begins; `request` is the conversation in vLLM's form, None for another prompt.

        `waits`: whether the core can wait for the end of reasoning that may come.
        """
        arguments = {} if request is None else request.chat_template_kwargs or {}
        reasoning = self._reasoning(prompt_ids, arguments)
        if conversation is None:
            return Beginning(at_once=not reasoning.open)
        shown, name = conversation.include_reasoning, self._settings.reasoning_parser
        parser = self.reasoner(arguments) if shown else None
        start, end = self._marks.of(arguments)
        marks = None if start is None or end is None else (start, end)
        return beginning(name, parser, request, reasoning, marks if waits else None)

    def tool_format(self, conversation: Conversation, request: Any) -> Any:
        """The form of calls that may be made beside a guide (guides/joined.py); None where there is none."""
        if not conversation.tools or conversation.forced or conversation.tool_choice == "none":
            return None
        parser = self._new(self._tool_parser(conversation), None, request.tools, request.chat_template_kwargs or {})
        return tool_format(parser, request)

    def _try(self, option: str, tool_parser: str | None, reasoning_parser: str | None) -> Any:
        """A parser by itself; raises OptionError where vLLM does not have it, or it is not for this model."""
        try:
            return self._new(tool_parser, reasoning_parser, None, self._settings.default_chat_template_kwargs)
        except OptionError:
            raise
        except Exception as error:
            name = tool_parser or reasoning_parser
            raise OptionError.of(option, f"{name!r} cannot be used with this model: {error}", given=name) from error

    def feed_once(self, conversation: Conversation, request_of: Callable[[Conversation], Any]) -> None:
        """Raises OptionError for a tool parser that vLLM lists without being able to use it so, by an answer.

        `request_of`: makes vLLM's form of a conversation, for which a parser is asked, too.
        """
        try:
            splitter = self.splitter(conversation, request_of(conversation), [])
            if splitter is not None:
                splitter.feed([Token(0, "a")], ended=True)
        except (ParameterError, RuntimeError) as error:
            name = self._settings.tool_call_parser
            raise OptionError.of("tool_call_parser", f"{name!r} is not supported: {error}", given=name) from error

    def _new(
        self, tool_parser: str | None, reasoning_parser: str | None, tools: Any, arguments: Mapping[str, Any]
    ) -> Any:
        names = (tool_parser, reasoning_parser)
        if names not in self._classes:
            self._classes[names] = _parser(tool_parser, reasoning_parser, self._settings)
        parser = self._classes[names]
        if parser is None:
            return None
        config = self._core.model_config
        # Some parsers write into the variables, which the template is yet to get.
        made = parser(self._tokenizer, tools, chat_template_kwargs={**arguments}, model_config=config)
        keep_linear(made)
        return by_one_filter(made)

    def _tool_parser(self, conversation: Conversation) -> str | None:
        """The name of the tool parser that a conversation needs; raises ParameterError where there is none."""
        choice = conversation.tool_choice
        if conversation.tools:
            if choice == "none":
                # As vLLM does: some models mark texts, too, in a way that their tool parser alone knows.
                return self._settings.tool_call_parser
            if conversation.forced:
                return self._settings.tool_call_parser or FORCED
            if self._settings.tool_call_parser:
                return self._settings.tool_call_parser
            raise ParameterError.because(
                Fault(
                    TOOL_CHOICE, expected="none or a forced call (auto needs option.tool_call_parser)", given="'auto'"
                )
            )
        return None


def _parser(tool_parser: str | None, reasoning_parser: str | None, settings: Settings) -> Any:
    """vLLM's combined parser class of these names; None without any."""
    try:
        return part("vllm.parser:ParserManager").get_parser(
            tool_parser_name=tool_parser,
            reasoning_parser_name=reasoning_parser,
            enable_auto_tools=tool_parser is not None,
            model_name=settings.model_id,
        )
    except Exception as error:
        option = "reasoning_parser" if tool_parser is None else "tool_call_parser"
        # What says that a package is missing says how it is installed, too.
        cause = error if isinstance(error, ImportError) else error.__cause__ or error
        raise OptionError.of(option, str(cause)) from error


def _lists_calls(schema: Any) -> bool:
    """Whether a forced call is written as a list of calls, by the schema that vLLM guides it with."""
    items = schema.get("items") if isinstance(schema, dict) and schema.get("type") == "array" else None
    return isinstance(items, dict) and "anyOf" in items


def _resets(parser: Any) -> bool:
    """Whether a parser of reasoning alone is vLLM's machine for all formats, which is told nothing of the prompt."""
    reads = getattr(getattr(parser, "reasoning_parser", None), "engine_based_streaming", False)
    told = getattr(type(parser), "set_prompt_token_ids", None)
    return bool(reads) and (told is None or told.__module__ == "vllm.parser.abstract_parser")
