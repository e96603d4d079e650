"""Services on an engine that says what a test tells it to."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from ..kit.api.types import EngineEvent
from ..kit.user_code.modules import forget, modules_in
from ..kit.user_code.service import MakeScripted, ScriptedService


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeScripted]:
    """Makes them of the model directory `tmp_path`; the modules of the user's are forgotten, at the next one too."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    made: list[ScriptedService] = []
    # Of the same names, which tests of `lmi check` have left.
    for name in modules_in(tmp_path.parent):
        del sys.modules[name]

    def make(
        files: Mapping[str, str] | None = None, *, then: list[EngineEvent] | None = None, **options: str
    ) -> ScriptedService:
        forget(tmp_path)
        made.append(ScriptedService(tmp_path, files or {}, options, then))
        return made[-1]

    yield make
    for one in made:
        one.service.close()
    forget(tmp_path)
