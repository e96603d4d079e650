"""Each row of the tables: what it says, once it is followed, is taken; and no name of vLLM's is taken for another."""

from __future__ import annotations

import re
from typing import Any

import pytest

from lmi.model.options.advice.document import advice_table
from lmi.model.options.advice.find import on_name, on_value, unknown
from lmi.model.options.advice.lmi import LMI
from lmi.model.options.advice.parsers import PARSERS
from lmi.model.options.advice.row import Row
from lmi.model.options.advice.values import VALUES
from lmi.model.options.advice.vllm import NEWER, VLLM

from ....kit.api.engine import engine_arguments, registered_parsers
from ....kit.api.errors import Fault, OptionError
from ....kit.api.options import ARGUMENTS, PREFIX, TGI, make_settings, option_named
from ....kit.paths import DOCS
from ....kit.rows import each_row

GIVEN = {
    "max_prompt_tokens": "256", "max_model_len": "256", "max_rolling_batch_size": "8", "gpu_memory_utilization": "0.8",
    "speculative_draft_model": "owner/draft", "speculative_length": "3", "draft_model_tp_size": "1",
    "cudagraph_capture_sizes": "1 2 4", "pooler_config": '{"pooling_type": "CLS"}', "entryPoint": "lmi.handler",
}  # fmt: skip
"""What a name is given as where its row takes any text, by the option that takes its place."""
PATTERNS = {
    "device_map": "balanced",
    "guided_decoding_backend": "outlines:no-fallback",
    "moe_expert_parallel_size": "8",
    "torch_dtype": "torch.float16",
    "data_type": "bf16",
    "limit_mm_per_prompt": "image=2,video=0",
    "dtype": "torch.bfloat16",
}
"""The same for names whose row has a pattern that is no list of words."""
ROWS = [(name, row) for row in (*LMI, *VLLM) for name in row.names]
VALUE_ROWS = [(name, row) for row in VALUES for name in row.names]


def texts(name: str, row: Row) -> list[str]:
    """Texts that the row is about."""
    if row.value == ".*":
        return [GIVEN[row.entries[0][0]] if row.entries else "8"]
    words = row.value.split("|")
    if all(re.fullmatch(r"[\w-]+", word) for word in words):
        return words
    return [PATTERNS[name]] if row.advice(PATTERNS.get(name, "")) else re.findall(r"(?<=\|)[\w-]+|^[\w-]+", row.value)


def refused(options: dict[str, str]) -> str:
    with pytest.raises(OptionError) as caught:
        make_settings(**options)
    return caught.value.message


def sentence(advice: Any, name: str, text: str) -> str:
    return str(advice.fault(name, text).sentence("option."))


def settings_by(advice: Any) -> Any:
    """The settings of what an advice says is to be written."""
    written = dict(advice.entries)
    if not written and (told := re.match(r"set option\.(\w+)=(\{.*\}\}?|\w+)", advice.why)):
        written = {told[1]: told[2]}
    if "draft_model_tp_size" in written or "speculative_length" in written:
        written["speculative_draft_model"] = "owner/draft"
    return make_settings(**written)


@each_row(("name", "row"), ROWS, ids=[f"{name} {row.value}" for name, row in ROWS])
def test_what_is_said_of_a_name(name: str, row: Row) -> None:
    assert option_named(name) is None
    for text in texts(name, row):
        advice = on_name(name, text)
        assert advice == row.advice(text)
        assert advice is not None
        assert (advice.fate == "renamed") is bool(advice.entries)
        settings_by(advice)
        if row.until:
            # A version of vLLM has it, and the start alone knows which there is.
            assert make_settings(**{name: text}).engine_arguments[name] == text
            assert unknown(name, text, "vLLM 0.32.0", ()) == advice.fault(name, text)
        else:
            assert refused({name: text}) == sentence(advice, name, text)


@each_row(("name", "row"), VALUE_ROWS, ids=[f"{name} {row.value}" for name, row in VALUE_ROWS])
def test_what_is_said_of_a_value(name: str, row: Row) -> None:
    for text in texts(name, row):
        advice = on_value(name, text)
        assert advice == row.advice(text)
        assert advice is not None
        settings_by(advice)
        assert sentence(advice, name, text) in refused({name: text})


