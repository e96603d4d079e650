"""OpenAI's embeddings: `{"input": text, token ids, or a list of either}` (OpenAI's API reference, Create embeddings).

    {"object": "list", "data": [{"object": "embedding", "index", "embedding"}], "model", "usage"}

A vector is a list of numbers, or with `encoding_format: base64` (which OpenAI's own clients ask for) its float32
numbers, little-endian, in base64. Besides OpenAI's fields those that vLLM adds are read.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from ...model.errors import ParameterError
from ...model.generation import Embedding, Generation
from ...model.options import Settings
from ..base import ParsedRequest, Payload, Request, encode
from ..client_fields import ClientFields, Paths, prompt_names
from ..common.embedding_reply import EmbeddingEncoder, numbers
from ..common.fields import Parameter, Table, harmless, paths_of, unserved
from ..common.kinds import LARGEST, LARGEST_ID, Boolean, Integer, Text
from ..common.prompts import Prompts
from .reply import error_response

__all__ = ["INPUTS", "PATHS", "ROWS", "TABLE", "EmbeddingUsage", "Entry", "parse"]

INPUTS = 2048
"""Inputs in one body (OpenAI's limit)."""

TABLE: tuple[Parameter, ...] = (
    # Any model is accepted, the answer carries our name (docs/decisions.md: The model's name).
    Parameter("model", Text(), None),
    Parameter("input", Prompts(INPUTS), None, "input"),
    Parameter("encoding_format", Text(("float", "base64")), "float", "encoding"),
    Parameter("dimensions", Integer(1, LARGEST_ID), None, "dimensions"),
    *harmless("user", "request_id"),
    # vLLM's.
    Parameter("use_activation", Boolean(), None, "normalize"),
    Parameter("normalize", Boolean(), None, "normalize"),
    Parameter("truncate_prompt_tokens", Integer(-1, LARGEST_ID), None, "truncate", equivalents={-1: True}),
    Parameter("truncation_side", Text(("left", "right")), "right", "cut"),
    Parameter("add_special_tokens", Boolean(), True, "add_special_tokens"),
    Parameter("embed_dtype", Text(), "float32", default_only=True),
    Parameter("endianness", Text(("native", "little")), None),
    Parameter("priority", Integer(-LARGEST), None),
    *unserved("cache_salt", "mm_processor_kwargs"),
    # No part of it, but to ignore it would leave a client waiting for events.
    Parameter("stream", Boolean(), False, default_only=True),
)
ROWS = Table(TABLE, required=("input",))
PATHS: Paths = paths_of(TABLE, "embedding", Embedding)
"""What the fields are called."""


class Entry(msgspec.Struct, frozen=True):
    """The vector of one input."""

    index: int
    embedding: tuple[float, ...] | bytes
    """Bytes are base64 in JSON."""
    object: str = "embedding"


class EmbeddingUsage(msgspec.Struct, frozen=True):
    """Tokens of all inputs."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingBody(msgspec.Struct, frozen=True):
    """A whole answer."""

    data: tuple[()]
    """Filled in as JSON."""
    model: str
    usage: EmbeddingUsage
    object: str = "list"


@dataclass(slots=True, kw_only=True)
class Embeddings(EmbeddingEncoder):
    """OpenAI's list."""

    model: str
    base64: bool

    def entry(self, vector: bytes, prompt: int) -> bytes:
        """The entry of one input."""
        return encode(Entry(prompt, vector if self.base64 else numbers(vector)))

    def body(self, entries: list[bytes]) -> bytes:
        """The list and its usage."""
        usage = EmbeddingUsage(self.prompt_tokens, self.prompt_tokens)
        # `data` comes first, so that this is its place, whatever the model is called.
        head, _, tail = encode(EmbeddingBody((), self.model, usage)).partition(b"[]")
        return b"".join((head, b"[", b",".join(entries), b"]", tail))


def parse(payload: Payload, request: Request, settings: Settings) -> ParsedRequest:
    """One generation for each input; raises RequestError."""
    values, _ = ROWS.read("", payload, settings)
    inputs = values["input"]
    normalize, truncate = values["normalize"], values["truncate"]
    if truncate == 0:
        raise ParameterError.of("truncate_prompt_tokens", truncate, "an integer >= 1, or -1")
    embedding = Embedding(
        normalize=settings.normalize if normalize is None else normalize,
        dimensions=values["dimensions"],
        truncate=False if truncate is None else truncate,
        cut=values["cut"],
    )
    generations = (
        Generation(
            request_id=request.request_id,
            prompt=prompt,
            embedding=embedding,
            add_special_tokens=values["add_special_tokens"],
        )
        for prompt in inputs
    )
    reply = Embeddings(
        prompts=len(inputs),
        refuse=error_response,
        model=settings.model_name,
        base64=values["encoding"] == "base64",
    )
    fields = ClientFields(PATHS, each=prompt_names("input", len(inputs)))
    return ParsedRequest(tuple(generations), reply, fields=fields)
