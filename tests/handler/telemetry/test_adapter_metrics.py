"""What /metrics tells of adapters."""

from __future__ import annotations

from pathlib import Path

import pytest

from lmi.handler.telemetry import prometheus
from lmi.handler.telemetry.prometheus import Exposition

from ...kit.adapters import LLAMA, write_adapter
from ...kit.api.handler import Service, started_service
from ...kit.api.types import Request
from ...kit.user_code.engine import ScriptedEngine


@pytest.fixture
def service(tmp_path: Path) -> Service:
    for name in ("a", "b", "c"):
        write_adapter(tmp_path / "adapters" / name, LLAMA)
    return started_service(ScriptedEngine(), tmp_path, enable_lora="true", adapters_registry="none")


def told(service: Service) -> dict[str, float]:
    """The lines about adapters: what stands before the number, without `lmi_`, and the number."""
    lines = Exposition(service).render("")[0].decode().splitlines()
    pairs = [line.rpartition(" ") for line in lines if line.startswith("lmi_adapter")]
    return {name.removeprefix("lmi_"): float(number) for name, _, number in pairs}


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
    monkeypatch.setattr(prometheus, "MAX_ADAPTERS", 1)
    for name in ("a", "b", "c", "b"):
        ask(service, name)
    assert told(service) == {"adapters": 3, **counted(b=2), 'adapter_requests_total{adapter=""}': 2}


def test_without_adapters_there_are_none() -> None:
    assert told(started_service(ScriptedEngine())) == {"adapters": 0}
