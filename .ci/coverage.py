"""Prints the unit tests' coverage of each package and holds it to its floor: python .ci/coverage.py COVERAGE.json

The floors are a point below what was seen; what needs an engine (model/vllm) is covered elsewhere.
Exit status 1: a package is below its floor, or has none.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path, PurePosixPath

FLOORS = {
    "formatters": 98,
    "formatters/anthropic": 98,
    "formatters/azure": 98,
    "formatters/common": 97,
    "formatters/conversation": 98,
    "formatters/lmi": 97,
    "formatters/minimal": 99,
    "formatters/openai": 98,
    "formatters/rerank": 98,
    "formatters/responses": 98,
    "formatters/tgi": 99,
    "formatters/tokens": 98,
    "handler": 94,
    "handler/adapters": 98,
    "handler/commands": 78,
    "handler/commands/chat": 70,
    "handler/commands/checks": 94,
    "handler/djl": 66,
    "handler/scraping": 98,
    "handler/server": 91,
    "handler/server/playground": 96,
    "handler/sessions": 97,
    "handler/telemetry": 98,
    "handler/threads": 92,
    "handler/user_code": 92,
    "handler/user_code/formatters": 92,
    "model": 93,
    "model/adapters": 98,
    "model/media": 96,
    "model/nodes": 96,
    "model/options": 98,
    "model/options/advice": 98,
    "model/options/environment": 99,
    "model/options/parallel": 98,
    "model/process": 78,
    "model/process/ending": 55,
    "model/search": 78,
    "model/text": 50,
    "model/text/answers": 77,
    "model/vllm": 34,
    "model/vllm/guides": 37,
    "model/vllm/library": 34,
    "model/vllm/mistral": 51,
    "model/vllm/pooling": 34,
    "model/vllm/request": 30,
    "model/vllm/request/harmony": 31,
    "model/vllm/setup": 82,
    "model/vllm/stats": 46,
}


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
