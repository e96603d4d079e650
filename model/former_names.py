"""Names that a module had before, for user code that still imports them: each use is logged once."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["former_names"]

log = logging.getLogger(__name__)


def former_names(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of `module`, by whose name today's are found under the names that they had before.

    names: today's, `MODULE:NAME` where another module has it now.
    """

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, now = names[name].rpartition(":")
        log.warning(
            "%s.%s is now called %s; the old name still works", module, name, now if now != name else f"{home}.{now}"
        )
        found = getattr(import_module(home) if home else sys.modules[module], now)
        # The next one who asks finds it there.
        setattr(sys.modules[module], name, found)
        return found

    return find
