"""Fetching what a request names by URL: only what the options allow, within limits of time and size.

    URL --> allowed host? --resolve--> every address allowed? --connect to one of them--> bytes
     ^                                                                                 |
     +------------------------------ redirect, a few times at most --------------------+

The connection is made to an address that has been checked, not to the name once more: a name that means something else
the second time (DNS rebinding) gains nothing. Each redirect is judged like the first URL. No proxy is used, since it
would resolve names itself. Messages name no address: they would tell clients what internal names resolve to.
"""

from __future__ import annotations

import http.client
import io
import ipaddress
import os
import socket
import ssl
import stat
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as LookupTimeout
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

from ..conversation import MediaKind
from ..options.media_rules import MediaRules
from .parts import called
from .url_policy import MediaError, Target, allowed, public

__all__ = ["Fetcher"]

REDIRECTS = 5
LOOKUPS = 8
"""Names that are looked up at once; the system's resolver has no time limit of its own that we could set."""
CHUNK = 1 << 16
POLL_INTERVAL_S = 0.25
"""Seconds between two looks whether anybody still waits for what is being read."""

_REDIRECTING = (301, 302, 303, 307, 308)
_UNKNOWN_TYPES = ("", "application/octet-stream", "binary/octet-stream")
"""The types that storage services send for files of unknown type: the file's own first bytes decide then."""

_OTHER_TYPES: Mapping[MediaKind, tuple[str, ...]] = {"audio": ("application/ogg",), "video": ("application/ogg",)}

OnBytes = Callable[[int], None]
"""Told how many more bytes have come; raises where they are too many."""


class _Deadline:
    """When fetching must end, or has been cancelled."""

    def __init__(self, seconds: float, cancelled: threading.Event, kind: MediaKind) -> None:
        self._kind = kind
        self._end = time.monotonic() + seconds
        self._seconds = seconds
        self.cancelled = cancelled

    @property
    def left(self) -> float:
        """Seconds, more than 0; raises MediaError where there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise self.over
        if self.cancelled.is_set():
            raise MediaError("its request has ended")
        return left

    @property
    def over(self) -> MediaError:
        """What is raised then."""
        return MediaError(
            f"it could not be fetched within {self._seconds:g} seconds (option.{self._kind}_fetch_timeout)"
        )


class _Timed(io.RawIOBase):
    """A socket's bytes until the deadline: a timeout of the socket's own would start again with every byte."""

    def __init__(self, sock: socket.socket, deadline: _Deadline) -> None:
        self._sock = sock
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            self._sock.settimeout(min(self._deadline.left, POLL_INTERVAL_S))
            try:
                return self._sock.recv_into(buffer)
            except TimeoutError:
                continue


@dataclass(frozen=True, slots=True)
class _Readable:
    """What http.client wants of a socket."""

    raw: _Timed

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self.raw, CHUNK)


class Fetcher:
    """Fetches by the rules; may be used by many threads at once."""

    def __init__(self, rules: MediaRules, agent: str = "lmi-handler") -> None:
        # vLLM's own names: who has set them means the same here.
        self._seconds: dict[MediaKind, float] = {
            "image": rules.image_timeout or float(os.environ.get("VLLM_IMAGE_FETCH_TIMEOUT") or 5),
            "audio": rules.audio_timeout or float(os.environ.get("VLLM_AUDIO_FETCH_TIMEOUT") or 10),
            "video": rules.video_timeout or float(os.environ.get("VLLM_VIDEO_FETCH_TIMEOUT") or 30),
        }
        self._redirects = REDIRECTS if os.environ.get("VLLM_MEDIA_URL_ALLOW_REDIRECTS", "1") != "0" else 0
        self._rules = rules
        self._networks = [ipaddress.ip_network(network) for network in rules.networks]
        self._agent = agent
        self._lookups = ThreadPoolExecutor(LOOKUPS, "lmi-lookup")

    def fetch(self, url: str, on_bytes: OnBytes, cancelled: threading.Event, kind: MediaKind = "image") -> bytes:
        """The bytes behind an http(s) or file URL.

        on_bytes: called with how many bytes have come, before they are kept; what it raises ends the fetching.
        Raises MediaError.
        """
        if url[:5].lower() == "file:":
            return self._file(url, on_bytes)
        deadline = _Deadline(self._seconds[kind], cancelled, kind)
        try:
            for _ in range(self._redirects + 1):
                target = Target.of(url)
                if not allowed(target.host, self._rules.domains):
                    raise MediaError(f"the host {target.host[:100]!r} is not in option.allowed_media_domains")
                answer = self._get(target, deadline, on_bytes, kind)
                if isinstance(answer, bytes):
                    return answer
                url = urljoin(url, answer.location)
        except TimeoutError:
            raise deadline.over from None
        except (OSError, http.client.HTTPException) as error:
            raise MediaError(f"it could not be fetched: {_reason(error)}") from error
        raise MediaError(f"it could not be fetched: more than {self._redirects} redirects")

    def _get(self, target: Target, deadline: _Deadline, on_bytes: OnBytes, kind: MediaKind) -> bytes | _Redirect:
        with self._connect(target, deadline) as sock:
            request = (
                f"GET {target.path} HTTP/1.1\r\nHost: {target.header}\r\nUser-Agent: {self._agent}\r\n"
                f"Accept: {kind}/*\r\nAccept-Encoding: identity\r\nConnection: close\r\n\r\n"
            )
            sock.settimeout(deadline.left)
            sock.sendall(request.encode("ascii"))
            wire: Any = _Readable(_Timed(sock, deadline))
            answer = http.client.HTTPResponse(wire, method="GET")
            try:
                answer.begin()
                if answer.status in _REDIRECTING and (location := answer.getheader("Location")):
                    return _Redirect(location)
                return _body(answer, on_bytes, kind)
            finally:
                answer.close()

    def _connect(self, target: Target, deadline: _Deadline) -> socket.socket:
        failed: OSError | None = None
        addresses = self._resolve(target, deadline)
        for number, (family, address) in enumerate(addresses):
            sock = socket.socket(family, socket.SOCK_STREAM)
            try:
                # One address that swallows everything leaves time for the others.
                sock.settimeout(deadline.left / (len(addresses) - number))
                sock.connect(address)
                if not target.secure:
                    return sock
                sock.settimeout(deadline.left)
                return self._tls.wrap_socket(sock, server_hostname=target.host)
            except OSError as error:
                sock.close()
                failed = error
            except BaseException:
                sock.close()
                raise
        raise failed or MediaError("it could not be fetched: the host has no address")

    def _resolve(self, target: Target, deadline: _Deadline) -> list[tuple[int, Any]]:
        """The host's addresses; raises MediaError if one of them is not to be reached."""
        lookup = self._lookups.submit(socket.getaddrinfo, target.host, target.port, type=socket.SOCK_STREAM)
        try:
            found = lookup.result(deadline.left)
        except LookupTimeout:
            lookup.cancel()
            raise MediaError("it could not be fetched: the lookup of its host name timed out") from None
        except UnicodeError:
            raise MediaError("expected a URL with a valid host and port") from None
        for _, _, _, _, name in found:
            address = ipaddress.ip_address(name[0])
            if not public(address) and not any(address in network for network in self._networks):
                raise MediaError(
                    f"the host {target.host[:100]!r} has an address that is neither public nor in "
                    "option.allowed_media_networks"
                )
        return [(family, name) for family, _, _, _, name in found]

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context()

    def _file(self, url: str, on_bytes: OnBytes) -> bytes:
        """A file of the folder that option.allowed_local_media_path names."""
        if self._rules.folder is None:
            raise MediaError("file URLs need option.allowed_local_media_path, which is not set")
        parts = urlsplit(url)
        folder = Path(self._rules.folder).resolve()
        try:
            path = Path(unquote(parts.path)).resolve()
            if parts.netloc not in {"", "localhost"} or folder not in path.parents:
                raise MediaError("expected a file in the folder that option.allowed_local_media_path names")
            # Not to wait for ever at a pipe.
            with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # noqa: PTH123 - for the flags
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise MediaError("expected an ordinary file")
                on_bytes(status.st_size)
                return file.read(status.st_size)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            raise MediaError(f"the file cannot be read: {reason or 'its name is not valid'}") from None


