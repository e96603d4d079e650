"""What ended a process, found among the lines that it wrote."""

from __future__ import annotations

import os

import pytest

from lmi.model.process.ending.output_tail import OutputTail

CORE = "(EngineCore pid=17948) "
FIRST = "(Worker_TP0 pid=17950) ERROR 11-26 01:30:05 [multiproc_executor.py:901] "
SECOND = "(Worker_TP1 pid=17951) ERROR 11-26 01:30:06 [multiproc_executor.py:901] "
OF_CORE = "(EngineCore pid=17948) ERROR 11-26 01:30:07 [core.py:1330] "
WORKER_FAILED, CORE_FAILED = "WorkerProc failed to start.", "EngineCore failed to start."
ASSERTION = [
    "Traceback (most recent call last):",
    '  File "/vllm/model_executor/models/llama.py", line 131, in __init__',
    "    self.attn = Attention(",
    "                ^^^^^^^^^^",
    '  File "/vllm/model_executor/models/llama.py", line 151, in __init__',
    "    assert self.total_num_kv_heads % tp_size == 0",
    "           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
    "AssertionError",
]
SAID = "AssertionError: assert self.total_num_kv_heads % tp_size == 0 (llama.py, line 151, in __init__)"


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        ([f"{CORE}ValueError: no room"], "no room"),
        # A plain one, as vLLM's offloading of the KV cache raises it on a CPU.
        ([f"{CORE}ERROR 11-24 10:06:42 [core.py:1195] Exception: CPU only"], "CPU only"),
        ([f"{CORE}torch.OutOfMemoryError: no room"], "torch.OutOfMemoryError: no room"),
        (["KeyError: 'a'", "RuntimeError: Engine core failed. See root cause above."], "KeyError: 'a'"),
        ([CORE + line for line in ASSERTION], SAID),
        # What the others and the core say is that the first one is gone.
        (
            [
                *(FIRST + line for line in [WORKER_FAILED, *ASSERTION]),
                *(SECOND + line for line in [WORKER_FAILED, "RuntimeError: Connection closed by peer"]),
                *(OF_CORE + line for line in [CORE_FAILED, "Exception: WorkerProc initialization failed"]),
            ],
            SAID,
        ),
        (
            [
                *(OF_CORE + line for line in [CORE_FAILED, "RuntimeError: Worker failed. See stack trace above."]),
                *(FIRST + line for line in [WORKER_FAILED, "KeyError: 'a'"]),
            ],
            "KeyError: 'a'",
        ),
        # What a worker of several said while all of them were asked for something.
        (
            [
                f"{OF_CORE}{CORE_FAILED}",
                f"{OF_CORE}RuntimeError: Worker failed with error 'CPU only', please check the stack trace above for",
            ],
            "CPU only",
        ),
        # A logged one that ended nothing.
        (
            [
                f"{OF_CORE}{CORE_FAILED}",
                f"{OF_CORE}MemoryError",
                f"{OF_CORE}ValueError: no room",
                "OSError: [Errno 9] Bad file descriptor",
            ],
            "no room",
        ),
        (["AssertionError"], ""),
        (["Exceptional: it is no error", "some Exception: nor is this"], ""),
    ],
)
@pytest.mark.usefixtures("capfd")
def test_the_cause(lines: list[str], cause: str) -> None:
    with OutputTail() as output:
        os.write(2, "".join(f"{line}\n" for line in ["before", *lines, "after"]).encode())
    assert output.cause() == cause
    failed = any(line.endswith((WORKER_FAILED, CORE_FAILED)) for line in lines)
    assert output.failure() == (cause if failed else "")
