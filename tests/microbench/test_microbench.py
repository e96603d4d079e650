"""What a comparison says of measured costs."""

from __future__ import annotations

from .compare import report


def test_a_comparison_points_out_what_changed_in_every_round() -> None:
    base = [{"slow": 2.0, "fast": 2.0, "noise": 2.0, "hardly": 2.0, "gone": 1.0}] * 3
    other = [
        {"slow": slow, "fast": fast, "noise": noise, "hardly": 2.02, "new": 1.0}
        for slow, fast, noise in ((2.2, 1.6, 2.6), (2.4, 1.8, 1.8), (2.3, 1.7, 2.4))
    ]
    lines = [line.split() for line in report(base, other).splitlines()[1:]]
    assert lines == [
        ["slow", "2.00", "2.20", "1.15", "1.10-1.20", "slower"],
        ["fast", "2.00", "1.60", "0.85", "0.80-0.90", "faster"],
        ["noise", "2.00", "1.80", "1.20", "0.90-1.30"],
        ["hardly", "2.00", "2.02", "1.01", "1.01-1.01"],
    ]
