"""Pictures for tests, and a server on loopback that hands them out in every way that a client must be proof against."""

from __future__ import annotations

import base64
import random
import struct
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


def png(width: int = 8, height: int = 8, color: tuple[int, int, int] = (255, 0, 0)) -> bytes:
    """A picture of one color."""
    rows = (b"\0" + bytes(color) * width) * height
    return _png(width, height, zlib.compress(rows))


def noise(width: int, height: int, seed: int) -> bytes:
    """A picture of pixels that are drawn: its file is as long as its pixels."""
    draw = random.Random(seed)
    rows = b"".join(b"\0" + draw.randbytes(3 * width) for _ in range(height))
    return _png(width, height, zlib.compress(rows, 1))


def bomb(width: int, height: int) -> bytes:
    """A picture that says it is large, in a few bytes."""
    return _png(width, height, zlib.compress(b"\0"))


def _png(width: int, height: int, data: bytes) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def data_url(data: bytes, kind: str = "image/png") -> str:
    """The picture in a URL."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


@dataclass
class Site:
    """What the server hands out, and who has asked.

    /NAME                 a file of `files`
    /typed/TYPE/NAME      with another content type
    /status/NUMBER        a status
    /to/URL               a redirect
    /round                a redirect to itself
    /chunked/NAME, /gzip/NAME, /short/NAME, /garbage
    /drip                 a byte of a header now and then, without end
    /late                 a redirect to itself, after 0.4 seconds
    /hold/NAME            waits until `release` is set
    """

    files: dict[str, bytes]
    asked: list[str] = field(default_factory=list[str])
    release: threading.Event = field(default_factory=threading.Event)
    holding: threading.Event = field(default_factory=threading.Event)
    """Somebody waits at /hold."""
    closed: threading.Event = field(default_factory=threading.Event)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    site: Site

    def do_GET(self) -> None:
        self.site.asked.append(self.path)
        way, _, rest = unquote(urlsplit(self.path).path)[1:].partition("/")
        answer = getattr(self, f"_{way}", None) if rest or way in {"round", "garbage", "drip", "late"} else None
        if answer is not None:
            answer(rest)
        else:
            self._send(self.site.files.get(way), "image/png")

    def log_message(self, format: str, *args: object) -> None:
        del format, args

    def _send(self, body: bytes | None, kind: str, **headers: str) -> None:
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Type", kind)
        for name, value in {"Content_Length": str(len(body or b"")), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body or b"")

    def _typed(self, rest: str) -> None:
        major, minor, name = rest.split("/")
        self._send(self.site.files[name], f"{major}/{minor}")

    def _status(self, rest: str) -> None:
        self.send_response(int(rest))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _to(self, rest: str) -> None:
        self.send_response(302)
        self.send_header("Location", rest)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _round(self, _rest: str) -> None:
        self._to(self.path)

    def _late(self, _rest: str) -> None:
        self.site.closed.wait(0.4)
        self._to(self.path)

    def _chunked(self, rest: str) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        body = self.site.files[rest]
        for piece in (body[:10], body[10:]):
            self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def _gzip(self, rest: str) -> None:
        self._send(self.site.files[rest], "image/png", Content_Encoding="gzip")

    def _short(self, rest: str) -> None:
        body = self.site.files[rest]
        self._send(body, "image/png", Content_Length=str(len(body) + 1))
        self.close_connection = True

    def _garbage(self, _rest: str) -> None:
        self.wfile.write(b"what is it?\r\n\r\n")
        self.close_connection = True

    def _drip(self, _rest: str) -> None:
        self.close_connection = True
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
        with suppress(OSError):
            while not self.site.closed.wait(0.05):
                self.wfile.write(b"x")

    def _hold(self, rest: str) -> None:
        self.site.holding.set()
        self.site.release.wait(60)
        self.close_connection = True
        with suppress(OSError):
            self._send(self.site.files[rest], "image/png")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False


@contextmanager
def serving(files: dict[str, bytes], address: str = "127.0.0.1", port: int = 0) -> Iterator[tuple[Site, int]]:
    """A server of these files, and its port."""
    site = Site(files)
    server = _Server((address, port), type("Handler", (_Handler,), {"site": site}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield site, server.server_address[1]
    finally:
        site.release.set()
        site.closed.set()
        server.shutdown()
        server.server_close()
        thread.join()
