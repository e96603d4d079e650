"""The one place where tests start engines without a host; hosts/host.py: start is the place for engines behind hosts.

in_process     a backend in the test's own process, stepped by hand (backends.py: run)
own_process    an engine in a process of its own, behind its client, as a host has it

Whether vLLM's core shares the process of its backend is to be said here, for all of them at once.
"""

from __future__ import annotations

from typing import Any

import pytest

from lmi.model.engine import load_backend
from lmi.model.options import Settings
from lmi.model.process.client import EngineClient
from lmi.model.vllm import engine as vllm_engine
from lmi.model.vllm.options import engine_arguments

__all__ = [
    "ON_TRANSFORMERS",
    "EngineClient",
    "engine_arguments",
    "in_process",
    "own_process",
    "vllm_only_reads_options",
]

ON_TRANSFORMERS = {
    "option.rolling_batch": "scheduler",
    # A model that was never taught a schema may fill all the white space that JSON allows.
    "option.structured_outputs_config": '{"disable_any_whitespace": true}',
}
"""The properties of a model directory for the transformers engine."""


def in_process(settings: Settings) -> Any:
    """The backend that `settings` choose, started; raises what fails its start. Ended by its `close`."""
    return load_backend(settings)


def own_process(settings: Settings, **arguments: Any) -> EngineClient:
    """A client of an engine that its `start` starts and its `close` ends. `arguments`: EngineClient's own."""
    return EngineClient(settings, **arguments)


def vllm_only_reads_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of vLLM's engine come the arguments that it would be started with."""
    monkeypatch.setattr(vllm_engine, "VllmEngine", engine_arguments)
