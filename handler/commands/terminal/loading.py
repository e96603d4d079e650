"""What is shown of a start, and where the model is served then.

On a terminal that is the steps so far, each with its seconds and, where the engine says it, a bar; the engine's own
lines are kept back, and the last ones shown where the start fails. Elsewhere they are lines, the engine's among them.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from ....model.process.group import members
from .capture import Capture
from .console import can_draw, console_on
from .start import Start

__all__ = ["StartView", "showing", "showing_apart"]

KEPT_LINES = 40
"""Of the engine's, for the case that it does not start."""
FACTS = (
    "model",
    "engine",
    "context",
    "KV cache",
    "memory of the weights",
    "memory of the KV cache",
    "memory of its processes",
)
"""What is told of a model that is up, in this order."""
REFRESHES = 8
"""A second."""
GIB = 1 << 30


class StartView(Protocol):
    """What shows a start."""

    def ready(self, process: int | None, said: Sequence[str]) -> None:
        """The engine's process is up, `process` its id; `said` are lines for standard output."""
        ...


class _Lines:
    """Where nothing can be drawn."""

    def __init__(self, said: str) -> None:
        print(said, flush=True)

    def ready(self, process: int | None, said: Sequence[str]) -> None:
        print(*said, sep="\n", flush=True)


class _Apart:
    """Nothing can be drawn, and standard output is another's: the engine's processes get standard error for it."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._kept: int | None = os.dup(1)
        os.dup2(2, 1)

    def ready(self, process: int | None, said: Sequence[str]) -> None:
        self.close()

    def close(self) -> None:
        """Gives standard output back."""
        if self._kept is not None:
            sys.stdout.flush()
            os.dup2(self._kept, 1)
            os.close(self._kept)
            self._kept = None


class _Drawn:
    """On a terminal."""

    def __init__(self, model: str, descriptors: Sequence[int], *, apart: bool) -> None:
        """The first of `descriptors` is drawn on. `apart`: standard output is for something else, and what the engine
        writes once it is up is not shown."""
        self._model = model
        self._apart = apart
        self._start = Start()
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._is_up = False
        self._over = threading.Event()
        self._capture = Capture(descriptors, self._take)
        self._terminal = self._capture.kept[descriptors[0]]
        self._thread = threading.Thread(target=self._draw, name="lmi-terminal", daemon=True)
        self._thread.start()

    def ready(self, process: int | None, said: Sequence[str]) -> None:
        self._is_up = True
        self.close()
        found = {"model": self._model, **self._start.facts, "memory of its processes": _memory(process)}
        facts = {name: found[name] for name in FACTS if found.get(name)}
        print("", _table(facts), "", *said, sep="\n", flush=True, file=sys.stderr if self._apart else sys.stdout)

    def close(self) -> None:
        """Gives the terminal back; says what was kept back where the engine is not up."""
        if self._over.is_set():
            return
        self._capture.release()
        self._start.end()
        self._over.set()
        self._thread.join()

    def tell_failure(self) -> None:
        """The last lines of the engine's."""
        if self._lines:
            print(*self._lines, sep="\n", file=sys.stderr, flush=True)

    def _take(self, line: str) -> None:
        if not self._over.is_set():
            self._lines.append(line)
            self._start.take(line)
        elif not self._apart:
            with contextlib.suppress(OSError):
                os.write(self._terminal, line.encode() + b"\n")

    def _draw(self) -> None:
        from rich.live import Live

        from .drawing import Drawing

        console = console_on(self._terminal)
        drawing = Drawing(self._start, lambda: not self._is_up)
        with Live(
            console=console,
            get_renderable=drawing,
            refresh_per_second=REFRESHES,
            redirect_stdout=False,
            redirect_stderr=False,
        ):
            # A second Ctrl-C ends this process in an instant, which would leave it hidden.
            console.show_cursor(True)
            self._over.wait()


@contextmanager
def showing(model: str, *, verbose: bool) -> Iterator[StartView]:
    """Shows the start of `model` until its view is told that it is ready, or this ends."""
    if verbose or not can_draw(1):
        yield _Lines(f"lmi: starting the engine for {model}")
        return
    drawn = _Drawn(model, [1, 2] if os.isatty(2) else [1], apart=False)
    with _ended(drawn):
        yield drawn


@contextmanager
def showing_apart(model: str) -> Iterator[StartView]:
    """The same on standard error, for who needs standard output for something else."""
    if can_draw(2):
        drawn = _Drawn(model, [2, 1], apart=True)
        with _ended(drawn):
            yield drawn
        return
    apart = _Apart()
    try:
        yield apart
    finally:
        apart.close()


@contextmanager
def _ended(drawn: _Drawn) -> Iterator[None]:
    try:
        yield
    except Exception:
        drawn.close()
        drawn.tell_failure()
        raise
    finally:
        drawn.close()


def _memory(process: int | None) -> str:
    """What an engine's processes take of the machine's memory, each page counted once; empty where nobody knows."""
    pages = 0
    for pid in members(process) if process else ():
        # One may end at any time; others' are not readable everywhere.
        with contextlib.suppress(OSError, StopIteration, ValueError):
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            pages += int(next(line.split()[1] for line in text.splitlines() if line.startswith("Pss:")))
    return f"{pages * 1024 / GIB:.1f} GiB" if pages else ""


def _table(facts: Mapping[str, str]) -> str:
    width = max(map(len, facts))
    return "\n".join(f"  {name:{width}}  {fact}" for name, fact in facts.items())
