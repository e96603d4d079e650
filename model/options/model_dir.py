"""What a model's folder must hold, checked without the engine: in milliseconds, and with the names of the files.

config.json, the tokenizer's files, and weights that are whole. What is on the hub is not checked, nor is what only an
engine can judge.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec

from ..errors import OptionError
from .choice import is_users
from .settings import Settings

__all__ = ["check_model"]

_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf")
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tekken.json", "vocab.json", "vocab.txt", "tokenizer_config.json")
_IN_FILES = {"auto", "hf", "safetensors", "fastsafetensors", "pt", "npcache", "mistral", "bitsandbytes", "gguf"}
"""Values of load_format that read weights from files of these names; others know of other places, or need none."""
_HEAD = struct.Struct("<Q")
_POINTER = b"version https://git-lfs"


def check_model(settings: Settings) -> str:
    """What model it is, in words. Raises OptionError where it lacks something that any engine needs."""
    if is_users(settings.engine):
        return f"model: {settings.model_id}, not checked: the engine is your own"
    path = Path(settings.model_id)
    given = settings.model_id != settings.model_dir
    if given and not path.exists():
        if path.is_absolute() or settings.model_id.startswith(".") or settings.model_id.count("/") > 1:
            raise OptionError(f"option.model_id: {settings.model_id} does not exist", "model_id")
        return f"model: {settings.model_id} on the hub, not checked"
    if path.is_file():
        return f"model: the file {path}"
    config = _config(path, given)
    if settings.engine_arguments.get("load_format", "auto") in _IN_FILES:
        _weights(path)
    if "tokenizer" not in settings.engine_arguments:
        _tokenizer(path)
    return f"model: {path}, {', '.join(config.get('architectures') or ['of unknown architecture'])}"


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
        return json.loads(data)
    except ValueError as error:
        found = "is a Git LFS pointer, not the file itself" if data.startswith(_POINTER) else "is not JSON"
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
        for fault in _faults(file):
            raise OptionError(f"{file} {fault}", "model_id")


def _faults(file: Path) -> Iterator[str]:
    """What is wrong with a file of safetensors, by its header: 8 bytes of length, JSON, then the tensors.

    The format's own documentation: the last tensor ends with the file.
    """
    size = file.stat().st_size
    with file.open("rb") as opened:
        head = opened.read(_HEAD.size)
        if head and _POINTER.startswith(head):
            yield "is a Git LFS pointer, not the weights"
        elif len(head) < _HEAD.size or (length := _HEAD.unpack(head)[0]) > size - _HEAD.size:
            yield f"is not a safetensors file, or cut off in its header: it has {size} bytes"
        else:
            try:
                tensors = msgspec.json.decode(opened.read(length), type=dict[str, dict[str, Any]])
                ends = [tensor["data_offsets"][1] for name, tensor in tensors.items() if name != "__metadata__"]
                whole = _HEAD.size + length + max(ends, default=0)
            except (msgspec.DecodeError, KeyError, TypeError, IndexError):
                yield "is not a safetensors file: its header cannot be read"
            else:
                if size < whole:
                    yield f"is cut off: it has {size} of {whole} bytes"
