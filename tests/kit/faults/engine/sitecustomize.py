"""With this folder on PYTHONPATH, the engine's process runs the engine of faulty_engine.py under vLLM's name."""

from __future__ import annotations

import sys
from typing import Any, cast

from lmi.model.backend import BACKENDS

BACKENDS["vllm"] = "faulty_engine:FaultyEngine"

# Its import, for the sake of how vLLM crashes, brings torch with it and takes seconds; the engine here has neither.
cast("dict[str, Any]", sys.modules)["tvm_ffi"] = None
