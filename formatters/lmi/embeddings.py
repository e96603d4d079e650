"""`{"inputs": string or list}` on an endpoint that embeds: `[[number, ...], ...]`, a vector for each text.

LMI documents `inputs` alone (embedding user guide). The other fields are those of Hugging Face's text-embeddings
container, whose clients send them beside `inputs` or in `parameters`: normalize, truncate, truncation_direction,
dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...model.errors import Fault, ParameterError, PayloadError, UnsupportedError
from ...model.generation import Embedding, Generation
from ...model.options import Settings
from ..base import ParsedRequest, Payload, Request, encode
from ..client_fields import ClientFields, Paths, prompt_names
from ..common.embedding_reply import EmbeddingEncoder, numbers
from ..common.encoder import RenderError
from ..common.fields import Parameter, Table, add_values, paths_of, unserved
from ..common.kinds import LARGEST_ID, Boolean, Integer, Text
from ..common.schemas import BOOLEAN, INTEGER, STRING, one_of
from .body import Body, Inputs
from .parameters import TABLE as GENERATION_TABLE

__all__ = ["BODY", "TABLE", "parse"]


@dataclass(frozen=True, slots=True)
class Truncation:
    """true or false, or to how many tokens."""

    schema = one_of(BOOLEAN, INTEGER | {"minimum": 1, "maximum": LARGEST_ID})
    description = "true or false, or to how many tokens"

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

    schema = STRING | {"pattern": "^([Ll][Ee][Ff][Tt]|[Rr][Ii][Gg][Hh][Tt])$"}
    description = 'the string "left" or "right", in upper or lower case'

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
    *unserved("prompt_name"),
    # Hugging Face's client has it for other services.
    Parameter("encoding_format", Text(("float", "base64")), "float", default_only=True),
)
ROWS = Table(TABLE)
PATHS: Paths = {**paths_of(TABLE, "embedding", Embedding, "parameters."), "prompt": "inputs"}
"""What the fields are called."""
GENERATION = {row.name for row in GENERATION_TABLE} - ROWS.keys()
"""Parameters that ask for generated text."""
STREAM = Parameter("stream", Boolean(), False, default_only=True, why="vectors are not streamed")
BODY = Body(ROWS, Inputs(), (STREAM, *TABLE))


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
    given = payload.get("parameters")
    for name in GENERATION & (given.keys() if isinstance(given, dict) else set[str]()):
        if payload["parameters"][name] is not None:
            shown = f"parameters.{name}"
            raise UnsupportedError.because(Fault(shown, "this model makes embeddings and generates no text"))
    values, names = BODY.read("", payload, settings)
    if (parameters := values.pop("parameters")) is not None:
        add_values(values, names, *parameters)
    inputs, listed = values.pop("inputs")
    if values["normalize"] is None:
        values["normalize"] = settings.normalize
    embedding = Embedding(**values)
    generations = (
        Generation(
            request_id=request.request_id,
            prompt=text,
            embedding=embedding,
        )
        for text in inputs
    )
    reply = Vectors(prompts=len(inputs), refuse=refuse)
    each = prompt_names("inputs", len(inputs), listed=listed)
    own = {f"embedding.{key}": name for key, name in names.items() if key in values}
    return ParsedRequest(tuple(generations), reply, fields=ClientFields(PATHS, own, each))
