"""Starts of real engines that fail: before the core, in it, in one of its workers, on another host. Wherever it was,
what is said last is the cause, in one line."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ..kit.adapters import write_adapter
from ..kit.faults.start_faults import CORE_FAULTS, Change, configured, copy, nothing, weights
from ..kit.hosts.follower import LOOPBACK, Follower, two_hosts
from ..kit.hosts.host import model_directory
from ..kit.paths import ROOT

pytestmark = pytest.mark.engine

SAYS = "the engine could not start"
SHAPES = f"{SAYS}, see option.model_id: the weights do not fit config.json: "
STATEMENT = r"AssertionError: assert .+ \(\w+\.py, line \d+, in \w+\)"
TENSOR = "option.tensor_parallel_degree"
SMALL = "the KV cache holds less than one request of max_model_len: "
KEY_VALUE = f"{TENSOR}: expected a tensor size that divides the model's 3 key-value heads, .+, got 2"

CAUSES = {
    "KV cache too small": f"{SAYS}, see option.max_model_len: {SMALL}.+",
    "KV cache too large": f"{SAYS}, see option.kv_cache_memory_bytes: .+ less than requested memory for kv .+",
    "weights of another shape": f"{SHAPES}.+exceeds dimension size.+",
    "a plain assertion": f"{SHAPES}{STATEMENT}",
    "a layer more": f"{SHAPES}Following weights were not initialized from checkpoint: .+",
    "no such activation": f"{SAYS}: Unsupported activation: nosuch.+",
    "a size of heads": f"{SAYS}: RoPE requires an even rotary dimension, but got `head_dim`=17 .+",
    "quantization": f"{SAYS}, see option.quantize: Cannot find the config file for awq",
    "logits processor": f"{SAYS}: Failed to load 0th LogitsProcessor plugin nosuch:Thing",
    "scheduler": f"{SAYS}: ModuleNotFoundError: No module named 'nosuch'",
    "worker extension": f"{SAYS}: ModuleNotFoundError: No module named 'nosuch'",
    "KV connector": f"{SAYS}: No module named 'nosuch'",
    "workers, width": f"{SAYS}, see {TENSOR}: {STATEMENT}",
    "workers, heads": rf"{SAYS}, see {TENSOR}: Total number of attention heads \(3\) must be divisible by .+ \(2\)\.",
    "workers, key-value heads": KEY_VALUE,
    "workers, weights": f"{SHAPES}{STATEMENT}",
    "workers, activation": f"{SAYS}: Unsupported activation: nosuch.+",
}  # fmt: skip


@pytest.fixture(scope="module")
def told(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What is said of each of CORE_FAULTS."""
    command = [sys.executable, "-m", "tests.kit.faults.start_faults", str(demo_model)]
    done = subprocess.run(
        [*command, str(tmp_path_factory.mktemp("faults")), "CORE_FAULTS"],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('["')]
    found: dict[str, str] = {name: message for name, _, _, message, _ in lines}
    assert found.keys() == CORE_FAULTS.keys(), done.stderr[-4000:]
    return found


@pytest.mark.parametrize("fault", CORE_FAULTS)
def test_what_only_the_core_or_a_worker_knows(told: dict[str, str], fault: str) -> None:
    assert re.fullmatch(CAUSES[fault], told[fault]), told[fault]


@dataclass(frozen=True, slots=True)
class Start:
    """One that fails, of `lmi serve`."""

    cause: str
    """What its last line is, behind `lmi: `: a regular expression. PORT is the port of the followers."""
    change: Change = nothing
    """Of the model's directory."""
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    hosts: int = 1
    of_follower: Change | None = None
    """There is a follower, and this is how its model differs."""
    taken: bool = False
    """Somebody listens on the port of the followers."""
    once: str = ""
    """When its log has this, as a regular expression, something is killed by SIGKILL: the process that the line names,
    or the follower's part of the engine."""


def broken_weights(directory: Path) -> None:
    """As many bytes as before, but no file of weights any more."""
    file = weights(directory)
    file.write_bytes(b"\xff" * file.stat().st_size)


def adapter_of_rank(rank: int) -> Change:
    def change(directory: Path) -> None:
        config = json.loads((directory / "config.json").read_text())
        write_adapter(directory / "adapters" / "one", config, rank=rank)

    return change


