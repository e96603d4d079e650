"""What `lmi check` says of LoRA adapters: each one's rank, modules and size, and what their slots take of a device."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

from ....model.adapters.files import AdapterFiles
from ....model.adapters.folder import (
    FOLDER,
    base_config,
    chosen_memory,
    chosen_rank,
    found,
    place_of,
    read_all,
    refusal,
)
from ....model.adapters.shapes import bytes_of_slot
from ....model.errors import AdapterError, AdapterForbiddenError
from ....model.options import Settings
from ....model.options.finding import Finding, fact, note, warning
from ...secure_mode import SecureMode
from ...threads.pool import Workers
from ...user_code.adapter_code import load_adapter_code
from .container import of_container

__all__ = ["of_adapters", "of_code", "of_forbidden"]


def of_adapters(settings: Settings) -> list[Finding]:
    """What there is to say; raises OptionError for all broken adapters at once, unless they are only warned of."""
    options = settings.adapters
    if not options.enable_lora:
        folder = Path(settings.model_dir, FOLDER)
        lies = folder.is_dir() and any(not path.name.startswith(".") for path in folder.iterdir())
        unserved = warning(f"what is in {folder} is not served", "enable_lora", "option.enable_lora=true")
        return [unserved] if lies else []
    paths, base = found(settings), base_config(settings)
    good, broken = read_all(paths, base=base, max_rank=options.max_lora_rank)
    if broken and options.adapters_on_error == "fail":
        raise refusal(broken, paths, options.max_lora_rank)
    rank = chosen_rank(settings, good)
    size = bytes_of_slot(base, rank, _dtype_bytes(settings), _targets(settings))
    takes = f", of about {_megabytes(size)} of a device's memory each" if size else ""
    kept = chosen_memory(settings, len(paths))
    return [
        fact(f"adapters: {len(good)} found; {options.max_loras} slots for rank {rank}{takes}; {kept} kept in memory"),
        *(warning(f"{place_of(name, paths)} will not be served: {error.message}") for name, error in broken.items()),
        *(one for name, files in good.items() for one in _of_one(name, files, _names(settings, base))),
    ]


def of_forbidden(settings: Settings, secure: SecureMode) -> list[Finding]:
    """What secure mode forbids of the adapters in the model directory; raises OptionError for it as above."""
    paths = found(settings) if settings.adapters.enable_lora else {}
    faults: dict[str, AdapterError] = {}
    for name, path in paths.items():
        try:
            secure.check_adapter(path)
        except AdapterError as error:  # noqa: PERF203 - each by itself
            faults[name] = error
    if faults and settings.adapters.adapters_on_error == "fail":
        raise refusal(faults, paths, settings.adapters.max_lora_rank)
    return [warning(f"{FOLDER}/{name} will not be served: {error.message}") for name, error in faults.items()]


def of_code(settings: Settings, secure: SecureMode | None) -> list[Finding]:
    """What there is to say of the adapters' own code, which is executed; raises OptionError for what fails as above."""
    paths = found(settings) if settings.adapters.enable_lora else {}
    faults: dict[str, AdapterError] = {}
    said: list[Finding] = []
    workers = Workers(1, settings.limits.user_code_timeout)
    for name, path in paths.items():
        try:
            if secure is not None:
                secure.check_adapter(path)
            load_adapter_code(settings, workers, name, path)
        except AdapterForbiddenError:  # noqa: PERF203 - each by itself
            continue
        except AdapterError as error:
            if of_container(error):
                said.append(note(f"adapter {name}: its code needs djl_python, which only the container has"))
            else:
                faults[name] = error
    workers.close()
    if faults and settings.adapters.adapters_on_error == "fail":
        raise refusal(faults, paths, settings.adapters.max_lora_rank)
    return said + [warning(f"{FOLDER}/{name} will not be served: {error.message}") for name, error in faults.items()]


def _of_one(name: str, files: AdapterFiles, names: set[str]) -> Iterator[Finding]:
    trained = f", trained on {files.base_model}" if files.base_model else ""
    targets = ", ".join(files.targets)
    size = _megabytes(files.weights_bytes)
    yield fact(f"adapter {name}: rank {files.rank}, {size}{trained}; changes {targets}")
    if files.base_model and names and _last_part(files.base_model) not in names:
        yield warning(f"adapter {name} was trained on {files.base_model}, by its name another model than this one")
    if files.own_scales:
        yield note(
            f"adapter {name} has modules with scales of their own (rank_pattern, alpha_pattern): "
            "vLLM 0.32.0 heeds that, 0.26.0 and 0.28.0 do not"
        )
    if files.own_embeddings:
        yield note(f"adapter {name} brings embeddings of the base along, which vLLM does not use")
    if files.weights.endswith((".bin", ".pt")):
        yield note(f"adapter {name}: not checked whether {files.weights} fits the model")


def _names(settings: Settings, base: Mapping[str, Any] | None) -> set[str]:
    """What the model is called, without folders and owners; nothing where only its folder's name is known."""
    name = str((base or {}).get("_name_or_path") or "")
    if not name and settings.model_id != settings.model_dir:
        name = settings.model_id
    return {_last_part(name)} if name else set()


def _last_part(name: str) -> str:
    return PurePath(name).name.lower()


def _dtype_bytes(settings: Settings) -> int:
    """Of an element of the slots: vLLM takes the model's type, and `auto` is always one of two bytes."""
    given = settings.engine_arguments.get("lora_dtype", "auto")
    return 4 if given == "auto" and settings.dtype == "float32" else 2


def _targets(settings: Settings) -> set[str] | None:
    """The last parts of the modules that `lora_target_modules` names, however it is written; None for all."""
    given = settings.engine_arguments.get("lora_target_modules")
    return {name.rpartition(".")[2] for name in re.findall(r"[\w.]+", given)} if given else None


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
