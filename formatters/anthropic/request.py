"""The fields of Anthropic's requests: what is generated, and how.

    {"max_tokens": 100, ...} --TABLE--> values --parse_messages--> Generation

An answer that would exceed the context ends there, and its `stop_reason` says so; only a prompt that leaves no room for
a single token is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...model.errors import Fault, ThreadError, UnsupportedError
from ...model.generation import Conversation, Generation, Sampling, StructuredOutput
from ...model.options import Settings
from ..base import ParsedRequest, Payload, Request
from ..client_fields import ClientFields, Paths
from ..common.fields import Parameter, Table, harmless, paths_of, unserved
from ..common.forms import Form, Listed, Tagged
from ..common.guides import JSON_GUIDE, AskedGuide, guides_of_others, one_guide
from ..common.kinds import Boolean, Integer, Number, Text, Texts
from ..common.schemas import NULL, array
from ..common.vllm_fields import row, rows
from ..conversation.template_arguments import NONE, read_template_arguments, think
from ..conversation.tools import TOOLS
from .blocks import MESSAGES, SYSTEM, read_conversation
from .found import FoundTools
from .reply import message_encoder
from .tools import CHOICE, TOOL, read_offers, read_tools

__all__ = ["COUNTED", "ROWS", "TABLE", "conversation_of", "parse_messages"]

# What changes nothing in an answer; the last three are how clients of cloud platforms say their headers.
HARMLESS = (
    "metadata", "service_tier", "cache_control", "inference_geo", "speed", "diagnostics", "user_profile_id",
    "workspace_id", "context_management", "anthropic_version", "anthropic_beta", "betas",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class NoServers:
    """An empty list: what a server runs by itself is not served."""

    schema = array({}, le=0)
    description = "an empty list"

    def read(self, name: str, given: Any) -> None:
        if given != []:
            raise UnsupportedError.because(Fault(name, "not supported"))


@dataclass(frozen=True, slots=True)
class NoThread:
    """Nothing: the server keeps no conversations, and says so in the way that lets clients go on."""

    schema = NULL
    description = "null alone; by the error for any other value Anthropic's clients send the whole conversation"

    def read(self, name: str, given: Any) -> None:
        raise ThreadError(f"{name}: not supported, send the whole conversation without it", name)


EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""Anthropic's, and those of other APIs that templates know."""
THOUGHT = Form({"budget_tokens": Integer(1), "display": Text(("summarized", "omitted", "updates"))})
THINKING = Tagged("type", dict.fromkeys(("enabled", "disabled", "adaptive", "between_tools"), THOUGHT))
NOT_SAID: tuple[str, dict[str, Any]] = ("", {})
"""What THINKING is of a request without it."""
FORMAT = Tagged("type", {"json_schema": Form({"schema": JSON_GUIDE}, ("schema",))})

TABLE: tuple[Parameter, ...] = (
    Parameter("messages", MESSAGES, None, "messages"),
    Parameter("system", SYSTEM, None, "system"),
    Parameter("tools", Listed(TOOL, most=TOOLS, noun="tools"), (), "tools"),
    Parameter("tool_choice", CHOICE, None, "tool_choice"),
    # Any model is accepted, as in all dialects; the answer carries our name.
    Parameter("model", Text(), None),
    # 0 is for the prompt alone, which is cached then.
    Parameter("max_tokens", Integer(0), None, "max_tokens"),
    Parameter("stream", Boolean(), False, "stream"),
    Parameter("stop_sequences", Texts(), (), "stop"),
    # Anthropic's goes up to 1; more is what engines and the other dialects can do.
    Parameter("temperature", Number(0, 2), None, "temperature"),
    Parameter("top_p", Number(0, 1, above=True), None, "top_p"),
    row("top_k"),
    # vLLM's, which its own route has from 0.32 on.
    *rows("chat_template_kwargs", "cache_salt", "vllm_xargs"),
    *unserved("container"),
    Parameter("mcp_servers", NoServers(), None),
    Parameter("thread", NoThread(), None),
    Parameter("thinking", THINKING, None, "thinking"),
    Parameter("output_config", Form({"effort": Text(EFFORTS), "format": FORMAT}), None, "output_config"),
    Parameter("output_format", FORMAT, None, "output_format"),
    *guides_of_others("output_format"),
    *harmless(*HARMLESS),
)
COUNTED = Table(TABLE, ("messages",))
"""What has tokens that can be counted."""
ROWS = Table(TABLE, ("messages", "max_tokens"))
PATHS: Paths = {
    **paths_of(TABLE, "sampling", Sampling),
    "prompt": "messages",
    # One may have come of several, or of `system`.
    "prompt.messages[]": "messages",
    "prompt.tools[]": "tools[]",
    "prompt.tools[].parameters": "tools[].input_schema",
    "prompt.template_arguments.reasoning_effort": "output_config.effort",
}
"""What the fields are called."""


