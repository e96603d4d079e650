"""`lmi follow`: this host's part of a model whose leader is another host.

    join the leader --all are there--> start the engine's process --either ends--> end the other --> join again

Leader and followers build the same engine of the same model directory, each of its own copy; requests come to the
leader only.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from queue import Empty, SimpleQueue

import msgspec

from ...model.errors import LmiError, OptionError, StartError
from ...model.nodes.connection import Connection, NodeLostError
from ...model.nodes.facts import facts_of
from ...model.nodes.follower import Joined, join
from ...model.nodes.messages import Ended
from ...model.options import Settings, load_settings
from ...model.process.child import EngineChild
from ...model.process.messages import EngineFailed, Ready
from ..secure_mode import refuse_secure_mode
from .arguments import options_of_model

__all__ = ["follow", "follower_settings"]

SIGNALS_S = 0.2
"""Seconds after which it is looked whether a signal came."""


def follower_settings(model: Path, overrides: Mapping[str, str], environment: Mapping[str, str]) -> Settings:
    """The settings of a follower; raises OptionError where it is to be none."""
    refuse_secure_mode(environment)
    options = options_of_model(model) | dict(overrides)
    settings = load_settings(model, environment=environment, overrides=options)
    parallel = settings.parallel
    if parallel.nnodes == 1:
        raise OptionError("option.nnodes: expected the number of hosts, 2 or more, but it is not set", "nnodes")
    if parallel.node_rank == 0:
        expected = f"expected 1 to {parallel.nnodes - 1}, the number of this host, got 0, which is the leader's"
        raise OptionError(f"option.node_rank: {expected}", "node_rank")
    return settings


def follow(settings: Settings, *, once: bool = False) -> str | None:
    """Takes part until SIGTERM or SIGINT, or if `once`, until the leader or this host's part ends: then the reason is
    returned, None where it was a signal.

    Raises StartError where the leader cannot be joined (model/nodes/follower.py).
    """
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    facts = facts_of(settings)
    served = False
    while True:
        print(f"lmi: node {settings.parallel.node_rank} waits for the leader", flush=True)
        joined = join(settings.parallel, facts, ended, patient=served)
        if joined is None:
            return None
        cause = _take_part(settings, joined, ended)
        if ended.is_set():
            return None
        print(f"lmi: ended: {cause}", flush=True)
        if once:
            return cause
        served = True


def _take_part(settings: Settings, joined: Joined, ended: threading.Event) -> str:
    """One life of the engine; why it ended."""
    causes: SimpleQueue[str] = SimpleQueue()
    leader = joined.connection
    child = EngineChild(_as_told(settings, joined.arguments), environment={"VLLM_HOST_IP": joined.address})
    threading.Thread(target=_watch_leader, args=(leader, causes), name="lmi-leader", daemon=True).start()
    threading.Thread(target=_watch_engine, args=(child, causes), name="lmi-engine", daemon=True).start()
    cause = None
    while cause is None:
        with contextlib.suppress(Empty):
            cause = "the follower was ended" if ended.is_set() else causes.get(timeout=SIGNALS_S)
    leader.close(cause)
    child.fail(StartError(cause))
    child.end()
    return cause


def _as_told(settings: Settings, arguments: Mapping[str, str]) -> Settings:
    """The settings with the arguments that the leader decides."""
    size = int(arguments.get("max_num_seqs", settings.max_rolling_batch_size))
    merged = {**settings.engine_arguments, **arguments}
    return msgspec.structs.replace(settings, engine_arguments=merged, max_rolling_batch_size=size)


def _watch_leader(leader: Connection, causes: SimpleQueue[str]) -> None:
    try:
        message = leader.receive()
        causes.put(message.cause if isinstance(message, Ended) else f"{leader.name} sent what is not its turn")
    except NodeLostError as error:
        causes.put(error.message)


def _watch_engine(child: EngineChild, causes: SimpleQueue[str]) -> None:
    message = child.channel.receive()
    if isinstance(message, Ready):
        print("lmi: in service", flush=True)
        message = child.channel.receive()
    child.gone.wait()
    cause: LmiError | str = message.message if isinstance(message, EngineFailed) else child.cause or "the engine ended"
    causes.put(str(cause))
