"""Clients that behave badly in every way, on a host whose parts are killed meanwhile; and what becomes of each request.

    Storm.quiet()  every case alone, one after the other: what its answer is
    Storm.rage()   all clients at once, with faults     -> Outcome, Outcome, ...
    Storm.wrong()  what should not have happened

What each client does follows from a seed, and so does when the faults come; what happens at the same time does not.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from .answers import Seen, ToldError, UnfinishedError, error_in, read
from .cases import MARK, Case, bad_request
from .wire import GOOD, Got, Manner, Wire, request_bytes

__all__ = ["Fault", "Outcome", "Storm"]

Result = Literal["good", "error", "refused", "left", "cut", "hang", "wrong", "accepted"]
"""
good      as in the quiet run
error     an answer that tells of an error
refused   what an ill-formed request gets
left      the client went away; what it had got until then is its own
cut       the connection was closed before the answer's end
hang      neither an answer nor an end within the client's patience
wrong     another answer than in the quiet run, another's mark, not well formed
accepted  an ill-formed request was served
"""

CROWDED = "Service Unavailable"
"""What uvicorn says, and nothing more, on a connection that is one too many."""
LIMITS = ("option.max_queued_requests", CROWDED, "queue capacity exceeded", "Time out in")
"""What is said of a request that is one too many: by us, and by DJL of its own limits."""
PATIENCE = 180.0
"""Seconds a client waits for an answer's end."""


@dataclass
class Outcome:
    """What became of one request."""

    client: str
    manner: str
    name: str
    """Of the kind of case, or of the bad body."""
    result: Result
    got: Got
    said: str = ""
    """The error, or what is wrong."""


@dataclass
class Fault:
    """Something that is done to the host once."""

    name: str
    share: float
    """When: this share of the time has passed."""
    strike: Callable[[], Awaitable[None]]
    began: float = 0.0
    locks: Callable[[], Awaitable[bool]] | None = None
    """Whether the host's own threads have locked each other out by now; None: this fault cannot make them."""
    locked: bool = False
    """That they had, once the host served again."""
    ended: float = 0.0
    """When the host served again."""

    def forgets(self, got: Got) -> bool:
        """Whether it is the request that was being handed over at the strike: a host that is locked never ends it."""
        return self.locked and not got.status and self.began - 2 < got.sent < self.began + 1


