"""What the handler makes of VllmConfig is what `vllm serve` makes for the same model and options, field by field; what
differs is in a table, with its reason. On devices that this machine does not have."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ....kit.devices.configurations import CASES
from ....kit.devices.nvidia import COUNT, DEVICES
from ....kit.paths import DOCS, ROOT

pytestmark = pytest.mark.engine

USUAL = ("H100", "A10G")
"""The devices of `make test`: one of each kind of defaults. The others are seen by `make test-all`."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A field that the handler has otherwise than `vllm serve`; both are regular expressions of the texts."""

    theirs: str
    ours: str
    reason: str
    devices: str = r"\w+"
    """Of which it is so."""
    versions: str = ".*"
    """And in which vLLM."""


FROM_28, FROM_32 = r"0\.(?!26\.).+", r"0\.(?!2[68]\.).+"
"""Versions of vLLM that are not the ones before, of those that are supported."""

DIFFERENCES = {
    "instance_id": Difference(r"'\d+'", r"'\d+'", "a number of its own for each"),
    "parallel_config.data_parallel_master_port": Difference(r"\d+", r"\d+", "one that is free"),
    "parallel_config._data_parallel_master_port_list": Difference(r"\[.+]", r"\[.+]", "ones that are free"),
    "scheduler_config.max_num_seqs": Difference(
        "1024", "256", "LMI's max_rolling_batch_size has one default on all devices", "H100|H200|B200"
    ),
    "compilation_config.max_cudagraph_capture_size": Difference(
        "1024", "512", "twice max_num_seqs, where vLLM has more at most", "B200", FROM_28
    ),
    "compilation_config.cudagraph_capture_sizes": Difference(
        r"\[.+, 1024]", r"\[.+, 512]", "as many as the largest allows", "B200", FROM_28
    ),
    **dict.fromkeys(
        (
            "model_config.logits_processors", "speculative_config.draft_model_config.logits_processors",
            "speculative_config.target_model_config.logits_processors",
        ),
        Difference(
            "None", r"\['lmi\.model\.vllm\.typical:V2']", "typical_p, where it costs other requests nothing",
            versions=FROM_32,
        ),
    ),
    "model_config.runner": Difference(
        "'auto'", "'(generate|pooling)'", "by option.task, so that a model which cannot do that ends the start"
    ),
    "speculative_config.draft_model_config.runner": Difference("'auto'", "'generate'", "the model's own"),
    "speculative_config.target_model_config.runner": Difference("'auto'", "'generate'", "the model's own"),
    "model_config.convert": Difference("'auto'", "'embed'", "by option.task"),
    "lora_config.max_loras": Difference("1", "4", "LMI's default of max_loras"),
    "lora_config.max_cpu_loras": Difference("1", "8", "room for adapters that are registered later"),
    "error": Difference(
        r"(?s).*max_num_batched_tokens.*", "None", "a step that is too small for the drafted tokens is made larger",
        "A10G|L4|L40S",
    ),
}  # fmt: skip
"""By the field. What is not here is the same."""


def differences(device: str) -> dict[str, Difference]:
    """Those of a device with the installed vLLM."""
    import vllm

    return {
        name: row
        for name, row in DIFFERENCES.items()
        if re.fullmatch(row.devices, device) and re.fullmatch(row.versions, vllm.__version__)
    }


Line = tuple[int, str, str, dict[str, tuple[str | None, str | None]], dict[str, str | None]]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The lines of a device, asked for once."""
    known: dict[str, list[Line]] = {}

    def lines(device: str) -> list[Line]:
        if device not in known:
            known[device] = _lines(device, tmp_path_factory.mktemp(device))
        return known[device]

    return lines


OF_TESTS = re.compile(r"VLLM_(CPU|ENABLE|WORKER)_|TORCH_COMPILE_DISABLE$|OMP_NUM_THREADS$")
"""Variables that other tests need, and that vLLM on such a device would take for the user's."""


def _lines(device: str, folder: Path) -> list[Line]:
    environment = {name: text for name, text in os.environ.items() if not OF_TESTS.match(name)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.kit.devices.configurations", device, str(folder)],
        check=False,
        cwd=ROOT,
        env={**environment, "VLLM_LOGGING_LEVEL": "ERROR"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if re.match(r'\[\d+, "', line)]
    found = {(count, model, name) for count, model, name, *_ in lines}
    expected = {(count, case.model, case.name) for count in (1, COUNT) for case in CASES if case.size(count)}
    assert found == expected, done.stderr[-4000:]
    return [(count, model, name, differing, shown) for count, model, name, differing, shown in lines]


devices = pytest.mark.parametrize(
    "device", [pytest.param(name, marks=[] if name in USUAL else pytest.mark.slow) for name in DEVICES]
)


def unexplained(device: str, differing: dict[str, tuple[str | None, str | None]]) -> dict[str, Any]:
    """What differs otherwise than DIFFERENCES say."""
    found: dict[str, Any] = {}
    rows = differences(device)
    for name, (theirs, ours) in differing.items():
        row = rows.get(name)
        if row is None or not (re.fullmatch(row.theirs, str(theirs)) and re.fullmatch(row.ours, str(ours))):
            found[name] = (theirs, ours)
    return found


@devices
def test_every_field_is_that_of_vllms_server(device: str, compared: Any) -> None:
    lines: list[Line] = compared(device)
    wrong = {(count, model, name): unexplained(device, differing) for count, model, name, differing, _ in lines}
    assert {case: fields for case, fields in wrong.items() if fields} == {}


@devices
def test_every_difference_of_the_table_is_seen(device: str, compared: Any) -> None:
    seen = {name for *_, differing, _ in compared(device) for name in differing}
    assert seen == differences(device).keys()


@devices
def test_drafted_tokens_and_adapters_make_no_step_smaller(device: str, compared: Any) -> None:
    steps = {name: int(shown[STEP] or 0) for _, model, name, _, shown in compared(device) if model == "llama"}
    assert steps["n-grams and adapters"] == max(256 * 10, steps["none"])


STEP, SEQUENCES = "scheduler_config.max_num_batched_tokens", "scheduler_config.max_num_seqs"


def documented() -> dict[str, tuple[int, int]]:
    """The defaults by device, as docs/options.md has them for this vLLM: tokens of a step, sequences."""
    import vllm

    page = (DOCS / "options.md").read_text("utf-8")
    table = page.partition("<!-- devices -->\n")[2].partition("<!-- /devices -->")[0]
    rows = [[cell.strip() for cell in row.strip("| ").split("|")] for row in table.splitlines()[2:]]
    step = 1 if vllm.__version__.startswith("0.26.") else 2
    return {
        name: (int(row[step].replace(",", "")), int(row[3].replace(",", "")))
        for row in rows
        for name in row[0].split(", ")
    }


@devices
def test_the_page_of_options_has_a_devices_defaults(device: str, compared: Any) -> None:
    shown = [shown for _, _, name, _, shown in compared(device) if name == "none"]
    assert {(int(one[STEP] or 0), int(one[SEQUENCES] or 0)) for one in shown} == {documented()[device]}
