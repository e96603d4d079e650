"""LMI's `parameters` object: a literal table, one row for each name, and what is made of it.

    {"top_k": 5, ...} --table--> values by key --inference of sampling--> Parameters(sampling, details, ...)

The rows are those of the LMI schema (specs 002, GenerationParameters): the common ones, LmiDist's and vLLM's, and of
TensorRT-LLM's those that mean the same everywhere. What nothing here can honour is refused by name, unless the value is
the one that changes nothing.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..model.errors import ParameterError, PayloadError, UnsupportedError, one_line
from ..model.generation import Sampling
from ..model.options import Settings

__all__ = ["DEFAULTS", "TABLE", "Parameter", "Parameters", "meet_unknown", "read_parameters"]

logger = logging.getLogger(__name__)

LARGEST = 2**63 - 1
"""Integers travel to the engine as msgpack, and on into 64-bit tensors."""
LARGEST_ID = 2**31 - 1
TEXTS = 64
TEXTS_LENGTH = 4096
"""Stop strings are looked for at every token, in time and memory that other requests pay for too."""
IDS = 1024


class Kind(Protocol):
    """What a parameter's value may be."""

    def read(self, name: str, given: Any) -> Any:
        """The value; raises PayloadError for a wrong type, ParameterError for a value that is out of range."""
        ...


@dataclass(frozen=True, slots=True)
class Boolean:
    """true or false, or one of `words`."""

    words: tuple[str, ...] = ()

    def read(self, name: str, given: Any) -> bool | str:
        if isinstance(given, bool) or (isinstance(given, str) and given in self.words):
            return given
        raise PayloadError.of(name, given, " or ".join(("true or false", *map(repr, self.words))))


@dataclass(frozen=True, slots=True)
class Integer:
    """From `low` to `high`. 5.0 is an integer too, as in JSON Schema: JSON has one type of number."""

    low: int
    high: int = LARGEST

    def read(self, name: str, given: Any) -> int:
        if isinstance(given, float) and given.is_integer():
            given = int(given)
        if not isinstance(given, int) or isinstance(given, bool):
            raise PayloadError.of(name, given, f"an integer >= {self.low}")
        if given < self.low:
            raise ParameterError.of(name, given, f"an integer >= {self.low}")
        if given > self.high:
            raise ParameterError.of(name, given, f"an integer from {self.low} to {self.high}")
        return given


@dataclass(frozen=True, slots=True)
class Number:
    """From `low` to `high`; `low` itself only where not `above`. An integer will do."""

    low: float
    high: float
    above: bool = False

    def read(self, name: str, given: Any) -> float:
        between = f"above {self.low:g} and up to" if self.above else f"from {self.low:g} to"
        expected = f"a number {between} {self.high:g}"
        if not isinstance(given, int | float) or isinstance(given, bool):
            raise PayloadError.of(name, given, expected)
        # Compared before it is converted: an integer may be too large for a float. NaN fails both comparisons.
        if not self.low <= given <= self.high or (self.above and given == self.low):
            raise ParameterError.of(name, given, expected)
        return float(given)


@dataclass(frozen=True, slots=True)
class Texts:
    """A list of non-empty strings; a single string is a list of one. With `flag` a boolean passes and means nothing."""

    flag: bool = False

    def read(self, name: str, given: Any) -> tuple[str, ...]:
        if self.flag and isinstance(given, bool):
            return ()
        if isinstance(given, str):
            given = [given]
        if not isinstance(given, list):
            raise PayloadError.of(name, given, "a list of non-empty strings")
        for index, text in enumerate(given):
            if not isinstance(text, str):
                raise PayloadError.of(f"{name}[{index}]", text, "a non-empty string")
            if not text:
                raise ParameterError.of(f"{name}[{index}]", text, "a non-empty string")
        if len(given) > TEXTS or sum(map(len, given)) > TEXTS_LENGTH:
            raise ParameterError(f"{name}: expected at most {TEXTS} strings of {TEXTS_LENGTH} characters in all", name)
        return tuple(given)