@dataclass
class Storm:
    """One run of the chaos test."""

    port: int
    cases: Sequence[Case]
    seed: int
    clients: int
    faults: Sequence[Fault] = ()
    expected: dict[int, Seen] = field(default_factory=dict[int, Seen])
    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    began: float = 0.0
    """When the storm began."""
    calm: float = 0.0
    """When the last fault was over, or the storm began."""

    def __post_init__(self) -> None:
        self._free = list(self.cases)
        self._over = False

    async def quiet(self) -> None:
        """Asks for each case, one after the other; raises AssertionError unless each gets the answer it had before."""
        wire = Wire(self.port, PATIENCE)
        for case in self.cases:
            got = await wire.ask(case.request)
            assert (got.end, got.status) == ("whole", 200), f"{case.kind}: {got}"
            seen = read(case.reader, got.body)
            assert case.mark in seen.text, f"{case.kind}: the mark {case.mark} does not come back in {seen.text!r}"
            before = self.expected.setdefault(case.number, seen)
            assert seen == before, f"{case.kind}: {seen} after the storm, {before} before it"
        await wire.close()

    async def rage(self, seconds: float) -> None:
        """Lets all clients loose for so long at least, and until every fault is over."""
        began = self.began = self.calm = time.monotonic()
        running = [asyncio.create_task(self._client(number)) for number in range(self.clients)]
        try:
            for fault in sorted(self.faults, key=lambda one: one.share):
                await asyncio.sleep(max(0.0, began + fault.share * seconds - time.monotonic()))
                fault.began = time.monotonic()
                await fault.strike()
                await self._recovered(fault)
                self.calm = fault.ended
            await asyncio.sleep(max(0.0, began + seconds - time.monotonic()))
        finally:
            self._over = True
            await asyncio.gather(*running)

    async def _recovered(self, fault: Fault) -> None:
        """Waits until the host has served for two seconds."""
        wire, good_since = Wire(self.port, PATIENCE), 0.0
        probe = request_bytes("/invocations", {}, b'{"inputs": "Count up.", "parameters": {"max_new_tokens": 2}}')
        while not good_since or time.monotonic() - good_since < 2:
            assert time.monotonic() - fault.began < PATIENCE, f"the host did not serve again after: {fault.name}"
            await asyncio.sleep(0.2)
            got = await wire.ask(probe)
            whole = (got.end, got.status) == ("whole", 200)
            self.outcomes.append(Outcome("probe", "ask", fault.name, "good" if whole else "error", got))
            good_since = (good_since or got.ended) if whole else 0.0
        await wire.close()
        fault.ended = time.monotonic()
        fault.locked = fault.locks is not None and await fault.locks()

    async def _client(self, number: int) -> None:
        rng = random.Random(f"{self.seed}/{number}")
        wire = Wire(self.port, PATIENCE)
        name = f"client {number}"
        doings = {"ask": 60, "slow": 5, "leave": 12, "bad": 14, "burst": 1, "rest": 8}
        while not self._over:
            (doing,) = rng.choices(list(doings), list(doings.values()))
            if doing == "rest":
                await asyncio.sleep(rng.random())
            elif doing == "bad":
                await self._bad(name, wire, rng)
            elif doing == "burst":
                wires = [Wire(self.port, PATIENCE) for _ in range(2 * self.clients)]
                await asyncio.gather(*(self._good(f"{name}, burst", one, GOOD, rng) for one in wires))
                await asyncio.gather(*(one.close() for one in wires))
            else:
                await self._good(name, wire, _manner(doing, rng), rng)
        await wire.close()

    async def _good(self, client: str, wire: Wire, manner: Manner, rng: random.Random) -> None:
        if not self._free:
            return
        case = self._free.pop(rng.randrange(len(self._free)))
        got = await wire.ask(case.request, manner)
        result, said = self.judge(case, got)
        shown = "slow" if manner.slow else "ask" if manner.leave is None else "leave"
        self.outcomes.append(Outcome(client, shown, case.kind, result, got, said))
        got.body = got.body if result == "wrong" else b""
        # One that has left may still be running.
        self._free.append(case)
        if result in ("error", "cut"):
            # As clients do: not again at once.
            await asyncio.sleep(rng.uniform(0.2, 1.0))

    def judge(self, case: Case, got: Got) -> tuple[Result, str]:
        """What became of a case's request, and the error or what is wrong."""
        strange = set(MARK.findall(got.body.decode(errors="replace"))) - {case.mark}
        if strange:
            return "wrong", f"{case.mark} got the marks {sorted(strange)}"
        if got.end != "whole":
            return got.end, ""
        if got.status != 200:
            return self._error_body(got, "error")
        try:
            seen = read(case.reader, got.body)
        except ToldError as error:
            return "error", str(error)
        except (UnfinishedError, ValueError) as error:
            return "wrong", f"{type(error).__name__}: {error}"
        expected = self.expected[case.number]
        return ("good", "") if seen == expected else ("wrong", f"expected {expected}, got {seen}")

    def _error_body(self, got: Got, result: Result) -> tuple[Result, str]:
        """An answer with an error's status is one JSON document that says why, unless it is uvicorn's own."""
        if (got.status, got.body) == (503, CROWDED.encode()):
            return result, CROWDED
        try:
            text = got.body.decode().removeprefix("event: error\n").removeprefix("data: ").split("\n\n")[0]
            said = error_in(json.loads(text))
        except ValueError:
            said = None
        if said is None:
            return "wrong", f"status {got.status}, and the body tells of no error: {got.body[:300]!r}"
        return result, said

    async def _bad(self, client: str, wire: Wire, rng: random.Random) -> None:
        name, request = bad_request(rng, f"mk{rng.randrange(100_000):05d}q")
        got = await wire.ask(request)
        result: Result = got.end if got.end != "whole" else "refused" if got.status >= 400 else "accepted"
        said = ""
        if result == "refused":
            result, said = self._error_body(got, "refused")
        self.outcomes.append(Outcome(client, "bad", name, result, got, said))
        got.body = b""

    def excused(self, outcome: Outcome) -> bool:
        """Whether a fault struck while the request was there."""
        return any(fault.began <= outcome.got.ended and outcome.got.sent <= fault.ended for fault in self.faults)

    def wrong(self) -> list[str]:
        """What should not have happened, in words."""
        found: list[str] = []
        forgotten: set[str] = set()
        for outcome in self.outcomes:
            by = [fault.name for fault in self.faults if outcome.result == "hang" and fault.forgets(outcome.got)]
            # It is one at most that a host hands over.
            if by and forgotten.isdisjoint(by):
                forgotten.update(by)
                continue
            never = outcome.result in ("wrong", "hang", "accepted")
            limited = outcome.got.status == 429 or any(limit in outcome.said for limit in LIMITS)
            lost = outcome.result == "cut" or (outcome.result == "error" and not limited)
            lost = lost and not self.excused(outcome)
            if never or lost:
                place = f"{outcome.client}, {outcome.manner}, {outcome.name}"
                said = outcome.said[:600] or self._times(outcome.got)
                found.append(f"{place}: {outcome.result}, status {outcome.got.status}: {said}")
        return found

    def _times(self, got: Got) -> str:
        """When a request without an answer was sent, in seconds of the storm, and what struck when."""
        struck = (f"{one.name} {one.began - self.began:.2f} to {one.ended - self.began:.2f}" for one in self.faults)
        return f"sent at {got.sent - self.began:.2f}, ended at {got.ended - self.began:.2f}; {', '.join(struck)}"

    def table(self) -> str:
        """Markdown: what became of the requests."""
        count = Counter((outcome.manner, outcome.result) for outcome in self.outcomes)
        lines = ["| requests | result | number |", "| --- | --- | --- |"]
        lines += [f"| {manner} | {result} | {number:,} |" for (manner, result), number in sorted(count.items())]
        return "\n".join(lines)


def _manner(doing: str, rng: random.Random) -> Manner:
    if doing == "slow":
        return Manner(slow=True, pause=rng.uniform(0.005, 0.1))
    if doing == "leave":
        return Manner(leave=rng.choice([-1, 0, rng.randrange(1, 4000)]), pause=rng.random() * 0.3)
    return GOOD
