"""Two commits against each other: `python -m tests.microbench.compare BASE [OTHER] [--rounds N]`.

Checks both out beside each other and measures them in turns, each time in new processes, with the microbenchmarks of
this checkout. OTHER is by default what is in the working tree. Prints of each cost the median of OTHER's ratios to
BASE's next to it, and the lowest and the highest of them: where 1 lies between these, nothing is known to have changed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from ..kit.paths import ROOT
from .profile import Costs, costs_of

WORKING_TREE = "the working tree"
NOTABLE = 0.03
"""Changes of a ratio below it are not pointed out."""


@contextmanager
def checkout(commit: str, folder: Path) -> Iterator[Path]:
    """A worktree of a commit; the working tree is one already."""
    if commit == WORKING_TREE:
        yield ROOT
        return
    subprocess.run(["git", "-C", ROOT, "worktree", "add", "--quiet", "--detach", folder, commit], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", folder], check=True)


def flat(costs: Costs) -> dict[str, float]:
    """By one name."""
    return {
        f"{group}, {kind}: {stage}": spent
        for group, kinds in costs.items()
        for kind, stages in kinds.items()
        for stage, spent in stages.items()
    }


def report(base: list[dict[str, float]], other: list[dict[str, float]]) -> str:
    """A line for each cost that both have."""
    lines = [f"{'µs of CPU a token':80} {'base':>7} {'other':>7} {'ratio':>6}   spread"]
    for name in base[0]:
        if not all(name in found for found in (*base, *other)):
            continue
        ratios = [after[name] / before[name] for before, after in zip(base, other, strict=True) if before[name]]
        if ratios:
            low, high = min(ratios), max(ratios)
            changed = abs(median(ratios) - 1) >= NOTABLE
            mark = "slower" if changed and low > 1 else "faster" if changed and high < 1 else ""
            costs = f"{min(one[name] for one in base):7.2f} {min(one[name] for one in other):7.2f}"
            lines.append(f"{name:80} {costs} {median(ratios):6.2f}   {low:.2f}-{high:.2f} {mark}".rstrip())
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base")
    parser.add_argument("other", nargs="?", default=WORKING_TREE)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        checkout(arguments.base, Path(folder) / "base") as base,
        checkout(arguments.other, Path(folder) / "other") as other,
    ):
        found: dict[Path, list[dict[str, float]]] = {base: [], other: []}
        for number in range(arguments.rounds):
            for tree in (base, other) if number % 2 == 0 else (other, base):
                print(f"compare: round {number + 1} of {arguments.rounds}: {tree.name}", file=sys.stderr)
                found[tree].append(flat(costs_of(tree)))
    print(report(found[base], found[other]))


if __name__ == "__main__":
    main()
