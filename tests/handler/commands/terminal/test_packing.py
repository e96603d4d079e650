"""`lmi package` on a terminal: a bar to the end, and warnings beside it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from lmi.handler.commands.terminal.packing import showing_progress

from ....kit.typed import Typed

LMI = str(Path(sys.executable).parent / "lmi")


def test_on_a_terminal(tmp_path: Path) -> None:
    folder, output = tmp_path / "model", tmp_path / "model.tar.gz"
    folder.mkdir()
    (folder / "serving.properties").write_text("option.entryPoint=elsewhere\n")
    (folder / "weights.bin").write_bytes(bytes(20_000_000))
    with Typed([LMI, "package", str(folder), "-o", str(output)]) as command:
        assert command.end() == 0
    assert "warning: option.entryPoint=elsewhere" in command.text
    assert "━" in command.raw
    assert command.text.splitlines()[-1].endswith("weights.bin")
    assert output.exists()


def test_elsewhere(tmp_path: Path) -> None:
    """Nothing, as before, for what takes a moment."""
    (tmp_path / "serving.properties").write_text("option.entryPoint=lmi.handler\n")
    done = subprocess.run(
        [LMI, "package", str(tmp_path), "-o", str(tmp_path / "model.tar.gz")],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("", "")
    with showing_progress() as progress:
        assert progress is None
