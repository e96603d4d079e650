"""Leader and followers over loopback: who is missing, refused, gone or silent is named, on both sides."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

import msgspec
import pytest

from lmi.model.nodes.connection import Connection, NodeLostError
from lmi.model.nodes.follower import Joined, join
from lmi.model.nodes.leader import Followers
from lmi.model.nodes.messages import Go, Hello

from ...kit.api.errors import StartError
from ...kit.api.options import make_settings
from ...kit.hosts.host import free_port

SOON = 2.0
"""Seconds in which a connection that is closed is to be noticed."""
TOLD = {"tensor_parallel_size": "2"}
FACTS = {"vLLM": "1", "option.x": "a"}


class Group:
    """A leader's side, and the connections of followers that the test has opened."""

    def __init__(self, **options: str) -> None:
        given = {"node_timeout": "1", "node_start_timeout": "20", **options}
        self.options = make_settings(
            nnodes=given.pop("nnodes", "2"), master_addr="127.0.0.1", node_port=str(free_port()), **given
        ).parallel
        self.lost: SimpleQueue[str] = SimpleQueue()
        self.leader = Followers(self.options, FACTS, TOLD, self.lost.put)
        self._pool = ThreadPoolExecutor(8)
        self._joining: list[tuple[Future[Any], threading.Event]] = []

    def gather(self) -> Future[None]:
        return self._pool.submit(self.leader.gather)

    def join(self, rank: int = 1, facts: dict[str, str] | None = None, **more: Any) -> Future[Any]:
        options = msgspec.structs.replace(self.options, node_rank=rank)
        ended = more.pop("ended", threading.Event())
        joining = self._pool.submit(join, options, FACTS if facts is None else facts, ended, patient=False, **more)
        self._joining.append((joining, ended))
        return joining

    def both(self) -> Connection:
        gathering, joining = self.gather(), self.join()
        gathering.result(10)
        joined: Joined = joining.result(10)
        assert joined.address == self.leader.address == "127.0.0.1"
        assert joined.arguments == TOLD
        return joined.connection

    def raw(self) -> socket.socket:
        """A connection of somebody else's, once the leader listens."""
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with suppress(ConnectionRefusedError):
                return socket.create_connection(("127.0.0.1", self.options.node_port), timeout=5)
            time.sleep(0.02)
        raise AssertionError("the leader does not listen")

    def close(self) -> None:
        self.leader.close("the test has ended")
        for joining, ended in self._joining:
            ended.set()
            with suppress(StartError):
                if joined := joining.result(10):
                    joined.connection.close()
        self._pool.shutdown()


