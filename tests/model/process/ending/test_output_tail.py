"""What ended a process, found among the lines that it wrote."""

from __future__ import annotations

import os

import pytest

from lmi.model.process.ending.output_tail import OutputTail

CORE = "(EngineCore pid=17948) "


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        ([f"{CORE}ValueError: no room"], "no room"),
        # A plain one, as vLLM's offloading of the KV cache raises it on a CPU.
        ([f"{CORE}ERROR 11-24 10:06:42 [core.py:1195] Exception: CPU only"], "CPU only"),
        ([f"{CORE}torch.OutOfMemoryError: no room"], "torch.OutOfMemoryError: no room"),
        (["KeyError: 'a'", "RuntimeError: Engine core failed. See root cause above."], "KeyError: 'a'"),
        (["Exceptional: it is no error", "some Exception: nor is this"], ""),
    ],
)
@pytest.mark.usefixtures("capfd")
def test_the_cause(lines: list[str], cause: str) -> None:
    with OutputTail() as output:
        os.write(2, "".join(f"{line}\n" for line in ["before", *lines, "after"]).encode())
    assert output.cause() == cause
