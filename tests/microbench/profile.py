"""The profile of the hot path: `python -m tests.microbench.profile [DOCUMENT]`.

Prints the costs of `make microbench` as tables, or writes them into docs/performance.md, between the two lines
`<!-- profile -->`: microseconds of CPU a token. All parts are the real ones but the engine's core and the sockets
(path.py, hosts.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ..kit.paths import ROOT

__all__ = ["Costs", "costs_of", "tables"]

Costs = Mapping[str, Mapping[str, Mapping[str, float]]]
"""Microseconds, by group, kind of request and stage."""
MARK = "<!-- profile -->\n"
ALONE = """
import pytest, sys
# Where `lmi` is installed as editable, what a commit does not have would be found in the working tree.
sys.meta_path[:] = [one for one in sys.meta_path if not getattr(one, "__module__", "").startswith("__editable__")]
sys.exit(pytest.main(sys.argv[1:]))
"""


def costs_of(tree: Path) -> Costs:
    """Of the `lmi` in `tree`, by this checkout's microbenchmarks; those that it cannot be measured by are left out."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tree / ".typing"), str(ROOT)))}
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "costs.json"
        command = [sys.executable, "-c", ALONE, "tests/microbench/bench_path.py", f"--benchmark-json={written}"]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if not written.exists() or not (text := written.read_text()):
            raise SystemExit(f"microbench: {tree} cannot be measured:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    if done.returncode:
        print(f"microbench: not all of {tree} can be measured:\n{done.stdout[-2000:]}", file=sys.stderr)
    costs: dict[str, dict[str, dict[str, float]]] = {}
    for one in json.loads(text)["benchmarks"]:
        costs.setdefault(one["group"], {}).setdefault(one["params"]["kind"], {}).update(one["extra_info"])
    return costs


def tables(costs: Costs) -> str:
    """Markdown: of each group a table, a line for each kind, a column for each stage."""
    made: list[str] = []
    for group, kinds in costs.items():
        stages = list(dict.fromkeys(stage for found in kinds.values() for stage in found))
        rows = [[kind, *(_number(found.get(stage)) for stage in stages)] for kind, found in kinds.items()]
        lines = [[group, *stages], ["---"] * (1 + len(stages)), *rows]
        made.append("\n".join("| " + " | ".join(line) + " |" for line in lines))
    return "\n\n".join(made)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}" if value >= 0.05 else f"{value:.2f}"


def main(document: str | None = None) -> None:
    """Measures, and prints or writes."""
    found = tables(costs_of(ROOT))
    if document is None:
        print(found)
        return
    before, _, after = Path(document).read_text(encoding="utf-8").split(MARK)
    Path(document).write_text(f"{before}{MARK}\n{found}\n\n{MARK}{after}", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
