"""The plain fields of Anthropic's requests, `thinking` and `output_config`: what is generated, and how.

    {"max_tokens": 100, ...} --TABLE--> values --parse_messages--> Generation

An answer that would exceed the context ends there, and its `stop_reason` says so; only a prompt that leaves no room for
a single token is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...model.errors import PayloadError, ThreadError, UnsupportedError
from ...model.generation import Conversation, Generation, Sampling, StructuredOutput
from ...model.options import Settings
from ..base import JsonSchema, ParsedRequest, Payload, Request
from ..client_fields import ClientFields, Paths
from ..common.fields import Parameter, handle_unknown_field, paths_of, read_rows
from ..common.guides import AskedGuide, guides_of_others, json_guide, one_guide
from ..common.images import take_places
from ..common.kinds import LARGEST_ID, Anything, Boolean, Integer, Number, Object, Text, Texts, Tree
from ..common.schemas import array, objects
from ..openai.chat import read_template_arguments
from .blocks import read_conversation
from .reply import message_encoder
from .tools import read_tools

__all__ = ["FORMS", "FORMS_SCHEMA", "TABLE", "conversation_of", "parse_messages", "read_fields"]

# What runs on Anthropic's servers.
UNSERVED = ("container",)
# What changes nothing in an answer; the last three are how clients of cloud platforms say their headers.
HARMLESS = (
    "metadata", "service_tier", "cache_control", "inference_geo", "speed", "diagnostics", "user_profile_id",
    "workspace_id", "context_management", "anthropic_version", "anthropic_beta", "betas",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class NoServers:
    """An empty list: what a server runs by itself is not served."""

    @property
    def schema(self) -> JsonSchema:
        """As JSON Schema."""
        return array({}, le=0)

    @property
    def description(self) -> str:
        """In words."""
        return "an empty list"

    def read(self, name: str, given: Any) -> None:
        if given != []:
            raise UnsupportedError(f"{name}: not supported", name)


@dataclass(frozen=True, slots=True)
class NoThread:
    """Nothing: the server keeps no conversations, and says so in the way that lets clients go on."""

    @property
    def schema(self) -> JsonSchema:
        """As JSON Schema."""
        return {"type": "null"}

    @property
    def description(self) -> str:
        """In words."""
        return "null alone; by the error for any other value Anthropic's clients send the whole conversation"

    def read(self, name: str, given: Any) -> None:
        raise ThreadError(f"{name}: not supported, send the whole conversation without it", name)


TABLE: tuple[Parameter, ...] = (
    # Any model is accepted, as in all dialects; the answer carries our name.
    Parameter("model", Text(), None),
    # 0 is for the prompt alone, which is cached then.
    Parameter("max_tokens", Integer(0), None, "max_tokens"),
    Parameter("stream", Boolean(), False, "stream"),
    Parameter("stop_sequences", Texts(), (), "stop"),
    # Anthropic's goes up to 1; more is what engines and the other dialects can do.
    Parameter("temperature", Number(0, 2), None, "temperature"),
    Parameter("top_p", Number(0, 1, above=True), None, "top_p"),
    Parameter("top_k", Integer(-1, LARGEST_ID), None, "top_k", equivalents={-1: 0}),
    # vLLM's.
    Parameter("chat_template_kwargs", Tree(), None, "template_arguments"),
    *(Parameter(name, Anything(), None, default_only=True) for name in UNSERVED),
    Parameter("mcp_servers", NoServers(), None),
    Parameter("thread", NoThread(), None),
    *guides_of_others("output_format"),
    *(Parameter(name, Anything(), None) for name in HARMLESS),
)
ROWS = {row.name: row for row in TABLE}
PATHS: Paths = {
    **paths_of(TABLE, "sampling", Sampling),
    "prompt": "messages",
    # One may have come of several, or of `system`.
    "prompt.messages[]": "messages",
    "prompt.tools[]": "tools[]",
    "prompt.tools[].parameters": "tools[].input_schema",
}
"""What the fields are called."""
FORMS = ("messages", "system", "tools", "tool_choice", "thinking", "output_config", "output_format")
"""Read by rules of their own."""

THINKING_KINDS = ("enabled", "disabled", "adaptive", "between_tools")
DISPLAYS = ("summarized", "omitted")
EFFORTS = ("low", "medium", "high", "xhigh", "max")
THINKING: Mapping[str, JsonSchema] = {
    "type": {"enum": [*THINKING_KINDS]},
    "budget_tokens": {"type": "integer", "minimum": 1},
    "display": {"enum": [*DISPLAYS]},
}
FORMAT: Mapping[str, JsonSchema] = {"type": {"const": "json_schema"}, "schema": {"type": "object", "minProperties": 1}}
OUTPUT: Mapping[str, JsonSchema] = {"effort": {"enum": [*EFFORTS]}, "format": objects(["type", "schema"], **FORMAT)}
FORMS_SCHEMA: Mapping[str, JsonSchema] = {
    "thinking": objects(["type"], **THINKING),
    "output_config": objects(**OUTPUT),
    "output_format": objects(["type", "schema"], **FORMAT),
}
"""Of the forms that are read here."""


def parse_messages(payload: Payload, request: Request, settings: Settings) -> ParsedRequest:
    """One generation of a conversation; raises RequestError."""
    values = read_fields(payload, settings)
    max_tokens = values["max_tokens"]
    if max_tokens is None:
        raise PayloadError.of("max_tokens", None, "an integer >= 0")
    conversation, guide, fields = conversation_of(payload, values, settings)
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
        ),
        stream=values["stream"],
    )
    shown = not _omits_thinking(payload.get("thinking"))
    reply = message_encoder(settings.model_name, request.request_id, max_tokens, streams=generation.stream, shown=shown)
    return ParsedRequest((generation,), reply, fields=fields)


def read_fields(payload: Payload, settings: Settings) -> dict[str, Any]:
    """The plain fields by key; raises RequestError, naming the field."""
    values, _ = read_rows({name: value for name, value in payload.items() if name not in FORMS}, ROWS, settings)
    return values


def conversation_of(
    payload: Payload, values: Mapping[str, Any], settings: Settings
) -> tuple[Conversation, StructuredOutput | None, ClientFields]:
    """The prompt, what the answer must conform to, and what all is called; raises RequestError, naming the place."""
    messages, continues = read_conversation(payload, settings)
    messages, own = take_places(messages)
    choice = read_tools(payload, settings)
    arguments = read_template_arguments(values["template_arguments"] or {})
    thinks = _thinking(payload.get("thinking"), settings)
    if thinks is not None and settings.reasoning_parser is not None:
        arguments.setdefault("enable_thinking", thinks)
    effort, guide = _output(payload, settings)
    if effort is not None:
        arguments.setdefault("reasoning_effort", effort)
    conversation = Conversation(
        messages=messages,
        tools=choice.tools.tools,
        tool_choice=choice.tools.choice,
        function=choice.tools.function,
        parallel_tool_calls=choice.parallel,
        template_arguments=arguments,
        add_generation_prompt=not continues,
        continue_final_message=continues,
        include_reasoning=thinks is not False,
    )
    return conversation, guide.output, ClientFields(PATHS, own | guide.own)


def _thinking(given: Any, settings: Settings) -> bool | None:
    """Whether the model is to think; None leaves it to its template."""
    if given is None:
        return None
    thinking = Object().read("thinking", given)
    kind = Text(THINKING_KINDS).read("thinking.type", thinking.get("type"))
    _check_names(thinking, THINKING, settings, "thinking.")
    if thinking.get("budget_tokens") is not None:
        # No engine ends the reasoning after so many tokens.
        Integer(1).read("thinking.budget_tokens", thinking["budget_tokens"])
    if thinking.get("display") is not None:
        Text(DISPLAYS).read("thinking.display", thinking["display"])
    # Between tools there is no thinking either, only what is said there is shown otherwise.
    return kind not in ("disabled", "between_tools")


def _omits_thinking(given: Any) -> bool:
    """Whether the blocks of thinking, which has been read, are to have no text."""
    return given is not None and given.get("display") == "omitted"


def _output(payload: Payload, settings: Settings) -> tuple[str | None, AskedGuide]:
    """How much effort is wanted, and what the text must conform to: `output_format` is a former name of the format."""
    former = _format(payload.get("output_format"), "output_format", settings)
    if payload.get("output_config") is None:
        return None, former
    output = Object().read("output_config", payload["output_config"])
    _check_names(output, OUTPUT, settings, "output_config.")
    effort = output.get("effort")
    if effort is not None:
        effort = Text(EFFORTS).read("output_config.effort", effort)
    guide = _format(output.get("format"), "output_config.format", settings)
    if guide.output is None or former.output is None:
        return effort, former if guide.output is None else guide
    return effort, one_guide(guide, "output_config.format", former, "output_format")


def _format(given: Any, place: str, settings: Settings) -> AskedGuide:
    if given is None:
        return AskedGuide()
    wanted = Object().read(place, given)
    kind = Text().read(f"{place}.type", wanted.get("type"))
    if kind != "json_schema":
        raise UnsupportedError.of(f"{place}.type", kind, "'json_schema'")
    _check_names(wanted, FORMAT, settings, f"{place}.")
    return json_guide(f"{place}.schema", wanted.get("schema"))


def _check_names(given: Mapping[str, Any], known: Mapping[str, Any], settings: Settings, prefix: str) -> None:
    for name, value in given.items():
        if value is not None and name not in known:
            handle_unknown_field(name, known, settings, prefix)
