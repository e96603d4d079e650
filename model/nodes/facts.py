"""What must be the same on all hosts that run a model together, as texts by name.

Not the same are, and may be: where the model lies, and this host's number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import packages_distributions, version
from pathlib import Path
from platform import python_version_tuple

from .. import VERSION
from ..adapters.folder import chosen_rank, found, read_all
from ..options import Settings
from ..options.table import name_of_argument

__all__ = ["LEADERS", "differences", "facts_of"]

PACKAGES = {"vLLM": "vllm", "torch": "torch"}
"""Whose versions must be the same, by the name of the package that is imported: vLLM's is installed by several."""
LEADERS = ("tensor_parallel_size", "pipeline_parallel_size", "max_num_seqs")
"""The engine's arguments that DJL Serving writes where the user does not, or the number of devices decides: followers
take the leader's."""
OWN = frozenset({"model", "node_rank", "hf_token", *LEADERS})
"""Those that are not compared, as each host has its own, or nobody is to know them."""
MODEL_FILES = (".json", ".safetensors", ".bin", ".pt", ".gguf", ".model", ".jinja")
READ_BYTES = 1 << 20
"""Files up to this size are compared by what is in them, larger ones by their size."""
MOST_DIFFERENCES = 5
NONE = "none"


def facts_of(settings: Settings) -> dict[str, str]:
    """Versions, the model's files, the adapters and the engine's options.

    Raises OptionError for adapters that cannot be read.
    """
    arguments = settings.engine_arguments
    facts = {"lmi": VERSION, **_versions(), "Python": ".".join(python_version_tuple()[:2])}
    facts |= {f"option.{name_of_argument(name)}": text for name, text in arguments.items() if name not in OWN}
    facts |= dict(_of_model(settings))
    if settings.adapters.enable_lora:
        folders = found(settings)
        facts["adapters"] = ", ".join(folders) or NONE
        facts["option.max_lora_rank"] = str(chosen_rank(settings, read_all(folders, base=None, max_rank=None)[0]))
    return facts


@cache
def _versions() -> dict[str, str]:
    """Once in a process: the files of all that is installed are read, which takes most of a second."""
    installed = packages_distributions()
    return {name: version(installed[package][0]) for name, package in PACKAGES.items() if package in installed}


def _of_model(settings: Settings) -> Iterator[tuple[str, str]]:
    folder = Path(settings.model_id)
    if not folder.is_dir():
        yield "model", settings.model_id
        return
    for file in sorted(folder.iterdir()):
        if file.suffix in MODEL_FILES and file.is_file():
            size = file.stat().st_size
            hashed = f", {hashlib.sha256(file.read_bytes()).hexdigest()[:12]}" if size <= READ_BYTES else ""
            yield f"the model's {file.name}", f"{size} bytes{hashed}"


def differences(leader: Mapping[str, str], other: Mapping[str, str], name: str) -> str:
    """What differs between the leader's facts and those of the host `name`, in a line; empty: nothing."""
    told = [
        f"{fact}: the leader has {leader.get(fact, NONE)}, {name} has {other.get(fact, NONE)}"
        for fact in sorted({*leader, *other})
        if leader.get(fact) != other.get(fact)
    ]
    more = [f"and {len(told) - MOST_DIFFERENCES} more"] if len(told) > MOST_DIFFERENCES else []
    return "; ".join([*told[:MOST_DIFFERENCES], *more])
