"""With this folder on PYTHONPATH, the engine's process runs vLLM on the core of acted_engine.py."""

from __future__ import annotations

import sys
from pathlib import Path

from lmi.model.backend import BACKENDS

BACKENDS["vllm"] = "acted_engine:acted_engine"
# It reads tests/microbench/standin.py.
sys.path.append(str(Path(__file__).parents[3]))
