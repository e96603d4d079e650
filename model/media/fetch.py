"""Fetching what a request names by URL: only what the options allow, within limits of time and size.

    URL --> allowed host? --httpcore--> network.py: resolve, every address allowed? --> bytes
     ^                                                                                    |
     +------------------------------- redirect, a few times at most ----------------------+

Each redirect is judged like the first URL. No proxy is used, since it would resolve names itself. Messages name no
address: they would tell clients what internal names resolve to.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import ssl
import stat
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from ..conversation import MediaKind
from ..options.media_rules import MediaRules
from .parts import called
from .url_policy import MediaError, Target, allowed, joined

if TYPE_CHECKING:
    import httpcore

__all__ = ["Fetcher"]

REDIRECTS = 5
LOOKUPS = 8
"""Names that are looked up at once; the system's resolver has no time limit of its own that we could set."""

_REDIRECTING = (301, 302, 303, 307, 308)
_UNKNOWN_TYPES = ("", "application/octet-stream", "binary/octet-stream")
"""The types that storage services send for files of unknown type: the file's own first bytes decide then."""

_OTHER_TYPES: Mapping[MediaKind, tuple[str, ...]] = {"audio": ("application/ogg",), "video": ("application/ogg",)}

OnBytes = Callable[[int], None]
"""Told how many more bytes have come; raises where they are too many."""


class Fetcher:
    """Fetches by the rules; may be used by many threads at once."""

    def __init__(self, rules: MediaRules) -> None:
        # vLLM's own names: who has set them means the same here.
        self._seconds: dict[MediaKind, float] = {
            "image": rules.image_timeout or float(os.environ.get("VLLM_IMAGE_FETCH_TIMEOUT") or 5),
            "audio": rules.audio_timeout or float(os.environ.get("VLLM_AUDIO_FETCH_TIMEOUT") or 10),
            "video": rules.video_timeout or float(os.environ.get("VLLM_VIDEO_FETCH_TIMEOUT") or 30),
        }
        self._redirects = REDIRECTS if os.environ.get("VLLM_MEDIA_URL_ALLOW_REDIRECTS", "1") != "0" else 0
        self._rules = rules
        self._networks = [ipaddress.ip_network(network) for network in rules.networks]
        self._lookups = ThreadPoolExecutor(LOOKUPS, "lmi-lookup")

    def fetch(self, url: str, on_bytes: OnBytes, cancelled: threading.Event, kind: MediaKind = "image") -> bytes:
        """The bytes behind an http(s) or file URL.

        on_bytes: called with how many bytes have come, before they are kept; what it raises ends the fetching.
        Raises MediaError.
        """
        if url[:5].lower() == "file:":
            return self._file(url, on_bytes)
        import httpcore

        from .network import Deadline, Network

        deadline = Deadline(self._seconds[kind], cancelled, kind)
        network = Network(self._lookups, self._networks, deadline)
        try:
            for _ in range(self._redirects + 1):
                target = Target.of(url)
                if not allowed(target.host, self._rules.domains):
                    raise MediaError(f"the host {target.host[:100]!r} is not in option.allowed_media_domains")
                asked = [
                    # httpcore's own would lack the brackets of an IPv6 address.
                    ("Host", target.header), ("User-Agent", "lmi-handler"), ("Accept", f"{kind}/*"),
                    ("Accept-Encoding", "identity"), ("Connection", "close"),
                ]  # fmt: skip
                place = httpcore.URL(scheme=target.scheme, host=target.host, port=target.port, target=target.path)
                # A certificate names no host with the dot at the end that names may have.
                told = {"sni_hostname": target.host.rstrip(".")}
                tls = self._tls if target.scheme == "https" else None
                with (
                    httpcore.ConnectionPool(tls, network_backend=network) as pool,
                    pool.stream("GET", place, headers=asked, extensions=told) as answer,
                ):
                    headers = {key.decode().lower(): value.decode(errors="replace") for key, value in answer.headers}
                    location = headers.get("location")
                    if answer.status not in _REDIRECTING or not location:
                        return _body(answer, headers, on_bytes, kind)
                url = joined(url, location)
        except TimeoutError:
            raise deadline.over from None
        except (OSError, httpcore.ProtocolError) as error:
            raise MediaError(f"it could not be fetched: {_reason(error)}") from error
        raise MediaError(f"it could not be fetched: more than {self._redirects} redirects")

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
            with open(path, "rb", opener=_open_at_once) as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise MediaError("expected an ordinary file")
                on_bytes(status.st_size)
                return file.read(status.st_size)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            raise MediaError(f"the file cannot be read: {reason or 'its name is not valid'}") from None


def _open_at_once(path: str, flags: int) -> int:
    """Not to wait for ever at a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def _body(answer: httpcore.Response, headers: Mapping[str, str], on_bytes: OnBytes, wanted: MediaKind) -> bytes:
    """The body of an answer that is of the kind by its header."""
    if answer.status != 200:
        raise MediaError(f"it could not be fetched: its server responded with status {answer.status}")
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if not kind.startswith(f"{wanted}/") and kind not in (*_UNKNOWN_TYPES, *_OTHER_TYPES.get(wanted, ())):
        raise MediaError(f"expected {called(wanted)}, but its server sent the type {kind[:60]!r}")
    if (headers.get("content-encoding") or "identity").lower() != "identity":
        raise MediaError("its server sent it compressed, which was not requested")
    # Of a body in chunks a length says nothing (RFC 9112, 6.3).
    length = 0 if "transfer-encoding" in headers else int(headers.get("content-length", 0))
    if length:
        on_bytes(length)
    body = bytearray()
    for piece in answer.iter_stream():
        if not length:
            on_bytes(len(piece))
        body += piece
    return bytes(body)


def _reason(error: Exception) -> str:
    """A cause that says nothing of addresses, nor of what a server sent."""
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or type(error).__name__})"
    if isinstance(error, socket.gaierror):
        return "its host name is unknown"
    if isinstance(error, OSError):
        return error.strerror or "the connection failed"
    return "its server's response is not valid HTTP, or not complete"
