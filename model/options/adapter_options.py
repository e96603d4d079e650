"""LoRA adapters: whether there are any, how many fit, and where they come from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from .option import Option

__all__ = ["ADAPTER_NAME", "IMAGE", "MAX_NAME", "RANKS", "AdapterOptions", "is_adapter_name"]

RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""What `max_lora_rank` may be (vLLM 0.26.0 and 0.32.0, config/lora.py: MaxLoRARanks)."""


MAX_NAME = 256
ADAPTER_NAME = f"1 to {MAX_NAME} characters that print, with no part between / that is empty, . or .."


def is_adapter_name(name: str) -> bool:
    """Whether an adapter may have this name, as a folder's or a hub's id (`org/name`): paths are made of it."""
    return len(name) <= MAX_NAME and name.isprintable() and not {"", ".", ".."}.intersection(name.split("/"))


def _rank(text: str) -> int:
    expected = "one of " + ", ".join(map(str, RANKS))
    if not text.isdecimal():
        raise ValueError(expected)
    rank = int(text)
    if rank not in RANKS:
        nearest = min(RANKS, key=lambda allowed: (allowed < rank, abs(allowed - rank)))
        raise ValueError(f"{expected}; {nearest} is the nearest that holds it" if nearest > rank else expected)
    return rank


_MODULES = 'name=folder, several with blanks between, or a list in JSON of {"name": ..., "path": ...}'


def _modules(text: str) -> tuple[tuple[str, str], ...]:
    """As `vllm serve --lora-modules` takes them: names and folders."""
    pairs = [_pair(item) for item in (_objects(text) if text[:1] in {"[", "{"} else text.split())]
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError(f"each name once, {_MODULES}")
    return tuple(pairs)


def _objects(text: str) -> list[Any]:
    """The items of a list in JSON, or objects with blanks between."""
    decoder, found, at = json.JSONDecoder(), list[Any](), 0
    try:
        while at < len(text):
            value, at = decoder.raw_decode(text, at)
            found += value if isinstance(value, list) else [value]
            at += len(text[at:]) - len(text[at:].lstrip())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{_MODULES} ({error})") from None
    return found


def _pair(item: Any) -> tuple[str, str]:
    if isinstance(item, str):
        name, _, path = item.partition("=")
    elif isinstance(item, dict) and isinstance(item.get("name"), str) and isinstance(item.get("path"), str):
        name, path = item["name"], item["path"]
    else:
        raise ValueError(_MODULES)
    if not path or not is_adapter_name(name):
        raise ValueError(f"{_MODULES}; a name is {ADAPTER_NAME}")
    return name, path


IMAGE = "image"
"""The modality that may bring an adapter along, and that adapter's name, as in vLLM (api_utils.py,
process_lora_modules)."""


def _by_modality(text: str) -> dict[str, str]:
    expected = f'a JSON object with the folder of an adapter for images, {{"{IMAGE}": "FOLDER"}}'
    if text.lower() in {"none", "null"}:
        return {}
    try:
        given = msgspec.json.decode(text, type=dict[str, str])
    except msgspec.DecodeError as error:
        raise ValueError(f"{expected} ({error})") from None
    if others := given.keys() - {IMAGE}:
        raise ValueError(f"{expected} (prompts have no {', '.join(sorted(others))} here)")
    if not all(given.values()):
        raise ValueError(expected)
    return given


# fmt: off
class AdapterOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the options say of adapters. vLLM's further ones (`lora_dtype` ...) go to it as they are."""

    enable_lora: Annotated[bool, Option("Serve LoRA adapters beside the model.")] = False
    max_loras: Annotated[int, Option(
        "How many adapters one batch may mix: each takes a slot of the device's memory.",
        default="4, or max_cpu_loras where that is less", ge=1,
    )] = 4
    max_lora_rank: Annotated[int | None, Option(
        "The highest rank of an adapter: " + ", ".join(map(str, RANKS)) + ".",
        default="16, or what holds the adapters found at start", convert=_rank,
    )] = None
    max_cpu_loras: Annotated[int | None, Option(
        "How many adapters are kept in the machine's memory; others are read again when they are asked for.",
        default="max_loras more than the adapters found at start", ge=1,
    )] = None
    adapters_on_error: Annotated[Literal["fail", "warn"], Option(
        "What a broken adapter in the folder `adapters` does: it fails the start, or only requests that name it.",
    )] = "fail"
    lora_modules: Annotated[tuple[tuple[str, str], ...], Option(
        "Adapters in folders elsewhere than in `adapters`: `name=folder`, as `vllm serve --lora-modules` takes them.",
        kind="list", convert=_modules,
    )] = ()
    """Names and folders; relative ones count from the model directory."""
    lora_cache_dir: Annotated[str | None, Option(
        "A folder of adapters that are loaded by their folders' names when a request first names them.",
    )] = None
    lora_cache_size: Annotated[int, Option(
        "How many adapters of lora_cache_dir are registered at a time; the least recently used makes room.", ge=1,
    )] = 100
    default_mm_loras: Annotated[Mapping[str, str], Option(
        f'The adapter of prompts with images that name none: `{{"{IMAGE}": "FOLDER"}}`. It is registered as `{IMAGE}`.',
        kind="json", default="none", convert=_by_modality,
    )] = {}
    """Of each modality the absolute path of a folder."""
    adapters_registry: Annotated[str | None, Option(
        "The file that keeps what was registered while the server ran, for its next start; `none`: nothing is kept.",
        default="`.lmi/adapters.json` in the model directory, if that can be written",
    )] = None
# fmt: on