def heads(query: int, key_value: int) -> Change:
    return configured(num_attention_heads=query, num_key_value_heads=key_value, hidden_size=32 * query)


NODE = r"node 1 \(127\.0\.0\.1\)"

STARTS = {
    "a core that is killed": Start(
        rf"{SAYS}: vLLM's process EngineCore\w* ended by signal SIGKILL", once=r"\(EngineCore pid=(\d+)\)"
    ),
    "a worker that is killed": Start(
        f"{SAYS}: one of vLLM's processes ended without a word, .+", options={"tensor_parallel_degree": "2"},
        once=r"\(Worker pid=(\d+)\)",
    ),
    "an adapter's rank": Start(
        r".*\badapters/one\b.*rank.*64.*16.*", adapter_of_rank(64), {"enable_lora": "true", "max_lora_rank": "16"}
    ),
    "a port in use": Start(r"option\.node_port: PORT: Address already in use", hosts=2, taken=True),
    "a host that does not come": Start(
        r"node 1 of 2 did not join 127\.0\.0\.1:PORT within 2 s \(option\.node_start_timeout\)",
        options={"node_start_timeout": "2"}, hosts=2,
    ),
    "heads of two hosts": Start(
        f"{KEY_VALUE} over 2 hosts", heads(6, 3), {"load_format": "dummy"}, hosts=2
    ),
    "another host's weights": Start(
        rf"{NODE}: .*model\.safetensors is not a safetensors file.*", hosts=2, of_follower=broken_weights
    ),
    "another host's engine is killed": Start(
        rf"{NODE}: .*SIGKILL.*", hosts=2, of_follower=nothing, once="all 2 nodes are there"
    ),
}  # fmt: skip


class Serving:
    """`lmi serve` of a model that it cannot serve."""

    def __init__(self, directory: Path, log: Path) -> None:
        self.log = log
        command = [str(Path(sys.executable).parent / "lmi"), "serve", str(directory), "--port", "0"]
        with log.open("w") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **LOOPBACK})

    def wait_for(self, line: str) -> re.Match[str]:
        """Until its log has a line."""
        deadline = time.monotonic() + 200
        while (found := re.search(line, self.log.read_text(errors="replace"))) is None:
            assert time.monotonic() < deadline, self.log.read_text(errors="replace")[-4000:]
            assert self.process.poll() is None, self.log.read_text(errors="replace")[-4000:]
            time.sleep(0.05)
        return found

    def stop(self) -> None:
        """Ends it, if it has not."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def directory_of(demo: Path, target: Path, change: Change, options: Mapping[str, str]) -> Path:
    copy(demo, target / "files")
    change(target / "files")
    return model_directory(target / "files", target / "model", options)


@pytest.mark.parametrize("name", STARTS)
def test_the_last_line_names_the_cause(name: str, demo_model: Path, tmp_path: Path, stack: ExitStack) -> None:
    start = STARTS[name]
    options = {f"option.{option}": text for option, text in start.options.items()}
    if start.hosts == 2:
        options = two_hosts(**options)
    port = options.get("option.node_port", "")
    if start.taken:
        stack.enter_context(socket.create_server(("127.0.0.1", int(port))))
    follower = None
    if start.of_follower is not None:
        directory = directory_of(demo_model, tmp_path / "follower", start.of_follower, options)
        follower = Follower(directory, tmp_path / "follower.log", ["--once"])
        stack.callback(follower.stop)
    serving = Serving(directory_of(demo_model, tmp_path / "leader", start.change, options), tmp_path / "log")
    stack.callback(serving.stop)
    if start.once:
        _kill(serving.wait_for(start.once), follower)
    status = serving.process.wait(240)
    last = serving.log.read_text(errors="replace").strip().splitlines()[-1]
    assert status == 1, last
    assert re.fullmatch(f"lmi: {start.cause}".replace("PORT", port), last), last


def _kill(found: re.Match[str], follower: Follower | None) -> None:
    if follower is None:
        os.kill(int(found[1]), signal.SIGKILL)
    else:
        follower.engine.kill()


def test_the_tables_are_of_twenty_starts_and_more() -> None:
    assert CAUSES.keys() == CORE_FAULTS.keys()
    assert len(CAUSES) + len(STARTS) >= 20
