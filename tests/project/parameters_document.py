"""docs/parameters.md: every parameter in every dialect, made of the tables that requests are read by.

    python -m tests.project.parameters_document > docs/parameters.md

The rows are the dialects' own tables, vLLM's column what its backend declares (model/backend.py, limits).
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from lmi.formatters import minimal
from lmi.formatters.anthropic import request as anthropic
from lmi.formatters.azure.request import ACCEPTED_FIELDS as AZURE_TAKEN
from lmi.formatters.azure.request import DESCRIBED as AZURE_ROWS
from lmi.formatters.azure.request import FIELDS as AZURE_FIELDS
from lmi.formatters.common.fields import Parameter
from lmi.formatters.common.guides import GUIDES
from lmi.formatters.common.kinds import (
    Anything,
)
from lmi.formatters.lmi import dynamic
from lmi.formatters.lmi import embeddings as lmi_embeddings
from lmi.formatters.lmi.parameters import BEAM_KEYS, TABLE
from lmi.formatters.lmi.parameters import ROWS as LMI_ROWS
from lmi.formatters.lmi.schemas import ALIASES, COMMON, TENSORRT
from lmi.formatters.openai import embeddings as openai_embeddings
from lmi.formatters.openai.completions import MAX_TOKENS
from lmi.formatters.openai.parameters import CHAT_ROWS, CHAT_TABLE, TEXT_ROWS, TEXT_TABLE
from lmi.formatters.openai.subset import other_fields
from lmi.formatters.rerank import parameters as rerank_parameters
from lmi.formatters.responses.parameters import ROWS as RESPONSE_ROWS
from lmi.formatters.responses.parameters import TABLE as RESPONSE_TABLE
from lmi.formatters.tgi import compat
from lmi.formatters.tgi.parameters import ROWS as TGI_ROWS
from lmi.formatters.tokens.request import CONVERSATION, TOKENIZE_TABLE
from lmi.model.backend import limits
from lmi.model.generation import Embedding, Sampling, Scoring

__all__ = ["parameters_document"]

INTRODUCTION = """\
# Parameters of generation

What a request may ask for, dialect by dialect, and what vLLM makes of it. This file is made of the code's own
tables by `python -m tests.project.parameters_document > docs/parameters.md`; a test compares them.

- *sets*: the field of `Sampling` or `Generation`, or of `Embedding` or `Scoring` where the model embeds or scores
  (model/generation.py), that engines are asked in. *The dialect*: it is not for the engine. *Nothing*: the parameter is
  accepted and has no effect.
- *Refused* is a parameter that is served with its default only: any other value is an error that names it.
- The last column says what vLLM does with the field: *yes*, or with which reservation; or why it is refused.
- null is the same as leaving a parameter out. A parameter that is in no table is ignored, with one line in the log,
  or refused with `option.unknown_parameters=error`.
"""

OF_THE_REQUEST = ("cache_salt", "priority", "kv_transfer_params")
"""Fields of Generation."""

LEFT_TO_THE_MODEL = (
    "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
)  # fmt: skip
"""Fields of Sampling whose None is the default of the model's generation_config."""


def value_words(value: Any) -> str:
    """A default."""
    if value is None or value in ((), {}):
        return "none"
    return str(value).lower() if isinstance(value, bool) else f"{value}"


