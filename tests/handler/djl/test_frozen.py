"""What a process' start allocated is left out of garbage collections: seen by user code in the real worker."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from ...kit.djl import hosting
from ...kit.hosts.host import model_directory, start

pytestmark = pytest.mark.once

LOOKING = """
import gc, json
from pathlib import Path

SEEN = Path(__file__).with_name("seen.json")
mine = [[]]
mine[0].append(mine)


def judge(text, stage):
    frozen = gc.get_freeze_count()
    SEEN.write_text(json.dumps([frozen, len(gc.get_objects()), any(one is mine for one in gc.get_objects())]))
    return None
"""


@pytest.mark.engine
@pytest.mark.djl
@pytest.mark.parametrize("kind", ["server", "rolling", "async"])
def test_a_worker_freezes_what_its_start_allocated(demo_model: Path, tmp_path: Path, kind: str) -> None:
    """Nearly all that it has, the user's own modules too; once, so that what comes later is collected as ever."""
    if kind != "server" and (missing := hosting.available()):
        pytest.skip(missing)
    directory = model_directory(demo_model, tmp_path / "model", {"option.content_filter": "looking:judge"})
    (directory / "looking.py").write_text(LOOKING)
    running = start(kind, directory, tmp_path / "log", parrot=True)
    seen: list[tuple[int, int, bool]] = []
    try:
        for _ in range(3):
            body = {"inputs": "Hello", "parameters": {"max_new_tokens": 3}}
            assert httpx.post(f"{running.url}/invocations", json=body, timeout=60).status_code == 200
            frozen, alive, mine_is_looked_through = json.loads((directory / "seen.json").read_text())
            seen.append((frozen, alive, mine_is_looked_through))
    finally:
        running.stop()
    frozen, alive, mine_is_looked_through = seen[0]
    assert frozen > 10_000
    assert alive < frozen
    assert not mine_is_looked_through
    # Nobody refers to some of it any more, which then goes; more never comes.
    counts = [count for count, _, _ in seen]
    assert counts == sorted(counts, reverse=True)


FREED = """
import gc, weakref
from lmi.model.heap import freeze

class Thing: ...

gc.disable()
plain, circle, garbage = Thing(), Thing(), Thing()
circle.itself, garbage.itself = circle, garbage
seen = [weakref.ref(one) for one in (plain, circle, garbage)]
del garbage
freeze()
print(gc.get_freeze_count() > 1000, [one() is not None for one in seen], gc.get_threshold()[0])
del plain, circle
gc.collect()
later = Thing()
later.itself, after = later, weakref.ref(later)
del later
gc.collect()
print([one() is not None for one in seen], after() is not None)
"""


def test_what_is_frozen_and_what_is_not() -> None:
    """Garbage goes first; what is plain goes when nobody wants it; a circle that was frozen stays, a later one not.

    Collections are rarer from then on.
    """
    done = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == ["True [True, True, False] 20000", "[False, True, False] False"]
    assert gc.isenabled()
