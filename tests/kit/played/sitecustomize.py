"""With this folder on PYTHONPATH, the engine's process runs vLLM on the core of played_engine.py."""

from __future__ import annotations

import sys
from pathlib import Path

from lmi.model.backend import BACKENDS

BACKENDS["vllm"] = "played_engine:played_engine"
# It reads tests/kit and tests/microbench.
sys.path.append(str(Path(__file__).parents[3]))
