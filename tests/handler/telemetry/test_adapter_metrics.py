"""What /metrics tells of adapters."""

from __future__ import annotations

from pathlib import Path

import pytest

from ...kit.adapters import LLAMA, write_adapter
from ...kit.api.handler import Exposition, Service, started_service
from ...kit.api.types import EngineStats, Request
from ...kit.user_code.engine import ScriptedEngine


@pytest.fixture
def service(tmp_path: Path) -> Service:
    for name in ("a", "b", "c"):
        write_adapter(tmp_path / "adapters" / name, LLAMA)
    return started_service(ScriptedEngine(), tmp_path, enable_lora="true", adapters_registry="none")


def told(service: Service) -> dict[str, float]:
    """The lines about registered adapters: what stands before the number, without `lmi_`, and the number."""
    beginnings = ("lmi_adapters", "lmi_adapter_requests")
    return {name.removeprefix("lmi_"): number for name, number in lines(service).items() if name.startswith(beginnings)}


def lines(service: Service) -> dict[str, float]:
    """All of them: what stands before the number, and the number."""
    text = Exposition(service).render("")[0].decode()
    pairs = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(number) for name, _, number in pairs}


def ask(service: Service, name: str) -> None:
    service.open(Request(f'{{"inputs": "x", "adapters": "{name}"}}'.encode()))


def counted(**requests: int) -> dict[str, float]:
    return {f'adapter_requests_total{{adapter="{name}"}}': float(number) for name, number in requests.items()}


def test_each_one_that_is_registered_has_its_requests_counted(service: Service) -> None:
    ask(service, "a")
    ask(service, "b")
    ask(service, "a")
    ask(service, "nobody")
    assert told(service) == {"adapters": 3, **counted(a=2, b=1, c=0)}
    assert service.adapters is not None
    service.adapters.unregister("a")
    assert told(service) == {"adapters": 2, **counted(b=1, c=0)}


def test_those_that_were_named_last_have_a_label_each(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmi.handler.scraping.exposition.MAX_ADAPTERS", 1)
    for name in ("a", "b", "c", "b"):
        ask(service, name)
    assert told(service) == {"adapters": 3, **counted(b=2), 'adapter_requests_total{adapter=""}': 2}


def test_without_adapters_there_are_none() -> None:
    assert told(started_service(ScriptedEngine())) == {"adapters": 0}


def test_what_the_engine_tells_of_them(service: Service) -> None:
    told_last = lines(service)
    assert (told_last["lmi_adapter_loads_total"], told_last["lmi_sequences_waiting_for_adapter"]) == (0, 0)
    assert isinstance(service.engine, ScriptedEngine)
    service.engine.stats = EngineStats(waiting=5, passed_over=3, waiting_for_adapter=2, adapter_loads=7)
    now = lines(service)
    assert {name: now[name] for name in now if now[name] != told_last[name] and name.startswith("lmi_seq")} == {
        "lmi_sequences_waiting": 5, "lmi_sequences_passed_over": 3, "lmi_sequences_waiting_for_adapter": 2,
    }  # fmt: skip
    assert now["lmi_adapter_loads_total"] == 7
