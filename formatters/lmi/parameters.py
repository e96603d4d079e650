"""LMI's `parameters` object: a literal table, one row for each name, and what is made of it.

    {"top_k": 5, ...} --table--> values by key --inference of sampling--> Parameters(sampling, details, ...)

The rows are those of LMI's schema (GenerationParameters): the common ones, LmiDist's, vLLM's and
TensorRT-LLM's; schemas.py has what differs by back end, and further names. What nothing here can honour is refused
by name, unless the value is the one that changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...model.errors import ParameterError, UnsupportedError
from ...model.generation import Beams, Sampling
from ...model.options import Settings
from ..client_fields import Paths
from ..common.fields import Parameter, paths_of, read_rows
from ..common.guides import guides_of_others
from ..common.kinds import LARGEST_ID, Boolean, Ids, Integer, Number, Texts
from .schemas import SCHEMAS, Schema, schema_of

__all__ = [
    "BEAM_KEYS",
    "CHOICE_KEYS",
    "DEFAULTS",
    "PATHS",
    "ROWS",
    "SHOWN_KEYS",
    "TABLE",
    "Parameters",
    "own_of",
    "prefill_of",
    "read_parameters",
]

SEQUENCES = 128
"""Sequences of one request: each is an engine's request of its own."""

TABLE: tuple[Parameter, ...] = (
    # Common to every rolling batch back end.
    Parameter("do_sample", Boolean(), None, "do_sample"),
    Parameter("seed", Integer(-1), None, "seed", equivalents={-1: None}),
    # Bounded well inside a float32: masked logits divided by infinity are NaN. The same for the repetition penalty.
    Parameter("temperature", Number(0, 100), 1.0, "temperature"),
    Parameter("repetition_penalty", Number(0.01, 100), 1.0, "repetition_penalty"),
    Parameter("top_k", Integer(-1, LARGEST_ID), 0, "top_k", equivalents={-1: 0}),
    Parameter("top_p", Number(0, 1, above=True), 1.0, "top_p"),
    Parameter("max_new_tokens", Integer(1), 30, "max_tokens"),
    Parameter("details", Boolean(), False, "details"),
    Parameter("return_full_text", Boolean(), False, "return_full_text"),
    Parameter("stop_sequences", Texts(), (), "stop"),
    Parameter("decoder_input_details", Boolean(), False, "decoder_input_details"),
    # LmiDist's and vLLM's.
    Parameter("typical_p", Number(0, 1, above=True), 1.0, "typical_p"),
    Parameter("truncate", Integer(1), None, "truncate"),
    Parameter("ignore_eos_token", Boolean(), False, "ignore_eos"),
    Parameter("min_p", Number(0, 1), 0.0, "min_p"),
    Parameter("presence_penalty", Number(-2, 2), 0.0, "presence_penalty"),
    Parameter("frequency_penalty", Number(-2, 2), 0.0, "frequency_penalty"),
    Parameter("n", Integer(1, SEQUENCES), 1, "n"),
    Parameter("best_of", Integer(1, SEQUENCES), 1, "best_of"),
    Parameter("num_beams", Integer(1, SEQUENCES), 1, "num_beams"),
    # Without beams these two have no effect (BEAM_KEYS).
    Parameter("length_penalty", Number(-100, 100), 1.0, "length_penalty"),
    Parameter("early_stopping", Boolean(words=("never",)), False, "early_stopping"),
    Parameter("stop_token_ids", Ids(), (), "stop_token_ids"),
    Parameter("include_stop_str_in_output", Boolean(), False, "include_stop"),
    # The chosen token's log_prob is there wherever tokens are shown: 0 asks for nothing further.
    Parameter("logprobs", Integer(0), None, "logprobs", equivalents={0: None}),
    Parameter("prompt_logprobs", Integer(0), None, "prompt_logprobs"),
    Parameter("skip_special_tokens", Boolean(), True, "skip_special_tokens"),
    Parameter("spaces_between_special_tokens", Boolean(), True, "spaces_between_special_tokens"),
    # TensorRT-LLM's. Its `stop` is documented as a boolean of no effect; elsewhere that is a name of stop_sequences.
    Parameter("min_length", Integer(0), 0, "min_tokens"),
    Parameter("bad_sequences", Texts(), (), "bad_words"),
    Parameter("stop", Texts(flag=True), (), "stop"),
    # Documented for TGI alone, but sent to LMI endpoints by its clients: to ignore them would give a wrong answer.
    # LMI's handlers take the first as another name of logprobs (djl_python, vllm_rolling_batch.py).
    Parameter("top_n_tokens", Integer(0), None, "logprobs", equivalents={0: None}),
    Parameter("watermark", Boolean(), False, default_only=True),
    *guides_of_others(),
)

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
SAMPLING_KEYS = tuple(key for key in Sampling.__struct_fields__ if key not in SHOWN_KEYS)
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
    "structured_output",
)
"""What is refused beside beams unless it has no effect."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """`parameters`, read."""

    sampling: dict[str, Any]
    """Fields of Sampling, but for what depends on the answer (SHOWN_KEYS)."""
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


def read_parameters(
    given: dict[str, Any], settings: Settings, rows: Mapping[str, Mapping[str, Parameter]] = ROWS
) -> Parameters:
    """What `parameters` ask for, null being the default. Raises RequestError, naming the field as it was written.

    `rows`: by schema, then by name, as ROWS; they may set further fields of Sampling.
    """
    schema = schema_of(settings)
    values, names = read_rows(given, rows[schema.name], settings, "parameters.")
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
        sampling={key: values[key] for key in SAMPLING_KEYS if key in values},
        details=values["details"],
        top=values["logprobs"] or 0,
        prefill=prefill_of(values) if values["details"] else None,
        return_full_text=values["return_full_text"],
        own=own_of(names),
        several=several,
    )


def own_of(names: Mapping[str, str]) -> dict[str, str]:
    """Of the names that `read_rows` gives, those of fields of Sampling, by their paths."""
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
            raise UnsupportedError(f"{names[key]}: cannot be combined with {name} above 1", names[key])
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
