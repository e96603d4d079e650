"""What `lmi completion` prints makes a shell complete the command: bash is asked, others read theirs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ...kit.api.handler import lmi_command


def printed(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    lmi_command(["completion", shell])
    return capsys.readouterr().out


ASK = r"""
source "$1"; shift
how=$(complete -p lmi); how=${how##*-F }; how=${how%% *}
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
"$how" lmi "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\n' "${COMPREPLY[@]}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["lmi", "ch"], ["chat", "check"]),
        (["lmi", "comp"], ["completion"]),
        (["lmi", "serve", "--gr"], ["--grace"]),
        (["lmi", "check", "--js"], ["--json"]),
        (["lmi", "completion", ""], ["bash", "fish", "zsh"]),
        (["lmi", "serve", "mod"], ["models"]),
        (["lmi", "migrate", "mod"], ["model.env", "models"]),
    ],
    ids=" ".join,
)
def test_bash(tmp_path: Path, capsys: pytest.CaptureFixture[str], typed: list[str], offered: list[str]) -> None:
    """Commands, options, choices, and files where there is to be one: folders only for a model directory."""
    script = tmp_path / "script"
    script.write_text(printed("bash", capsys))
    (tmp_path / "models").mkdir()
    (tmp_path / "model.env").touch()
    done = subprocess.run(
        ["bash", "--norc", "-c", ASK, "ask", str(script), *typed],
        capture_output=True, text=True, check=True, timeout=30, cwd=tmp_path,
    )  # fmt: skip
    assert sorted(word.strip().rstrip("/") for word in done.stdout.splitlines() if word.strip()) == offered


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_others(tmp_path: Path, capsys: pytest.CaptureFixture[str], shell: str) -> None:
    script = tmp_path / "script"
    script.write_text(printed(shell, capsys))
    for word in ("serve", "chat", "check", "completion", "--json", "--grace"):
        assert word.lstrip("-") in script.read_text()
    if shutil.which(shell) is not None:
        subprocess.run([shell, "-n", str(script)], check=True, timeout=30)


def test_without_the_library(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(__import__("sys").modules, "shtab", None)
    with pytest.raises(SystemExit) as ended:
        lmi_command(["completion", "bash"])
    assert ended.value.code == 1
    assert capsys.readouterr().err == ("lmi: completion: requires shtab: install the extra lmi-handler[terminal]\n")
