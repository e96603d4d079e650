"""LMI's `parameters` object: a literal table, one row for each name, and what is made of it.

    {"top_k": 5, ...} --table--> values by key --inference of sampling--> Parameters(sampling, details, ...)

The rows are those of LMI's schema (GenerationParameters): the common ones, LmiDist's, vLLM's and
TensorRT-LLM's, and what vLLM has beside them (common/vllm_fields.py); schemas.py has what differs by back end, and
further names. What nothing here can honour is refused by name, unless the value is the one that changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...model.errors import Fault, ParameterError, UnsupportedError
from ...model.generation import Beams, Sampling
from ..client_fields import Paths
from ..common.fields import Parameter, paths_of
from ..common.guides import GUIDES, guide_rows, guides_of_others
from ..common.kinds import SMALLEST, Boolean, Integer, Number, Texts
from ..common.vllm_fields import row, rows
from .schemas import SCHEMAS, Schema

__all__ = [
    "BEAM_KEYS",
    "CHOICE_KEYS",
    "DEFAULTS",
    "PATHS",
    "ROWS",
    "SHOWN_KEYS",
    "TABLE",
    "Parameters",
    "generation_fields",
    "own_of",
    "parameters_of",
    "prefill_of",
]

SEQUENCES = 128
"""Sequences of one request: each is an engine's request of its own."""

TOLD = "an answer has its tokens' ids in details"
TABLE: tuple[Parameter, ...] = (
    # Common to every rolling batch back end.
    Parameter("do_sample", Boolean(), None, "do_sample"),
    Parameter("seed", Integer(SMALLEST), None, "seed", equivalents={-1: None}),
    # Bounded well inside a float32: masked logits divided by infinity are NaN.
    Parameter("temperature", Number(0, 100), 1.0, "temperature"),
    row("repetition_penalty", 1.0),
    row("top_k", 0),
    Parameter("top_p", Number(0, 1, above=True), 1.0, "top_p"),
    Parameter("max_new_tokens", Integer(1), 30, "max_tokens"),
    Parameter("details", Boolean(), False, "details"),
    Parameter("return_full_text", Boolean(), False, "return_full_text"),
    Parameter("stop_sequences", Texts(), (), "stop"),
    Parameter("decoder_input_details", Boolean(), False, "decoder_input_details"),
    # LmiDist's and vLLM's.
    Parameter("typical_p", Number(0, 1, above=True), 1.0, "typical_p"),
    Parameter("truncate", Integer(1), None, "truncate"),
    row("ignore_eos", False, called="ignore_eos_token"),
    row("min_p", 0.0),
    row("presence_penalty", 0.0),
    row("frequency_penalty", 0.0),
    Parameter("n", Integer(1, SEQUENCES), 1, "n"),
    Parameter("best_of", Integer(1, SEQUENCES), 1, "best_of"),
    Parameter("num_beams", Integer(1, SEQUENCES), 1, "num_beams"),
    # Without beams these two have no effect (BEAM_KEYS).
    Parameter("length_penalty", Number(-100, 100), 1.0, "length_penalty"),
    Parameter("early_stopping", Boolean(words=("never",)), False, "early_stopping"),
    row("stop_token_ids", ()),
    row("include_stop_str_in_output", False),
    # The chosen token's log_prob is there wherever tokens are shown: 0 asks for nothing further.
    Parameter("logprobs", Integer(0), None, "logprobs", equivalents={0: None}),
    Parameter("prompt_logprobs", Integer(0), None, "prompt_logprobs"),
    row("skip_special_tokens", True),
    row("spaces_between_special_tokens", True),
    # TensorRT-LLM's. Its `stop` is documented as a boolean of no effect; elsewhere that is a name of stop_sequences.
    row("min_tokens", 0, called="min_length"),
    row("bad_words", (), called="bad_sequences"),
    Parameter("stop", Texts(flag=True), (), "stop"),
    # Documented for TGI alone, but sent to LMI endpoints by its clients: to ignore them would give a wrong answer.
    # LMI's handlers take the first as another name of logprobs (djl_python, vllm_rolling_batch.py).
    Parameter("top_n_tokens", Integer(0), None, "logprobs", equivalents={0: None}),
    Parameter("watermark", Boolean(), False, default_only=True),
    # What LMI's handlers on vLLM pass on to it as it is.
    *rows("logit_bias", "allowed_token_ids", "thinking_token_budget", "truncate_prompt_tokens"),
    row("truncation_side", "left"),
    row("vllm_xargs", {}),
    row("add_special_tokens", True),
    *rows("cache_salt", "priority"),
    Parameter("return_token_ids", Boolean(), False, default_only=True,
              why=f"{TOLD}, and the prompt's with decoder_input_details"),
    # Tokens have their ids beside their texts in any case.
    Parameter("return_tokens_as_token_ids", Boolean(), None),
    *rows("mm_processor_kwargs", "media_io_kwargs"),
    *guide_rows(*GUIDES),
    *guides_of_others(*GUIDES),
)  # fmt: skip

