"""The plain fields of a request: a table, one row for each name; and `text` and `reasoning`, which are objects.

    {"temperature": 0.5, "max_output_tokens": 100, ...} --read_fields--> values by key

Rows are OpenAI's, and those of vLLM's that choose the text, as the chat's table has them. Fields with a form of their
own (input, tools ...) are read by items.py and tools.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...model.errors import ParameterError, PayloadError
from ...model.generation import StructuredOutput
from ...model.options import Settings
from ..base import JsonSchema, Payload
from ..common.fields import Parameter, handle_unknown_field, read_rows
from ..common.guide_rows import guide_rows, guides_of_others
from ..common.guides import AskedGuide, json_guide, one_guide, refuse_schema
from ..common.kinds import Anything, Boolean, Integer, Number, Object, Text
from ..common.schemas import FILLED, STRING, array, objects, one_of
from ..common.vllm_fields import SAMPLED
from ..common.vllm_kinds import Likeliest
from ..openai.parameters import CHAT_ROWS
from .bodies import ReasoningOptions

__all__ = [
    "CARRIED",
    "FORMS",
    "FORMS_SCHEMA",
    "LOGPROBS",
    "ROWS",
    "TABLE",
    "read_fields",
    "read_format",
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
PAIRS = 16
KEY_LENGTH = 64
VALUE_LENGTH = 512
"""Of metadata, as OpenAI documents them."""


@dataclass(frozen=True, slots=True)
class Included:
    """A list of the words of INCLUDED."""

    @property
    def schema(self) -> JsonSchema:
        """As JSON Schema."""
        return array({"enum": [*INCLUDED]})

    @property
    def description(self) -> str:
        """In words."""
        return f'a list; "{LOGPROBS}" and "{CARRIED}" have an effect'

    def read(self, name: str, given: Any) -> list[str]:
        if not isinstance(given, list):
            raise PayloadError.of(name, given, "a list of strings")
        return [Text(INCLUDED).read(f"{name}[{index}]", one) for index, one in enumerate(given)]


@dataclass(frozen=True, slots=True)
class Metadata:
    """An object of strings, which comes back."""

    @property
    def schema(self) -> JsonSchema:
        """As JSON Schema."""
        value = {"type": "string", "maxLength": VALUE_LENGTH}
        names = {"maxLength": KEY_LENGTH}
        return {"type": "object", "additionalProperties": value, "propertyNames": names, "maxProperties": PAIRS}

    @property
    def description(self) -> str:
        """In words."""
        return f"an object of at most {PAIRS} strings"

    def read(self, name: str, given: Any) -> dict[str, str]:
        pairs = Object().read(name, given)
        if len(pairs) > PAIRS:
            raise ParameterError(f"{name}: expected at most {PAIRS} pairs, got {len(pairs)}", name)
        for key, value in pairs.items():
            place = f"{name}.{key[:KEY_LENGTH]}"
            if len(key) > KEY_LENGTH:
                raise ParameterError(f"{place}: expected a key of at most {KEY_LENGTH} characters", place)
            if len(Text().read(place, value)) > VALUE_LENGTH:
                raise ParameterError(f"{place}: expected at most {VALUE_LENGTH} characters, got {len(value)}", place)
        return pairs


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
    Parameter("model", Text(), None),
    _repeated("instructions"),
    Parameter("max_output_tokens", Integer(1), None, "max_output_tokens"),
    Parameter("temperature", Number(0, 2), None, "temperature"),
    Parameter("top_p", Number(0, 1, above=True), None, "top_p"),
    Parameter("include", Included(), None, "include"),
    Parameter("top_logprobs", Likeliest(), None, "top_logprobs"),
    Parameter("truncation", Text(("auto", "disabled")), None, "truncation"),
    Parameter("parallel_tool_calls", Boolean(), None, "parallel_tool_calls"),
    # Of tools that a server runs, of which there are none.
    Parameter("max_tool_calls", Integer(1), None, "max_tool_calls"),
    Parameter("stream", Boolean(), None, "stream"),
    Parameter("stream_options", Object(), None, "stream_options"),
    Parameter("store", Boolean(), None, "store"),
    _repeated("previous_response_id"),
    Parameter("metadata", Metadata(), None, "metadata"),
    _repeated("user"),
    _repeated("safety_identifier"),
    _repeated("prompt_cache_key"),
    *(Parameter(name, Anything(), None) for name in HARMLESS),
    Parameter("background", Boolean(), False, default_only=True),
    *(
        Parameter(name, Anything(), None, default_only=True)
        for name in ("conversation", "prompt", "context_management", "moderation")
    ),
    *guide_rows(STRUCTURED),
    *guides_of_others(STRUCTURED),
    *(CHAT_ROWS[name] for name in OF_CHATS),
)
ROWS = {row.name: row for row in TABLE}
FORMS = ("input", "tools", "tool_choice", "text", "reasoning")
"""Read by rules of their own."""


def read_fields(payload: Payload, settings: Settings) -> dict[str, Any]:
    """What the plain fields say, by key; what is absent or null is not in it. Raises RequestError, naming the field."""
    plain = {name: value for name, value in payload.items() if name not in FORMS}
    values, _ = read_rows(plain, ROWS, settings)
    return {key: value for key, value in values.items() if value is not None}


TEXT_FIELDS = ("format", "verbosity")
FORMAT_FIELDS = ("type", "name", "description", "schema", "strict")
OTHER_SCHEMAS = ("value", "json_schema")
"""Where other APIs have the schema."""
FORMATS = ("text", "json_object", "json_schema")
LEVELS = ("low", "medium", "high")


def read_format(given: Any, settings: Settings) -> tuple[AskedGuide, dict[str, Any]]:
    """What `text` asks for, and what the response repeats of it; raises RequestError."""
    shown: dict[str, Any] = {"format": {"type": "text"}}
    if given is None:
        return AskedGuide(), shown
    asked = {name: value for name, value in Object().read("text", given).items() if value is not None}
    for name in asked:
        if name not in TEXT_FIELDS:
            handle_unknown_field(name, TEXT_FIELDS, settings, "text.")
    if "verbosity" in asked:
        # No template knows it.
        shown["verbosity"] = Text(LEVELS).read("text.verbosity", asked["verbosity"])
    if "format" not in asked:
        return AskedGuide(), shown
    form = Object().read("text.format", asked["format"])
    kind = Text(FORMATS).read("text.format.type", form.get("type"))
    for name in form:
        if name not in FORMAT_FIELDS:
            handle_unknown_field(name, FORMAT_FIELDS, settings, "text.format.")
    shown["format"] = {"type": kind}
    # The schema is where it is in this API; elsewhere it would be left out without a word.
    refuse_schema(form, OTHER_SCHEMAS if kind == "json_schema" else ("schema", *OTHER_SCHEMAS), "text.format")
    if kind == "text":
        return AskedGuide(), shown
    if kind == "json_object":
        return AskedGuide(StructuredOutput(json_object=True), "text.format"), shown
    _check_named(form)
    guide = json_guide("text.format.schema", form.get("schema"), settings)
    shown["format"] = {name: form[name] for name in FORMAT_FIELDS if form.get(name) is not None}
    return guide, shown


def read_guide(values: Mapping[str, Any], settings: Settings) -> tuple[AskedGuide, dict[str, Any]]:
    """What the text must conform to, by `text` or by vLLM's field, and what the response repeats of `text`."""
    guide, shown = read_format(values.get("text"), settings)
    output = values.get("structured_output")
    if output is None:
        return guide, shown
    beside = AskedGuide(output, STRUCTURED)
    return beside if guide.output is None else one_guide(guide, "text.format", beside, STRUCTURED), shown


