"""Fetching: what is allowed, which addresses are reached, what ends it. Real sockets on loopback, no engine."""

from __future__ import annotations

import ipaddress
import os
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


def refused(url: str, most: int = 1 << 20, **rules: Any) -> str:
    with pytest.raises(MediaError) as caught:
        fetch(url, most, **rules)
    message = str(caught.value)
    assert "\n" not in message
    return message


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


@each_row(
    ("path", "reason"),
    [
        ("status/404", "its server responded with status 404"),
        ("status/500", "its server responded with status 500"),
        ("status/302", "its server responded with status 302"),
        ("typed/text/html/a.png", "expected an image, but its server sent the type 'text/html'"),
        ("gzip/a.png", "its server sent it compressed"),
        ("short/a.png", f"{len(PICTURE)} of {len(PICTURE) + 1} bytes came"),
        ("garbage", "its server's response is not valid HTTP"),
        ("round", "more than 5 redirects"),
        ("to//to//to//to//to//to//a.png", "more than 5 redirects"),
        ("to/file:%2F%2F%2Fetc%2Fpasswd", "expected an http or https URL, got the scheme 'file'"),
        ("to/gopher:%2F%2F127.0.0.1", "expected an http or https URL, got the scheme 'gopher'"),
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


@pytest.mark.parametrize("path", ["drip", "hold/a.png"])
def test_all_of_it_must_be_over_in_time(served: tuple[Site, int], path: str) -> None:
    """Bytes that keep coming do not put the end off."""
    url = f"http://127.0.0.1:{served[1]}/{path}"
    assert refused(url, image_timeout=0.4) == "it could not be fetched within 0.4 seconds (option.image_fetch_timeout)"


def test_a_server_that_never_accepts(served: tuple[Site, int]) -> None:
    del served
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}/a.png"
        assert "within 0.4 seconds" in refused(url, image_timeout=0.4)


def test_nobody_waits_any_more(served: tuple[Site, int]) -> None:
    site, port = served
    site.holding.clear()
    cancelled = threading.Event()
    raised: list[Exception] = []

    def run() -> None:
        try:
            fetch(f"http://127.0.0.1:{port}/hold/a.png", cancelled=cancelled, image_timeout=300.0)
        except MediaError as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert site.holding.wait(20)
    cancelled.set()
    thread.join(20)
    assert [str(error) for error in raised] == ["its request has ended"]


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


def _answers(*addresses: str) -> list[Any]:
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]


def test_a_name_is_looked_up_once(served: tuple[Site, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """DNS rebinding: the second answer would be an address that is not allowed, but nobody asks for it."""
    _, port = served
    asked: list[str] = []

    def lookup(host: str, _port: int, **_: Any) -> list[Any]:
        asked.append(host)
        ((family, kind, number, name, _address),) = _answers("127.0.0.1" if len(asked) == 1 else "127.0.0.2")
        return [(family, kind, number, name, ("127.0.0.1" if len(asked) == 1 else "127.0.0.2", port))]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    assert fetch(f"http://pictures.example:{port}/a.png") == PICTURE
    assert asked == ["pictures.example"]
    assert "neither public" in refused(f"http://pictures.example:{port}/a.png")


def test_one_bad_address_among_many_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: _answers("8.8.8.8", "169.254.169.254"))
    assert "neither public" in refused("http://pictures.example/a.png")


def test_the_next_address_is_tried(served: tuple[Site, int], monkeypatch: pytest.MonkeyPatch) -> None:
    _, port = served
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        closed = unused.getsockname()[1]
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", number)) for number in (closed, port)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        assert fetch("http://pictures.example/a.png") == PICTURE
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found[:1])
        assert refused("http://pictures.example/a.png") == "it could not be fetched: Connection refused"


def test_a_resolver_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()

    def lookup(*_: Any, **__: Any) -> list[Any]:
        answered.wait(60)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    assert "the lookup of its host name timed out" in refused("http://pictures.example/a.png", image_timeout=0.2)
    answered.set()
    assert "has no address" in refused("http://pictures.example/a.png")


def test_an_unknown_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def lookup(*_: Any, **__: Any) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
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


TARGETS: list[tuple[str, tuple[bool, str, int, str, str]]] = [
    ("http://example.com", (False, "example.com", 80, "/", "example.com")),
    ("HTTPS://EXAMPLE.com/A?b=%20c", (True, "example.com", 443, "/A?b=%20c", "example.com")),
    ("http://example.com:8080/a b".replace(" ", "%20"), (False, "example.com", 8080, "/a%20b", "example.com:8080")),
    ("http://[2606:4700::1111]:81/", (False, "2606:4700::1111", 81, "/", "[2606:4700::1111]:81")),
    ("http://bücher.example/ü", (False, "xn--bcher-kva.example", 80, "/%C3%BC", "xn--bcher-kva.example")),
]


@pytest.mark.parametrize(("url", "parts"), TARGETS)
def test_a_url(url: str, parts: tuple[bool, str, int, str, str]) -> None:
    target = Target.of(url)
    assert (target.secure, target.host, target.port, target.path, target.header) == parts


@each_row(
    "url",
    [
        "http://", "http:///a", "ftp://example.com/a", "//example.com/a", "http://user@example.com/",
        "http://user:secret@example.com/", "http://example.com:99999/", "http://example.com:port/", "http://[::1/",
        "http://example.com\\@evil.net/", "http://example.com/\r\nX: 1", "http://example.com/a b", "http://a\tb.com/",
        "http://" + "a" * 64 + ".com/", "http://example.com/" + "a" * 8192, "http://a..b/", "gopher://example.com",
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


def test_tls_is_checked_against_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection goes to a checked address, the certificate must be the name's all the same."""
    if not shutil.which("openssl"):
        pytest.skip("needs the openssl program")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-keyout", str(key), "-out", str(certificate), "-subj", "/CN=localhost", "-days", "2",
            "-addext", "subjectAltName=DNS:localhost",
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    monkeypatch.setattr(
        "tests.kit.models.pictures._Server.get_request",
        lambda server: ((pair := socket.socket.accept(server.socket)), (_wrapped(context, pair[0]), pair[1]))[1],
    )
    with serving({"a.png": PICTURE}) as (_, port):
        networks = ("127.0.0.0/8", "::1/128")
        assert "TLS failed" in refused(f"https://localhost:{port}/a.png", networks=networks)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert fetch(f"https://localhost:{port}/a.png", networks=networks) == PICTURE
        assert "TLS failed" in refused(f"https://127.0.0.1:{port}/a.png", networks=networks)


def _wrapped(context: ssl.SSLContext, sock: socket.socket) -> Any:
    return context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)


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
