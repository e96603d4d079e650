"""Fetching: what is allowed, which addresses are reached, what ends it. Real sockets on loopback, no engine."""

from __future__ import annotations

import ipaddress
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from lmi.model.media.fetch import Fetcher

from ...kit.api.engine import Budget, MediaError, Target
from ...kit.api.engine import allowed_url as allowed
from ...kit.api.engine import public_address as public
from ...kit.api.errors import OptionError
from ...kit.api.options import MediaRules, make_settings
from ...kit.models.pictures import Site, png, serving
from ...kit.rows import each_row

PICTURE = png()
HERE = ("127.0.0.1/32",)


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Site, int]]:
    with serving({"a.png": PICTURE}) as running:
        yield running


def fetch(url: str, most: int = 1 << 20, cancelled: threading.Event | None = None, **rules: Any) -> bytes:
    given: dict[str, Any] = {"domains": ("*",), "networks": HERE, "image_timeout": 20.0, **rules}
    budget = Budget(most, "bytes", "max_image_bytes")
    return Fetcher(MediaRules(**given)).fetch(url, budget.take, cancelled or threading.Event())


def refused(url: str, most: int = 1 << 20, cancelled: threading.Event | None = None, **rules: Any) -> str:
    with pytest.raises(MediaError) as caught:
        fetch(url, most, cancelled, **rules)
    message = str(caught.value)
    assert "\n" not in message
    return message


@dataclass
class Raw:
    """A server that has sent the same bytes whatever was asked."""

    port: int
    got: bytes = b""
    names: list[str] = field(default_factory=list[str])
    """Whom clients wanted to speak to, by TLS."""


@contextmanager
def sending(
    answer: bytes,
    drip: bytes | None = None,
    sent: threading.Event | None = None,
    tls: ssl.SSLContext | None = None,
    address: str = "127.0.0.1",
) -> Iterator[Raw]:
    """A server that sends `answer` to one client, then goes on with `drip`, slowly and without end; None: it closes."""
    ended = threading.Event()

    def serve() -> None:
        with suppress(OSError):
            sock = listener.accept()[0]
            with tls.wrap_socket(sock, server_side=True) if tls else sock as connection:
                raw.got = connection.recv(1 << 16)
                connection.sendall(answer)
                if sent is not None:
                    # The client waits for more by then.
                    ended.wait(0.1)
                    sent.set()
                while drip is not None and not ended.wait(0.05):
                    connection.sendall(drip)

    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as listener:
        listener.settimeout(20)
        raw = Raw(listener.getsockname()[1])
        if tls is not None:
            tls.sni_callback = lambda _sock, name, _context: raw.names.append(name)
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield raw
        finally:
            ended.set()
            thread.join()


def resolving(monkeypatch: pytest.MonkeyPatch, found: Callable[[], list[tuple[str, int]]]) -> None:
    """What pictures.example resolves to, called anew for each lookup; all else is looked up as ever."""
    system = socket.getaddrinfo

    def lookup(host: str, *arguments: Any, **named: Any) -> list[Any]:
        if host != "pictures.example":
            return system(host, *arguments, **named)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in found()]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)


@each_row(
    "path",
    [
        "a.png", "a.png?x=1&y=%20", "typed/image/webp/a.png", "typed/application/octet-stream/a.png",
        "typed/binary/octet-stream/a.png", "chunked/a.png", "to//a.png", "to//to//to//to//to//a.png",
    ],
)  # fmt: skip
def test_an_image_is_fetched(served: tuple[Site, int], path: str) -> None:
    assert fetch(f"http://127.0.0.1:{served[1]}/{path}") == PICTURE


def test_a_path_arrives_as_it_was_given(served: tuple[Site, int]) -> None:
    site, port = served
    with pytest.raises(MediaError, match="status 404"):
        fetch(f"http://127.0.0.1:{port}/ö%2Fb?q=ä#part")
    assert site.asked[-1] == "/%C3%B6%2Fb?q=%C3%A4"


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


