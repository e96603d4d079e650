"""With this folder on PYTHONPATH, the engine's process runs the engine of parrot_engine.py under vLLM's name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

from lmi.model.backend import BACKENDS

BACKENDS["vllm"] = "parrot_engine:ParrotEngine"
# It reads tests/demo/answers.py.
sys.path.append(str(Path(__file__).parents[3]))
# Its import, for the sake of how vLLM crashes, brings torch with it and takes seconds; the engine here has neither.
cast("dict[str, Any]", sys.modules)["tvm_ffi"] = None
