"""The adapters that are there at start, in the folder `adapters` of the model directory, or where `option.lora_modules`
says: found, read, and what they ask of the engine.

DJL Serving takes each entry of the folder for an adapter of that name, whatever it is, and looks in two places: the
model directory, and the one that it downloaded `option.model_id` to.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from ..errors import AdapterError, Fault, OptionError
from ..options import Settings
from ..options.adapter_options import IMAGE
from .files import AdapterFiles, rank_of, rank_that_holds, read_adapter

__all__ = ["FOLDER", "base_config", "chosen_memory", "chosen_rank", "found", "place_of", "read_all", "refusal"]

FOLDER = "adapters"
"""Java's name of it, which no option changes."""
DEFAULT_RANK = 16
"""vLLM's own default of max_lora_rank."""


def found(settings: Settings) -> dict[str, Path]:
    """The absolute path of each adapter that is there at the start, by its name: those of the model directory, without
    hidden entries, those of option.lora_modules and those of option.default_mm_loras.

    What is no folder is among them: it is for `read_adapter` to refuse. Raises OptionError for a name in two places.
    """
    folders = {folder.resolve(): folder for model in _directories(settings) if (folder := model / FOLDER).is_dir()}
    paths: dict[str, Path] = {}
    for folder in folders.values():
        for path in sorted(folder.iterdir()):
            if path.name.startswith("."):
                continue
            if path.name in paths:
                where = f"{paths[path.name]} and {path}"
                raise OptionError(f"adapters: expected each name once, got {path.name} twice: {where}", "adapters")
            paths[path.name] = path
    for name, given in settings.adapters.lora_modules:
        path = Path(settings.model_dir, given)
        if name in paths:
            raise OptionError.of("lora_modules", f"{name}: {paths[name]} has that name already")
        paths[name] = path
    for name, given in settings.adapters.default_mm_loras.items():
        if name in paths and paths[name].resolve() != Path(given).resolve():
            where = f"it is the name of that for images, {given}"
            raise OptionError(f"{FOLDER}/{name}: expected another name: {where}", "default_mm_loras")
        paths[name] = Path(given)
    return paths


def _directories(settings: Settings) -> list[Path]:
    """The model directory and that of the weights, if they are another one on this machine; a hub's id is none."""
    model = Path(settings.model_id)
    return [Path(settings.model_dir), *([model] if model.is_absolute() else [])]


def base_config(settings: Settings) -> dict[str, Any] | None:
    """config.json of the model; None where it is on the hub, or has none that can be read."""
    model = Path(settings.model_id)
    if not model.is_absolute():
        return None
    try:
        config = json.loads((model / "config.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", config) if isinstance(config, dict) else None


def read_all(
    paths: Mapping[str, Path], *, base: Mapping[str, Any] | None, max_rank: int | None
) -> tuple[dict[str, AdapterFiles], dict[str, AdapterError]]:
    """By name: what each adapter holds, and what is wrong with the broken ones. The rest as for `read_adapter`."""
    good: dict[str, AdapterFiles] = {}
    broken: dict[str, AdapterError] = {}
    for name, path in paths.items():
        read = _read(path, base, max_rank)
        if isinstance(read, AdapterError):
            broken[name] = read
        else:
            good[name] = read
    return good, broken


def _read(path: Path, base: Mapping[str, Any] | None, max_rank: int | None) -> AdapterFiles | AdapterError:
    if not path.name.isprintable():
        return AdapterError("its name has characters that do not print")
    try:
        return read_adapter(path, base=base, max_rank=max_rank)
    except AdapterError as error:
        return error


MODULES = "option.lora_modules: "


def refusal(faults: Mapping[str, AdapterError], paths: Mapping[str, Path], max_rank: int | None) -> OptionError:
    """One error for all broken adapters; where a rank is the trouble, with the least that holds all that were found."""
    listed = [f"{place_of(name, paths)}: {error.message}" for name, error in faults.items()]
    found = [_fault(name, paths, error) for name, error in faults.items()]
    message = listed[0]
    if len(listed) > 1:
        numbered = "; ".join(f"({number}) {one}" for number, one in enumerate(listed, 1))
        message = f"{len(listed)} adapters cannot be served: {numbered}"
    highest = max((rank for path in paths.values() if (rank := rank_of(path))), default=0)
    least = rank_that_holds(highest)
    if max_rank is not None and highest > max_rank and least is not None:
        hint = f"; option.max_lora_rank={least} would hold all adapters that were found"
        message += hint
        found[-1] = msgspec.structs.replace(found[-1], why=found[-1].why + hint)
    return OptionError(message, FOLDER, found)


def _fault(name: str, paths: Mapping[str, Path], error: AdapterError) -> Fault:
    place = place_of(name, paths)
    if place == f"{MODULES}{name}":
        return Fault("lora_modules", f"{name}: {error.message}")
    return Fault(None, f"{place}: {error.message}", source="")


def place_of(name: str, paths: Mapping[str, Path]) -> str:
    """What messages say of where an adapter lies: in the folder, or wherever an option has it from."""
    path = paths[name]
    if path.parent.name == FOLDER and path.name == name:
        return f"{FOLDER}/{name}"
    return str(path) if name == IMAGE else f"{MODULES}{name}"


def chosen_rank(settings: Settings, files: Mapping[str, AdapterFiles]) -> int:
    """The `max_lora_rank` for vLLM: what is set, else what holds all of `files`, and at least its default."""
    given = settings.adapters.max_lora_rank
    if given is not None:
        return given
    highest = max((one.rank for one in files.values()), default=0)
    # read_adapter refuses ranks that none holds.
    return max(DEFAULT_RANK, rank_that_holds(highest) or 0)


def chosen_memory(settings: Settings, count: int) -> int:
    """The `max_cpu_loras` for vLLM: what is set, else room for `count` adapters and for `max_loras` later ones.

    Where more are registered, vLLM reads them again and again, within a step (worker_manager.py, _apply_adapters).
    """
    options = settings.adapters
    return options.max_cpu_loras or max(options.max_loras, count) + options.max_loras