@dataclass(frozen=True, slots=True)
class Ids:
    """A list of token ids."""

    def read(self, name: str, given: Any) -> tuple[int, ...]:
        if not isinstance(given, list):
            raise PayloadError.of(name, given, "a list of token ids")
        if len(given) > IDS:
            raise ParameterError(f"{name}: expected at most {IDS} token ids", name)
        one = Integer(0, LARGEST_ID)
        return tuple(one.read(f"{name}[{index}]", value) for index, value in enumerate(given))


@dataclass(frozen=True, slots=True)
class Anything:
    """For what is refused whatever it is."""

    def read(self, name: str, given: Any) -> Any:
        return given


@dataclass(frozen=True, slots=True)
class Parameter:
    """A row of the table."""

    name: str
    kind: Kind
    default: Any
    key: str | None = None
    """What it sets: a field of Sampling or a switch of the dialect. None: nothing that an answer shows."""
    only: bool = False
    """Whether the default is the only value that is served."""
    same: Mapping[int, int | None] = field(default_factory=dict[int, "int | None"])
    """Values that stand for another one."""


TABLE: tuple[Parameter, ...] = (
    # Common to every rolling batch back end.
    Parameter("do_sample", Boolean(), None, "do_sample"),
    Parameter("seed", Integer(-1), None, "seed", same={-1: None}),
    # Bounded well inside a float32: masked logits divided by infinity are NaN. The same for the repetition penalty.
    Parameter("temperature", Number(0, 100), 1.0, "temperature"),
    Parameter("repetition_penalty", Number(0.01, 100), 1.0, "repetition_penalty"),
    Parameter("top_k", Integer(-1, LARGEST_ID), 0, "top_k", same={-1: 0}),
    Parameter("top_p", Number(0, 1, above=True), 1.0, "top_p"),
    Parameter("max_new_tokens", Integer(1), 30, "max_tokens"),
    Parameter("details", Boolean(), False, "details"),
    Parameter("return_full_text", Boolean(), False, "return_full_text"),
    Parameter("stop_sequences", Texts(), (), "stop"),
    Parameter("decoder_input_details", Boolean(), False, "decoder_input_details"),
    # LmiDist's and vLLM's.
    Parameter("typical_p", Number(0, 1, above=True), 1.0, only=True),
    Parameter("truncate", Integer(1), None, "truncate"),
    Parameter("ignore_eos_token", Boolean(), False, "ignore_eos"),
    Parameter("min_p", Number(0, 1), 0.0, "min_p"),
    Parameter("presence_penalty", Number(-2, 2), 0.0, "presence_penalty"),
    Parameter("frequency_penalty", Number(-2, 2), 0.0, "frequency_penalty"),
    Parameter("n", Integer(1), 1, "n", only=True),
    Parameter("best_of", Integer(1), 1, only=True),
    Parameter("num_beams", Integer(1), 1, only=True),
    Parameter("length_penalty", Number(-100, 100), 1.0, only=True),
    Parameter("early_stopping", Boolean(words=("never",)), False, only=True),
    Parameter("stop_token_ids", Ids(), (), "stop_token_ids"),
    Parameter("include_stop_str_in_output", Boolean(), False, "include_stop"),
    # The answers have a place for the chosen token's log_prob alone, which is there wherever tokens are shown.
    Parameter("logprobs", Integer(0), None),
    Parameter("prompt_logprobs", Integer(0), None),
    Parameter("skip_special_tokens", Boolean(), True, "skip_special_tokens"),
    Parameter("spaces_between_special_tokens", Boolean(), True, "spaces_between_special_tokens"),
    # TensorRT-LLM's. Its `stop` is documented as a boolean of no effect; elsewhere that is a name of stop_sequences.
    Parameter("min_length", Integer(0), 0, "min_tokens"),
    Parameter("bad_sequences", Texts(), (), "bad_words"),
    Parameter("stop", Texts(flag=True), (), "stop"),
    # Documented for TGI alone, but sent to LMI endpoints by its clients: to ignore them would give a wrong answer.
    Parameter("top_n_tokens", Integer(0), 0, only=True),
    Parameter("watermark", Boolean(), False, only=True),
    Parameter("grammar", Anything(), None, only=True),
    Parameter("adapter_id", Anything(), None, only=True),
)

