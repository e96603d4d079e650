"""What a start refuses before it reads weights, `lmi check` refuses, and by the same option; and nothing else.

On devices that this machine does not have, in one process for all configurations (tests/kit/devices/refusals.py).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ...kit.adapters import write_adapter
from ...kit.faults.start_faults import configured, copy
from ...kit.paths import ROOT
from ...kit.rows import each_row
from .configurations import CONFIGURATIONS, FAMILIES, Configuration
from .wrong_values import BETWEEN, single_options

pytestmark = [pytest.mark.engine, pytest.mark.contract]

Refusal = tuple[str | None, str] | None
Told = dict[str, tuple[Refusal, Refusal]]
SINGLE = {f"{name}={text}": (name, text) for name, text in single_options()}
RECIPE = "recipe, "

ON_THE_HUB = {
    "model_id=nosuch": "model_id",
    "tokenizer=nosuch": "tokenizer",
    "speculative_draft_model=nosuch": "speculative_draft_model",
    "hf_config_path": "hf_config_path",
    "generation_config": "generation_config",
    f"{RECIPE}EAGLE3 by the environment": "speculative_config",
    f"{RECIPE}a draft model": "draft_model_id",
}
"""By case, the option that a start names where it finds nothing on the hub, which check leaves to it."""
NAMED_OTHERWISE: dict[str, str] = dict.fromkeys(("task", "convert"), "hf_overrides")
"""By option, the one that is named where its value is good, but needs that."""
NOT_HERE = {
    "LMCache": "kv_transfer_config",
    "LMCache by itself": "lmcache_auto_config",
    "Mistral's tokenizer": "tokenizer",
    "expert parallelism": "enable_expert_parallel",
}
"""Recipes that nothing is wrong with and that are refused here, by what has to be there: a package, Mistral's
tokenizer, a model with experts."""
OF_THE_CONTAINER = {"formatters", "a handle of the user's"}
"""Recipes with user code that needs djl_python, which is not here: check lets it pass."""
SIZES = {"num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 32, "hidden_size": 256}
"""Heads for eight devices."""
CALL = {"content": "<|python_tag|>", "special": True}
"""A token that a parser of Llama's needs."""

JUDGED = [one for one in CONFIGURATIONS if one.name not in OF_THE_CONTAINER and RECIPE + one.name not in ON_THE_HUB]
"""Recipes of which check and a start say the same."""
OF_TESTS = re.compile(r"VLLM_(CPU|ENABLE|WORKER)_|OMP_NUM_THREADS$")
"""Variables that other tests need, and that vLLM on such a device would take for the user's."""


def plain(demo: Path, target: Path) -> Path:
    """A model directory."""
    directory = copy(demo, target)
    configured(**SIZES, torch_dtype="bfloat16", max_position_embeddings=32768)(directory)
    directory.joinpath("serving.properties").write_text("engine=Python\noption.entryPoint=lmi.handler\n")
    return directory


def recipe(demo: Path, target: Path, one: Configuration) -> Path:
    """That of one of the container's own, for a Llama, where that is not what is refused."""
    directory = plain(demo, target)
    tokenizer = json.loads((directory / "tokenizer.json").read_text())
    tokenizer["added_tokens"].append({**tokenizer["added_tokens"][0], **CALL, "id": len(tokenizer["model"]["vocab"])})
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    if one.refused:
        architecture, kind = FAMILIES[one.family]
        configured(architectures=[architecture], model_type=kind)(directory)
    if (method := one.entries.get("option.quantize")) in {"awq", "gptq"}:
        configured(quantization_config=QUANTIZED | {"quant_method": method})(directory)
    config = json.loads((directory / "config.json").read_text())
    for name in one.adapters:
        write_adapter(directory / "adapters" / name, config)
    for name, said in one.files.items():
        directory.joinpath(name).write_text(said)
    entries = {"option.entryPoint": "lmi.handler", **one.entries}
    directory.joinpath("serving.properties").write_text("".join(f"{name}={text}\n" for name, text in entries.items()))
    return directory


