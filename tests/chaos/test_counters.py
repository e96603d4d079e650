"""What the storm would say of counters that are wrong: fed by hand, without a host."""

from __future__ import annotations

import pytest

from ..kit.metered import Sample, parsed
from .connections import Crowd
from .counters import disagreements
from .storm import CROWDED, Outcome, Result, Storm
from .wire import End, Got

METRICS = """\
http_requests_total{{method="POST",status="2xx",handler="/invocations"}} {ok}
http_requests_total{{method="POST",status="4xx",handler="/invocations"}} {refused}
lmi_requests_total{{dialect="lmi",status="200",outcome="ok"}} {ours}
lmi_requests_total{{dialect="lmi",status="422",outcome="refused"}} {refused}
lmi_requests_in_flight {open}
lmi_sequences_running 0
lmi_sequences_waiting 0
"""


def counted(ok: int, refused: int, ours: int | None = None, left: int = 0) -> dict[Sample, float]:
    return parsed(METRICS.format(ok=ok, refused=refused, ours=ok if ours is None else ours, open=left))


def outcome(result: Result, status: int = 0, end: End = "whole", said: str = "") -> Outcome:
    return Outcome("client", "ask", "LMI whole", result, Got(0.0, 1.0, status, end=end), said)


@pytest.mark.parametrize(
    ("after", "others", "wrong"),
    [
        (counted(12, 5), 0, ""),
        # One client has left: it may have been answered or not.
        (counted(13, 5), 0, ""),
        (counted(12, 6), 0, ""),
        (counted(14, 5), 0, "HTTP 2xx: 4 counted, 2 seen"),
        (counted(14, 5), 1, ""),
        (counted(11, 5), 9, "HTTP 2xx: 1 counted, 2 seen"),
        (counted(12, 4), 9, "HTTP 4xx: 0 counted, 1 seen"),
        (counted(12, 5, ours=11), 9, "outcome ok: 1 counted, 2 seen"),
        (counted(12, 5, ours=14), 9, "5 requests are counted as finished, 3 as HTTP requests"),
        (counted(12, 5, left=1), 9, "lmi_requests_in_flight: 1 after the storm"),
    ],
)
def test_what_disagrees(after: dict[Sample, float], others: int, wrong: str) -> None:
    storm = Storm(0, [], seed=1, clients=1)
    storm.outcomes = [
        outcome("good", 200), outcome("good", 200), outcome("refused", 422), outcome("left", end="left"),
        outcome("error", 503, said=CROWDED),
    ]  # fmt: skip
    found = disagreements(counted(10, 4), after, storm, others)
    assert any(wrong in one for one in found) == bool(found) == bool(wrong), found


def test_connections_that_hang_and_misuses_that_never_end() -> None:
    crowd = Crowd(0, seed=1, misuses=("reset", "garbage"))
    crowd.ends["reset", "left"] += 3
    assert crowd.wrong() == ["garbage: no connection came to its end"]
    crowd.ends["garbage", "400"] += 2
    assert crowd.wrong() == []
    assert crowd.asked == 5
