"""What a server has counted during a storm, held against what its clients have seen.

A client that left, or was cut off, does not know what became of its request: between what all others saw and that with
these must lie what was counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ..kit.metered import Sample
from .storm import CROWDED, Storm

__all__ = ["disagreements"]

IDLE = ("lmi_requests_in_flight", "lmi_sequences_running", "lmi_sequences_waiting")
"""What is 0 once all have left."""


def disagreements(
    before: Mapping[Sample, float], after: Mapping[Sample, float], storm: Storm, others: int
) -> list[str]:
    """In words; `others`: requests that came beside the storm's, of which nothing is known."""
    counted: Counter[str] = Counter()
    for sample, value in after.items():
        name, labels = sample[0], dict(sample[1])
        more = round(value - before.get(sample, 0))
        if name == "http_requests_total":
            counted[f"HTTP {labels['status']}"] += more
        elif name == "lmi_requests_total":
            counted[f"outcome {labels['outcome']}"] += more
    seen: Counter[str] = Counter()
    unknown = others
    for outcome in storm.outcomes:
        if outcome.got.end != "whole":
            unknown += 1
        # uvicorn's own answer: no request of the application's.
        elif outcome.said != CROWDED and outcome.got.body != CROWDED.encode():
            seen[f"HTTP {outcome.got.status // 100}xx"] += 1
            seen["outcome ok"] += outcome.result == "good"
    found = [
        f"{what}: {counted[what]} counted, {seen[what]} seen, of {unknown} nothing is known"
        for what in sorted({*seen, *counted} - {f"outcome {other}" for other in ("refused", "failed", "aborted")})
        if not seen[what] <= counted[what] <= seen[what] + unknown
    ]
    http, ours = (sum(counted[what] for what in counted if what.startswith(form)) for form in ("HTTP ", "outcome "))
    if ours > http:
        found.append(f"{ours} requests are counted as finished, {http} as HTTP requests")
    return [*found, *(f"{name}: {after[name, ()]:g} after the storm" for name in IDLE if after[name, ()])]
