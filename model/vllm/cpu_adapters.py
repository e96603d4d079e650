"""Adapters on a CPU: what vLLM does wrong there is put right in the process that runs the model.

`worker_extension_cls` is vLLM's way to have functions of one's own there, however that process came to be.
"""

from __future__ import annotations

from .internals import spare_base_rows

__all__ = ["EXTENSION", "SPARE_BASE", "CpuWorker"]


class CpuWorker:
    """What vLLM's worker gets in addition; it makes no object of this."""

    def lmi_spare_base(self) -> None:
        """To be called once, before the first request."""
        spare_base_rows()


EXTENSION = f"{CpuWorker.__module__}.{CpuWorker.__qualname__}"
"""For `worker_extension_cls`."""
SPARE_BASE = CpuWorker.lmi_spare_base.__name__
