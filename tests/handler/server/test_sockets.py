"""The port of the local server: nobody else's from before the engine starts, and refusing until it is served."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from lmi.handler.server.sockets import bound_sockets, may_listen, url_of

from ...kit.api.errors import StartError


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def port_of(sockets: list[socket.socket]) -> int:
    return int(sockets[0].getsockname()[1])


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 10)


def taken_by_another(port: int) -> bool:
    """Whether another server cannot have the port, however it asks."""
    for reuse in (0, 1):
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
            try:
                other.bind(("127.0.0.1", port))
            except OSError:
                continue
            return False
    with (
        pytest.raises(StartError, match=f"^--host 127.0.0.1 --port {port}: the port is in use$"),
        bound_sockets("127.0.0.1", port),
    ):
        pass
    return True


def test_the_port_is_ours_before_anybody_listens(stack: ExitStack) -> None:
    sockets = stack.enter_context(bound_sockets("127.0.0.1", 0))
    port = port_of(sockets)
    with pytest.raises(ConnectionRefusedError):
        connect(port)
    assert taken_by_another(port)
    may_listen(sockets)
    sockets[0].listen()
    with connect(port):
        pass
    assert taken_by_another(port)


def test_right_after_a_server_that_had_connections(stack: ExitStack) -> None:
    """The server closed them first, so that its side of them stays for a minute (TIME-WAIT)."""
    port = serve_once(0)
    with socket.socket() as plain, pytest.raises(OSError, match="in use"):
        plain.bind(("127.0.0.1", port))
    sockets = stack.enter_context(bound_sockets("127.0.0.1", port))
    assert taken_by_another(port)
    may_listen(sockets)
    sockets[0].listen()
    with connect(port):
        pass


def serve_once(port: int) -> int:
    with bound_sockets("127.0.0.1", port) as sockets:
        may_listen(sockets)
        sockets[0].listen()
        port = port_of(sockets)
        with connect(port) as client:
            sockets[0].accept()[0].close()
            assert client.recv(1) == b""
    return port


def test_a_port_on_which_somebody_listens() -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        assert taken_by_another(other.getsockname()[1])


def test_every_address_of_a_name_has_the_same_port(monkeypatch: pytest.MonkeyPatch, stack: ExitStack) -> None:
    """One that the machine does not have is left out (192.0.2.1 is nobody's, RFC 5737)."""
    both = ["192.0.2.1", "127.0.0.1", "127.0.0.2"]
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in both]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    names = [sock.getsockname() for sock in stack.enter_context(bound_sockets("somewhere", 0))]
    assert [address for address, _ in names] == both[1:]
    assert len({port for _, port in names}) == 1
    # /etc/hosts may have a name twice.
    found += found
    with bound_sockets("somewhere", 0) as sockets:
        assert [sock.getsockname()[0] for sock in sockets] == both[1:]
    found[1:] = []
    with pytest.raises(StartError, match=r"^--host somewhere --port 0: \[Errno \d+\]"), bound_sockets("somewhere", 0):
        pass


def test_a_name_that_is_none() -> None:
    with pytest.raises(StartError, match=r"^--host a{64} --port 0: "), bound_sockets("a" * 64, 0):
        pass


@pytest.mark.parametrize(("host", "name"), [("127.0.0.1", "127.0.0.1"), ("localhost", "localhost"), ("::1", "[::1]")])
def test_the_url_has_the_real_port(host: str, name: str, stack: ExitStack) -> None:
    if host == "::1" and not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6")
    sockets = stack.enter_context(bound_sockets(host, 0))
    assert port_of(sockets)
    assert url_of(host, sockets) == f"http://{name}:{port_of(sockets)}"
