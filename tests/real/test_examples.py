"""docs/examples/retrieval.md, with both models."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ..kit.hosts.host import Server
from ..kit.pages import blocks_of
from ..kit.paths import DOCS

pytestmark = [pytest.mark.engine, pytest.mark.once]

ASKED = {
    "How long do I have to send something back?": "Refunds",
    "When does my parcel arrive if I live abroad?": "Shipping",
    "On which day is the shop closed?": "The shop",
}
"""By question, how the note begins that answers it."""


def test_retrieval(minilm_server: Server, real_server: Server, tmp_path: Path) -> None:
    (code,) = (block.text for block in blocks_of(DOCS / "examples" / "retrieval.md") if block.language == "python")
    (tmp_path / "ask.py").write_text(code, "utf-8")
    for question, note in ASKED.items():
        command = [sys.executable, str(tmp_path / "ask.py"), minilm_server.url, real_server.url, question]
        said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout.splitlines()
        assert said[0].startswith(note), (question, said)
        assert said[1], said
