"""The profile of the hot path: `python -m tests.microbench.profile DEMO_MODEL [DOCUMENT]`.

Prints the tables of docs/performance.md, or writes them there, between the two lines `<!-- profile -->`.

Microseconds of CPU a token, stage by stage, one record a frame, 64 requests at once, a token a step. All parts are the
real ones but the engine's core and the sockets (path.py, hosts.py). Of several rounds the cheapest is shown: what else
the machine does can only add to a round.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ..kit.djl import hosting
from . import hosts
from .path import BODIES, OURS, SEQUENCES, TOKENS, TokenPath, ours
from .replies import REQUESTS, reply_cost

ROUNDS = 5
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


MARK = "<!-- profile -->\n"


def main(model_dir: str, document: str | None = None) -> None:
    """Measures, and prints or writes."""
    found = "\n\n".join(tables(model_dir))
    if document is None:
        print(found)
        return
    before, _, after = Path(document).read_text(encoding="utf-8").split(MARK)
    Path(document).write_text(f"{before}{MARK}\n{found}\n\n{MARK}{after}", encoding="utf-8")


def tables(model_dir: str) -> Iterator[str]:
    """The tables, one after the other."""
    path = TokenPath(Path(model_dir).resolve())
    paths = {kind: path.cost(kind, rounds=ROUNDS) for kind in BODIES}
    requests = {kind: 1.0 * TOKENS * column.pop("opening a request") for kind, column in paths.items()}
    for column in paths.values():
        del column["engine core, acted"], column["output"]
    yield table("stage", paths, {"ours": OURS})
    yield table("a request", {kind: {"µs": spent} for kind, spent in requests.items()})

    merged = {"1": STREAMED[0], "4": STREAMED[0], "16": STREAMED[0]}
    steps = {
        f"{size} tokens a step": path.cost(kind, per_step=int(size), rounds=ROUNDS) for size, kind in merged.items()
    }
    yield table(STREAMED[0], {name: {"ours": ours(column)} for name, column in steps.items()})

    behind = {kind: least(lambda kind=kind: hosts.local_server(path, kind)) for kind in STREAMED}  # type: ignore[misc]
    yield table("the local server adds", behind)
    if missing := hosting.available():
        yield f"Without DJL's engine: {missing}."
    else:
        for name, measure in (("rolling batch", hosts.rolling_batch), ("async mode", hosts.async_mode)):
            found = {
                kind: least(lambda kind=kind, measure=measure: measure(path, kind))  # type: ignore[misc]
                for kind in STREAMED
            }
            yield table(f"DJL's {name} adds", found)
        hop = min(hosts.hop() for _ in range(ROUNDS))
        yield f"djl_python's async engine: {hop:.0f} µs a message, {hop / SEQUENCES:.1f} a token."
    replies = {kind: {f"{n} a step": reply_cost(kind, n, rounds=15) for n in (1, 4, 16)} for kind in REQUESTS}
    sizes = {size: {kind: found[size] for kind, found in replies.items()} for size in next(iter(replies.values()))}
    yield table("Reply.feed alone", sizes)
    path.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
