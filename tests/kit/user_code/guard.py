"""A user's content filter."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass
class Verdict:
    reason: str


async def judge(text: str, stage: str) -> Verdict | str | int | None:
    if "raise" in text:
        raise LookupError("no list")
    if "number" in text:
        return 7
    if "slow" in text:
        (HERE / f"{stage}.waiting").touch()
        while not (HERE / f"{stage}.release").exists():  # noqa: ASYNC110 - the test is another process
            await asyncio.sleep(0.01)
    if stage == "prompt":
        return Verdict("forbidden fruit") if "apple" in text else None
    return "counts too far" if "seven" in text else None
