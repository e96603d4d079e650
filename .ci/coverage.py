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
    "formatters/common": 98,
    "formatters/conversation": 98,
    "formatters/lmi": 98,
    "formatters/minimal": 99,
    "formatters/openai": 98,
    "formatters/rerank": 99,
    "formatters/responses": 98,
    "formatters/tgi": 99,
    "formatters/tokens": 98,
    "formatters/transcription": 98,
    "handler": 98,
    "handler/adapters": 98,
    "handler/commands": 89,
    "handler/commands/chat": 70,
    "handler/commands/checks": 88,
    "handler/djl": 86,
    "handler/djl/modes": 97,
    "handler/scraping": 99,
    "handler/server": 92,
    "handler/server/connections": 96,
    "handler/server/playground": 97,
    "handler/sessions": 96,
    "handler/telemetry": 97,
    "handler/threads": 97,
    "handler/user_code": 92,
    "handler/user_code/formatters": 92,
    "model": 96,
    "model/adapters": 99,
    "model/media": 96,
    "model/nodes": 96,
    "model/options": 98,
    "model/options/advice": 97,
    "model/options/environment": 99,
    "model/options/parallel": 99,
    "model/process": 80,
    "model/process/ending": 82,
    "model/search": 99,
    "model/text": 78,
    "model/text/answers": 91,
    "model/vllm": 36,
    "model/vllm/guides": 38,
    "model/vllm/library": 56,
    "model/vllm/media": 36,
    "model/vllm/mistral": 51,
    "model/vllm/pooling": 35,
    "model/vllm/request": 35,
    "model/vllm/request/harmony": 32,
    "model/vllm/request/prompts": 58,
    "model/vllm/sequences": 77,
    "model/vllm/setup": 98,
    "model/vllm/stats": 50,
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
