"""OpenAI's embeddings: `{"input": text, token ids, or a list of either}` (OpenAI's API reference, Create embeddings),
or a conversation, `{"messages"}` (vLLM's server).

    {"object": "list", "data": [{"object": "embedding", "index", "embedding"}], "model", "usage"}

A vector is a list of numbers, or with `encoding_format: base64` (which OpenAI's own clients ask for) its float32
numbers, little-endian, in base64; vLLM's `embed_dtype` and `endianness` make other ones of them. Besides OpenAI's
fields those that vLLM adds are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from ...model.errors import ParameterError
from ...model.generation import Embedding, Generation, Prompt
from ...model.options import Settings
from ..base import ParsedRequest, Payload, Request, encode
from ..client_fields import ClientFields, Paths, prompt_names
from ..common.embedding_reply import EmbeddingEncoder, numbers
from ..common.fields import Parameter, Table, harmless, paths_of, unserved
from ..common.kinds import LARGEST_ID, SMALLEST, Boolean, Integer, Text
from ..common.prompts import Prompts
from ..common.vllm_fields import UNANSWERED
from .messages import read_unanswered
from .parameters import CHAT_ROWS
from .reply import error_response

__all__ = ["INPUTS", "PATHS", "ROWS", "TABLE", "EmbeddingUsage", "Entry", "inputs_of", "parse"]

INPUTS = 2048
"""Inputs in one body (OpenAI's limit)."""

TABLE: tuple[Parameter, ...] = (
    # Any model is accepted, the answer carries our name (docs/decisions.md: The model's name).
    Parameter("model", Text(), None),
    Parameter("input", Prompts(INPUTS), None, "input"),
    CHAT_ROWS["messages"],
    Parameter("encoding_format", Text(("float", "base64")), "float", "encoding"),
    Parameter("dimensions", Integer(1, LARGEST_ID), None, "dimensions"),
    *harmless("user", "request_id"),
    # vLLM's.
    Parameter("use_activation", Boolean(), None, "normalize"),
    Parameter("normalize", Boolean(), None, "normalize"),
    Parameter("truncate_prompt_tokens", Integer(-1, LARGEST_ID), None, "truncate", equivalents={-1: True}),
    Parameter("truncation_side", Text(("left", "right")), "right", "cut"),
    *UNANSWERED,
    # Of base64.
    Parameter("embed_dtype", Text(("float32", "float16", "bfloat16")), "float32", "dtype"),
    Parameter("endianness", Text(("native", "little", "big")), "native", "endianness"),
    Parameter("priority", Integer(SMALLEST), None),
    *unserved("cache_salt"),
    # No part of it, but to ignore it would leave a client waiting for events.
    Parameter("stream", Boolean(), False, default_only=True),
)
ROWS = Table(TABLE, either=("input", "messages"))
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
    pack: Callable[[bytes], bytes] | None
    """Makes of a vector what is sent in base64; None: numbers are sent."""

    def entry(self, vector: bytes, prompt: int) -> bytes:
        """The entry of one input."""
        return encode(Entry(prompt, numbers(vector) if self.pack is None else self.pack(vector)))

    def body(self, entries: list[bytes]) -> bytes:
        """The list and its usage."""
        usage = EmbeddingUsage(self.prompt_tokens, self.prompt_tokens)
        # `data` comes first, so that this is its place, whatever the model is called.
        head, _, tail = encode(EmbeddingBody((), self.model, usage)).partition(b"[]")
        return b"".join((head, b"[", b",".join(entries), b"]", tail))


def packed(vector: bytes, dtype: str, endianness: str) -> bytes:
    """The numbers of `Delta.vector`, float32 and little-endian, otherwise (vLLM, utils/serial_utils.py: tensor2binary).

    Machines that vLLM runs on are little-endian: that is `native`.
    """
    if dtype == "float32" and endianness != "big":
        return vector
    # Here, as only such requests need it.
    import numpy as np

    values: Any = np.frombuffer(vector, "<f4")
    if dtype == "float16":
        with np.errstate(over="ignore"):
            values = values.astype("<f2")
    elif dtype == "bfloat16":
        # The upper half of a float32, rounded to the nearest, halves to the even one.
        bits = values.view("<u4")
        values = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")
    return bytes((values.byteswap() if endianness == "big" else values).tobytes())


def inputs_of(
    values: Mapping[str, Any], settings: Settings
) -> tuple[Sequence[Prompt], dict[str, str], Sequence[Mapping[str, str]]]:
    """What is to be embedded or classified, `input` or `messages`; what the client calls parts of it, and each."""
    if values["messages"] is not None:
        conversation, own = read_unanswered(values, settings)
        return (conversation,), own, ({"prompt": "messages"},)
    inputs: Sequence[Prompt] = values["input"]
    return inputs, {}, prompt_names("input", len(inputs))


def parse(payload: Payload, request: Request, settings: Settings) -> ParsedRequest:
    """One generation for each input; raises RequestError."""
    values, _ = ROWS.read("", payload, settings)
    prompts, own, each = inputs_of(values, settings)
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
            add_special_tokens=values["add_special_tokens"] is not False,
        )
        for prompt in prompts
    )
    reply = Embeddings(
        prompts=len(prompts),
        refuse=error_response,
        model=settings.model_name,
        pack=partial(packed, dtype=values["dtype"], endianness=values["endianness"])
        if values["encoding"] == "base64"
        else None,
    )
    return ParsedRequest(tuple(generations), reply, fields=ClientFields(PATHS, own, each))
