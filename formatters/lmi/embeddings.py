"""`{"inputs": string or list}` on an endpoint that embeds: `[[number, ...], ...]`, a vector for each text.

LMI documents `inputs` alone (embedding user guide). The other fields are those of Hugging Face's text-embeddings
container, whose clients send them beside `inputs` or in `parameters`: normalize, truncate, truncation_direction,
dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from ...model.errors import ParameterError, PayloadError, UnsupportedError
from ...model.generation import Embedding, Generation
from ...model.options import Settings
from ..base import JsonSchema, ParsedRequest, Payload, Request, encode
from ..client_fields import ClientFields, Paths, prompt_names
from ..common.embedding_reply import EmbeddingEncoder, numbers
from ..common.encoder import RenderError
from ..common.fields import Parameter, paths_of, read_rows, two_values
from ..common.kinds import LARGEST_ID, Anything, Boolean, Integer, Text
from .inputs import texts_of
from .parameters import TABLE as GENERATION_TABLE

__all__ = ["TABLE", "parse"]


@dataclass(frozen=True, slots=True)
class Truncation:
    """true or false, or to how many tokens."""

    @property
    def schema(self) -> JsonSchema:
        """As JSON Schema."""
        return {"anyOf": [{"type": "boolean"}, {"type": "integer", "minimum": 1, "maximum": LARGEST_ID}]}

    @property
    def description(self) -> str:
        """In words."""
        return "true or false, or to how many tokens"

    def read(self, name: str, given: Any) -> int | bool:
        """The value; raises RequestError."""
        if isinstance(given, bool):
            return given
        if not isinstance(given, int | float):
            raise PayloadError.of(name, given, "true, false, or an integer >= 1")
        return Integer(1, LARGEST_ID).read(name, given)


@dataclass(frozen=True, slots=True)
class Side:
    """The string "left" or "right", in upper or lower case. Documentation and clients differ."""

    @property
    def schema(self) -> JsonSchema:
        """As JSON Schema."""
        return {"type": "string", "pattern": "^([Ll][Ee][Ff][Tt]|[Rr][Ii][Gg][Hh][Tt])$"}

    @property
    def description(self) -> str:
        """In words."""
        return 'the string "left" or "right", in upper or lower case'

    def read(self, name: str, given: Any) -> str:
        """The value in lower case; raises RequestError."""
        if not isinstance(given, str):
            raise PayloadError.of(name, given, "Left or Right")
        if given.lower() not in ("left", "right"):
            raise ParameterError.of(name, given, "Left or Right")
        return given.lower()


TABLE: tuple[Parameter, ...] = (
    Parameter("normalize", Boolean(), None, "normalize"),
    Parameter("truncate", Truncation(), False, "truncate"),
    Parameter("truncation_direction", Side(), "right", "cut"),
    Parameter("dimensions", Integer(1, LARGEST_ID), None, "dimensions"),
    Parameter("prompt_name", Anything(), None, default_only=True),
    # Hugging Face's client has it for other services.
    Parameter("encoding_format", Text(("float", "base64")), "float", default_only=True),
)
ROWS = {row.name: row for row in TABLE}
PATHS: Paths = {**paths_of(TABLE, "embedding", Embedding, "parameters."), "prompt": "inputs"}
"""What the fields are called."""
GENERATION = {row.name for row in GENERATION_TABLE} - ROWS.keys()
"""Parameters that ask for generated text."""
BESIDE = ("inputs", "parameters", "stream")
"""Fields of the body that are no parameters."""


@dataclass(slots=True, kw_only=True)
class Vectors(EmbeddingEncoder):
    """A list of lists."""

    def entry(self, vector: bytes, prompt: int) -> bytes:
        """A list of numbers."""
        return encode(numbers(vector))

    def body(self, entries: list[bytes]) -> bytes:
        """The list of all."""
        return b"[" + b",".join(entries) + b"]"


def parse(payload: Payload, request: Request, settings: Settings, refuse: RenderError) -> ParsedRequest:
    """One generation for each text; raises RequestError. `refuse` renders what goes wrong later."""
    inputs = texts_of(payload)
    if payload.get("stream") not in (None, False):
        raise UnsupportedError.of("stream", payload["stream"], "false: vectors are not streamed")
    embedding, own = _embedding(payload, settings)
    generations = (
        Generation(
            request_id=request.request_id,
            prompt=text,
            embedding=embedding,
        )
        for text in inputs
    )
    reply = Vectors(prompts=len(inputs), refuse=refuse)
    each = prompt_names("inputs", len(inputs), listed=isinstance(payload["inputs"], list))
    return ParsedRequest(tuple(generations), reply, fields=ClientFields(PATHS, own, each))


def _embedding(payload: Payload, settings: Settings) -> tuple[Embedding, dict[str, str]]:
    """It, and what the client calls its fields."""
    given = payload.get("parameters")
    if given is None:
        given = {}
    if not isinstance(given, dict):
        raise PayloadError.of("parameters", given, "an object")
    given = cast("dict[str, Any]", given)
    for name in GENERATION & given.keys():
        if given[name] is not None:
            shown = f"parameters.{name}"
            raise UnsupportedError(f"{shown}: this model makes embeddings and generates no text", shown)
    values, names = read_rows(given, ROWS, settings, "parameters.")
    beside = {name: value for name, value in payload.items() if name not in BESIDE}
    others, other_names = read_rows(beside, ROWS, settings)
    for key, name in other_names.items():
        if key in names and values[key] != others[key]:
            raise two_values(name, names[key])
        values[key] = others[key]
    if values["normalize"] is None:
        values["normalize"] = settings.normalize
    return Embedding(**values), {f"embedding.{key}": name for key, name in (other_names | names).items()}