@each_row(
    ("answer", "body"),
    [
        (HEAD + b"Content-Length: 3\r\n\r\nabc", b"abc"),
        (HEAD + b"content-LENGTH: 3\r\n\r\nabc and more", b"abc"),
        (HEAD + b"Content-Length: 3, 3\r\n\r\nabc", b"abc"),
        (HEAD + b"Content-Length: 0\r\n\r\n", b""),
        (HEAD + b"Content-Encoding: identity\r\n\r\nto the end", b"to the end"),
        (b"HTTP/1.0" + HEAD[8:] + b"\r\nto the end", b"to the end"),
        (b"HTTP/1.1 200\r\nContent-Length: 3\r\n\r\nabc", b"abc"),
        (CHUNKED + b"3\r\nabc\r\n0A;name=value\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n", b"abc0123456789"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n" + HEAD + b"\r\nabc", b"abc"),
        (HEAD + b"X: " + b"x" * 60_000 + b"\r\nContent-Length: 3\r\n\r\nabc", b"abc"),
    ],
)
def test_what_http_allows_is_read(answer: bytes, body: bytes) -> None:
    with sending(answer) as raw:
        assert fetch(f"http://127.0.0.1:{raw.port}/") == body
    with sending(answer) as raw:
        assert httpx.get(f"http://127.0.0.1:{raw.port}/", trust_env=False).content == body


@each_row(
    "answer",
    [
        b"", b"SSH-2.0-OpenSSH_9.6\r\n", b"ICY 200 OK\r\n\r\nabc", b"<html>", HEAD,
        HEAD + b"Content-Length: 3\r\n\r\nab", HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        HEAD + b"Content-Length: -3\r\n\r\nabc", HEAD + b"Content-Length: three\r\n\r\nabc",
        HEAD + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\nabc", HEAD + b"Name : value\r\n\r\nabc",
        HEAD + b"X: a\0b\r\n\r\nabc", HEAD + b"X: " + b"x" * 200_000 + b"\r\n\r\nabc",
        HEAD + b"X: y\r\n" * 50_000 + b"\r\nabc", HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        CHUNKED, CHUNKED + b"3\r\nabc", CHUNKED + b"3\r\nabc\r\n", CHUNKED + b"3\r\nabcXX0\r\n\r\n",
        CHUNKED + b"-3\r\nabc\r\n0\r\n\r\n", CHUNKED + b"three\r\nabc\r\n0\r\n\r\n",
        CHUNKED + b"f" * 40 + b"\r\nabc\r\n0\r\n\r\n", CHUNKED + b"3;" + b"x" * 200_000,
        CHUNKED + b"0\r\nTrailer: " + b"x" * 200_000,
    ],
)  # fmt: skip
def test_what_is_no_http_is_refused(answer: bytes) -> None:
    """Nothing of what the server has sent is told: it may be one that the client cannot reach."""
    with sending(answer) as raw:
        message = refused(f"http://127.0.0.1:{raw.port}/")
    assert message == "it could not be fetched: its server's response is not valid HTTP, or not complete"


@each_row(
    ("path", "reason"),
    [
        ("status/404", "its server responded with status 404"),
        ("status/500", "its server responded with status 500"),
        ("status/302", "its server responded with status 302"),
        ("typed/text/html/a.png", "expected an image, but its server sent the type 'text/html'"),
        ("gzip/a.png", "its server sent it compressed"),
        ("short/a.png", "its server's response is not valid HTTP, or not complete"),
        ("garbage", "its server's response is not valid HTTP, or not complete"),
        ("round", "more than 5 redirects"),
        ("to//to//to//to//to//to//a.png", "more than 5 redirects"),
        ("to/file:%2F%2F%2Fetc%2Fpasswd", "expected an http or https URL, got the scheme 'file'"),
        ("to/gopher:%2F%2F127.0.0.1", "expected an http or https URL, got the scheme 'gopher'"),
        ("to/http:%2F%2F[bad", "expected a URL with a valid host and port"),
        ("to/http:%2F%2Fa..b", "expected a URL with a valid host and port"),
        ("to/http:%2F%2Fuser@127.0.0.1", "without a user or password in it"),
    ],
)
def test_what_is_no_image_is_refused(served: tuple[Site, int], path: str, reason: str) -> None:
    assert reason in refused(f"http://127.0.0.1:{served[1]}/{path}")


@pytest.mark.parametrize("way", ["", "chunked/"])
def test_the_size_is_limited(served: tuple[Site, int], way: str) -> None:
    url = f"http://127.0.0.1:{served[1]}/{way}a.png"
    assert fetch(url, len(PICTURE) + 1) == fetch(url, len(PICTURE)) == PICTURE
    told = f"expected images of at most {len(PICTURE) - 1} bytes together (option.max_image_bytes), got "
    assert refused(url, len(PICTURE) - 1).startswith(told)


SLOW = [
    ("http", b"", b""),
    ("http", b"HTTP/1.1 ", b"2"),
    ("http", HEAD + b"X: ", b"x"),
    ("http", b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
    ("http", HEAD + b"Content-Length: 1000\r\n\r\n", b""),
    ("http", HEAD + b"Content-Length: 1000\r\n\r\n", b"x"),
    ("http", HEAD + b"\r\n", b"x"),
    ("http", CHUNKED, b"0"),
    ("http", CHUNKED, b"1\r\nx\r\n"),
    ("http", CHUNKED + b"0\r\nTrailer: ", b"x"),
    # A handshake of TLS that has begun.
    ("https", b"", b""),
    ("https", b"\x16\x03\x03\x40\x00\x02", b"\0"),
]
"""What a server sends and goes on with: a wait that its bytes begin anew would have no end."""


@each_row(("scheme", "answer", "drip"), SLOW)
def test_all_of_it_must_be_over_in_time(scheme: str, answer: bytes, drip: bytes) -> None:
    """Bytes that keep coming do not put the end off."""
    with sending(answer, drip) as raw:
        message = refused(f"{scheme}://127.0.0.1:{raw.port}/", image_timeout=0.4)
    assert message == "it could not be fetched within 0.4 seconds (option.image_fetch_timeout)"


@each_row(("scheme", "answer", "drip"), SLOW)
def test_nobody_waits_any_more(scheme: str, answer: bytes, drip: bytes) -> None:
    cancelled = threading.Event()
    with sending(answer, drip, cancelled) as raw:
        begun = time.monotonic()
        message = refused(f"{scheme}://127.0.0.1:{raw.port}/", cancelled=cancelled, image_timeout=300.0)
        assert time.monotonic() - begun < 20
    assert message == "its request has ended"


def test_redirects_take_of_the_same_time(served: tuple[Site, int]) -> None:
    """Each answer comes in time, all together do not."""
    site, port = served
    before = len(site.asked)
    assert "within 1 seconds" in refused(f"http://127.0.0.1:{port}/late", image_timeout=1.0)
    assert 1 < len(site.asked) - before < 6


@contextmanager
def _deaf() -> Iterator[int]:
    """The port of a server that accepts nobody: its queue is full."""
    with socket.socket() as listener, socket.socket() as first:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        first.connect(listener.getsockname())
        yield listener.getsockname()[1]


def test_a_server_that_never_accepts() -> None:
    with _deaf() as port:
        assert "within 0.4 seconds" in refused(f"http://127.0.0.1:{port}/a.png", image_timeout=0.4)


PRIVATE = [
    "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "localhost", "0.0.0.0", "[::1]", "[::]",
    "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "10.0.0.1", "172.16.0.1",
    "192.168.0.1", "100.64.0.1", "169.254.169.254", "169.254.170.2", "[fd00:ec2::254]", "[fe80::1]", "224.0.0.1",
    "[ff02::1]", "255.255.255.255", "[64:ff9b::a9fe:a9fe]",
]  # fmt: skip


@pytest.mark.parametrize("host", PRIVATE)
def test_addresses_that_are_not_public_are_refused(host: str) -> None:
    message = refused(f"http://{host}:9/latest/meta-data/", networks=())
    assert message == (
        f"the host {host.strip('[]')!r} has an address that is neither public nor in option.allowed_media_networks"
    )


@each_row(
    ("address", "is_public"),
    [
        ("8.8.8.8", True), ("93.184.215.14", True), ("2606:4700::1111", True), ("::ffff:8.8.8.8", True),
        ("64:ff9b::808:808", True), ("172.32.0.1", True), ("::ffff:10.0.0.1", False), ("2002:a00:1::", False),
        ("192.0.2.1", False), ("240.0.0.1", False), ("2001:db8::1", False), ("fec0::1", False), ("ff0e::1", False),
    ],
)  # fmt: skip
def test_public_addresses(address: str, is_public: bool) -> None:
    assert public(ipaddress.ip_address(address)) is is_public


def test_a_redirect_may_have_letters_of_any_kind(served: tuple[Site, int]) -> None:
    """As UTF-8, which browsers take it for."""
    site, port = served
    assert "status 404" in refused(f"http://127.0.0.1:{port}/to//%C3%83%C2%B6")
    assert site.asked[-1] == "/%C3%B6"


def test_a_redirect_is_judged_like_the_first_url(served: tuple[Site, int]) -> None:
    """127.0.0.1 is allowed and sends to 127.0.0.2, which is not; nothing arrives there."""
    _, port = served
    with serving({"a.png": PICTURE}, "127.0.0.2") as (inner, other):
        target = f"http://127.0.0.2:{other}/a.png"
        url = f"http://127.0.0.1:{port}/to/{target.replace('/', '%2F')}"
        assert "has an address that is neither public" in refused(url)
        assert "has an address that is neither public" in refused(target)
        assert "is not in option.allowed_media_domains" in refused(url, domains=("127.0.0.1",))
        assert inner.asked == []
        assert fetch(url, networks=("127.0.0.0/8",)) == PICTURE
        assert inner.asked == ["/a.png"]


def test_a_name_is_looked_up_once(served: tuple[Site, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """DNS rebinding: the second answer would be an address that is not allowed, but nobody asks for it."""
    _, port = served
    addresses = ["127.0.0.1", "127.0.0.2"]
    resolving(monkeypatch, lambda: [(addresses.pop(0), port)])
    assert fetch(f"http://pictures.example:{port}/a.png") == PICTURE
    assert addresses == ["127.0.0.2"]
    assert "neither public" in refused(f"http://pictures.example:{port}/a.png")
    assert addresses == []


def test_a_redirect_to_the_same_name_is_looked_up_anew(
    served: tuple[Site, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And judged anew, whatever connection there was."""
    site, port = served
    addresses = ["127.0.0.1", "127.0.0.2"]
    resolving(monkeypatch, lambda: [(addresses.pop(0), port)])
    assert "neither public" in refused(f"http://pictures.example:{port}/to//a.png")
    assert site.asked[-1] == "/to//a.png"


def test_one_bad_address_among_many_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, lambda: [("8.8.8.8", 80), ("169.254.169.254", 80)])
    assert "neither public" in refused("http://pictures.example/a.png")


def test_the_next_address_is_tried(served: tuple[Site, int], monkeypatch: pytest.MonkeyPatch) -> None:
    _, port = served
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        found = [("127.0.0.1", unused.getsockname()[1]), ("127.0.0.1", port)]
        resolving(monkeypatch, lambda: found)
        assert fetch("http://pictures.example/a.png") == PICTURE
        del found[1]
        assert refused("http://pictures.example/a.png") == "it could not be fetched: Connection refused"


def test_an_address_that_swallows_all_leaves_time_for_the_next(
    served: tuple[Site, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, port = served
    with _deaf() as silent:
        resolving(monkeypatch, lambda: [("127.0.0.1", silent), ("127.0.0.1", port)])
        assert fetch("http://pictures.example/a.png", image_timeout=2.0) == PICTURE


def test_a_resolver_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()

    def found() -> list[tuple[str, int]]:
        answered.wait(60)
        return []

    resolving(monkeypatch, found)
    assert "the lookup of its host name timed out" in refused("http://pictures.example/a.png", image_timeout=0.2)
    answered.set()
    assert "has no address" in refused("http://pictures.example/a.png")


def test_an_unknown_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def found() -> list[tuple[str, int]]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    resolving(monkeypatch, found)
    assert refused("http://pictures.example/") == "it could not be fetched: its host name is unknown"


DOMAINS: list[tuple[str, tuple[str, ...], bool]] = [
    ("example.com", (), False),
    ("example.com", ("example.com",), True),
    ("example.com.", ("example.com",), True),
    ("a.example.com", ("example.com",), False),
    ("a.example.com", ("*.example.com",), True),
    ("a.b.example.com", ("*.example.com",), True),
    ("example.com", ("*.example.com",), False),
    ("evilexample.com", ("*.example.com",), False),
    ("example.com.evil.net", ("*.example.com", "example.com"), False),
    ("anything", ("*",), True),
    ("b.org", ("a.org", "b.org"), True),
]


@pytest.mark.parametrize(("host", "domains", "is_allowed"), DOMAINS)
def test_domains(host: str, domains: tuple[str, ...], is_allowed: bool) -> None:
    assert allowed(host, domains) is is_allowed


def test_no_host_is_allowed_unless_an_option_says_so(served: tuple[Site, int]) -> None:
    message = refused(f"http://127.0.0.1:{served[1]}/a.png", domains=())
    assert message == "the host '127.0.0.1' is not in option.allowed_media_domains"


TARGETS: list[tuple[str, tuple[str, str, int | None, str, str]]] = [
    ("http://example.com", ("http", "example.com", None, "/", "example.com")),
    ("HTTPS://EXAMPLE.com/A?b=%20c", ("https", "example.com", None, "/A?b=%20c", "example.com")),
    ("http://example.com:8080/a%20b", ("http", "example.com", 8080, "/a%20b", "example.com:8080")),
    ("http://[2606:4700::1111]:81/", ("http", "2606:4700::1111", 81, "/", "[2606:4700::1111]:81")),
    ("http://bücher.example/ü", ("http", "xn--bcher-kva.example", None, "/%C3%BC", "xn--bcher-kva.example")),
]


@pytest.mark.parametrize(("url", "parts"), TARGETS)
def test_a_url(url: str, parts: tuple[str, str, int | None, str, str]) -> None:
    target = Target.of(url)
    assert (target.scheme, target.host, target.port, target.path, target.header) == parts


@each_row(
    "url",
    [
        "http://", "http:///a", "ftp://example.com/a", "//example.com/a", "http://user@example.com/",
        "http://user:secret@example.com/", "http://example.com:99999/", "http://example.com:port/", "http://[::1/",
        "http://example.com\\@evil.net/", "http://example.com/\r\nX: 1", "http://example.com/a b", "http://a\tb.com/",
        "http://" + "a" * 64 + ".com/", "http://example.com/" + "a" * 8192, "http://a..b/", "gopher://example.com",
        "http://example.com:0/",
    ],
)  # fmt: skip
def test_urls_that_are_refused(url: str) -> None:
    with pytest.raises(MediaError) as caught:
        Target.of(url)
    assert "secret" not in str(caught.value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "pictures"
    inside.mkdir()
    (inside / "a b.png").write_bytes(PICTURE)
    (tmp_path / "secret.png").write_bytes(PICTURE)
    (inside / "link.png").symlink_to(tmp_path / "secret.png")
    os.mkfifo(inside / "pipe.png")
    return inside


def test_files_only_of_the_folder_that_is_allowed(folder: Path) -> None:
    url = f"file://{folder}/a%20b.png"
    assert refused(url) == "file URLs need option.allowed_local_media_path, which is not set"
    assert fetch(url, folder=str(folder)) == fetch(url, len(PICTURE), folder=str(folder)) == PICTURE
    assert "option.max_image_bytes" in refused(url, len(PICTURE) - 1, folder=str(folder))
    outside = "expected a file in the folder that option.allowed_local_media_path names"
    for name in ("../secret.png", "link.png", "..%2Fsecret.png", ""):
        assert refused(f"file://{folder}/{name}", folder=str(folder)) == outside
    assert refused("file://elsewhere/a.png", folder=str(folder)) == outside
    assert refused(f"file://{folder}/pipe.png", folder=str(folder)) == "expected an ordinary file"
    assert "No such file" in refused(f"file://{folder}/none.png", folder=str(folder))
    assert "its name is not valid" in refused(f"file://{folder}/%00.png", folder=str(folder))


def test_what_is_no_file_leaves_nothing_open(folder: Path) -> None:
    (folder / "more").mkdir()
    held = len([*Path("/proc/self/fd").iterdir()])
    for name in ("more", "pipe.png") * 5:
        refused(f"file://{folder}/{name}", folder=str(folder))
    assert len([*Path("/proc/self/fd").iterdir()]) == held


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """One of localhost's, signed by itself, and its key."""
    if not shutil.which("openssl"):
        pytest.skip("needs the openssl program")
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-keyout", str(key), "-out", str(certificate), "-subj", "/CN=localhost", "-days", "2",
            "-addext", "subjectAltName=DNS:localhost",
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return certificate, key


@pytest.mark.parametrize(
    ("host", "trusted", "name", "reason"),
    [
        ("localhost", True, "localhost", None),
        ("LOCALHOST", True, "localhost", None),
        (
            "pictures.example",
            True,
            "pictures.example",
            "it could not be fetched: TLS failed (CERTIFICATE_VERIFY_FAILED)",
        ),
        # What is no name is not sent.
        ("127.0.0.1", True, None, "it could not be fetched: TLS failed (CERTIFICATE_VERIFY_FAILED)"),
        ("localhost", False, "localhost", "it could not be fetched: TLS failed (CERTIFICATE_VERIFY_FAILED)"),
    ],
)
def test_tls_is_checked_against_the_name(
    certificate: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    host: str,
    trusted: bool,
    name: str | None,
    reason: str | None,
) -> None:
    """The connection goes to a checked address, the certificate must be the name's all the same."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    with sending(HEAD + b"Content-Length: 3\r\n\r\nabc", tls=context) as raw:
        resolving(monkeypatch, lambda: [("127.0.0.1", raw.port)])
        url = f"https://{host}:{raw.port}/"
        networks = ("127.0.0.0/8", "::1/128")
        if reason is None:
            assert fetch(url, networks=networks) == b"abc"
        else:
            assert refused(url, networks=networks) == reason
    assert raw.names == [name]


def test_the_dot_at_the_end_of_a_name_is_not_the_certificates(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    system = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *a, **b: system("127.0.0.1" if host == "localhost." else host, *a, **b)
    )
    with sending(HEAD + b"\r\nabc", tls=context) as raw:
        assert fetch(f"https://localhost.:{raw.port}/") == b"abc"
    assert raw.names == ["localhost"]


def test_an_address_of_version_6() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("needs IPv6")
    with sending(HEAD + b"\r\nabc", address="::1") as raw:
        assert fetch(f"http://[::1]:{raw.port}/a", networks=("::1/128",)) == b"abc"
    assert b"\r\nHost: [::1]:%d\r\n" % raw.port in raw.got
    with sending(HEAD + b"\r\nabc", address="::1") as raw:
        assert httpx.get(f"http://[::1]:{raw.port}/a", trust_env=False).content == b"abc"
    assert b"\r\nHost: [::1]:%d\r\n" % raw.port in raw.got


def test_what_is_asked() -> None:
    with sending(HEAD + b"\r\nabc") as raw:
        assert fetch(f"http://127.0.0.1:{raw.port}/a?b#c") == b"abc"
    assert raw.got.decode().splitlines() == [
        "GET /a?b HTTP/1.1", f"Host: 127.0.0.1:{raw.port}", "User-Agent: lmi-handler", "Accept: image/*",
        "Accept-Encoding: identity", "Connection: close", "",
    ]  # fmt: skip


def test_a_proxy_of_the_environment_is_not_asked(served: tuple[Site, int], monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"http://127.0.0.1:{served[1]}/a.png"
    with serving({"a.png": PICTURE}) as (proxy, port):
        for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        assert fetch(url) == PICTURE
        assert proxy.asked == []
        assert httpx.get(url).content == PICTURE
        assert proxy.asked == [url]


def test_a_start_without_media_does_not_import_httpcore() -> None:
    program = (
        "import sys; from lmi.model.media.fetch import Fetcher; from lmi.model.options.media_rules import MediaRules; "
        "Fetcher(MediaRules()); sys.exit('httpcore' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_the_options() -> None:
    rules = make_settings().media
    assert rules == MediaRules()
    assert (rules.domains, rules.networks, rules.folder) == ((), (), None)
    given = {
        "allowed_media_domains": '["Example.com", "*.cdn.example.com"]', "max_image_bytes": "1000",
        "allowed_media_networks": "10.0.0.0/8 fd00::/8", "allowed_local_media_path": "/pictures",
        "image_fetch_timeout": "2.5",
        "max_image_pixels": "64",
    }  # fmt: skip
    settings = make_settings(**given)
    assert settings.media == MediaRules(
        domains=("example.com", "*.cdn.example.com"), networks=("10.0.0.0/8", "fd00::/8"), folder="/pictures",
        image_timeout=2.5, max_bytes=1000, max_pixels=64,
    )  # fmt: skip
    # vLLM's own fetching is never used, and must not be told that it may.
    assert not given.keys() & settings.engine_arguments.keys()


@each_row(
    ("name", "value", "expected"),
    [
        ("allowed_media_domains", "https://example.com", "hosts without scheme and port"),
        ("allowed_media_domains", "example.com:80", "hosts without scheme and port"),
        ("allowed_media_domains", "a.com, b.com", "hosts without scheme and port"),
        ("allowed_media_domains", "a.*.com", "hosts without scheme and port"),
        ("allowed_media_domains", '["a.com"', "a list in JSON, or items with blanks between"),
        ("allowed_media_domains", "[5]", "a list in JSON, or items with blanks between"),
        ("allowed_media_networks", "10.0.0.1/8", "networks, as 10.0.0.0/8"),
        ("allowed_media_networks", "all", "networks, as 10.0.0.0/8"),
        ("image_fetch_timeout", "0", "a number of at least 0.001"),
        ("max_image_bytes", "0", "an integer of at least 1"),
        ("max_image_pixels", "many", "an integer of at least 1"),
    ],
)
def test_options_that_are_refused(name: str, value: str, expected: str) -> None:
    with pytest.raises(OptionError, match=f"option.{name}: expected {expected}"):
        make_settings(**{name: value})


def test_vllms_environment_variables_mean_the_same(served: tuple[Site, int], monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"http://127.0.0.1:{served[1]}"
    monkeypatch.setenv("VLLM_IMAGE_FETCH_TIMEOUT", "1")
    monkeypatch.setenv("VLLM_MEDIA_URL_ALLOW_REDIRECTS", "0")
    assert "within 1 seconds" in refused(f"{url}/drip", image_timeout=None)
    assert "more than 0 redirects" in refused(f"{url}/to//a.png")
