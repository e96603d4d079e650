"""The port of `lmi serve`: taken before the engine is started, open to clients once there is somebody to answer.

    bound_sockets --connections are refused, nobody else gets the port--> may_listen --> uvicorn listens

Imports little, for the engine's process waits for it.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from ...model.errors import StartError

__all__ = ["KEEP_ALIVE_S", "bound_sockets", "may_listen", "url_of"]

KEEP_ALIVE_S = 75
"""Seconds that an idle connection is kept. Load balancers keep them for 60: the server must not be the first to close
one, on which they may just be sending."""
MISSING = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""Of an address that this machine does not have, as [::1] where there is no IPv6."""


@contextmanager
def bound_sockets(host: str, port: int) -> Iterator[list[socket.socket]]:
    """A socket for each address of `host` that this machine has, bound to `port` (0: a free one), not yet listening.

    Raises StartError where the port cannot be had. Closes them at the end.
    """
    with ExitStack() as stack:
        try:
            sockets = _bound(host, port, stack)
        except (OSError, OverflowError, UnicodeError) as error:
            why = "the port is in use" if getattr(error, "errno", None) == errno.EADDRINUSE else error
            raise StartError(f"--host {host} --port {port}: {why}") from None
        yield sockets


def _bound(host: str, port: int, stack: ExitStack) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    # Without the port, which it would cut to 16 bits.
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # An address that /etc/hosts has twice comes twice.
    for family, kind, protocol, _, address in dict.fromkeys(found):
        # A port that is free for the first address is asked for with the others.
        place = (address[0], sockets[0].getsockname()[1] if sockets else port, *address[2:])
        if (sock := _open(family, kind, protocol, place)) is not None:
            sockets.append(stack.enter_context(sock))
    if not sockets:
        raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    return sockets


def _open(family: int, kind: int, protocol: int, address: tuple[str | int, ...]) -> socket.socket | None:
    """A socket that is bound to `address`; None where this machine has no such address."""
    with ExitStack() as stack:
        try:
            sock = stack.enter_context(socket.socket(family, kind, protocol))
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            _bind(sock, address)
        except OSError as error:
            if error.errno in MISSING:
                return None
            raise
        stack.pop_all()
        return sock


def _bind(sock: socket.socket, address: tuple[str | int, ...]) -> None:
    """Binds it so that nobody else can bind to the same port, whatever they set.

    With SO_REUSEADDR two sockets may have a port on Linux as long as neither listens (socket(7)), and the second to
    listen would fail, after minutes. Without it the connections of a server that has just ended are in the way.
    """
    try:
        sock.bind(address)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)


def may_listen(sockets: Sequence[socket.socket]) -> None:
    """To be called right before they listen: ended connections keep neither these nor a next run's from it."""
    for sock in sockets:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


def url_of(host: str, sockets: Sequence[socket.socket]) -> str:
    """Where the server is."""
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{sockets[0].getsockname()[1]}"
