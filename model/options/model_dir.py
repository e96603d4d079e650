"""What a model's folder must hold, checked without the engine: in milliseconds, and with the names of the files.

config.json, the tokenizer's files, and weights that are whole. What is on the hub is not checked, nor is what only an
engine can judge.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from ..errors import OptionError, refuse
from .advice.parsers import misplaced_parsers
from .combined import is_hub_id, is_users
from .settings import Settings

__all__ = ["HEAD", "POINTER", "check_model", "tensor_shapes"]

_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf")
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tekken.json", "vocab.json", "vocab.txt", "tokenizer_config.json")
_IN_FILES = {"auto", "hf", "safetensors", "fastsafetensors", "pt", "npcache", "mistral", "bitsandbytes", "gguf"}
"""Values of load_format that read weights from files of these names; others know of other places, or need none."""
HEAD = "ForSequenceClassification"
"""How architectures end that have a head for classes."""
_EMBEDDERS = re.compile(r"\w*(?:Bert|BERT|Roberta|MPNet)\w*(?:Model|ForMaskedLM)|(?:Gte|GTE)\w*Model")
"""Architectures of encoders, by which vLLM generates nothing."""
_HEAD = struct.Struct("<Q")
POINTER = b"version https://git-lfs"
"""How a file begins that stands for one that was not fetched."""
MAX_HEADER = 100_000_000
"""Bytes: no longer one is read by safetensors itself."""


def check_model(settings: Settings) -> str:
    """What model it is, in words. Raises OptionError where it lacks something that any engine needs."""
    if is_users(settings.backend):
        return f"model: {settings.model_id}, not checked: the engine is your own"
    path = Path(settings.model_id)
    given = settings.model_id != settings.model_dir
    if given and not path.exists():
        if not is_hub_id(settings.model_id):
            raise OptionError.of("model_id", f"{settings.model_id} does not exist", given=settings.model_id)
        return f"model: {settings.model_id} on the hub, not checked"
    if path.is_file():
        return f"model: the file {path}"
    config = _config(path, given)
    if config:
        refuse(misplaced_parsers(settings, str(config.get("model_type"))))
    if settings.engine_arguments.get("load_format", "auto") in _IN_FILES:
        _weights(path)
    if "tokenizer" not in settings.engine_arguments:
        _tokenizer(path)
    _check_task(settings, config)
    return f"model: {path}, {', '.join(config.get('architectures') or ['of unknown architecture'])}"


def _check_task(settings: Settings, config: Mapping[str, Any]) -> None:
    """Raises OptionError for a model that generates no text and is to, as LMI's handler finds out itself, and for one
    that ranks by several classes; what option.hf_overrides makes of it, only vLLM knows.
    """
    if "hf_overrides" in settings.engine_arguments:
        return
    architecture = str((config.get("architectures") or [""])[0])
    task = "text-embedding" if _EMBEDDERS.fullmatch(architecture) else None
    classes = len(config.get("id2label") or "ab")
    if architecture.endswith(HEAD):
        task = "text-ranking" if classes == 1 else "text-classification"
    if not settings.pools and task is not None:
        expected = f"{task} with {architecture}, which generates no text"
        raise OptionError.of("task", expected=expected, given=settings.task, instead=f"option.task={task}")
    if settings.task == "rank" and task == "text-classification":
        expected = f"{task} with this model, which has {classes} classes"
        raise OptionError.of("task", "text-ranking needs one", expected=expected, instead=f"option.task={task}")


def _config(path: Path, given: bool) -> dict[str, Any]:
    """The model's configuration; Mistral's own format (params.json) is left to vLLM."""
    file = path / "config.json"
    if not file.is_file():
        if (path / "params.json").is_file():
            return {}
        hint = "" if given else "; set option.model_id if the model is elsewhere"
        raise OptionError(f"{path} has no config.json: it holds no model{hint}", "model_id")
    config = _json(file)
    if not isinstance(config, dict):
        raise OptionError(f"{file} is not a JSON object", "model_id")
    return cast("dict[str, Any]", config)


def _json(file: Path) -> object:
    data = file.read_bytes()
    try:
        # As text: json would overlook a byte order mark in bytes, at which transformers and vLLM fail.
        return json.loads(data.decode())
    except ValueError as error:
        found = "is a Git LFS pointer, not the file itself" if data.startswith(POINTER) else "is not JSON"
        raise OptionError(f"{file} {found}: {error}", "model_id") from None


def _tokenizer(path: Path) -> None:
    if not any((path / name).is_file() for name in _TOKENIZERS):
        raise OptionError(f"{path} has no tokenizer: expected one of {', '.join(_TOKENIZERS)}", "model_id")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        file = path / name
        if file.is_file():
            try:
                # A vocabulary may have megabytes, which need not become objects.
                msgspec.json.decode(file.read_bytes(), type=dict[str, msgspec.Raw])
            except msgspec.DecodeError:
                _json(file)
                raise OptionError(f"{file} is not a JSON object", "model_id") from None


def _weights(path: Path) -> None:
    if not any(file.is_file() for pattern in _WEIGHTS for file in path.glob(pattern)):
        raise OptionError(f"{path} has no weights: expected files as {', '.join(_WEIGHTS)}", "model_id")
    for index in path.glob("*.index.json"):
        try:
            shards = set(json.loads(index.read_bytes())["weight_map"].values())
        except (ValueError, KeyError, TypeError, AttributeError):
            raise OptionError(f"{index} is not an index of weights", "model_id") from None
        missing = sorted(shard for shard in shards if not (path / shard).is_file())
        if missing:
            lacking = f"{len(missing)} of {len(shards)} files of weights, as {missing[0]}"
            raise OptionError(f"{path} lacks {lacking}", "model_id")
    for file in sorted(path.glob("*.safetensors")):
        _require_whole(file)


def _require_whole(file: Path) -> None:
    try:
        tensor_shapes(file)
    except ValueError as error:
        raise OptionError(f"{file} {error}", "model_id") from None


class _Tensor(msgspec.Struct):
    """A tensor in the header of a file of safetensors: its shape, and where its bytes begin and end in the data."""

    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


_OF_TENSOR = msgspec.json.Decoder(_Tensor)


def tensor_shapes(file: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of the tensors in a file of safetensors, by its header: 8 bytes of length, JSON, then the tensors.

    Raises ValueError with what is wrong, in words that go on after the file's name. The format's own documentation:
    the last tensor ends with the file.
    """
    size = file.stat().st_size
    with file.open("rb") as opened:
        head = opened.read(_HEAD.size)
        if head and POINTER.startswith(head):
            raise ValueError("is a Git LFS pointer, not the weights")
        if len(head) < _HEAD.size or (length := _HEAD.unpack(head)[0]) > size - _HEAD.size:
            raise ValueError(f"is not a safetensors file, or cut off in its header: it has {size} bytes")
        header = opened.read(min(length, MAX_HEADER))
    try:
        entries = msgspec.json.decode(header, type=dict[str, msgspec.Raw])
        tensors = {name: _OF_TENSOR.decode(entry) for name, entry in entries.items() if name != "__metadata__"}
    except (msgspec.DecodeError, RecursionError):
        raise ValueError("is not a safetensors file: its header cannot be read") from None
    whole = _HEAD.size + length + max((tensor.data_offsets[1] for tensor in tensors.values()), default=0)
    if size < whole:
        raise ValueError(f"is cut off: it has {size} of {whole} bytes")
    return {name: tensor.shape for name, tensor in tensors.items()}