def _check_named(form: Mapping[str, Any]) -> None:
    """Checks what a schema has beside it."""
    for name in ("name", "description"):
        if form.get(name) is not None:
            Text().read(f"text.format.{name}", form[name])
    if form.get("strict") is not None:
        Boolean().read("text.format.strict", form["strict"])


REASONING_FIELDS = ("effort", "summary", "generate_summary")


def read_reasoning(given: Any, settings: Settings) -> ReasoningOptions:
    """`reasoning`; raises RequestError. What efforts there are, the template knows; it is not summed up."""
    if given is None:
        return ReasoningOptions()
    asked = {name: value for name, value in Object().read("reasoning", given).items() if value is not None}
    for name, value in asked.items():
        if name not in REASONING_FIELDS:
            handle_unknown_field(name, REASONING_FIELDS, settings, "reasoning.")
        else:
            Text().read(f"reasoning.{name}", value)
    return ReasoningOptions(asked.get("effort"), asked.get("summary") or asked.get("generate_summary"))


FORMS_SCHEMA: Mapping[str, JsonSchema] = {
    "text": objects(
        format=one_of(
            objects(["type"], type={"enum": ["text", "json_object"]}),
            objects(
                ["type", "schema"],
                type={"const": "json_schema"},
                schema=one_of({"type": "object", "minProperties": 1}, FILLED),
                name=STRING,
                description=STRING,
                strict={"type": "boolean"},
            ),
        ),
        verbosity={"enum": [*LEVELS]},
    ),
    "reasoning": objects(effort=STRING, summary=STRING, generate_summary=STRING),
}
"""Of the fields that are objects."""
