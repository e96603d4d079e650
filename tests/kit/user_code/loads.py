"""A user's engine that loads as vLLM does, by what it logs, and then says what it is asked."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from echo import Echo  # type: ignore[import-not-found]

LINES = """\
INFO 11-25 01:50:46 [model.py:611] Resolved architecture: LlamaForCausalLM
(EngineCore pid=1) Loading safetensors checkpoint shards:   0% Completed | 0/4 [00:00<?, ?it/s]
(EngineCore pid=1) Loading safetensors checkpoint shards:  75% Completed | 3/4 [00:00<00:00, 9.1it/s]
"""
LATER = """\
(EngineCore pid=1) Loading safetensors checkpoint shards: 100% Completed | 4/4 [00:00<00:00, 9.1it/s]
(EngineCore pid=1) INFO 11-25 [gpu_model_runner.py:5187] Model loading took 14.99 GiB memory and 2.100000 seconds
(EngineCore pid=1) INFO 11-25 [gpu_worker.py:480] Available KV cache memory: 52.5 GiB
(EngineCore pid=1) \rCapturing CUDA graphs (decode, FULL):  50%|#####     | 5/10 [00:00<00:00]
INFO::lmi.model.vllm.setup.cache_room the KV cache holds 430080 tokens: 105.0 requests of max_model_len=4096
"""
HERE = Path(__file__).parent


class Loads(Echo):  # type: ignore[misc]
    """Waits for the file `go` in the midst of its start, and fails where it is not empty."""

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        sys.stderr.write(LINES)
        sys.stderr.flush()
        while not (go := HERE / "go").exists():
            time.sleep(0.05)
        if said := go.read_text():
            print(said, flush=True)
            raise RuntimeError("the weights do not fit")
        os.write(2, LATER.encode())
        print("what it says on standard output", flush=True)
