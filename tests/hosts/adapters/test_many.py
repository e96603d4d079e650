"""docs/examples/many-adapters.md: more adapters than slots and than there is memory for, none of them registered."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ...kit.hosts.host import running
from ...kit.models.adapted import adapted, adapted_directory
from ...kit.pages import blocks_of
from ...kit.paths import DOCS

pytestmark = [pytest.mark.engine, pytest.mark.once]

NAMES = ("all", "stable", "wide", "inner", "out")


def test_tenants(demo_model: Path, tmp_path: Path) -> None:
    properties, code = (
        block.text
        for language in ("properties", "python")
        for block in blocks_of(DOCS / "examples" / "many-adapters.md")
        if block.language == language
    )
    cache = tmp_path / "cache"
    made = adapted(demo_model, tmp_path / "made", NAMES, most=12, count=1)
    cache.mkdir()
    for name in NAMES:
        made.folders[name].rename(cache / name)
    given = dict(line.split("=", 1) for line in properties.splitlines())
    given |= {"option.lora_cache_dir": str(cache), "option.max_loras": "2", "option.max_cpu_loras": "3"}
    (tmp_path / "tenants.py").write_text(code, "utf-8")
    with running("server", adapted_directory(demo_model, tmp_path / "model", given), tmp_path / "log") as host:
        command = [sys.executable, str(tmp_path / "tenants.py"), host.url, *NAMES, "nobody"]
        lines = subprocess.run(command, check=True, capture_output=True, text=True, timeout=280).stdout
    said = dict(line.split(": ", 1) for line in lines.splitlines() if ": " in line)
    assert [*said] == [*NAMES, "nobody"]
    # Adapters answer otherwise than the base, and than each other.
    assert len({*said.values()}) > 2, said
