"""docs/parameters.md is what the tables say, and leaves nothing out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lmi.formatters.azure_request import FIELDS
from lmi.formatters.fields import Parameter
from lmi.formatters.lmi_parameters import ROWS
from lmi.formatters.lmi_schemas import ALIASES
from lmi.formatters.openai_parameters import CHAT_TABLE, TEXT_TABLE
from lmi.formatters.parameters_document import kind_words, parameters_document
from lmi.formatters.tgi_parameters import ROWS as TGI_ROWS
from lmi.model.engine import ENGINES, limits
from lmi.model.generation import Sampling

ROOT = Path(__file__).parents[1]
CHAT = {row.name for row in CHAT_TABLE}


def table(title: str) -> dict[str, list[str]]:
    """The rows of a section, by name: what stands in the further columns."""
    section = parameters_document().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    rows = [re.split(r"(?<!\\) \| ", line[2:-2]) for line in section.splitlines() if line.startswith("| `")]
    names = [row[0].strip("`") for row in rows]
    assert len(names) == len(set(names))
    return {name: row[1:] for name, row in zip(names, rows, strict=True)}


def test_the_file_is_up_to_date() -> None:
    """`python -m lmi.formatters.parameters_document > docs/parameters.md` writes it."""
    assert (ROOT / "docs" / "parameters.md").read_text(encoding="utf-8") == parameters_document()


@pytest.mark.parametrize(
    ("title", "names"),
    [
        ("LMI", set(ROWS["common"]) - set(ALIASES)),
        ("TGI", set(TGI_ROWS)),
        ("OpenAI chat", CHAT),
        ("OpenAI text completions", {row.name for row in TEXT_TABLE}),
        ("Azure", CHAT & FIELDS),
        ("Minimal chat", {"tools", "functions", "n", "logprobs", "prompt_logprobs", "stream_options.include_usage"}),
    ],
)
def test_every_parameter_has_a_row(title: str, names: set[str]) -> None:
    assert set(table(title)) == names


def test_every_alias_is_told() -> None:
    assert all(f"`{alias}` is `{name}`" in parameters_document() for alias, name in ALIASES.items())


def test_what_rows_say() -> None:
    lmi, chat = table("LMI"), table("OpenAI chat")
    assert lmi["max_new_tokens"] == ["30", "", "an integer from 1", "`max_tokens`", "yes", "yes"]
    assert lmi["top_p"][1] == "0.0; 0.85 where tokens are drawn (a number from 0 to 1)"
    assert lmi["min_length"][:2] == ["0", "1"]
    assert lmi["watermark"][3:] == ["refused", "", ""]
    assert lmi["logprobs"][3:] == ["nothing", "", ""]
    assert lmi["details"][3:] == ["the dialect", "", ""]
    assert chat["temperature"][0] == "the model's"
    assert chat["kv_transfer_params"][3:] == ["with a connector (`option.kv_transfer_config`)", "no effect"]


@pytest.mark.parametrize("row", [*ROWS["trtllm"].values(), *TGI_ROWS.values(), *CHAT_TABLE, *TEXT_TABLE], ids=str)
def test_every_kind_has_words(row: Parameter) -> None:
    assert kind_words(row.kind)


def test_what_engines_declare() -> None:
    assert set(limits()) == set(ENGINES) - {"auto", "vllm-embedding"}
    known = {*Sampling.__struct_fields__, "kv_transfer_params"}
    assert all(set(declared) <= known for declared in limits().values())
