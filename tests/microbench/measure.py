"""All costs as JSON on the last line of standard output: `python -m tests.microbench.measure DEMO_MODEL`.

Microseconds of CPU a token, by name. What the `lmi` at hand does not have is left out, so that an older one can be
measured too (compare.py).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from . import hosts
from .path import BODIES, TokenPath, ours
from .replies import REQUESTS, reply_cost


def main(model_dir: str, rounds: str = "3") -> None:
    found: dict[str, float] = {}
    for kind in REQUESTS:
        found[f"reply: {kind}"] = reply_cost(kind)
    path = TokenPath(Path(model_dir).resolve())
    for kind in BODIES:
        stages = path.cost(kind, rounds=int(rounds))
        found[f"ours: {kind}"] = ours(stages)
        found |= {f"{kind}: {stage}": spent for stage, spent in stages.items() if stage not in ("output", ACTED)}
    for kind in ("LMI stream, log_prob", "chat stream"):
        for host in (hosts.local_server, hosts.async_mode, hosts.rolling_batch):
            try:
                costs = [host(path, kind) for _ in range(int(rounds))]
            except Exception as error:  # noqa: BLE001 - told
                print(f"measure: {host.__name__}, {kind}: {error}", file=sys.stderr)
                continue
            for stage in costs[0]:
                found[f"{kind}, {host.__name__}: {stage}"] = min(cost[stage] for cost in costs)
    path.close()
    print(json.dumps(found))


ACTED = "engine core, acted"

if __name__ == "__main__":
    main(*sys.argv[1:])
