"""The host's side of an engine, without one."""

from __future__ import annotations

import gc
import json
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

from lmi.formatters import Request
from lmi.handler.exchange import Exchange
from lmi.handler.metrics import Meter
from lmi.handler.service import Service
from lmi.model.engine import EngineInfo
from lmi.model.errors import UnavailableError
from lmi.model.events import Event, Failed
from lmi.model.generation import Generation, Sampling
from lmi.model.options import settings_of
from lmi.model.remote import RemoteEngine


class Nobody:
    def __call__(self, event: Event) -> None:
        raise AssertionError(f"nobody was to be told {event}")


def test_what_is_refused_while_there_is_no_engine_is_not_kept(tmp_path: Path) -> None:
    """An exception that is raised for each request keeps the frames of all of them, for as long as it lives."""
    engine = RemoteEngine(settings_of({}, model_dir=str(tmp_path)))
    sink = Nobody()
    gone = weakref.ref(sink)
    with pytest.raises(UnavailableError, match="the engine is not started"):
        engine.submit(Generation(request_id="1", prompt="x", sampling=Sampling()), sink)
    del sink
    gc.collect()
    assert gone() is None


class Ending(RemoteEngine):
    """An engine that ends while a request's second prompt is handed to it: its own thread tells the first prompt."""

    def __init__(self, model_dir: Path) -> None:
        super().__init__(settings_of({}, model_dir=str(model_dir)))
        self.first: Callable[[Event], None]
        self.thread = threading.Thread(target=self.end)
        self.telling = threading.Event()
        self.refused = threading.Event()

    def start(self) -> EngineInfo:
        return EngineInfo(engine="ending", version="0", context=2048)

    def submit(self, generation: Generation, sink: Callable[[Event], None]) -> int:
        if self.thread.ident is None:
            self.first = sink
            self.thread.start()
            assert self.telling.wait(30)
            return 1
        raise UnavailableError("gone")

    def tell(self, sink: Callable[[Event], None], event: Event) -> None:
        self.refused.set()
        super().tell(sink, event)

    def end(self) -> None:
        with self._telling:
            self.telling.set()
            self.first(Failed.of(UnavailableError("gone")))


def test_one_end_is_told_once_however_many_prompts_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Ending(tmp_path)
    service = Service(settings_of({}, model_dir=str(tmp_path)), engine)
    service.start()
    finish = service.metrics.finish

    def slowly(meter: Meter, exchange: Exchange, *, aborted: bool) -> None:
        # The reply has made its body; the other thread may come now.
        engine.refused.wait(0.5)
        finish(meter, exchange, aborted=aborted)

    monkeypatch.setattr(service.metrics, "finish", slowly)
    exchange = service.open(Request(b'{"prompt": ["a", "b"]}', path="/v1/completions"))
    engine.thread.join(30)
    assert isinstance(exchange, Exchange)
    assert exchange.finished
    (body,) = exchange.records
    assert json.loads(body)["error"]["message"] == "gone"
