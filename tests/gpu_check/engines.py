"""The engines of the check, each behind a local server that is started when a step first asks for it, and once.

    plain        what is compared with: model runner V1, eager, no asynchronous scheduling, no prefix cache
    whole        as vLLM is by itself: CUDA graphs, model runner V2, asynchronous scheduling, prefix caching
    adapters     whole, with LoRA
    speculative  whole, with n-gram speculative decoding

Half precision, as FlashAttention has no other: it takes the demo model's heads of 32, and the answers that the model
was taught stay the same in it (each token has a probability of 0.95 and more).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx

from ..kit.hosts.host import Server, model_directory
from ..kit.metered import parsed
from ..kit.models.adapted import Adapted, adapted, adapted_directory
from ..kit.paths import CACHE, ROOT
from .chosen import MARK

__all__ = ["ADAPTERS", "WHOLE", "Engines"]

WHOLE = {
    "option.dtype": "bf16",
    "option.enforce_eager": "false",
    # A share that several engines on one device have each; of it they use what the cache's own option says.
    "option.gpu_memory_utilization": "0.1",
}
LOG = {
    # Otherwise the log has nothing that vLLM's core says of itself.
    "option.log_requests": "true",
}
COMPILED = {"TORCH_COMPILE_DISABLE": "0"}
"""In the environment of `whole`. On a CPU the Makefile turns compilation off; here it is what a CPU has of a GPU's
way."""
PLAIN = {
    "option.enforce_eager": "true",
    "option.async_scheduling": "false",
    "option.enable_prefix_caching": "false",
}
SPECULATIVE = {
    "option.speculative_config": json.dumps({
        "method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4, "prompt_lookup_min": 2,
    }),
}  # fmt: skip
ADAPTERS = ("wide", "slight")
"""Of ranks 16 and 1."""
START = 600.0
"""Seconds that an engine may take to start: what is compiled for a device the first time takes minutes."""
SURE = 0.5
"""By how much, of logits, each token of an adapter's answer must be ahead of the next one: half precision rounds."""


class Engines:
    """What the steps share; `close` ends what runs."""

    def __init__(self, device: str, demo: Path, folder: Path, newest: Path) -> None:
        """`newest`: the interpreter of the newest vLLM's CPU build, for what the CPU build of the container's lacks."""
        self.device = device
        self.demo = demo.resolve()
        self.folder = folder
        self._newest = newest
        self._running: dict[str, Server] = {}
        self._failed: set[str] = set()

    def get(self, name: str) -> Server:
        """The server of that name; raises RuntimeError with the end of its log where it does not start: it is not tried
        again."""
        if name in self._failed:
            raise RuntimeError(f"the engine “{name}” did not start, as an earlier step says")
        if name not in self._running:
            self._failed.add(name)
            self._running[name] = self._start(name)
            self._failed.remove(name)
        return self._running[name]

    def _start(self, name: str) -> Server:
        model, log = self.folder / name, self.folder / f"{name}.log"
        variables: dict[str, str] = {}
        python = Path(sys.executable)
        if name == "adapters":
            adapted_directory(self.demo, model, {**WHOLE, **LOG})
            (model / "adapters").symlink_to(self.adapted.folders[ADAPTERS[0]].parent)
        elif name == "plain":
            model_directory(self.demo, model, {**WHOLE, **LOG, **PLAIN})
            variables["VLLM_USE_V2_MODEL_RUNNER"] = "0"
        elif name == "speculative":
            model_directory(self.demo, model, {**WHOLE, **LOG, **SPECULATIVE})
            if self.device == "cpu":
                python = self._newest
                variables |= {
                    "VLLM_CACHE_ROOT": str(CACHE / "vllm-newest"),
                    "TORCHINDUCTOR_CACHE_DIR": str(CACHE / "torchinductor-newest"),
                }
        else:
            model_directory(self.demo, model, {**WHOLE, **LOG})
            variables |= COMPILED
        return Server(model, log, environment=variables, python=python, timeout=START)

    @cached_property
    def adapted(self) -> Adapted:
        """Adapters, and what they should answer by transformers with the adapter merged into the model."""
        return adapted(self.demo, self.folder / "made", ADAPTERS, most=8, count=3, margin=SURE)

    @cached_property
    def chosen(self) -> Mapping[str, Any]:
        """What vLLM chooses for `whole` (chosen.py)."""
        model = model_directory(self.demo, self.folder / "chosen", WHOLE)
        done = subprocess.run(
            [sys.executable, "-m", "tests.gpu_check.chosen", str(model)],
            cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False,
            env=environment(**COMPILED),
        )  # fmt: skip
        found = re.search(rf"^{MARK}(.+)$", done.stdout, re.MULTILINE)
        if not found:
            raise RuntimeError(f"vLLM does not take the options:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        facts: Mapping[str, Any] = json.loads(found[1])
        return facts

    def metric(self, name: str, of: str) -> float:
        """A counter of the server `of`, over all labels; 0 where it has none of that name."""
        text = httpx.get(f"{self.get(of).url}/metrics", timeout=60).text
        return sum(value for (found, _), value in parsed(text).items() if found == name)

    def close(self) -> None:
        while self._running:
            self._running.popitem()[1].stop()


def environment(**more: str) -> dict[str, str]:
    """Of a command that steps run: ours, with `more` over it."""
    return {**os.environ, **more}
