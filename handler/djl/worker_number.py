"""Which of a host's workers this process is: a number from 0 on, the lowest that no living one of them has.

DJL Serving starts the workers as its children and tells none of them which one it is: `device_id` is 0 wherever it has
cut out the devices, and -1 on a CPU. The number is an abstract Unix socket's name (unix(7)), which the kernel gives
back when the process ends, however it ends: a worker that takes the place of a dead one has its number again.
"""

from __future__ import annotations

import errno
import itertools
import os
import socket

__all__ = ["claimed_number"]


def claimed_number(host: int | None = None) -> int:
    """A number that no other child of the process `host`, by default our parent, has; each call claims another one.

    The process ID where the system has no such names.
    """
    host = os.getppid() if host is None else host
    for number in itertools.count():
        name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            name.bind(f"\0lmi-worker-{host}-{number}")
        except OSError as error:
            name.close()
            if error.errno != errno.EADDRINUSE:
                return os.getpid()
        else:
            # It stays open for as long as the process lives; what that executes does not inherit it (PEP 446).
            name.detach()
            return number
    raise AssertionError("the numbers do not end")