SERVERS = [
    *((variable.name.lower(), variable) for variable in TGI),
    *((variable.name.removeprefix(PREFIX).lower(), variable) for variable in ARGUMENTS.values()),
]
OPTIONS = {
    "dtype",
    "quantize",
    "trust_remote_code",
    "kv_cache_dtype",
    "master_addr",
    "master_port",
    "served_model_name",
}
"""Names of TGI's and the server's that are options or arguments of vLLM's too."""
CONVERTED = {
    "cuda_memory_fraction": "0.8", "sharded": "false", "speculate": "2", "lora_adapters": "a=/adapters/a",
    "cuda_graphs": "1,2", "enable_cuda_graphs": "true", "prefix_caching": "true", "use_prefix_caching": "true",
}  # fmt: skip
"""What TGI's names are given as that do not take any number."""


@each_row(("name", "variable"), [row for row in SERVERS if row[0] not in OPTIONS | NEWER])
def test_what_is_said_of_a_servers_name(name: str, variable: Any) -> None:
    advice = on_name(name, CONVERTED.get(name, "8"))
    assert advice is not None
    settings_by(advice)
    assert (advice.fate == "renamed") is (variable.fate == "option")
    assert sentence(advice, name, CONVERTED.get(name, "8")) in refused({name: CONVERTED.get(name, "8")})


@each_row("name", sorted(NEWER))
def test_what_only_the_newer_vllm_has(name: str) -> None:
    why = "vLLM 0.26.0 does not have it, vLLM 0.32 does"
    assert unknown(name, "1", "vLLM 0.26.0", ()) == Fault(name, why)
    assert make_settings(**{name: "1"}).engine_arguments[name] == "1"


@each_row(
    ("name", "question"),
    [
        ("max_model_length", "option.max_model_len"),
        ("quantise", "option.quantize"),
        ("load_fromat", "option.load_format"),
        # Of vLLM's forks, or of nobody: none is another's misspelling.
        ("max_context", ""),
        ("kv_cache", ""),
        ("attention_type", ""),
        ("ubatch", ""),
        ("device_indices", ""),
    ],
)
def test_likeness_is_a_question(name: str, question: str) -> None:
    why = "there is no such option and no such argument of vLLM 0.26.0"
    assert unknown(name, "1", "vLLM 0.26.0", ()) == Fault(name, why, given="'1'", similar=question)


def said(name: str) -> str:
    """What is wrong with an argument of vLLM's; empty: nothing."""
    try:
        make_settings(**{name: "1"})
    except OptionError as error:
        return error.message
    return ""


@pytest.mark.engine
def test_no_name_of_vllms_is_taken_for_another() -> None:
    import dataclasses

    from vllm import EngineArgs, __version__

    names = {field.name for field in dataclasses.fields(EngineArgs) if not field.name.startswith("_")}
    version = tuple(map(int, __version__.split(".")[:2]))
    assert (names >= NEWER) is (version == (0, 32))
    assert names.isdisjoint(NEWER) is (version == (0, 26))
    still = {name for name, row in ROWS if row.until and version <= tuple(map(int, row.until.split(".")))}
    assert {name for name, _ in ROWS if name in names} == still
    for name in (name for name in names if not option_named(name)):
        assert "did you mean" not in said(name)


@pytest.mark.engine
@pytest.mark.parametrize(
    ("name", "row"), [row for row in (*ROWS, *VALUE_ROWS) if row[1].entries or row[1].fate in {"lost", "by hand"}]
)
def test_vllm_takes_what_is_said(name: str, row: Row) -> None:
    for text in texts(name, row):
        advice = row.advice(text)
        assert advice is not None
        engine_arguments(settings_by(advice))


@pytest.mark.engine
def test_vllms_parsers() -> None:
    """The list for where vLLM is not installed has them all."""
    for option, names in registered_parsers().items():
        built_in = {name for name in names if not name.startswith("mine")}
        assert built_in <= PARSERS[option]
        assert len(built_in) > 20


def test_the_documentation_has_the_table() -> None:
    page = (DOCS / "migrating.md").read_text("utf-8")
    assert page.partition("<!-- advice -->\n")[2].partition("\n<!-- /advice -->")[0] == advice_table()
