"""What vLLM writes where a person reads it."""

from __future__ import annotations

import io

import pytest

from lmi.handler.commands.terminal import quiet_engine

LEVEL = "VLLM_LOGGING_LEVEL"


@pytest.mark.parametrize(
    ("terminal", "given", "level"),
    [(True, None, "WARNING"), (True, "DEBUG", "DEBUG"), (False, None, None)],
)
def test_warnings_alone_unless_more_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, given: str | None, level: str | None
) -> None:
    environment = {LEVEL: given} if given else {}
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: terminal)
    monkeypatch.setattr("os.environ", environment)
    quiet_engine(stream)
    assert environment.get(LEVEL) == level
