"""Prints the unit tests' coverage of each package and holds it to its floor: python .ci/coverage.py COVERAGE.json

The floors are a point below what was seen; what needs an engine (model/vllm, model/transformers) is covered elsewhere.
Exit status 1: a package is below its floor, or has none.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path, PurePosixPath

FLOORS: dict[str, int] = {}


def main(report: str) -> int:
    """Prints the table; the exit status."""
    covered: Counter[str] = Counter()
    statements: Counter[str] = Counter()
    for file, found in json.loads(Path(report).read_text())["files"].items():
        package = PurePosixPath(file).parent.as_posix()
        covered[package] += found["summary"]["covered_lines"]
        statements[package] += found["summary"]["num_statements"]
    failed = False
    for package in sorted(statements):
        percent = 100 * covered[package] / max(statements[package], 1)
        floor = FLOORS.get(package)
        low = floor is None or percent < floor
        failed |= low
        print(f"coverage: {package:<26} {percent:5.1f} %  floor {floor}{'  TOO LOW' if low else ''}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
