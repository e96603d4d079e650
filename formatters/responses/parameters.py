"""The fields of a request: a table, one row for each name; and what `text` and `reasoning` say.

    {"temperature": 0.5, "max_output_tokens": 100, ...} --ROWS--> values by key

Rows are OpenAI's, and those of vLLM's that choose the text, as the chat's table has them. What the input and tools say
together, items.py and tools.py find out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...model.errors import Fault, ParameterError
from ...model.generation import StructuredOutput
from ..base import Payload
from ..common.fields import Parameter, Table, harmless, unserved
from ..common.forms import Form, Listed, Tagged, Unread
from ..common.guides import NAMED_SCHEMA, AskedGuide, guide_rows, guides_of_others, no_schema, one_guide
from ..common.kinds import Boolean, Integer, Number, Object, Text
from ..common.schemas import OBJECT, STRING
from ..common.vllm_fields import SAMPLED
from ..common.vllm_kinds import Likeliest
from ..conversation.tools import TOOLS
from ..openai.parameters import CHAT_ROWS, STREAM_OPTIONS
from .bodies import ReasoningOptions
from .choice import CHOICE
from .items import INPUT
from .offers import TOOL

__all__ = [
    "CARRIED",
    "LOGPROBS",
    "ROWS",
    "TABLE",
    "read_guide",
    "read_reasoning",
]

LOGPROBS = "message.output_text.logprobs"
CARRIED = "reasoning.encrypted_content"
INCLUDED = (
    LOGPROBS,
    CARRIED,
    # What there is none of: no tools of the server's.
    "message.input_image.image_url",
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
)
INCLUDE = Listed(Text(INCLUDED), noun=f'strings, of which "{LOGPROBS}" and "{CARRIED}" have an effect')
PAIRS = 16
KEY_LENGTH = 64
VALUE_LENGTH = 512
"""Of metadata, as OpenAI documents them."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """An object of strings, which comes back."""

    schema = OBJECT | {
        "additionalProperties": STRING | {"maxLength": VALUE_LENGTH},
        "propertyNames": {"maxLength": KEY_LENGTH},
        "maxProperties": PAIRS,
    }
    description = f"an object of at most {PAIRS} strings"

    def read(self, name: str, given: Any) -> dict[str, str]:
        pairs = Object().read(name, given)
        if len(pairs) > PAIRS:
            raise ParameterError.because(Fault(name, expected=f"at most {PAIRS} pairs", given=str(len(pairs))))
        for key, value in pairs.items():
            place = f"{name}.{key[:KEY_LENGTH]}"
            if len(key) > KEY_LENGTH:
                raise ParameterError.because(Fault(place, expected=f"a key of at most {KEY_LENGTH} characters"))
            if len(Text().read(place, value)) > VALUE_LENGTH:
                raise ParameterError.because(
                    Fault(place, expected=f"at most {VALUE_LENGTH} characters", given=str(len(value)))
                )
        return pairs


OTHERS = ("value", "json_schema")
"""Where other APIs have a format's schema: it would be left out without a word."""
FORMAT = Tagged(
    "type",
    {
        **{
            kind: Form({**no_schema(kind, "schema", *OTHERS), **dict.fromkeys(("name", "description", "strict"))})
            for kind in ("text", "json_object")
        },
        "json_schema": Form({**NAMED_SCHEMA.fields, **no_schema("json_schema", *OTHERS)}, NAMED_SCHEMA.required),
    },
    refused=ParameterError,
)
# No template knows the verbosity.
TEXT = Form({"format": FORMAT, "verbosity": Text(("low", "medium", "high"))})
# What efforts there are, the template knows; it is not summed up.
REASONING = Form({"effort": Text(), "summary": Text(), "generate_summary": Text()})


def _repeated(name: str) -> Parameter:
    """A field that the response repeats."""
    return Parameter(name, Text(), None, name)


OF_CHATS = (
    "seed", "stop", "presence_penalty", "frequency_penalty", "logit_bias", *SAMPLED, "priority", "include_reasoning",
    "chat_template_kwargs", "cache_salt", "mm_processor_kwargs", "media_io_kwargs",
)  # fmt: skip
"""vLLM's, and what OpenAI has for chats alone."""
STRUCTURED = "structured_outputs"
HARMLESS = (
    "service_tier", "prompt_cache_options", "prompt_cache_retention", "client_metadata", "access_programs",
    "background_options", "image",
)  # fmt: skip
"""What changes nothing in a response."""

TABLE: tuple[Parameter, ...] = (
    Parameter("input", Unread(INPUT), None, "input"),
    Parameter("tools", Listed(TOOL, most=TOOLS, noun="tools"), None, "tools"),
    Parameter("tool_choice", CHOICE, None, "tool_choice"),
    Parameter("model", Text(), None),
    _repeated("instructions"),
    Parameter("max_output_tokens", Integer(1), None, "max_output_tokens"),
    Parameter("temperature", Number(0, 2), None, "temperature"),
    Parameter("top_p", Number(0, 1, above=True), None, "top_p"),
    Parameter("include", INCLUDE, None, "include"),
    Parameter("top_logprobs", Likeliest(), None, "top_logprobs"),
    Parameter("truncation", Text(("auto", "disabled")), None, "truncation"),
    Parameter("parallel_tool_calls", Boolean(), None, "parallel_tool_calls"),
    # Of tools that a server runs, of which there are none.
    Parameter("max_tool_calls", Integer(1), None, "max_tool_calls"),
    Parameter("stream", Boolean(), None, "stream"),
    Parameter("stream_options", STREAM_OPTIONS, None, "stream_options"),
    Parameter("store", Boolean(), None, "store"),
    _repeated("previous_response_id"),
    Parameter("metadata", Metadata(), None, "metadata"),
    Parameter("text", TEXT, None, "text"),
    Parameter("reasoning", REASONING, None, "reasoning"),
    _repeated("user"),
    _repeated("safety_identifier"),
    _repeated("prompt_cache_key"),
    *harmless(*HARMLESS),
    Parameter("background", Boolean(), False, default_only=True),
    *unserved("conversation", "prompt", "context_management", "moderation"),
    *guide_rows(STRUCTURED),
    *guides_of_others(STRUCTURED),
    *(CHAT_ROWS[name] for name in OF_CHATS),
)
ROWS = Table(TABLE, ("input",))


def read_guide(values: Mapping[str, Any], payload: Payload) -> tuple[AskedGuide, dict[str, Any]]:
    """What the text must conform to, by `text` or by vLLM's field, and what the response repeats of `text`."""
    text = values.get("text", {})
    kind, form = text.get("format", ("text", {}))
    guide, shown = AskedGuide(), {"format": {}, **text} | {"format": {"type": kind}}
    if kind == "json_object":
        guide = AskedGuide(StructuredOutput(json_object=True), "text.format")
    elif kind == "json_schema":
        guide = form["schema"]
        shown["format"] |= form | {"schema": payload["text"]["format"]["schema"]}
    output = values.get("structured_output")
    if output is None:
        return guide, shown
    beside = AskedGuide(output, STRUCTURED)
    return beside if guide.output is None else one_guide(guide, "text.format", beside, STRUCTURED), shown


def read_reasoning(values: Mapping[str, Any]) -> ReasoningOptions:
    """What `reasoning` asks for."""
    asked = values.get("reasoning", {})
    return ReasoningOptions(asked.get("effort"), asked.get("summary") or asked.get("generate_summary"))
