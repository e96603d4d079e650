"""How this process, and those it forks, crash: at once, after a few lines on what each Python thread was doing."""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import signal

__all__ = ["crash_at_once", "crash_at_once_too"]


def crash_at_once() -> None:
    """Replaces what tvm_ffi, which comes with xgrammar and so with vLLM, does on a segmentation fault.

    To be called on the main thread, any number of times; where vLLM is used, after its import, which must come before
    torch's. tvm_ffi prints C++ frames
    (its src/ffi/backtrace.cc), for which it reads debugging information for more than a second and allocates memory:
    after a crash within malloc that never ends, and the host would only notice by the stall timeout.
    Python's own handler does neither.
    """
    # Its handler is put in when it is loaded: not later than now.
    with contextlib.suppress(ImportError, OSError):
        importlib.import_module("tvm_ffi")
    # Python's handler is put in once only, and calls the one that was there before.
    faulthandler.disable()
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    # Without a file behind it there is nowhere to write to.
    with contextlib.suppress(OSError, ValueError, AttributeError, RuntimeError):
        faulthandler.enable()


def crash_at_once_too() -> None:
    """The same in a process that vLLM has spawned, before anything else; vLLM is what it would import next."""
    # Where there is none, the process is somebody else's.
    with contextlib.suppress(ImportError):
        importlib.import_module("vllm")
        crash_at_once()