ROWS = {name: schema.rows(TABLE) for name, schema in SCHEMAS.items()}
"""By schema, then by name."""
BEAMS = {"num_beams": "beams"}
"""Of a row that comes to a field of Sampling what that is called."""
PATHS: Paths = {
    **paths_of(TABLE, "sampling", Sampling, "parameters."),
    "prompt": "inputs",
    "sampling": "parameters",
    "sampling.beams": "parameters.num_beams",
}
"""What the fields are called."""
DEFAULTS: dict[str, Any] = {row.key: row.default for row in TABLE if row.key}
SHOWN_KEYS = ("logprobs", "prompt_logprobs")
"""Fields of Sampling that depend on what the answer shows."""
SAMPLING_KEYS = tuple(
    key for key in (*DEFAULTS, "beams") if key in Sampling.__struct_fields__ and key not in SHOWN_KEYS
)
GENERATION_KEYS = ("add_special_tokens", "cache_salt", "priority")
"""What goes into a Generation."""
BEAM_KEYS = ("length_penalty", "early_stopping")
"""What only has an effect with num_beams above 1."""
CHOICE_KEYS = ("top_k", "top_p", "min_p", "typical_p")
"""What only has an effect on sampled tokens, besides the temperature."""
NEUTRAL: dict[str, tuple[float, ...]] = {"top_k": (0,), "top_p": (1.0, 0.0), "min_p": (0.0,), "typical_p": (1.0,)}
"""Their values that restrict nothing."""
NOT_WITH_BEAMS = (
    "best_of",
    "do_sample",
    *CHOICE_KEYS,
    "temperature",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "bad_words",
    "logit_bias",
    "allowed_token_ids",
    "structured_output",
    "thinking_token_budget",
    "extra_args",
)
"""What is refused beside beams unless it has no effect."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """`parameters`, read."""

    sampling: dict[str, Any]
    """Fields of Sampling, but for what depends on the answer (SHOWN_KEYS)."""
    generation: dict[str, Any]
    """Further fields of Generation (GENERATION_KEYS)."""
    details: bool
    top: int
    """How many of the likeliest tokens are shown in each one's place."""
    prefill: int | None
    """The same of the prompt's tokens; None: they are not shown."""
    return_full_text: bool
    own: dict[str, str] = field(compare=False)
    """What the client calls fields of Sampling (ClientFields.own)."""
    several: str | None = None
    """The field that asks for more than one sequence, if one does."""


