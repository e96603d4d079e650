"""Which schema of LMI parameters an endpoint has, and what it has of its own.

    option.parameter_schema, or else option.rolling_batch --schema_of--> Schema --rows--> the table, with its own rows

LMI's schema (GenerationParameters) has one list of parameters for every back end and further ones for vLLM, LmiDist and
TensorRT-LLM. A name of any of them means the same in all, so that each schema takes them all: a client that was
written for one back end works on another. What differs are TensorRT-LLM's defaults and its rule for what is greedy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ...model.options import Settings
from ..common.fields import Parameter, Table
from ..common.forms import Made
from ..common.kinds import LARGEST_ID, Integer, Number

__all__ = ["ALIASES", "COMMON", "SCHEMAS", "TENSORRT", "Schema", "schema_of"]


TOKEN_ID = Made(
    Integer(-1, LARGEST_ID), lambda name, token: () if token < 0 else (token,), "one token id, or -1 for none"
)
ALIASES: Mapping[str, str] = {
    # vLLM's own names, which LMI's handlers on vLLM pass on as they are.
    "max_tokens": "max_new_tokens",
    "max_completion_tokens": "max_new_tokens",
    "min_tokens": "min_length",
    "ignore_eos": "ignore_eos_token",
    "bad_words": "bad_sequences",
    # What LMI's handler for TensorRT-LLM turns its parameters into, and takes as well (djl_python, rolling_batch).
    "request_output_len": "max_new_tokens",
    "runtime_top_k": "top_k",
    "runtime_top_p": "top_p",
    "random_seed": "seed",
    "len_penalty": "length_penalty",
    # TensorRT-LLM's own (its InferenceRequest).
    "beam_width": "num_beams",
    "stop_words": "stop_sequences",
}
"""Undocumented names that clients send, and the row that each stands for."""

OTHERS: tuple[Parameter, ...] = (
    # TensorRT-LLM's own; the token that fills up a batch is no part of an answer.
    Parameter("end_id", TOKEN_ID, (), "stop_token_ids"),
    Parameter("pad_id", Integer(-1, LARGEST_ID), None),
)


@dataclass(frozen=True, slots=True)
class Schema:
    """What is one schema's own."""

    name: str
    """Of `option.parameter_schema`."""
    own: tuple[Parameter, ...] = ()
    """Rows that take the place of the common ones."""
    sampling_defaults: Mapping[str, float] = field(default_factory=dict[str, float])
    """Defaults by key where tokens are drawn; the rows' are for greedy decoding then."""
    zeros_are_greedy: bool = False
    """Whether top_k and top_p 0 is greedy, and one of them 0 means that it does not restrict."""

    def rows(self, table: Iterable[Parameter]) -> Table:
        """Every name that is taken, and its row."""
        rows = {row.name: row for row in (*table, *OTHERS)} | {row.name: row for row in self.own}
        others = (dataclasses.replace(rows[name], name=alias) for alias, name in ALIASES.items())
        return Table((*rows.values(), *others))


COMMON = Schema("common")
TENSORRT = Schema(
    "trtllm",
    own=(
        Parameter("temperature", Number(0, 100), 0.8, "temperature"),
        Parameter("top_p", Number(0, 1), 0.0, "top_p"),
        Parameter("min_length", Integer(0), 1, "min_tokens"),
    ),
    sampling_defaults={"temperature": 1.0, "top_k": 5, "top_p": 0.85},
    zeros_are_greedy=True,
)

SCHEMAS: Mapping[str, Schema] = {schema.name: schema for schema in (COMMON, TENSORRT)}


def schema_of(settings: Settings) -> Schema:
    """The schema of an endpoint: the one that is asked for, or else that of its rolling batch."""
    return SCHEMAS.get(settings.parameter_schema or settings.rolling_batch, COMMON)
