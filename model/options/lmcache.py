"""LMCache, by the names that LMI has for it: which options fit together.

The environment that it needs is made in model/process/child.py; what `lmcache_auto_config` chooses, where the engine's
library is (model/vllm/setup/lmcache.py).
"""

from __future__ import annotations

import json
from pathlib import Path

from .option_reader import OptionReader
from .settings import Settings

__all__ = ["check_lmcache", "naming_lmcache"]

CONNECTOR = json.dumps({"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"})
"""What `lmcache_auto_config` sets (djl_python, lmcache_utils.py)."""
ARGUMENTS = ("kv_transfer_config", "kv_offloading_backend")
"""The engine's arguments that may ask for LMCache."""


def check_lmcache(settings: Settings, reader: OptionReader) -> str | None:
    """The absolute path of its file, if one is given; for the automatic configuration the connector becomes an argument
    of the engine's.
    """
    file = settings.lmcache_config_file
    if settings.lmcache_auto_config:
        _check_auto(settings, reader)
        reader.arguments["kv_transfer_config"] = CONNECTOR
    if file is None:
        return None
    path = Path(settings.model_dir, file)
    if not path.is_file():
        expected = "a file, absolute or in the model directory"
        reader.fault("lmcache_config_file", f"there is no file {path}", expected=expected, given=file)
    if not naming_lmcache(reader.arguments):
        instead = f"option.kv_transfer_config={CONNECTOR.replace(' ', '')}"
        reader.note("lmcache_config_file", f" has no effect without {instead}", "warning", instead)
    return str(path)


def _check_auto(settings: Settings, reader: OptionReader) -> None:
    name = "lmcache_auto_config"
    if reader.arguments.get("enable_expert_parallel", "").lower() == "true":
        reader.fault(name, "use option.lmcache_config_file", expected="no option.enable_expert_parallel with it")
    if settings.lmcache_config_file is not None:
        reader.fault(name, expected="it or option.lmcache_config_file, got both")
    if reader.arguments.get("kv_transfer_config", "none").lower() not in {"none", "null"} and not _same(reader):
        reader.fault(name, expected=f"no option.kv_transfer_config with it, or {CONNECTOR}")
    for prefix in ("", "gpu.", "cpu."):
        workers = f"{prefix}maxWorkers"
        if (count := reader.host_number(workers, 1)) > 1:
            # Each would take all of the machine's memory that is free.
            reader.fault(name, expected=f"{workers}=1 with it", given=count)


def _same(reader: OptionReader) -> bool:
    """Whether the user has asked for the same connector, as upstream's examples do."""
    given: object = json.loads(reader.arguments["kv_transfer_config"])
    return bool(given == json.loads(CONNECTOR))


def naming_lmcache(arguments: dict[str, str]) -> str | None:
    """The argument of the engine's that asks for LMCache, if one does."""
    return next((name for name in ARGUMENTS if "lmcache" in arguments.get(name, "").lower()), None)
