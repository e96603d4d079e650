"""The network that httpcore fetches over: judged addresses alone, and one deadline for all of a fetch.

The connection is made to an address that has been judged, not to the name once more: a name that means something else
the second time (DNS rebinding) gains nothing. TLS checks the certificate against the name all the same.

fetch.py imports this module only once something is to be fetched, since httpcore takes a sixth of a second to import.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from concurrent.futures import TimeoutError as LookupTimeout
from typing import Any, TypeVar

import httpcore

from ..conversation import MediaKind
from .url_policy import MediaError, public

__all__ = ["Deadline", "Network"]

POLL_INTERVAL_S = 0.25
"""Seconds between two looks whether anybody still waits for what is being fetched."""

T = TypeVar("T")


class Deadline:
    """When fetching must end, or has been cancelled."""

    def __init__(self, seconds: float, cancelled: threading.Event, kind: MediaKind) -> None:
        self._kind = kind
        self._end = time.monotonic() + seconds
        self._seconds = seconds
        self._cancelled = cancelled

    @property
    def left(self) -> float:
        """Seconds, more than 0; raises MediaError where there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise self.over
        if self._cancelled.is_set():
            raise MediaError("its request has ended")
        return left

    @property
    def over(self) -> MediaError:
        """What is raised then."""
        return MediaError(
            f"it could not be fetched within {self._seconds:g} seconds (option.{self._kind}_fetch_timeout)"
        )


class Network(httpcore.NetworkBackend):
    """The network of one fetch. The timeouts that httpcore passes have no effect: they begin anew with each call.

    lookups: where names are looked up. networks: whose addresses may be reached beside the public ones.
    """

    def __init__(
        self,
        lookups: Executor,
        networks: Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network],
        deadline: Deadline,
    ) -> None:
        self._lookups = lookups
        self._networks = networks
        self._deadline = deadline

    def connect_tcp(self, host: str, port: int, *_: Any, **__: Any) -> httpcore.NetworkStream:
        """Raises MediaError where the host must not be reached, OSError where it cannot."""
        failed: OSError | None = None
        addresses = self._judged(host, port)
        for number, address in enumerate(addresses):
            # One that swallows everything leaves time for the others.
            share = self._deadline.left / (len(addresses) - number)
            try:
                return _Stream(socket.create_connection(address, share), self._deadline)
            except OSError as error:
                failed = error
        raise failed or MediaError("it could not be fetched: the host has no address")

    def _judged(self, host: str, port: int) -> list[tuple[str, int]]:
        """The host's addresses; raises MediaError if one of them is not to be reached."""
        lookup = self._lookups.submit(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        try:
            found = lookup.result(self._deadline.left)
        except LookupTimeout:
            lookup.cancel()
            raise MediaError("it could not be fetched: the lookup of its host name timed out") from None
        addresses = [(str(name[0]), int(name[1])) for _, _, _, _, name in found]
        for name, _ in addresses:
            address = ipaddress.ip_address(name)
            if not public(address) and not any(address in network for network in self._networks):
                raise MediaError(
                    f"the host {host[:100]!r} has an address that is neither public nor in "
                    "option.allowed_media_networks"
                )
        return addresses


class _Stream(httpcore.NetworkStream):
    """A connection until the deadline."""

    def __init__(self, sock: socket.socket, deadline: Deadline) -> None:
        self._sock = sock
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._in_time(self._sock.recv, max_bytes)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        while buffer:
            buffer = buffer[self._in_time(self._sock.send, buffer) :]

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        try:
            wrapped = ssl_context.wrap_socket(
                self._sock, server_hostname=server_hostname, do_handshake_on_connect=False
            )
            self._sock = wrapped
            self._in_time(wrapped.do_handshake)
        except BaseException:
            # httpcore has no connection yet that it would close.
            self.close()
            raise
        return self

    def close(self) -> None:
        self._sock.close()

    def _in_time(self, call: Callable[..., T], *arguments: object) -> T:
        while True:
            self._sock.settimeout(min(self._deadline.left, POLL_INTERVAL_S))
            try:
                return call(*arguments)
            except TimeoutError:
                continue
