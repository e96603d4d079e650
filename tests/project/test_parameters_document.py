"""docs/parameters.md is what the tables say, and leaves nothing out."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

import msgspec
import pytest

from lmi.formatters import lmi
from lmi.formatters.base import Request
from lmi.formatters.common.fields import Parameter
from lmi.formatters.common.kinds import Boolean, Number, Text, Texts
from lmi.formatters.common.prompts import Ids
from lmi.formatters.common.vllm_kinds import Arguments, Biases, Salt, SomeIds
from lmi.formatters.lmi import dynamic
from lmi.formatters.lmi.parameters import BEAM_KEYS, ROWS, parameters_of
from lmi.formatters.lmi.schemas import COMMON
from lmi.formatters.openai.parameters import CHAT_TABLE
from lmi.model.backend import BACKENDS, limits
from lmi.model.generation import Embedding, Sampling
from lmi.model.options import Settings

from ..kit.paths import ROOT
from . import parameters_document as parameters_document_module
from .parameters_document import parameters_document

CHAT = {row.name for row in CHAT_TABLE}


def table(title: str) -> dict[str, list[str]]:
    """The rows of a section, by name: what stands in the further columns."""
    section = parameters_document().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    rows = [re.split(r"(?<!\\) \| ", line[2:-2]) for line in section.splitlines() if line.startswith("| `")]
    names = [row[0].strip("`") for row in rows]
    assert len(names) == len(set(names))
    return {name: row[1:] for name, row in zip(names, rows, strict=True)}


def test_the_file_is_up_to_date() -> None:
    """`python -m tests.project.parameters_document > docs/parameters.md` writes it."""
    assert (ROOT / "docs" / "parameters.md").read_text(encoding="utf-8") == parameters_document()


SETTINGS = Settings(model_dir="/m", model_id="/m", model_name="m")
BATCHES = msgspec.structs.replace(SETTINGS, rolling_batch="disable")


def test_what_means_something_with_beams_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's column follows what its backend declares of beams; TGI refuses beams, so that nothing asks for them."""
    for name in BEAM_KEYS:
        value = 5 if name == "length_penalty" else True
        read = [ROWS["common"].read("parameters", given, SETTINGS) for given in ({name: value}, {})]
        assert parameters_of(COMMON, *read[0]) == parameters_of(COMMON, *read[1])
        assert table("TGI")[name][2:] == ["nothing", ""]
    for declared, own, dependent in (
        ("refused", "refused", "no effect"),
        ("up to 3", "up to 3", "with `num_beams` above 1"),
        (None, "yes", "with `num_beams` above 1"),
    ):
        known = {"one": {} if declared is None else {"beams": declared}}
        monkeypatch.setattr(parameters_document_module, "limits", lambda known=known: known)
        rows = table("LMI")
        assert rows["num_beams"][3:] == ["`beams`", own]
        assert all(rows[name][3:] == ["`beams`", dependent] for name in BEAM_KEYS)


GUIDED: dict[str, Any] = {
    "response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}, "guided_json": {"a": 1},
    "guided_json_object": True, "guided_regex": "a", "guided_choice": ["a"], "guided_grammar": 'root ::= "a"',
}  # fmt: skip


def sample(row: Parameter) -> Any:
    """A value that is not the default."""
    if row.default_only:
        return None
    if isinstance(row.kind, Number):
        return 0.5
    if isinstance(row.kind, Texts | Ids | SomeIds):
        return ["x"] if isinstance(row.kind, Texts) else [3]
    if isinstance(row.kind, Biases | Arguments):
        return {"3": 1}
    if row.name in GUIDED:
        return GUIDED[row.name]
    if isinstance(row.kind, Salt | Text):
        return "right"
    if row.name.endswith("_kwargs"):
        return {}
    return True if isinstance(row.kind, Boolean) else 5


def test_dynamic_batches_differ_as_they_say() -> None:
    """Of every parameter of LMI's: whether it does there what it does in dynamic batches."""

    def asked(dialect: ModuleType, parameters: dict[str, Any], settings: Settings) -> Sampling:
        made = dialect.parse({"inputs": "a", "parameters": parameters}, Request(b""), settings)
        sampling: Sampling = made.generations[0].sampling
        return sampling

    values: dict[str, Any] = {
        "details": True, "decoder_input_details": True, "logprobs": 3, "prompt_logprobs": 3, "top_n_tokens": 3,
    }  # fmt: skip
    for name, value in values.items():
        assert table("Dynamic batches")[name][3] == "nothing"
        assert asked(dynamic, {name: value, "details": True}, BATCHES) == asked(dynamic, {}, BATCHES)
        if name != "details":
            assert asked(lmi, {name: value, "details": True}, SETTINGS) != asked(lmi, {"details": True}, SETTINGS)
    assert table("Dynamic batches")["n"][3:] == ["`best_of`", "yes"]
    one = asked(dynamic, {"n": 3, "temperature": 1}, BATCHES)
    assert one == asked(dynamic, {"best_of": 3, "temperature": 1}, BATCHES)
    assert (one.n, one.best_of) == (1, 3)
    for name in set(ROWS["common"]) - set(values) - {"n", "num_beams", "beam_width", "best_of"}:
        given = {name: sample(ROWS["common"][name])}
        assert asked(dynamic, given, BATCHES) == asked(lmi, given, SETTINGS)
    assert asked(dynamic, {"num_beams": 3}, BATCHES).beams == asked(lmi, {"num_beams": 3}, SETTINGS).beams


def test_an_embedding_bodys_parameters_set_what_their_rows_say() -> None:
    embeds = msgspec.structs.replace(SETTINGS, backend="vllm-embedding", task="embed")
    given = {"normalize": False, "truncate": True, "truncation_direction": "Left", "dimensions": 8}
    made = lmi.parse({"inputs": "a", "parameters": given}, Request(b""), embeds).generations[0]
    assert made.embedding == Embedding(normalize=False, truncate=True, cut="left", dimensions=8)
    for name, value in given.items():
        set_field = table("LMI embeddings")[name][2].strip("`")
        one = lmi.parse({"inputs": "a", "parameters": {name: value}}, Request(b""), embeds).generations[0].embedding
        none = lmi.parse({"inputs": "a"}, Request(b""), embeds).generations[0].embedding
        changed = [field for field in Embedding.__struct_fields__ if getattr(one, field) != getattr(none, field)]
        assert changed == [set_field]


def test_what_engines_declare() -> None:
    assert set(limits()) == set(BACKENDS) - {"vllm-embedding", "vllm-scoring"}
    known = {*Sampling.__struct_fields__, "kv_transfer_params", "priority"}
    assert all(set(declared) <= known for declared in limits().values())
