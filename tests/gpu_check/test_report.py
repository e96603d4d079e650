"""The report tells of every step, of the machine, and where it was a CPU."""

from __future__ import annotations

import pytest

from .report import CPU_WARNING, machine, render
from .run import Outcome, Step


def nothing() -> str:
    return ""


PASSED = Outcome(Step("graphs", nothing, "no graphs"), "passed", 12.3, "11 answers")
FAILED = Outcome(Step("adapter", nothing), "failed", 4.6, "got 'a|b'\nthe end of the log")
MISSING = Outcome(Step("contract", nothing), "not possible", 0.0, "no Java")


def test_a_failure_is_told_with_all_that_is_known() -> None:
    text = render({"vllm": "0.23.0"}, [PASSED, FAILED, MISSING], "", device="gpu")
    assert "1 of 3 steps passed. 17 s." in text
    assert "| vllm | 0.23.0 |" in text
    assert "| graphs | passed | 12 | **On this device: no graphs.** 11 answers |" in text
    assert "| adapter | failed | 5 | got 'a\\|b' (more below) |" in text
    assert "| contract | not possible | 0 | no Java |" in text
    assert "### adapter: failed\n\n```\ngot 'a|b'\nthe end of the log\n```" in text
    assert CPU_WARNING not in text
    assert "## Bench" not in text


def test_of_a_cpu_it_says_so() -> None:
    text = render({}, [PASSED], "| layer |", device="cpu")
    assert "All steps passed." in text
    assert CPU_WARNING in text
    assert text.endswith("## Bench\n\n| layer |\n")


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_the_machine_is_told(device: str) -> None:
    facts = machine(device)
    assert {"date", "commit", "machine", "processor", "Python", "Java"} <= set(facts)
    assert "GiB" in facts["machine"]
    assert ("CUDA devices that were used" in facts) == (device == "gpu")
