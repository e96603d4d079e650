"""What a registration may say: the adapter's name, and where its folder is."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from ...model.errors import AdapterError

__all__ = ["check_name", "folder_of", "is_plain"]

MAX_NAME = 256
"""Characters."""


def check_name(name: str) -> None:
    """Raises AdapterError for what cannot be an adapter's name: it is a part of paths (`/adapters/{name}`)."""
    if not name or len(name) > MAX_NAME or "/" in name or not name.isprintable() or name in {".", ".."}:
        raise AdapterError(f"name: expected 1 to {MAX_NAME} characters that print, without /, got {name[:MAX_NAME]!r}")


def is_plain(name: str) -> bool:
    """Whether a name that a request brings may name a folder: nothing that leads elsewhere, nothing hidden."""
    return 0 < len(name) <= MAX_NAME and name.isprintable() and not set(name) & set("/\\") and not name.startswith(".")


def folder_of(source: str) -> str:
    """The absolute path of a local folder, given as that or as a file: URL, which DJL Serving hands on as it is.

    Raises AdapterError, with djl_python's words, which scripts look for (djl_python, lmi_vllm).
    """
    path = source
    if source.startswith("file:"):
        path = unquote(urlsplit(source).path)
    if not path.startswith("/") or not Path(path).is_dir():
        raise AdapterError(f"Only local LoRA models are supported. {source} is not a valid path", "src")
    return str(Path(path).absolute())