def parameters_of(schema: Schema, values: dict[str, Any], names: dict[str, str]) -> Parameters:
    """What `parameters` ask for, as a Table of ROWS has read them, in the endpoint's schema; a table may set further
    fields of Sampling. Raises RequestError, naming the field as it was written."""
    values["beams"] = None
    beams = values["num_beams"] > 1
    if beams and values["temperature"] == 1:
        names.pop("temperature", None)
    if values["min_tokens"] > values["max_tokens"]:
        expected = f"an integer up to {values['max_tokens']} (max_new_tokens)"
        raise ParameterError.of(names["min_tokens"], values["min_tokens"], expected)
    if not _samples(values, names, schema):
        values.update(temperature=0.0, do_sample=None, **{key: DEFAULTS[key] for key in CHOICE_KEYS})
    several = _beams(values, names) if beams else _rank(values, names)
    return Parameters(
        sampling={key: values[key] for key in SAMPLING_KEYS},
        generation=generation_fields(values),
        details=values["details"],
        top=values["logprobs"] or 0,
        prefill=prefill_of(values) if values["details"] else None,
        return_full_text=values["return_full_text"],
        own=own_of(names),
        several=several,
    )


def generation_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """What Parameters.generation is."""
    return {key: values[key] for key in GENERATION_KEYS if values[key] is not None}


def own_of(names: Mapping[str, str]) -> dict[str, str]:
    """Of the names that Table.read gives, those of fields of Sampling, by their paths."""
    return {f"sampling.{BEAMS.get(key, key)}": name for key, name in names.items()}


def prefill_of(values: dict[str, Any]) -> int | None:
    """What Parameters.prefill is: prompt_logprobs asks for the prompt's tokens as decoder_input_details does."""
    asked: int | None = values["prompt_logprobs"]
    return 0 if asked is None and values["decoder_input_details"] else asked


def _rank(values: dict[str, Any], names: dict[str, str]) -> str | None:
    """Sets how many sequences are generated and how many of them come, likeliest first; names the field that asks.

    The answer has all of n, or of best_of where that is given alone (docs/decisions.md: Several sequences).
    """
    n, best_of = values["n"], values["best_of"]
    if "best_of" in names and best_of < n:
        raise ParameterError.of(names["best_of"], best_of, f"an integer from {n} (n) to {SEQUENCES}")
    count = max(n, best_of)
    values["n"], values["best_of"] = (count if n == 1 else n), (count if count > 1 else None)
    return None if count == 1 else names["best_of" if best_of > 1 else "n"]


def _beams(values: dict[str, Any], names: dict[str, str]) -> str:
    """Sets the beam search, whose best n sequences come, or all where n is 1; names the field that asks for it."""
    name, width, n = names["num_beams"], values["num_beams"], values["n"]
    if n > width:
        raise ParameterError.of(names["n"], n, f"an integer up to {width} (num_beams)")
    for key in NOT_WITH_BEAMS:
        # Here a temperature of 0 stands for greedy decoding; what is not named is a default of drawing.
        if key in names and values[key] != (0 if key == "temperature" else DEFAULTS.get(key)):
            raise UnsupportedError.because(Fault(names[key], f"cannot be combined with {name} above 1"))
    values["n"], values["best_of"] = (width if n == 1 else n), None
    values["beams"] = Beams(
        width=width, length_penalty=values["length_penalty"], early_stopping=values["early_stopping"]
    )
    return name


def _samples(values: dict[str, Any], names: dict[str, str], schema: Schema) -> bool:
    """Whether tokens are drawn, or the likeliest taken; sets what then is the default.

    A temperature of 0 is greedy whatever else is said. Without do_sample a temperature that was given, or another value
    that only matters to sampling and is not neutral, asks for sampling (docs/decisions.md: Greedy or sampled).
    """
    if values["temperature"] == 0:
        return False
    wanted = values["do_sample"]
    if wanted is None:
        wanted = "temperature" in names or any(values[key] not in NEUTRAL[key] for key in CHOICE_KEYS)
    if not wanted:
        return False
    values.update({key: default for key, default in schema.sampling_defaults.items() if key not in names})
    if schema.zeros_are_greedy and values["top_p"] == 0:
        values["top_p"] = 1.0
        return bool(values["top_k"] != 0)
    return True
