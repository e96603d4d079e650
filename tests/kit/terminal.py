"""`python -m tests.kit.terminal COMMAND ...`: runs a command on a terminal of its own, as its foreground job.

What the command writes there is written to stdout; SIGINT presses Ctrl-C, SIGTERM is passed on; the status is the
command's. Background jobs may not write to the terminal (`stty tostop`): those that try to are stopped.
"""

from __future__ import annotations

import os
import pty
import signal
import sys
import termios
from contextlib import suppress


def main() -> int:
    """The command's exit status, as a shell gives it."""
    command, terminal = pty.fork()
    if not command:
        attributes = termios.tcgetattr(0)
        attributes[3] |= termios.TOSTOP
        termios.tcsetattr(0, termios.TCSANOW, attributes)
        os.execvp(sys.argv[1], sys.argv[1:])
    signal.signal(signal.SIGINT, lambda *_: os.write(terminal, b"\x03"))
    signal.signal(signal.SIGTERM, lambda *_: os.kill(command, signal.SIGTERM))
    # Linux: an error instead of an end when nobody has the terminal open any more.
    with suppress(OSError):
        while written := os.read(terminal, 1 << 16):
            os.write(1, written)
    status = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
