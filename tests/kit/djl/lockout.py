"""A deadlock of DJL's own: a worker of async mode dies in the moment in which Java hands it a request.

The thread whose request could not be sent closes the predictor: it holds the lock of its PyProcess and waits for
netty's thread to close the connection. Netty's thread, which was told of the connection's end, waits for that lock to
start the worker again (`Connection$RequestHandler.channelInactive`, `PyProcess.restartPythonWorkerAsyncMode`; DJL 0.34
and 0.36).
docs/robustness.md, The worker, has what clients see of it.
"""

from __future__ import annotations

import re

__all__ = ["locked_out"]

PROCESS = r"<(0x[0-9a-f]+)> \(a ai\.djl\.python\.engine\.PyProcess\)"


def locked_out(dump: str) -> bool:
    """Whether a dump of Java's threads, as the JVM prints it, shows that deadlock."""
    holding: set[str] = set()
    waiting: set[str] = set()
    for thread in dump.split("\n\n"):
        if "engine.Connection.disconnect(" in thread:
            holding.update(re.findall(f"- locked {PROCESS}", thread))
        if "engine.PyProcess.restartPythonWorkerAsyncMode(" in thread:
            waiting.update(re.findall(f"- waiting to lock {PROCESS}", thread))
    return not holding.isdisjoint(waiting)
