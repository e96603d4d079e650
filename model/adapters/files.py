"""What an adapter's folder holds, judged by its files, without the engine.

    adapter_config.json          PEFT's: the rank, the scale, the modules, and what may go beyond plain LoRA
    adapter_model.safetensors    the tensors; else adapter_model.bin or .pt, of which only the size is known

The rules are those by which vLLM reads it (0.26.0 and 0.32.0: lora/peft_helper.py, lora/lora_model.py, lora/utils.py),
and those that it lacks: 0.26.0 serves an adapter of a smaller model, or one with features that it does not have,
without a word, and wrongly.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ..errors import AdapterError
from ..options.adapter_options import RANKS
from ..options.model_dir import POINTER, tensor_shapes
from .shapes import modules_of, tensor_faults

__all__ = ["RANKS", "AdapterFiles", "rank_of", "rank_that_holds", "read_adapter"]

CONFIG = "adapter_config.json"
WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin", "adapter_model.pt")
"""vLLM takes the first that is there (LoRAModel.from_local_checkpoint)."""

_PLAIN_INITS = {"gaussian", "eva", "orthogonal", "mica", "lora_ga"}
"""Values of init_lora_weights, beside booleans, that change nothing but where training began (vLLM 0.32.0)."""
_ELSE = {
    "use_dora": "DoRA",
    "lora_bias": "a bias of the adapter",
    "alora_invocation_tokens": "Activated LoRA",
    "layer_replication": "replicated layers",
    "use_bdlora": "block-diagonal LoRA",
    "use_qalora": "QALoRA",
}
"""What PEFT's LoRA can do beside LoRA: vLLM 0.32.0 refuses all of it, 0.26.0 DoRA alone."""


@dataclass(frozen=True, slots=True)
class AdapterFiles:
    """An adapter whose files are good."""

    path: Path
    rank: int
    """The highest of its modules."""
    base_model: str
    """What it was trained on, as PEFT notes it: a name on the hub or a path; "" if it does not say."""
    targets: tuple[str, ...]
    """The last parts of its modules' names, sorted; without safetensors what its configuration says."""
    weights: str
    """The name of the file of weights."""
    weights_bytes: int
    own_scales: bool
    """Whether modules have scales of their own (rank_pattern, alpha_pattern): vLLM 0.26.0 scales all alike, wrongly."""
    own_embeddings: bool
    """Whether it brings the base's embeddings along: vLLM uses those of the model that it serves."""


def read_adapter(path: Path, *, base: Mapping[str, Any] | None, max_rank: int | None) -> AdapterFiles:
    """What the folder `path` holds.

    `base`: config.json of the model, None if it is not known; `max_rank`: None for the highest that vLLM has.
    Raises AdapterError with all that is wrong with it, which names the path only where that is the trouble.
    """
    try:
        if not path.is_dir():
            raise AdapterError(f"{path} is not a folder" if path.exists() else f"{path} does not exist")
        return _read(path, base, max_rank)
    except OSError as error:
        raise AdapterError(f"{error.filename or path} cannot be read: {error.strerror}") from None


def _read(path: Path, base: Mapping[str, Any] | None, max_rank: int | None) -> AdapterFiles:
    faults: list[str] = []
    config: dict[str, Any] = {}
    try:
        config = _config(path)
        faults += [f"{CONFIG}: {fault}" for fault in _config_faults(config, max_rank)]
    except ValueError as error:
        faults.append(f"{CONFIG} {error}")
    shapes: dict[str, tuple[int, ...]] = {}
    weights = next((path / name for name in WEIGHTS if (path / name).is_file()), None)
    try:
        if weights is None:
            faults.append(_no_weights(path))
        elif weights.suffix == ".safetensors":
            shapes = tensor_shapes(weights)
            # target_parameters stack the ranks of experts in one tensor.
            ranks = set[int]() if config.get("target_parameters") else _ranks(config)
            faults += [f"{weights.name}: {fault}" for fault in tensor_faults(shapes, ranks, base)]
        else:
            _require_content(weights)
    except ValueError as error:
        faults.append(f"{weights.name if weights else path} {error}")
    if faults or weights is None:
        raise AdapterError("; ".join(faults))
    named = config["target_modules"]
    targets = {name.rpartition(".")[2] for name in modules_of(shapes)} or ({named} if isinstance(named, str) else named)
    return AdapterFiles(
        path=path,
        rank=max(_ranks(config)),
        base_model=str(config.get("base_model_name_or_path") or ""),
        targets=tuple(sorted(targets or ())),
        weights=weights.name,
        weights_bytes=weights.stat().st_size,
        own_scales=_has_own_scales(config),
        own_embeddings=any(name.endswith(".base_layer.weight") for name in shapes),
    )


def rank_of(path: Path) -> int | None:
    """The highest rank by the configuration in the folder `path`, however broken the rest is; None if it has none."""
    try:
        return max(_ranks(_config(path)), default=None)
    except (OSError, ValueError):
        return None


