"""The host's side of an engine, without one."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest

from lmi.model.errors import UnavailableError
from lmi.model.events import Event
from lmi.model.generation import Generation, Sampling
from lmi.model.options import settings_of
from lmi.model.remote import RemoteEngine


class Sink:
    def __call__(self, event: Event) -> None:
        raise AssertionError(f"nobody was to be told {event}")


def test_what_is_refused_while_there_is_no_engine_is_not_kept(tmp_path: Path) -> None:
    """An exception that is raised for each request keeps the frames of all of them, for as long as it lives."""
    engine = RemoteEngine(settings_of({}, model_dir=str(tmp_path)))
    sink = Sink()
    gone = weakref.ref(sink)
    with pytest.raises(UnavailableError, match="the engine is not started"):
        engine.submit(Generation(request_id="1", prompt="x", sampling=Sampling()), sink)
    del sink
    gc.collect()
    assert gone() is None