QUANTIZED = {"bits": 4, "group_size": 128, "zero_point": True, "desc_act": False, "sym": True}
"""What AWQ and GPTQ write into config.json."""


def cases(demo: Path, folder: Path) -> list[Mapping[str, Any]]:
    directory = str(plain(demo, folder / "plain"))
    found: list[Mapping[str, Any]] = [
        {"name": case, "directory": directory, "options": {name: text}} for case, (name, text) in SINGLE.items()
    ]
    for number, (name, case) in enumerate(BETWEEN.items()):
        changed = plain(demo, folder / str(number))
        case.change(changed)
        rest = {"options": {**case.options}, "environment": {**case.environment}}
        found.append({"name": name, "directory": str(changed), **rest})
    for number, one in enumerate(CONFIGURATIONS):
        made = recipe(demo, folder / f"recipe-{number}", one)
        found.append({"name": RECIPE + one.name, "directory": str(made), "environment": one.environment})
    return [*found, {"directory": directory}]


@pytest.fixture(scope="module")
def told(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """By case, what check says and what the start says."""
    given = cases(demo_model, tmp_path_factory.mktemp("models"))
    environment = {name: text for name, text in os.environ.items() if not OF_TESTS.match(name)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.kit.devices.refusals", "H100"],
        input=json.dumps(given),
        check=False,
        cwd=ROOT,
        env={**environment, "VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('["')]
    found: Told = {name: (checked, served) for name, checked, served in lines}
    assert {case["name"] for case in given if "name" in case} <= found.keys(), done.stderr[-4000:]
    return found


def name_of(one: Configuration) -> str:
    return one.name


def option_of(refusal: Refusal) -> str | None:
    """The option that is named, empty where none is; None: nothing is refused."""
    return None if refusal is None else refusal[0] or ""


def agreed(told: Told, case: str) -> str | None:
    """What both say of a case."""
    checked, served = told[case]
    assert option_of(checked) == option_of(served), (checked, served)
    return option_of(checked)


@each_row("case", sorted(SINGLE.keys() - ON_THE_HUB.keys()))
def test_one_option(told: dict[str, tuple[Refusal, Refusal]], case: str) -> None:
    name = SINGLE[case][0]
    assert agreed(told, case) in {None, name, NAMED_OTHERWISE.get(name)}


@each_row("case", ON_THE_HUB)
def test_what_is_on_the_hub(told: Told, case: str) -> None:
    checked, served = told[case]
    assert (option_of(checked), option_of(served)) == (None, ON_THE_HUB[case]), (checked, served)


@each_row("case", BETWEEN)
def test_what_belongs_together(told: dict[str, tuple[Refusal, Refusal]], case: str) -> None:
    expected = BETWEEN[case]
    assert agreed(told, case) in {expected.refused, expected.refused if expected.everywhere else None}


@each_row("one", JUDGED, ids=name_of)
def test_recipes_of_the_container(told: Told, one: Configuration) -> None:
    refused = agreed(told, RECIPE + one.name)
    assert refused in (one.refused or {NOT_HERE.get(one.name)}), told[RECIPE + one.name]


@each_row("name", sorted(OF_THE_CONTAINER))
def test_user_code_of_the_container(told: Told, name: str) -> None:
    checked, served = told[RECIPE + name]
    assert checked is None
    assert "djl_python" in (served or ("", ""))[1]


def test_arguments_of_vllm(told: Told) -> None:
    """Those that are no option of the table, each with nonsense."""
    known = SINGLE.keys() | BETWEEN.keys() | ON_THE_HUB.keys()
    others = [case for case in told if case not in known and not case.startswith(RECIPE)]
    assert len(others) > 100
    assert {case: told[case] for case in others if option_of(told[case][0]) != option_of(told[case][1])} == {}
    assert {case: told[case] for case in others if option_of(told[case][1]) not in {None, case}} == {}
