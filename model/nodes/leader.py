"""The leader's side: waits for all followers, and notices when one is gone.

gather --all have joined--> Go to each --one is lost--> lost(cause)
   |                                                      |
   +--too late--> StartError, which names who is missing  +-- close --> Ended to each
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping

from ..errors import StartError
from ..options.parallel.options import ParallelOptions
from .connection import Connection, NodeLostError
from .facts import differences
from .messages import PROTOCOL, Ended, Go, Hello, Refused

__all__ = ["Followers"]

log = logging.getLogger(__name__)

REMIND_S = 30.0
"""Seconds between two lines of the log about who is missing."""


class Followers:
    """Those of one life of the engine."""

    def __init__(
        self,
        options: ParallelOptions,
        facts: Mapping[str, str],
        arguments: Mapping[str, str],
        lost: Callable[[str], None],
    ) -> None:
        """`arguments`: those of the engine that the others are told. `lost` is called once all have joined, with the
        reason, for each that is lost; on threads of ours."""
        self._options = options
        self._facts = facts
        self._arguments = dict(arguments)
        self._lost = lost
        self._joined: dict[int, Connection] = {}
        self._refused: dict[int, str] = {}
        """Why one was refused last."""
        self._changed = threading.Condition()
        self._gathered = False
        self._closed = False
        self.address = ""
        """This host's, as the others reach it; from `gather` on."""

    def gather(self) -> None:
        """Waits until all have joined, and lets them start; raises StartError."""
        options = self._options
        deadline = time.monotonic() + options.node_start_timeout
        listener = self._listen()
        try:
            threading.Thread(target=self._accept, args=(listener,), name="lmi-nodes", daemon=True).start()
            with self._changed:
                while missing := [rank for rank in range(1, options.nnodes) if rank not in self._joined]:
                    left = deadline - time.monotonic()
                    if left <= 0:
                        raise StartError(self._who_is_missing(missing))
                    if not self._changed.wait(min(left, REMIND_S)):
                        log.info("waiting for node %s of %d", ", ".join(map(str, missing)), options.nnodes)
                self._gathered = True
                joined = [*self._joined.values()]
            for connection in joined:
                connection.send(Go(self._arguments))
        except NodeLostError as error:
            raise StartError(error.message) from error
        finally:
            # Which wakes the thread that accepts, as closing does not.
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        log.info("all %d nodes are there", options.nnodes)

    def close(self, cause: str) -> None:
        """Tells all that the engine ends, and why."""
        with self._changed:
            self._closed = True
            joined = [*self._joined.values()]
        for connection in joined:
            connection.close(cause)

    def _listen(self) -> socket.socket:
        options, host = self._options, str(self._options.master_addr)
        try:
            family, kind, protocol, _, place = socket.getaddrinfo(host, options.node_port, type=socket.SOCK_STREAM)[0]
        except OSError as error:
            raise StartError(f"option.master_addr: {host!r}: {error.strerror or error}", "master_addr") from error
        sock = socket.socket(family, kind, protocol)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            try:
                sock.bind(place)
                self.address = str(place[0])
            except OSError as error:
                # A name of a balancer's, or of a host whose address is translated.
                log.info("option.master_addr=%s is no address of this host (%s): listening on all", host, error)
                sock.bind(("", options.node_port, *place[2:]))
            sock.listen(options.nnodes)
        except OSError as error:
            sock.close()
            raise StartError(f"option.node_port: {options.node_port}: {error.strerror}", "node_port") from error
        return sock

    def _who_is_missing(self, missing: list[int]) -> str:
        options = self._options
        who = f"node {', '.join(map(str, missing))} of {options.nnodes} did not join"
        where = f"{options.master_addr}:{options.node_port} within {options.node_start_timeout:g} s"
        why = "".join(f"; {self._refused[rank]}" for rank in missing if rank in self._refused)
        return f"{who} {where} (option.node_start_timeout){why}"

    # On threads of ours.

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, place = listener.accept()
                connection = Connection(sock, str(place[0]), self._options.node_timeout)
                threading.Thread(target=self._serve, args=(connection,), name="lmi-node", daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        """One that has connected, from its first message to its end."""
        rank = None
        try:
            hello = connection.receive()
            if isinstance(hello, Hello):
                if refused := self._take(hello, connection):
                    connection.send(refused)
                    connection.close()
                    return
                rank = hello.rank
                connection.beat()
                last = connection.receive()
                if isinstance(last, Ended):
                    raise NodeLostError(f"{connection.name}: {last.cause}")
            raise NodeLostError(f"{connection.name} sent something that is not its turn")
        except NodeLostError as error:
            self._drop(rank, connection, error.message)

    def _take(self, hello: Hello, connection: Connection) -> Refused | None:
        """Lets one join; or why not."""
        rank, address = hello.rank, connection.name
        connection.name = f"node {rank} ({address})"
        with self._changed:
            if hello.protocol != PROTOCOL:
                reason = f"lmi: the leader speaks protocol {PROTOCOL}, {connection.name} {hello.protocol}"
            elif not 0 < rank < self._options.nnodes:
                reason = f"option.node_rank: expected 1 to {self._options.nnodes - 1}, {connection.name} has {rank}"
            elif reason := differences(self._facts, hello.facts, connection.name):
                pass
            elif rank in self._joined:
                return Refused(f"{self._joined[rank].name} has joined already", final=False)
            else:
                self._joined[rank] = connection
                self._refused.pop(rank, None)
                self._changed.notify_all()
                log.info("%s has joined", connection.name)
                return None
            self._refused[rank] = reason
        log.error("%s cannot join: %s", connection.name, reason)
        return Refused(reason, final=True)

    def _drop(self, rank: int | None, connection: Connection, cause: str) -> None:
        connection.close()
        with self._changed:
            if rank is not None:
                del self._joined[rank]
            over = self._gathered and not self._closed and rank is not None
        if over:
            self._lost(cause)
        elif not self._closed:
            log.warning("a connection to option.node_port ended: %s", cause)
