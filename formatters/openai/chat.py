"""Chat completions: `{"messages", ...}` (docs/decisions.md: Complete chat responses).

messages.py    messages, as templates take them
tools.py       tools and which of them may or must be called
parameters.py  the fields
chat_reply.py  the answers
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...model.conversation import Message
from ...model.conversation import Text as TextPart
from ...model.errors import ParameterError
from ...model.generation import Conversation, Generation, Sampling
from ...model.options import Settings
from ..base import INVOCATIONS, SSE, ParsedRequest, Payload, Request
from ..client_fields import ClientFields, Paths
from ..common.fields import Table, paths_of
from ..common.guides import GUIDES, AskedGuide, read_guide
from ..common.vllm_fields import GENERATION_KEYS
from ..conversation.template_arguments import read_template_arguments, think
from ..conversation.tools import ToolUse
from .chat_reply import StreamChat, WholeChat
from .messages import check_ends, read_messages
from .parameters import CHAT_ROWS, CHAT_TABLE, check_echo, read_streaming, sampling_of
from .reply import ChatOptions, Identity
from .tools import read_tools

__all__ = ["PATHS", "parse", "read_chat"]

PATHS: Paths = {
    **paths_of(CHAT_TABLE, "sampling", Sampling),
    "prompt": "messages",
    "prompt.chat_template": "chat_template",
    "sampling.logprobs": "top_logprobs",
}
"""What a chat's fields are called."""


TOOL_FIELDS = frozenset(("tools", "tool_choice", "functions", "function_call"))
NO_TOOLS = ToolUse()
NO_GUIDE = AskedGuide()


def parse(payload: Payload, request: Request, settings: Settings) -> ParsedRequest:
    """One generation of a conversation; raises RequestError."""
    generation, shape, fields = read_chat(payload, request, settings)
    identity = Identity.new("chatcmpl-", settings.model_name)
    if not generation.stream:
        return ParsedRequest((generation,), WholeChat(identity, n=shape.n, shape=shape), fields=fields)
    reply = StreamChat(identity, n=shape.n, content_type=SSE, shape=shape)
    return ParsedRequest((generation,), reply, fields=fields)


def read_chat(
    payload: Payload, request: Request, settings: Settings, table: Table = CHAT_ROWS
) -> tuple[Generation, ChatOptions, ClientFields]:
    """What to generate, what of it the answer shows and what its fields are called, for all dialects that have this
    body; raises RequestError. `table`: that of a dialect that has other messages.
    """
    values = table.given(payload, settings)
    builder = read_messages(values["messages"], settings)
    streams, usage, continuous_usage = read_streaming(values)
    tools, legacy = (NO_TOOLS, False) if TOOL_FIELDS.isdisjoint(values) else read_tools(values)
    conversation = _conversation(builder.messages(), tools, legacy, values, settings)
    logprobs = _logprobs(values)
    guide = NO_GUIDE if GUIDES.keys().isdisjoint(values) else read_guide(values)
    own = builder.fields | tools.own
    if guide.output is not None:
        own |= guide.own
    if "max_completion_tokens" in values:
        own["sampling.max_tokens"] = "max_completion_tokens"
    sampling = sampling_of(
        values,
        streams=streams,
        # The newer name wins (docs/decisions.md: Length of OpenAI responses).
        max_tokens=values.get("max_completion_tokens", values.get("max_tokens")),
        logprobs=logprobs,
        structured_output=guide.output,
    )
    shape = ChatOptions(
        n=sampling.n,
        logprobs=logprobs is not None,
        reasoning=settings.reasoning_parser is not None and conversation.include_reasoning,
        reasoning_content=settings.reasoning_content,
        legacy=legacy,
        custom=tools.custom,
        prompt_logprobs=sampling.prompt_logprobs is not None,
        usage=usage,
        continuous_usage=continuous_usage,
        prompt_ids=values.get("return_token_ids", False),
        # As in vLLM's server: reasoning that is not shown is not told by its tokens either. Some models reason without
        # an option that says so.
        token_ids=values.get("return_token_ids", False) and not _hides_reasoning(conversation),
        ids_for_text=values.get("return_tokens_as_token_ids", False),
        echo=_echo(conversation, sampling.n, settings) if values.get("echo") else "",
        completion_details=request.path != INVOCATIONS,
    )
    generation = Generation(
        request_id=request.request_id,
        prompt=conversation,
        sampling=sampling,
        stream=streams,
        tokens=logprobs is not None or continuous_usage or shape.token_ids,
        token_bytes=logprobs is not None,
        overflow="refuse",
        prompt_ids=shape.prompt_ids,
        **{key: values[key] for key in GENERATION_KEYS if key in values},
    )
    return generation, shape, ClientFields(PATHS, own)


def _conversation(
    messages: tuple[Message, ...],
    tools: ToolUse,
    legacy: bool,
    values: Mapping[str, Any],
    settings: Settings,
) -> Conversation:
    continues = values.get("continue_final_message", False)
    prompts = values.get("add_generation_prompt", not continues)
    check_ends(continues=continues, prompts=prompts)
    template_arguments: dict[str, Any] = {}
    if "template_arguments" in values:
        template_arguments = read_template_arguments(values["template_arguments"])
    if "reasoning_effort" in values:
        think(template_arguments, settings, effort=values["reasoning_effort"])
    if "documents" in values:
        template_arguments.setdefault("documents", values["documents"])
    return Conversation(
        messages=messages,
        tools=tools.tools,
        tool_choice=tools.choice,
        function=tools.function,
        # A function_call is one.
        parallel_tool_calls=values.get("parallel_tool_calls", True) and not legacy,
        template_arguments=template_arguments,
        processor_arguments=values.get("processor_arguments", {}),
        reader_arguments=values.get("reader_arguments", {}),
        chat_template=values.get("chat_template"),
        add_generation_prompt=prompts,
        continue_final_message=continues,
        add_special_tokens=values.get("add_special_tokens", False),
        include_reasoning=values.get("include_reasoning", True),
    )


def _echo(conversation: Conversation, n: int, settings: Settings) -> str:
    """The last message's text, where the answer is of the same role (vLLM's `echo`)."""
    last = conversation.messages[-1]
    if isinstance(last, dict) or (conversation.add_generation_prompt and last.role != "assistant"):
        return ""
    content = last.content
    if not isinstance(content, str):
        content = "\n".join(part.text for part in content if isinstance(part, TextPart))
    check_echo(len(content), n, settings)
    return content


def _hides_reasoning(conversation: Conversation) -> bool:
    return not conversation.include_reasoning


def _logprobs(values: Mapping[str, Any]) -> int | None:
    """How many of the most likely tokens are shown; None: no log-probabilities at all."""
    wanted = values.get("top_logprobs", 0)
    if values.get("logprobs"):
        return int(wanted)
    if wanted:
        raise ParameterError.of("top_logprobs", wanted, "none without logprobs: true")
    return None
