"""TGI's `parameters` object: LMI's table with TGI's own rows over it, and what is made of it.

An endpoint in TGI's dialect is an LMI endpoint still, so that what only LMI knows (`stop_sequences`, `min_p`) is taken
too. Where both know a name, its range and its default are TGI's (text-generation-inference, router/src/validation.rs),
but a value that changes nothing passes where TGI refuses it: top_p 1, typical_p 1, top_k 0. Requests that only
`option.tgi_compat` makes TGI's have LMI's parameters (compat.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...model.errors import Fault, ParameterError
from ...model.generation import Sampling, StructuredOutput
from ..client_fields import Paths
from ..common.fields import Parameter, Table, harmless, paths_of
from ..common.forms import Form, Made, Tagged
from ..common.guides import JSON_GUIDE, REGEX_GUIDE, AskedGuide
from ..common.kinds import Boolean, Integer, Number, Texts
from ..common.vllm_kinds import Likeliest
from ..lmi.body import Body, Input
from ..lmi.parameters import CHOICE_KEYS, SHOWN_KEYS, TABLE, generation_fields, own_of, prefill_of
from ..lmi.parameters import PATHS as LMI_PATHS

__all__ = ["BEST_OF", "BODY", "GRAMMAR", "MAX_BEST_OF", "OWN_BODY", "PATHS", "ROWS", "Parameters", "parameters_of"]

MAX_BEST_OF = 16
"""The most sequences to choose from; GET /info shows it. TGI's own limit is 2 unless an endpoint sets another."""


SCHEMA = Form({"value": JSON_GUIDE}, ("value",))
NAMED_SCHEMA = Form({"schema": JSON_GUIDE, "name": None}, ("schema",))
GRAMMARS = Tagged(
    "type",
    {
        "json": SCHEMA,
        "json_object": SCHEMA,
        "regex": Form({"value": REGEX_GUIDE}, ("value",)),
        "json_schema": Form({"value": NAMED_SCHEMA}, ("value",)),
    },
    refused=ParameterError,
)
"""GrammarType; `json_object` is another name of json."""


def _guide(name: str, read: tuple[str, dict[str, Any]]) -> StructuredOutput | None:
    kind, grammar = read
    asked: AskedGuide = grammar["value"]["schema"] if kind == "json_schema" else grammar["value"]
    return asked.output


GRAMMAR = Parameter("grammar", Made(GRAMMARS, _guide), None, "structured_output")

ROWS = Table(
    (
        *TABLE,
        # All of the sequences are part of the answer.
        Parameter("best_of", Integer(1, MAX_BEST_OF), 1, "n"),
        Parameter("n", Integer(1), 1, default_only=True),
        Parameter("num_beams", Integer(1), 1, default_only=True),
        Parameter("do_sample", Boolean(), False, "do_sample"),
        Parameter("temperature", Number(0, 100, above=True), 1.0, "temperature"),
        Parameter("seed", Integer(0), None, "seed"),
        # The rest of the context.
        Parameter("max_new_tokens", Integer(1), None, "max_tokens"),
        Parameter("stop", Texts(), (), "stop"),
        # TGI's text ends with the stop string.
        Parameter("include_stop_str_in_output", Boolean(), True, "include_stop"),
        Parameter("details", Boolean(), None, "details"),
        Parameter("top_n_tokens", Likeliest(), 0, "top_n_tokens"),
        # LMI's name of it.
        Parameter("logprobs", Likeliest(), 0, "top_n_tokens"),
        GRAMMAR,
    )
)

BODY = Body(ROWS, Input())
# Where the path decides whether the response is streamed, `stream` has no effect.
OWN_BODY = Body(ROWS, Input(), harmless("stream"))
PATHS: Paths = {
    **LMI_PATHS,
    **paths_of(ROWS.values(), "sampling", Sampling, "parameters."),
    "sampling.logprobs": "parameters.top_n_tokens",
}
"""What the fields are called."""
DEFAULTS: dict[str, Any] = {row.key: row.default for row in ROWS.values() if row.key}
SAMPLING_KEYS = tuple(key for key in DEFAULTS if key in Sampling.__struct_fields__ and key not in SHOWN_KEYS)
BEST_OF = "parameters.best_of"
WARPERS = ("temperature", *CHOICE_KEYS)


@dataclass(frozen=True, slots=True)
class Parameters:
    """`parameters`, read."""

    sampling: dict[str, Any]
    """Fields of Sampling, but for what depends on the answer (SHOWN_KEYS)."""
    generation: dict[str, Any]
    """Further fields of Generation."""
    samples: bool
    """Whether tokens are drawn."""
    details: bool | None
    """None: nothing is said."""
    prefill: int | None
    """How many of the likeliest tokens are shown of each of the prompt's; None: the prompt's are not shown."""
    prefill_field: str
    """What asks for them."""
    top_n_tokens: int
    return_full_text: bool
    own: dict[str, str] = field(compare=False)
    """What the client calls fields of Sampling (ClientFields.own)."""


def parameters_of(values: dict[str, Any], names: dict[str, str]) -> Parameters:
    """What `parameters` ask for, as ROWS has read them. Raises RequestError, naming the field as it was written."""
    max_tokens = values["max_tokens"]
    if max_tokens is not None and values["min_tokens"] > max_tokens:
        expected = f"an integer up to {max_tokens} (max_new_tokens)"
        raise ParameterError.of(names["min_tokens"], values["min_tokens"], expected)
    # Its clients always send do_sample, false by default: anything else that only matters to sampling asks for it too
    # (server/text_generation_server/utils/tokens.py, has_warpers).
    samples = values["do_sample"] or any(values[key] != DEFAULTS[key] for key in WARPERS)
    if not samples:
        values["temperature"] = 0.0
    if values["n"] > 1:
        if not samples:
            raise ParameterError.of(BEST_OF, values["n"], "1 without sampling (do_sample is false)")
        if values["seed"] is not None:
            raise ParameterError.because(Fault(names["seed"], "cannot be combined with best_of above 1"))
    return Parameters(
        sampling={key: values[key] for key in SAMPLING_KEYS},
        generation=generation_fields(values),
        samples=samples,
        details=values["details"],
        prefill=prefill_of(values),
        prefill_field=names.get("prompt_logprobs") or names.get("decoder_input_details", ""),
        top_n_tokens=values["top_n_tokens"],
        return_full_text=values["return_full_text"],
        own=own_of(names) | ({"sampling.logprobs": names["top_n_tokens"]} if "top_n_tokens" in names else {}),
    )