@dataclass(frozen=True)
class Section:
    """One dialect's table."""

    title: str
    text: str
    rows: Collection[Parameter]
    defaults: Mapping[str, str] = field(default_factory=dict[str, str])
    """By name, in words, where the row does not say them."""
    others: Mapping[str, Parameter] | None = None
    """The rows of a variant with defaults of its own."""
    asked: type[msgspec.Struct] = Sampling
    """What engines are asked in."""
    engines: Mapping[str, Mapping[str, str]] | None = None
    """By engine, then by field of `asked`: what it does with it, where not simply what it says. None: limits()."""
    without: Collection[str] = ()
    """Keys that mean nothing in this dialect."""
    required: Collection[str] = ()
    """The names of those that there must be."""

    @property
    def idle(self) -> Collection[str]:
        """Keys that mean nothing: those of beam search too where nothing asks for beams."""
        beams = any(row.key == "num_beams" and not row.default_only for row in self.rows)
        return {*self.without, *(() if beams else BEAM_KEYS)}

    def default(self, row: Parameter) -> str:
        """The default, in words."""
        if row.name in self.defaults:
            return self.defaults[row.name]
        if row.name in self.required:
            return "required"
        if row.default is None and row.key in LEFT_TO_THE_MODEL:
            return "the model's"
        if row.default is None and row.key in Sampling.__struct_fields__:
            return value_words(getattr(Sampling(), row.key))
        return value_words(row.default)

    def lines(self) -> Iterator[str]:
        columns = ["parameter", "default", *(["with TensorRT-LLM's schema"] if self.others else []), "values", "sets"]
        engines = limits() if self.engines is None else self.engines
        yield from (f"## {self.title}", "", self.text, "")
        yield _line([*columns, *engines])
        yield _line(["---"] * (len(columns) + len(engines)))
        for row in self.rows:
            cells = [f"`{row.name}`", self.default(row)]
            if self.others:
                cells.append(_variant(self.others[row.name], row))
            cells += [row.kind.description, self.sets(row)]
            yield _line([*cells, *(self.on(row, declared) for declared in engines.values())])
        yield ""

    def sets(self, row: Parameter) -> str:
        """What the row's value goes to."""
        if row.default_only:
            return "refused"
        if row.key is None or row.key in self.idle:
            return "nothing"
        return f"`{_field(row)}`" if _field(row) in (*self.asked.__struct_fields__, *OF_THE_REQUEST) else "the dialect"

    def on(self, row: Parameter, declared: Mapping[str, str]) -> str:
        """What an engine does with it."""
        if row.default_only or row.key is None or row.key in self.idle:
            return row.why
        field = _field(row)
        if row.key in BEAM_KEYS:
            return "no effect" if declared.get(field) == "refused" else "with `num_beams` above 1"
        return declared.get(field, "yes" if field in (*self.asked.__struct_fields__, *OF_THE_REQUEST) else "")


def _variant(row: Parameter, usual: Parameter) -> str:
    """The default in TensorRT-LLM's schema, where it is another one."""
    drawn = TENSORRT.sampling_defaults.get(row.key or "")
    words = value_words(row.default) if row.default != usual.default or drawn is not None else ""
    words += "" if drawn is None else f"; {value_words(drawn)} where tokens are drawn"
    return words + (f" ({row.kind.description})" if row.kind != usual.kind else "")


def _field(row: Parameter) -> str:
    """The field that a row sets; of beam search three rows set one."""
    return "beams" if row.key in {"num_beams", *BEAM_KEYS} else row.key or ""


