"""A request, read: what is to be generated, and the response as it is before anything has been.

    {"input", "instructions", "tools", "text", ...} --read_request--> Generation, ResponseOptions

items.py        the input, as messages
tools.py        tools and which of them may or must be called
parameters.py   the fields
stored.py       the response that `previous_response_id` names, and what is kept of this one
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

from ...model.conversation import Message
from ...model.errors import ParameterError
from ...model.generation import FITTING, Conversation, Generation, Sampling
from ...model.options import Settings
from ..base import Payload, Request
from ..client_fields import ClientFields, Paths
from ..common.fields import paths_of
from ..common.vllm_fields import GENERATION_KEYS
from ..conversation.builder import Builder
from ..conversation.template_arguments import read_template_arguments, think
from ..openai.parameters import read_streaming, sampling_of
from .bodies import ReasoningOptions, ResponseBody
from .items import add_items, additional_tools
from .parameters import CARRIED, LOGPROBS, ROWS, TABLE, read_guide, read_reasoning
from .reply import ResponseOptions
from .stored import answered_items, previous_items, with_references
from .tools import ResponseTools, read_tools

__all__ = ["read_request"]


PATHS: Paths = {
    **paths_of(TABLE, "sampling", Sampling),
    "prompt": "input",
    # One may have come of several items.
    "prompt.messages": "input",
    "prompt.messages[]": "input",
    "prompt.tools[]": "tools[]",
    "prompt.tools[].parameters": "tools[].parameters",
    "prompt.template_arguments.reasoning_effort": "reasoning.effort",
    "sampling.max_tokens": "max_output_tokens",
    "sampling.logprobs": "top_logprobs",
    "sampling.truncate": "truncation",
}
"""What the fields are called."""


def read_request(
    payload: Payload, request: Request, settings: Settings
) -> tuple[Generation, ResponseOptions, ClientFields]:
    """What to generate, what the response says besides it, and what all is called; raises RequestError."""
    values = ROWS.given(payload, settings)
    streams = read_streaming(values).streams
    previous = previous_items(values.get("previous_response_id"), request.responses)
    referred = with_references(values["input"], request.responses)
    further = (*additional_tools(previous, "previous_response_id"), *additional_tools(referred, "input"))
    tools = read_tools(values, settings, further)
    builder = Builder("input")
    if (instructions := values.get("instructions")) is not None:
        builder.say("system", instructions)
    if previous:
        add_items(builder, previous, "previous_response_id", tools.name, settings)
    add_items(builder, referred, "input", tools.name, settings)
    guide, text = read_guide(values, payload)
    reasoning = read_reasoning(values)
    answered = answered_items(values.get("store"), previous, referred, request.responses)
    logprobs = _logprobs(values)
    sampling = sampling_of(
        values,
        streams=streams,
        max_tokens=values.get("max_output_tokens"),
        logprobs=logprobs,
        structured_output=guide.output,
        truncate=FITTING if values.get("truncation") == "auto" else None,
    )
    generation = Generation(
        request_id=request.request_id,
        prompt=_conversation(builder.messages(), tools, reasoning, values, settings),
        sampling=sampling,
        stream=streams,
        tokens=logprobs is not None,
        token_bytes=logprobs is not None,
        overflow="refuse",
        **{key: values[key] for key in GENERATION_KEYS if key in values},
    )
    body = _begun(values, tools, text, reasoning, answered, settings)
    fields = ClientFields(PATHS, builder.fields | tools.used.own | guide.own)
    return (
        generation,
        ResponseOptions(body, logprobs is not None, CARRIED in values.get("include", ()), answered, tools.tools),
        fields,
    )


def _logprobs(values: Mapping[str, Any]) -> int | None:
    """How many of the most likely tokens are shown; None: no log-probabilities at all."""
    wanted = values.get("top_logprobs", 0)
    if LOGPROBS in values.get("include", ()):
        return int(wanted)
    if wanted:
        raise ParameterError.of("top_logprobs", wanted, f"none without include: ['{LOGPROBS}']")
    return None


def _conversation(
    messages: tuple[Message, ...],
    tools: ResponseTools,
    reasoning: ReasoningOptions,
    values: Mapping[str, Any],
    settings: Settings,
) -> Conversation:
    offered = tools.used
    arguments = read_template_arguments(values.get("template_arguments", {}))
    think(arguments, settings, effort=reasoning.effort)
    return Conversation(
        messages=messages,
        tools=offered.tools,
        tool_choice=offered.choice,
        function=offered.function,
        parallel_tool_calls=values.get("parallel_tool_calls", True),
        template_arguments=arguments,
        processor_arguments=values.get("processor_arguments", {}),
        reader_arguments=values.get("reader_arguments", {}),
        include_reasoning=values.get("include_reasoning", True),
    )


REPEATED = (
    "instructions", "max_output_tokens", "max_tool_calls", "parallel_tool_calls", "previous_response_id",
    "prompt_cache_key", "safety_identifier", "temperature", "top_logprobs", "top_p", "truncation", "user", "metadata",
)  # fmt: skip
"""What the response has as it was given."""


def _begun(
    values: Mapping[str, Any],
    tools: ResponseTools,
    text: dict[str, Any],
    reasoning: ReasoningOptions,
    answered: bytes | None,
    settings: Settings,
) -> ResponseBody:
    """The response that has no output yet."""
    return ResponseBody(
        id="resp_" + uuid.uuid4().hex,
        created_at=int(time.time()),
        model=settings.model_name,
        reasoning=reasoning,
        text=text,
        tools=tools.shown,
        tool_choice=tools.choice,
        store=answered is not None,
        **{name: values[name] for name in REPEATED if name in values},
    )
