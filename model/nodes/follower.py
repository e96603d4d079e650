"""The followers' side: joins the leader, and notices when it is gone."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Mapping
from typing import NamedTuple

from ..errors import StartError
from ..options.parallel.options import ParallelOptions
from .connection import Connection, NodeLostError
from .messages import PROTOCOL, Ended, Go, Hello, Refused

__all__ = ["Joined", "join"]

log = logging.getLogger(__name__)

PAUSE_S = 1.0
"""Seconds between two tries."""
REMIND_S = 30.0


class Joined(NamedTuple):
    """What a follower has of the leader."""

    connection: Connection
    address: str
    """This host's, as the leader sees it."""
    arguments: dict[str, str]
    """Of the engine, which the leader decides."""


def join(options: ParallelOptions, facts: Mapping[str, str], ended: threading.Event, *, patient: bool) -> Joined | None:
    """Joins the leader once it listens, and returns when all hosts are there.

    None if `ended` is set meanwhile. Raises StartError where the leader refuses, naming the difference, and where there
    is none after option.node_start_timeout, unless the caller is `patient`.
    """
    begun, reminded, why = time.monotonic(), time.monotonic(), ""
    where = f"{options.master_addr}:{options.node_port}"
    while not ended.is_set():
        try:
            return _try(options, facts, ended)
        except (OSError, NodeLostError) as error:
            why = getattr(error, "message", None) or getattr(error, "strerror", None) or str(error)
        now = time.monotonic()
        if not patient and now - begun > options.node_start_timeout:
            limit = f"within {options.node_start_timeout:g} s (option.node_start_timeout)"
            raise StartError(f"the leader ({where}) could not be joined {limit}: {why}")
        if now - reminded > REMIND_S:
            reminded = now
            log.info("waiting for the leader (%s): %s", where, why)
        ended.wait(PAUSE_S)
    return None


def _try(options: ParallelOptions, facts: Mapping[str, str], ended: threading.Event) -> Joined:
    place = (str(options.master_addr), options.node_port)
    sock = socket.create_connection(place, timeout=options.node_timeout)
    connection = Connection(sock, f"the leader ({place[0]})", options.node_timeout)
    try:
        connection.send(Hello(PROTOCOL, options.node_rank, dict(facts)))
        connection.beat()
        answer = connection.receive(unless=ended)
        if isinstance(answer, Go):
            return Joined(connection, str(sock.getsockname()[0]), answer.arguments)
        if isinstance(answer, Refused):
            if answer.final:
                raise StartError(f"the leader ({place[0]}) refuses this host: {answer.reason}")
            raise NodeLostError(answer.reason)
        raise NodeLostError(f"{connection.name}: {answer.cause if isinstance(answer, Ended) else 'not its turn'}")
    except BaseException:
        with contextlib.suppress(OSError):
            connection.close()
        raise