def _line(cells: Collection[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _names(names: Collection[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


DYNAMIC_KEYS = {"n": "best_of"}
"""What rows of LMI's set in dynamic batches, where it is something else."""


def _differs(row: Parameter) -> bool:
    """Whether a row of LMI's means something else in dynamic batches."""
    return row.key in dynamic.WITHOUT or row.name in DYNAMIC_KEYS


EMBEDS: Mapping[str, Mapping[str, str]] = {
    "vllm": {"dimensions": "of models that are trained for it (Matryoshka), else refused"}
}
"""The engine that embeds (model/vllm/pooling/embedding.py), and its reservation."""


def _embedding_sections() -> Iterator[Section]:
    yield Section(
        "LMI embeddings",
        "With `option.task=text-embedding`; in `parameters` or beside `inputs`. The parameters of generated text are\n"
        "refused by name.",
        lmi_embeddings.TABLE,
        {"normalize": "`option.normalize`"},
        asked=Embedding,
        engines=EMBEDS,
    )
    yield Section(
        "OpenAI embeddings",
        "With `option.task=text-embedding`; `input` or `messages` is what is embedded.",
        openai_embeddings.TABLE,
        {"normalize": "`option.normalize`", "use_activation": "`option.normalize`"},
        asked=Embedding,
        engines=EMBEDS,
    )


def _scoring_sections() -> Iterator[Section]:
    """Of forms of one dialect; the texts are read by rules of their own."""
    scored = "With `option.task=text-ranking`, and with `text-embedding` where vectors are compared"
    classified = "With `option.task=text-classification` or `text-ranking`"
    told: list[tuple[str, str, tuple[Parameter, ...]]] = [
        ("Rerank", f"{scored}; beside `query` and `documents`.", rerank_parameters.RERANK_TABLE),
        ("Rerank, as TEI", f"{scored}; beside `query` and `texts`.", rerank_parameters.TEI_TABLE),
        ("Score", f"{scored}; beside the two fields with texts.", rerank_parameters.SCORE_TABLE),
        ("Classify", f"{classified}; beside `input` or `messages`.", rerank_parameters.CLASSIFY_TABLE),
        ("Classify, as TEI", f"{classified}; beside `inputs` or in `parameters`.", rerank_parameters.PREDICT_TABLE),
    ]
    for title, text, rows in told:
        yield Section(title, text, rows, asked=Scoring, engines={"vllm": {}})


def _sections() -> Iterator[Section]:
    schema = LMI_ROWS[COMMON.name]
    aliases = "; ".join(f"`{alias}` is `{name}`" for alias, name in ALIASES.items())
    further = [row for name, row in schema.items() if name not in ALIASES and row not in TABLE]
    yield Section(
        "LMI",
        "In `parameters`. Dynamic batches take the same, but their answers have a place for the likeliest text only.\n"
        "`n`, `best_of` and `num_beams` above 1 are refused where the answer is streamed.\n"
        "The names of all back ends are taken whatever the back end is. `option.rolling_batch=trtllm` and\n"
        "`option.parameter_schema=trtllm` choose TensorRT-LLM's defaults: there `top_k` and `top_p` 0 together are\n"
        "greedy, and one of them 0 does not restrict.\n\n"
        "`decoder_input_details` and `prompt_logprobs` fill `details`, and mean nothing without it; so do `logprobs`\n"
        "and `top_n_tokens` in answers that are not streamed.\n\n"
        f"Other names: {aliases}.",
        (*TABLE, *further),
        {"do_sample": "by the others", "seed": "random"},
        LMI_ROWS[TENSORRT.name],
    )
    yield Section(
        "Dynamic batches",
        "The parameters of LMI, with their defaults as there, but for these: the answers have a\n"
        "place for the likeliest text only, and for no details.",
        [replace(row, key=DYNAMIC_KEYS.get(row.name, row.key)) for row in (*TABLE, *further) if _differs(row)],
        others=LMI_ROWS[TENSORRT.name],
        without=dynamic.WITHOUT,
    )
    yield Section(
        "LMI with TGI's answers",
        "With `option.tgi_compat=true`, where the body decides the dialect: the parameters of LMI, with their\n"
        "defaults and limits, but for these.",
        compat.OWN,
    )
    yield Section(
        "TGI",
        "In `parameters`, on TGI's routes and where the dialect `tgi` is named.",
        TGI_ROWS.values(),
        {"seed": "random", "max_new_tokens": "the rest of the context", "details": "by the route"},
    )
    yield Section(
        "OpenAI chat",
        f"At most one of {_names(GUIDES)} is asked for, or several that are the same.",
        CHAT_TABLE,
        {"max_tokens": "the rest of the context", "max_completion_tokens": "the rest of the context"},
        required=CHAT_ROWS.required,
    )
    yield Section(
        "OpenAI text completions",
        f"At most one of {_names(GUIDES)} is asked for, or several that are the same.",
        TEXT_TABLE,
        {"max_tokens": str(MAX_TOKENS)},
        required=TEXT_ROWS.required,
    )
    yield Section(
        "Anthropic messages",
        "`max_tokens` is required, but for `count_tokens`,\nwhere what is for the answer means nothing.",
        anthropic.TABLE,
        required=anthropic.ROWS.required,
    )
    yield Section(
        "OpenAI responses",
        "`truncation` auto cuts the prompt at its beginning to\n"
        "what fits beside `max_output_tokens`. What the response repeats and nothing else is *the dialect's*.",
        RESPONSE_TABLE,
        {"max_output_tokens": "the rest of the context"},
        required=RESPONSE_ROWS.required,
    )
    yield Section(
        "Tokens",
        f"Of `/tokenize`, which has {_names(CONVERSATION)}\n"
        "as OpenAI chat has them. `/detokenize` has `model` and `tokens`.",
        [row for row in TOKENIZE_TABLE if row.name not in {"model", *CONVERSATION}],
        {},
    )
    rows = [row for row in CHAT_TABLE if row.name in AZURE_FIELDS]
    yield Section(
        "Azure",
        "What else OpenAI chat has is an extra parameter: refused by\n"
        "name, dropped with the header `extra-parameters: ignore`, and read as there with `pass-through`, but for\n"
        f"{_names(sorted(other_fields(AZURE_TAKEN)))}, which are refused.",
        rows,
        {"max_tokens": "the rest of the context"},
        required=AZURE_ROWS.required,
    )
    yield Section(
        "Minimal chat",
        "The parameters of OpenAI chat, with their defaults as there. `stream` follows the route.\n"
        "Refused, as its answers have no place for them:",
        [
            Parameter(name, Anything(), None, default_only=True)
            for name in sorted(other_fields(minimal.ACCEPTED_FIELDS))
        ],
        {"n": "1"},
    )


def parameters_document() -> str:
    """The file's text."""
    sections = (*_sections(), *_embedding_sections(), *_scoring_sections())
    parts = [INTRODUCTION, *("\n".join(section.lines()) for section in sections)]
    return "\n".join(parts).rstrip() + "\n"


if __name__ == "__main__":
    sys.stdout.write(parameters_document())
