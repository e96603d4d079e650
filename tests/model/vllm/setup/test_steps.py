"""What is told of a start's steps."""

from __future__ import annotations

import time

import pytest

from lmi.model.vllm.setup import steps


def test_a_step(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Its beginning, again and again that it goes on, and its end."""
    monkeypatch.setattr(steps, "TOLD_S", 0.05)
    with caplog.at_level("INFO"):
        with steps.step("loading"):
            time.sleep(0.2)
        said = [record.message for record in caplog.records]
        time.sleep(0.2)
    assert said[0] == "loading"
    assert len(said) > 3
    assert all(message.endswith(" s so far") for message in said[1:-1])
    assert said[-1].startswith("loading: done in 0.")
    assert len(caplog.records) == len(said)


def test_a_step_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    """It is not said to be done."""
    with caplog.at_level("INFO"), pytest.raises(ValueError, match="no room"), steps.step("loading"):
        raise ValueError("no room")
    assert [record.message for record in caplog.records] == ["loading"]
