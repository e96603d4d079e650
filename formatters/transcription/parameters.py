"""The fields of a transcription's request: OpenAI's, and those that vLLM adds (entrypoints/speech_to_text).

A form has texts only: what is no text in JSON is read from one there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from ...model.errors import PayloadError, UnsupportedError
from ..base import Payload
from ..client_fields import Paths
from ..common.fields import Parameter, Table, harmless, unserved
from ..common.forms import Listed
from ..common.kinds import SMALLEST, Boolean, Integer, Number, Text
from ..common.vllm_fields import rows
from ..dialect import JsonSchema
from .file_body import FILE

__all__ = ["FORMATS", "PATHS", "ROWS", "TIMED", "typed"]

FORMATS = ("json", "text", "srt", "verbose_json", "vtt")
TIMED = ("srt", "verbose_json", "vtt")
"""Those that say when something is said."""
BASE64 = "data:audio/any;base64,"

AUDIO: JsonSchema = {"type": "string", "contentMediaType": "audio/*", "contentEncoding": "base64"}


@dataclass(frozen=True, slots=True)
class Audio:
    """A file: bytes of a form, or base64 in JSON; what is read are the bytes, or a data URL."""

    schema = AUDIO
    description = "an audio file; in JSON as base64, or as a data URL"

    def read(self, name: str, given: Any) -> bytes | str:
        if isinstance(given, bytes):
            return given
        if not isinstance(given, str):
            raise PayloadError.of(name, given, self.description)
        return given if given[:5].lower() == "data:" else BASE64 + given


SEGMENT: JsonSchema = {"const": "segment"}


class Granularity:
    """What points in time are of."""

    schema = SEGMENT
    description = "'segment', the only one that is supported"

    def read(self, name: str, given: Any) -> str:
        if Text(("segment", "word")).read(name, given) != "segment":
            raise UnsupportedError.of(name, given, self.description)
        return "segment"


GRANULARITIES = Listed(Granularity(), noun="'segment'")

TABLE: tuple[Parameter, ...] = (
    Parameter(FILE, Audio(), None, "file"),
    # Any model is accepted.
    Parameter("model", Text(), None),
    Parameter("language", Text(), None, "language"),
    Parameter("prompt", Text(), "", "prompt"),
    Parameter("response_format", Text(FORMATS), "json", "format"),
    Parameter("temperature", Number(0, 2), 0.0, "temperature"),
    Parameter("timestamp_granularities", GRANULARITIES, None, "granularities"),
    Parameter("timestamp_granularities[]", GRANULARITIES, None, "granularities"),
    Parameter("stream", Boolean(), False, "stream"),
    # It always is as the model needs it.
    *harmless("chunking_strategy", "user"),
    *unserved("include", "include[]"),
    # vLLM's.
    Parameter("stream_include_usage", Boolean(), False, "usage"),
    Parameter("stream_continuous_usage_stats", Boolean(), False, default_only=True),
    Parameter("to_language", Text(), None, "to_language"),
    Parameter("hotwords", Text(), None, "hotwords"),
    Parameter("top_p", Number(0, 1, above=True), None, "top_p"),
    *rows("top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "vllm_xargs", "priority"),
    # Of -1 vLLM makes a random one.
    Parameter("seed", Integer(SMALLEST), None, "seed", equivalents={-1: None}),
    Parameter("max_completion_tokens", Integer(1), None, "max_tokens"),
    Parameter("use_beam_search", Boolean(), False, default_only=True),
    Parameter("n", Integer(1), 1, default_only=True),
    Parameter("length_penalty", Number(-100, 100), 1.0, default_only=True),
    Parameter("watermarking", Boolean(), False, default_only=True),
    *harmless("include_stop_str_in_output"),
)
ROWS = Table(TABLE, (FILE,))
PATHS: Paths = {
    "transcription.audio": FILE,
    "transcription.timestamps": "response_format",
    "transcription": "",
    "prompt": "prompt",
    "sampling": "",
    "sampling.max_tokens": "max_completion_tokens",
    "sampling.extra_args": "vllm_xargs",
}
"""What the fields are called."""

TEXTS = frozenset(row.name for row in TABLE if isinstance(row.kind, Text | Audio))


def typed(form: Payload) -> Payload:
    """A form's fields as they were in JSON; what is none there stays a text, which its reader refuses."""
    return {name: value if name in TEXTS else _value(value) for name, value in form.items()}


def _value(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


WORDS: dict[str, bool | None] = {"true": True, "false": False, "": None}
"""As forms have them, which are written in many languages."""
