"""The states of an exchange, and what moves it from one to another (exchange.py, threads/deferred.py).

    waiting ----a thread comes----> preparing ----submit----> running ----its last record----> ended
       ^                                |                        |
       +----- what it names is ---------+                        +--expire--> ending --the error's record--> ended
              not there yet

    One that is prepared where it is opened is running from its beginning; one that is refused there, preparing.

    event \\ state       waiting      preparing               running                       ending     ended
    a thread comes      preparing    -                       -                             -          -
    NotReadyError       -            waiting                 -                             -          -
    submit, relay       -            running                 -                             -          -
    answer              ended        ended                   -                             -          -
    last record, fault  -            -                       ended                         ended      -
    expire, abandon     ended        ended                   ending, then ended            -          -
    abort               ended        ended                   ended                         ended      -

What a state does not take (-) changes nothing, from whichever thread it comes and in whatever order. `expire` ends it
with an error (a time limit, CANCEL, the service's end), `abandon` since its thread hangs in user code, `abort` since
nobody reads it: nothing is added to what it has said. All three end user code and generations, too. Ending is one whose
error waits for the one thread that may write: the engine's, or the one that runs its user code (threads/deferred.py).
Refusals and pages are exchanges that `answer` has ended. Draining (Service.stop) moves none of them: those that are
open go on, and each new one is answered with UnavailableError.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["BEFORE", "OVER", "State"]


class State(Enum):
    """Where an exchange is; the module's table has what moves it."""

    WAITING = "waiting"
    """For a thread, or for what it names to be there."""
    PREPARING = "preparing"
    """What it asks for is being found out, on a thread or by whoever opens it."""
    RUNNING = "running"
    """Its answer is being made, by the engine or by user code."""
    ENDING = "ending"
    """What it ends with is known; the thread that writes its answer is to write it."""
    ENDED = "ended"
    """Nothing more comes of it."""


BEFORE = (State.WAITING, State.PREPARING)
OVER = (State.ENDING, State.ENDED)