@dataclass(frozen=True, slots=True)
class _Redirect:
    location: str


def _body(answer: http.client.HTTPResponse, on_bytes: OnBytes, wanted: MediaKind) -> bytes:
    """The body of an answer that is of the kind by its header."""
    if answer.status != 200:
        raise MediaError(f"it could not be fetched: its server responded with status {answer.status}")
    kind = (answer.getheader("Content-Type") or "").partition(";")[0].strip().lower()
    if not kind.startswith(f"{wanted}/") and kind not in (*_UNKNOWN_TYPES, *_OTHER_TYPES.get(wanted, ())):
        raise MediaError(f"expected {called(wanted)}, but its server sent the type {kind[:60]!r}")
    if (answer.getheader("Content-Encoding") or "identity").lower() != "identity":
        raise MediaError("its server sent it compressed, which was not requested")
    length = answer.length
    if length:
        on_bytes(length)
    pieces: list[bytes] = []
    received = 0
    while piece := answer.read(CHUNK):
        if length is None:
            on_bytes(len(piece))
        received += len(piece)
        pieces.append(piece)
    if length is not None and received < length:
        raise MediaError(f"it could not be fetched: {received} of {length} bytes came")
    return b"".join(pieces)


def _reason(error: Exception) -> str:
    """A cause that says nothing of addresses."""
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or type(error).__name__})"
    if isinstance(error, socket.gaierror):
        return "its host name is unknown"
    if isinstance(error, http.client.HTTPException):
        return "its server's response is not valid HTTP"
    return (error.strerror if isinstance(error, OSError) else None) or "the connection failed"
