"""What `lmi serve` checks before it starts anything. Imports little, for the engine's process waits for it."""

from __future__ import annotations

import errno
import importlib.metadata
import socket
from pathlib import Path

from ..model.errors import OptionError, StartError
from ..model.options.settings import Settings

__all__ = ["GROUP", "has_code", "has_own_code", "require_directory", "require_port"]

GROUP = "lmi.dialects"
"""The group of entry points that names dialects."""


def require_directory(model_dir: Path) -> None:
    """Raises OptionError where there is no model directory."""
    if not model_dir.is_dir():
        found = "a file" if model_dir.exists() else "nothing"
        raise OptionError(f"{model_dir}: expected a model directory, found {found}")


def require_port(host: str, port: int) -> None:
    """Raises StartError if the port cannot be used, before an engine is started in vain."""
    try:
        # Without the port, which it would cut to 16 bits.
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in found[:1]:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((address[0], port, *address[2:]))
    except (OSError, OverflowError) as error:
        why = "the port is in use" if getattr(error, "errno", None) == errno.EADDRINUSE else error
        raise StartError(f"--host {host} --port {port}: {why}") from None


def has_own_code(settings: Settings) -> bool:
    """Whether the model directory or its options name user code."""
    directory = Path(settings.model_dir)
    options = (settings.custom_formatter, settings.input_formatter, settings.content_filter)
    return any(options) or (directory / "model.py").is_file() or any(directory.glob("*.dist-info/entry_points.txt"))


def has_code(settings: Settings) -> bool:
    """Whether there is user code: the model directory's, or an installed package's."""
    return has_own_code(settings) or bool(importlib.metadata.entry_points(group=GROUP))