def rank_that_holds(rank: int) -> int | None:
    """The least `max_lora_rank` that vLLM allows for adapters of `rank`; None if there is none."""
    return next((allowed for allowed in RANKS if allowed >= rank), None)


def _config(path: Path) -> dict[str, Any]:
    """adapter_config.json. Raises ValueError, in words that go on after the file's name, and OSError."""
    file = path / CONFIG
    if not file.is_file():
        raise ValueError("does not exist")
    data = file.read_bytes()
    if data.startswith(POINTER):
        raise ValueError("is a Git LFS pointer, not the file itself")
    try:
        config = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise ValueError("is not a JSON object")
    return cast("dict[str, Any]", config)


def _ranks(config: Mapping[str, Any]) -> set[int]:
    """The ranks that modules may have; none if r is wrong."""
    if not _is_rank(config.get("r")):
        return set()
    own = config.get("rank_pattern")
    return {config["r"], *(filter(_is_rank, own.values()) if isinstance(own, dict) else ())}


def _is_rank(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _config_faults(config: Mapping[str, Any], max_rank: int | None) -> Iterator[str]:
    given = config.get("peft_type")
    if given is not None and str(given).upper() != "LORA":
        # What the other fields of another kind mean is not for us to say.
        yield _expected("peft_type", "LORA", given)
        return
    if not _is_rank(config.get("r")):
        yield _expected("r", "a positive integer", config.get("r"))
    if not _is_number(config.get("lora_alpha")):
        yield _expected("lora_alpha", "a number", config.get("lora_alpha"))
    targets = config.get("target_modules", 0)
    # null: PEFT's target_parameters alone, which go by their tensors.
    if not (targets is None or isinstance(targets, str) or _is_list_of_texts(targets)):
        yield _expected("target_modules", "a list of names or a string", config.get("target_modules"))
    kinds = {"rank_pattern": (_is_rank, "positive integers"), "alpha_pattern": (_is_number, "numbers")}
    for field, (is_good, kind) in kinds.items():
        own = config.get(field) or {}
        if not (isinstance(own, dict) and all(is_good(value) for value in own.values())):
            yield _expected(field, f"an object of {kind}", own)
    yield from _unsupported(config)
    ranks = _ranks(config)
    if max_rank is not None and ranks and max(ranks) > max_rank:
        yield f"rank {max(ranks)} is above option.max_lora_rank={max_rank}"
    elif ranks and max(ranks) > RANKS[-1]:
        yield f"rank {max(ranks)} is above {RANKS[-1]}, the highest that vLLM has"


def _is_list_of_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _unsupported(config: Mapping[str, Any]) -> Iterator[str]:
    """What vLLM refuses, or (0.26.0) leaves out."""
    if config.get("bias", "none") != "none":
        yield _expected("bias", "none, vLLM has no biases of adapters", config["bias"])
    if config.get("modules_to_save"):
        yield _expected("modules_to_save", "none, vLLM takes no whole modules of adapters", config["modules_to_save"])
    for field, what in _ELSE.items():
        if config.get(field):
            yield f"{field}: vLLM does not have {what}"
    init = config.get("init_lora_weights")
    if isinstance(init, str) and init.lower() not in _PLAIN_INITS:
        yield (
            f"init_lora_weights: {reprlib.repr(init)} changes the base's weights too: convert the adapter with PEFT's "
            "path_initial_model_for_weight_conversion, or set it to true if the base that is served has those weights"
        )


def _expected(field: str, expected: str, given: object) -> str:
    return f"{field}: expected {expected}, got {'nothing' if given is None else reprlib.repr(given)}"


def _no_weights(path: Path) -> str:
    for file in (path / name for name in WEIGHTS):
        if file.is_symlink():
            return f"{file.name} is a link to {file.readlink()}, which is no file"
    return f"it has no weights: expected one of {', '.join(WEIGHTS)}"


def _require_content(file: Path) -> None:
    """Raises ValueError for weights, of those that only torch can read, that are none at a glance."""
    with file.open("rb") as opened:
        head = opened.read(len(POINTER))
    if not head:
        raise ValueError("is empty")
    if head == POINTER:
        raise ValueError("is a Git LFS pointer, not the weights")


def _has_own_scales(config: Mapping[str, Any]) -> bool:
    """Whether PEFT gives modules another scale than the rest: by the rank's root with rsLoRA, else by the rank."""
    ranks, alphas = config.get("rank_pattern") or {}, config.get("alpha_pattern") or {}
    root = 0.5 if config.get("use_rslora") else 1.0
    scales = {
        alphas.get(pattern, config["lora_alpha"]) / ranks.get(pattern, config["r"]) ** root
        for pattern in {*ranks, *alphas}
    }
    return bool(scales - {config["lora_alpha"] / config["r"] ** root})
