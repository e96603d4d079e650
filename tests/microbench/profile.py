"""The profile of the hot path: `python -m tests.microbench.profile DEMO_MODEL` prints docs/performance.md's tables.

Microseconds of CPU a token, stage by stage, one record a frame, 64 requests at once, a token a step. All parts are the
real ones but the engine's core and the sockets (path.py, hosts.py). Of several rounds the cheapest is shown: what else
the machine does can only add to a round.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from ..djl import hosting
from . import hosts
from .path import BODIES, OURS, SEQUENCES, TOKENS, TokenPath, ours
from .replies import REQUESTS, reply_cost

ROUNDS = 7
STREAMED = ("LMI stream, log_prob", "chat stream", "TGI stream")


def least(measure: Callable[[], Mapping[str, float]]) -> Mapping[str, float]:
    """The cheapest of several rounds."""
    return min((measure() for _ in range(ROUNDS)), key=lambda found: sum(found.values()))


def table(
    head: str, columns: Mapping[str, Mapping[str, float]], sums: Mapping[str, tuple[str, ...]] | None = None
) -> str:
    """Markdown: a line for each stage, a column for each kind."""
    stages = list(dict.fromkeys(stage for column in columns.values() for stage in column))
    rows = [[stage, *(_number(column.get(stage)) for column in columns.values())] for stage in stages]
    for name, parts in (sums or {}).items():
        totals = (sum(column.get(part, 0.0) for part in parts) for column in columns.values())
        rows.append([f"**{name}**", *(f"**{total:.1f}**" for total in totals)])
    lines = [[head, *columns], ["---"] * (1 + len(columns)), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}" if value >= 0.05 else f"{value:.2f}"


def main(model_dir: str) -> None:
    """Measures and prints."""
    path = TokenPath(Path(model_dir).resolve())
    paths = {kind: path.cost(kind, rounds=ROUNDS) for kind in BODIES}
    requests = {kind: 1.0 * TOKENS * column.pop("opening a request") for kind, column in paths.items()}
    for column in paths.values():
        del column["engine core, acted"], column["output"]
    print(table("stage", paths, {"ours": OURS}), end="\n\n")
    print(table("a request", {kind: {"µs": spent} for kind, spent in requests.items()}), end="\n\n")

    merged = {"1": STREAMED[0], "4": STREAMED[0], "16": STREAMED[0]}
    steps = {
        f"{size} tokens a step": path.cost(kind, per_step=int(size), rounds=ROUNDS) for size, kind in merged.items()
    }
    print(table(STREAMED[0], {name: {"ours": ours(column)} for name, column in steps.items()}), end="\n\n")

    behind = {kind: least(lambda kind=kind: hosts.local_server(path, kind)) for kind in STREAMED}  # type: ignore[misc]
    print(table("the local server adds", behind), end="\n\n")
    if missing := hosting.available():
        print(f"without DJL's engine: {missing}")
    else:
        for name, measure in (("rolling batch", hosts.rolling_batch), ("async mode", hosts.async_mode)):
            found = {
                kind: least(lambda kind=kind, measure=measure: measure(path, kind))  # type: ignore[misc]
                for kind in STREAMED
            }
            print(table(f"DJL's {name} adds", found), end="\n\n")
        hop = min(hosts.hop() for _ in range(ROUNDS))
        print(f"djl_python's async engine: {hop:.0f} µs a message, {hop / SEQUENCES:.1f} a token.", end="\n\n")
    replies = {kind: {f"{n} a step": reply_cost(kind, n) for n in (1, 4, 16)} for kind in REQUESTS}
    sizes = {size: {kind: found[size] for kind, found in replies.items()} for size in next(iter(replies.values()))}
    print(table("Reply.feed alone", sizes))
    path.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
