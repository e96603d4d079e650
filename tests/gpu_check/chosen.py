"""What vLLM chooses for a model directory on this device: `python -m tests.gpu_check.chosen MODEL_DIR`.

Prints a line of JSON: the configuration that the handler's engine starts vLLM's core with. In a process of its own,
which ends again: the check itself imports no vLLM.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from lmi.model.options import load_settings
from lmi.model.vllm.options import engine_arguments

MARK = "chosen: "
"""Before the line: vLLM writes to standard output too."""


def main(model_dir: str) -> None:
    """Raises what vLLM raises where it does not take the options."""
    from vllm import EngineArgs
    from vllm.platforms import current_platform

    settings = load_settings(Path(model_dir), environment={}, overrides={})
    config = EngineArgs(**engine_arguments(settings)).create_engine_config()
    facts = {
        "platform": current_platform.device_type,
        "device": current_platform.get_device_name(),
        "v2_runner": config.use_v2_model_runner,
        "async_scheduling": config.scheduler_config.async_scheduling,
        "prefix_caching": config.cache_config.enable_prefix_caching,
        "cuda_graphs": config.compilation_config.cudagraph_mode.name,
        "dtype": str(config.model_config.dtype),
    }
    print(MARK + json.dumps(facts), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
