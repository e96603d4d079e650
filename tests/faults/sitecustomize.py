"""With this folder on PYTHONPATH, the engine's process runs the engine of faulty_engine.py under vLLM's name."""

from __future__ import annotations

from lmi.model.engine import ENGINES

ENGINES["vllm"] = "faulty_engine:FaultyEngine"
