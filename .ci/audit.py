"""Holds the locks against the advisories of PyPI (pip-audit): python .ci/audit.py LOCK... [-- pip-audit's command...]

Exit status 0: every package was looked up that PyPI has, none has an advisory. 1: some have, or pip-audit failed.
3: nothing could be looked up, as not every mirror of PyPI has advisories; that is no pass, and the last line says so.
"""

from __future__ import annotations

import json
import subprocess
import sys

ACCEPTED: dict[str, str] = {}
"""Advisories that are known and do not concern this project, by id, and why."""
OUT_OF_REACH = 3


def look_up(lock: str, command: list[str]) -> tuple[int, int, list[str]]:
    """How many packages of a lock were looked up, how many could not be, and the advisories that concern it."""
    options = ["--disable-pip", "--no-deps", "--format", "json", "--progress-spinner", "off", "--requirement", lock]
    done = subprocess.run([*command, *options], check=False, capture_output=True, text=True)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        sys.exit(f"audit: {lock}: pip-audit failed (exit status {done.returncode}): {done.stderr.strip()[-1000:]}")
    skipped = sum("skip_reason" in package for package in packages)
    found = [
        f"{package['name']} {package['version']}: {advisory['id']}, mended in {' '.join(advisory['fix_versions'])}"
        for package in packages
        for advisory in package.get("vulns", [])
        if not {advisory["id"], *advisory["aliases"]} & ACCEPTED.keys()
    ]
    return len(packages) - skipped, skipped, found


def main(arguments: list[str]) -> int:
    """Audits; the exit status."""
    locks, command = arguments, ["pip-audit"]
    if "--" in arguments:
        split = arguments.index("--")
        locks, command = arguments[:split], arguments[split + 1 :]
    total, advisories = 0, 0
    for lock in locks:
        looked_up, skipped, found = look_up(lock, command)
        total += looked_up
        advisories += len(found)
        print(f"audit: {lock}: {looked_up} packages looked up, {skipped} not known there, {len(found)} advisories")
        for line in found:
            print(f"audit: {line}")
    if advisories:
        return 1
    if not total:
        print("audit: nothing was audited: the advisories are out of reach from here")
        return OUT_OF_REACH
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