@pytest.fixture
def group() -> Iterator[Callable[..., Group]]:
    made: list[Group] = []

    def make(**options: str) -> Group:
        made.append(Group(**options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_all_start_once_the_last_one_has_joined(group: Callable[..., Group]) -> None:
    three = group(nnodes="3")
    first = three.join(2)
    gathering = three.gather()
    time.sleep(0.5)
    assert not first.done()
    assert not gathering.done()
    three.join(1).result(10)
    gathering.result(10)
    first.result(10)


def test_who_does_not_come_is_named(group: Callable[..., Group]) -> None:
    three = group(nnodes="3", node_start_timeout="2")
    begun = time.monotonic()
    gathering = three.gather()
    three.join(1)
    with pytest.raises(StartError) as missing:
        gathering.result(10)
    port = three.options.node_port
    assert missing.value.message == (
        f"node 2 of 3 did not join 127.0.0.1:{port} within 2 s (option.node_start_timeout)"
    )
    assert 2 <= time.monotonic() - begun < 2 + SOON


def test_a_leader_that_does_not_come_is_named(group: Callable[..., Group]) -> None:
    alone = group(node_start_timeout="1")
    with pytest.raises(StartError) as missing:
        alone.join().result(10)
    where = f"the leader (127.0.0.1:{alone.options.node_port})"
    assert missing.value.message.startswith(f"{where} could not be joined within 1 s (option.node_start_timeout): ")


def test_who_differs_is_refused_and_told_why(group: Callable[..., Group]) -> None:
    both = group(node_start_timeout="5")
    gathering = both.gather()
    with pytest.raises(StartError) as refused:
        both.join(facts={**FACTS, "vLLM": "2"}).result(10)
    why = "vLLM: the leader has 1, node 1 (127.0.0.1) has 2"
    assert refused.value.message == f"the leader (127.0.0.1) refuses this host: {why}"
    with pytest.raises(StartError) as missing:
        gathering.result(10)
    assert missing.value.message.endswith(f"within 5 s (option.node_start_timeout); {why}")


def test_a_number_that_is_none_of_the_group_is_refused(group: Callable[..., Group]) -> None:
    both = group(node_start_timeout="2")
    both.gather()
    with pytest.raises(StartError) as refused:
        both.join(rank=5).result(10)
    assert "option.node_rank: expected 1 to 1, node 5 (127.0.0.1) has 5" in refused.value.message


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_number_that_is_there_already_waits_until_that_one_is_gone(
    group: Callable[..., Group], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    three = group(nnodes="3")
    gathering = three.gather()
    stopped = threading.Event()
    first = three.join(1, ended=stopped)
    until(lambda: "node 1 (127.0.0.1) has joined" in caplog.text)
    second = three.join(1)
    time.sleep(0.3)
    stopped.set()
    assert first.result(10) is None
    # Until the leader knows of it, the last one to join would complete a group with one that is gone.
    until(lambda: "node 1 (127.0.0.1) closed its connection" in caplog.text)
    three.join(2).result(10)
    gathering.result(10)
    second.result(10)


def test_a_closed_connection_is_noticed_at_once_on_both_sides(group: Callable[..., Group]) -> None:
    one = group()
    follower = one.both()
    begun = time.monotonic()
    follower.close()
    assert one.lost.get(timeout=SOON) == "node 1 (127.0.0.1) closed its connection"
    other = group()
    follower = other.both()
    other.leader.close("the leader's engine has ended")
    message: Any = follower.receive()
    assert message.cause == "the leader's engine has ended"
    assert time.monotonic() - begun < 2 * SOON
    assert other.lost.empty()


def test_a_follower_that_fails_says_why(group: Callable[..., Group]) -> None:
    one = group()
    one.both().close("no memory")
    assert one.lost.get(timeout=SOON) == "node 1 (127.0.0.1): no memory"


def test_silence_is_noticed(group: Callable[..., Group]) -> None:
    """A host that is switched off closes nothing."""
    one = group()
    gathering = one.gather()
    sock = one.raw()
    sock.sendall(msgspec.json.encode(Hello(1, 1, FACTS)) + b"\n")
    gathering.result(10)
    begun = time.monotonic()
    silent = "node 1 (127.0.0.1) has been silent for 1 s (option.node_timeout)"
    assert one.lost.get(timeout=1 + SOON) == silent
    assert time.monotonic() - begun > 0.5
    sock.close()


def test_a_silent_leader_is_noticed() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(msgspec.json.encode(Go({})) + b"\n")
        connection = Connection(ours, "the leader (10.0.0.1)", 0.5)
        assert connection.receive() == Go({})
        with pytest.raises(NodeLostError) as lost:
            connection.receive()
    assert lost.value.message == "the leader (10.0.0.1) has been silent for 0.5 s (option.node_timeout)"
    connection.close()


def test_signs_of_life_keep_a_connection(group: Callable[..., Group]) -> None:
    one = group()
    follower = one.both()
    waiting: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=lambda: waiting.put(follower.receive()), daemon=True).start()
    time.sleep(3)
    assert waiting.empty()
    assert one.lost.empty()
    one.leader.close("over")
    assert waiting.get(timeout=SOON).cause == "over"


@pytest.mark.parametrize(
    "sent",
    [b"GET / HTTP/1.1\r\n\r\n", b"\xff\n", b"{}\n", b'{"type":"go","arguments":{}}\n', b"x" * (2 << 20), b"",
     b'{"type":"hello","protocol":7,"rank":1,"facts":{}}\n'],
)  # fmt: skip
def test_what_strangers_send_harms_nobody(group: Callable[..., Group], sent: bytes) -> None:
    both = group()
    gathering = both.gather()
    with both.raw() as sock:
        sock.sendall(sent)
        if not sent:
            sock.shutdown(socket.SHUT_WR)
        while sock.recv(1 << 16):
            pass
    assert not gathering.done()
    both.join().result(10)
    gathering.result(10)
    assert both.lost.empty()


def test_an_address_that_is_nobodys(group: Callable[..., Group]) -> None:
    one = group()
    one.leader = Followers(
        msgspec.structs.replace(one.options, master_addr="no.such.host.invalid"), FACTS, TOLD, one.lost.put
    )
    with pytest.raises(StartError) as refused:
        one.gather().result(20)
    assert refused.value.param == "master_addr"


def test_an_address_of_somebody_in_front_is_listened_to_on_all(group: Callable[..., Group]) -> None:
    """192.0.2.1 is for documentation (RFC 5737): no host has it."""
    one = group()
    elsewhere = msgspec.structs.replace(one.options, master_addr="192.0.2.1")
    one.leader = Followers(elsewhere, FACTS, TOLD, one.lost.put)
    gathering = one.gather()
    one.join().result(10)
    gathering.result(10)
    assert one.leader.address == ""


def test_a_port_that_is_taken_is_named(group: Callable[..., Group]) -> None:
    one = group()
    with socket.create_server(("127.0.0.1", one.options.node_port)), pytest.raises(StartError) as refused:
        one.gather().result(10)
    assert refused.value.message == f"option.node_port: {one.options.node_port}: Address already in use"
