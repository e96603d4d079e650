"""What users import: the names of today in lmi.handler.api, and those that were there before, each told of once."""

from __future__ import annotations

import importlib
import logging
import sys

import pytest

from lmi.handler import api

from ..kit.rows import each_row


def test_everything_promised_is_there() -> None:
    """The names that user code may rely on: taking one away breaks endpoints."""
    assert set(api.__all__) >= {
        "JSON", "Delta", "Dialect", "Failed", "Finish", "Generation", "OpenApi", "ParsedRequest", "PayloadError",
        "Request", "RequestError", "Response", "ResponseEncoder", "Route", "Sampling", "Started", "Token",
        "encode", "handle", "Backend", "EngineInfo", "EngineStats", "Image", "Settings",
    }  # fmt: skip
    assert all(hasattr(api, name) for name in api.__all__)


@each_row(
    ("module", "former", "name"),
    [
        ("lmi.formatters", "Answer", "Response"),
        ("lmi.formatters", "Call", "ParsedRequest"),
        ("lmi.formatters", "Format", "Dialect"),
        ("lmi.formatters", "FORMATS", "DIALECTS"),
        ("lmi.formatters.base", "Answer", "Response"),
        ("lmi.formatters.base", "Call", "ParsedRequest"),
        ("lmi.formatters.base", "Described", "OpenApi"),
        ("lmi.formatters.base", "Format", "Dialect"),
        ("lmi.formatters.base", "Dialect", "lmi.formatters.dialect.Dialect"),
        ("lmi.formatters.base", "Route", "lmi.formatters.dialect.Route"),
        ("lmi.formatters.base", "Reply", "ResponseEncoder"),
        ("lmi.model.generation", "Guide", "StructuredOutput"),
    ],
)
def test_a_former_name(module: str, former: str, name: str, caplog: pytest.LogCaptureFixture) -> None:
    found = importlib.import_module(module)
    vars(found).pop(former, None)
    caplog.clear()
    with caplog.at_level(logging.WARNING, "lmi.model.former_names"):
        first, second = getattr(found, former), getattr(found, former)
        told = [*caplog.messages]
    assert first is second is getattr(found, name.rpartition(".")[2])
    assert told == [f"{module}.{former} is now called {name}; the old name still works"]


def test_a_name_that_there_never_was() -> None:
    base = importlib.import_module("lmi.formatters.base")
    with pytest.raises(AttributeError, match=r"module 'lmi\.formatters\.base' has no attribute 'Sonnet'"):
        base.Sonnet  # noqa: B018
    assert "lmi.formatters.base" in sys.modules