BY_NAME = {row.name: row for row in TABLE}
DEFAULTS: dict[str, Any] = {row.key: row.default for row in TABLE if row.key}
SAMPLING_KEYS = tuple(key for key in DEFAULTS if key in Sampling.__struct_fields__)
CHOICE_KEYS = ("top_k", "top_p", "min_p")
"""What only has an effect on sampled tokens, besides the temperature."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """`parameters`, read."""

    sampling: dict[str, Any]
    """Fields of Sampling, but for what depends on the answer: logprobs."""
    details: bool
    prefill: bool
    return_full_text: bool


def read_parameters(given: dict[str, Any], settings: Settings) -> Parameters:
    """What `parameters` ask for, null being the default. Raises RequestError, naming the field as it was written."""
    values = DEFAULTS.copy()
    names: dict[str, str] = {}
    """Which field gave each key."""
    for name, value in given.items():
        if value is None:
            continue
        row = BY_NAME.get(name)
        if row is None:
            meet_unknown(name, BY_NAME, settings, "parameters.")
            continue
        shown = f"parameters.{name}"
        value = row.kind.read(shown, value)
        if row.same:
            value = row.same.get(value, value)
        if row.only and value != row.default:
            if row.default is None:
                raise UnsupportedError(f"{shown}: not supported", shown)
            raise UnsupportedError.of(shown, value, f"{row.default}, the only value that is supported")
        if row.key is None:
            continue
        if value == row.default:
            names.setdefault(row.key, shown)
            continue
        if values[row.key] != row.default:
            raise ParameterError(f"{shown}: the same parameter as {names[row.key]}, expected one of them", shown)
        names[row.key] = shown
        values[row.key] = value
    if values["min_tokens"] > values["max_tokens"]:
        most = f"an integer up to max_new_tokens, {values['max_tokens']}"
        raise ParameterError.of(names["min_tokens"], values["min_tokens"], most)
    if not _samples(values, temperature_given="temperature" in names):
        values.update(temperature=0.0, **{key: DEFAULTS[key] for key in CHOICE_KEYS})
    return Parameters(
        sampling={key: values[key] for key in SAMPLING_KEYS},
        details=values["details"],
        prefill=values["details"] and values["decoder_input_details"],
        return_full_text=values["return_full_text"],
    )


def _samples(values: dict[str, Any], temperature_given: bool) -> bool:
    """Whether tokens are drawn, or the likeliest taken (wire-decisions: LMI, do_sample).

    A temperature of 0 is greedy whatever else is said. Without do_sample a temperature that was given, or another value
    that only matters to sampling and is not neutral, asks for sampling.
    """
    if values["temperature"] == 0:
        return False
    if values["do_sample"] is not None:
        return bool(values["do_sample"])
    return temperature_given or any(values[key] != DEFAULTS[key] for key in CHOICE_KEYS)


MET = 1000
_met: set[str] = set()
"""Unknown names that have been logged; not more than MET, so that no client can fill memory or log."""


def meet_unknown(name: str, known: Iterable[str], settings: Settings, prefix: str = "") -> None:
    """Ignores a name with one log line a process, or refuses it (wire-decisions: a parameter that nobody knows)."""
    shown = prefix + one_line(name)[:64]
    if settings.unknown_parameters == "error":
        near = difflib.get_close_matches(name[:64], known, n=1)
        hint = f"; did you mean {prefix}{near[0]}?" if near else ""
        raise UnsupportedError(f"{shown}: not known{hint}", shown)
    if shown not in _met and len(_met) < MET:
        _met.add(shown)
        # The value may be part of a prompt: it is not for the log.
        logger.warning("a request field that is not known is ignored: %s", shown)