def parse_messages(payload: Payload, request: Request, settings: Settings) -> ParsedRequest:
    """One generation of a conversation; raises RequestError."""
    values, _ = ROWS.read("", payload, settings)
    max_tokens = values["max_tokens"]
    conversation, guide, fields = conversation_of(values, settings)
    generation = Generation(
        request_id=request.request_id,
        prompt=conversation,
        sampling=Sampling(
            temperature=values["temperature"],
            top_p=values["top_p"],
            top_k=values["top_k"],
            stop=values["stop"],
            # Engines generate one token at least; with 0 it is not shown.
            max_tokens=max_tokens or 1,
            structured_output=guide,
            extra_args=values["extra_args"] or {},
        ),
        stream=values["stream"],
        cache_salt=values["cache_salt"],
    )
    _, thinking = values["thinking"] or NOT_SAID
    shown = thinking.get("display") != "omitted"
    reply = message_encoder(settings.model_name, request.request_id, max_tokens, streams=generation.stream, shown=shown)
    return ParsedRequest((generation,), reply, fields=fields)


def conversation_of(
    values: Mapping[str, Any], settings: Settings
) -> tuple[Conversation, StructuredOutput | None, ClientFields]:
    """The prompt, what the answer must conform to, and what all is called; raises RequestError, naming the place."""
    found = FoundTools(read_offers(values["tools"], settings))
    builder, continues = read_conversation(values["messages"], values["system"], found, settings)
    tools, parallel = read_tools(values["tool_choice"], found.offers, found.names)
    arguments = read_template_arguments(values["template_arguments"] or {})
    output: dict[str, Any] = values["output_config"] or {}
    kind, thinking = values["thinking"] or NOT_SAID
    # Between tools there is no thinking either, only what is said there is shown otherwise.
    thinks = kind not in ("disabled", "between_tools") if kind else None
    if not kind and output.get("effort") == NONE:
        thinks = False
    think(arguments, settings, effort=output.get("effort"), thinks=thinks, budget=thinking.get("budget_tokens"))
    guide = _guide(output.get("format"), values["output_format"])
    conversation = Conversation(
        messages=builder.messages(),
        tools=tools.tools,
        tool_choice=tools.choice,
        function=tools.function,
        parallel_tool_calls=parallel,
        template_arguments=arguments,
        add_generation_prompt=not continues,
        continue_final_message=continues,
        include_reasoning=thinks is not False,
    )
    return conversation, guide.output, ClientFields(PATHS, builder.fields | tools.own | guide.own)


def _guide(form: tuple[str, dict[str, Any]] | None, former: tuple[str, dict[str, Any]] | None) -> AskedGuide:
    """What the text must conform to: `output_format` is a former name of `output_config.format`."""
    asked: list[tuple[AskedGuide, str]] = [
        (given[1]["schema"], place)
        for place, given in (("output_config.format", form), ("output_format", former))
        if given is not None
    ]
    if not asked:
        return AskedGuide()
    guide, place = asked[0]
    return guide if len(asked) == 1 else one_guide(guide, place, *asked[1])
