"""What a registration may say: the adapter's name, and where its folder is."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from ...model.errors import AdapterError, AdapterNotFoundError
from ...model.options.adapter_options import ADAPTER_NAME, MAX_NAME, is_adapter_name

__all__ = ["check_name", "folder_of", "folder_within"]


def check_name(name: str) -> None:
    """Raises AdapterError for what cannot be an adapter's name."""
    if not is_adapter_name(name):
        raise AdapterError(f"name: expected {ADAPTER_NAME}, got {name[:MAX_NAME]!r}")


def folder_within(directory: str, name: str) -> Path | None:
    """The folder in `directory` that a name of a request's means: nothing that leads elsewhere, nothing hidden."""
    if not name or not name.isprintable() or set(name) & set("/\\") or name[0] == ".":
        return None
    folder = Path(directory, name)
    try:
        return folder if folder.is_dir() else None
    except OSError:
        # The name is too long, or nobody may look there.
        return None


def folder_of(source: str) -> str:
    """The absolute path of a local folder, given as that or as a file: URL, which DJL Serving hands on as it is.

    Raises AdapterNotFoundError, with djl_python's words, which scripts look for (djl_python, lmi_vllm).
    """
    try:
        path = unquote(urlsplit(source).path) if source.startswith("file:") else source
        there = path.startswith("/") and Path(path).is_dir()
    except (OSError, ValueError):
        # No URL, or a path that is too long or may not be looked at.
        path, there = source, False
    if not there:
        raise AdapterNotFoundError(f"Only local LoRA models are supported. {source} is not a valid path", "src")
    return str(Path(path).absolute())
