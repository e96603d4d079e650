"""Other hosts that run the model together with this one, its leader: they are waited for before the core is started."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Event, Thread

from ...nodes.facts import LEADERS, facts_of
from ...nodes.leader import Followers
from ...options import Settings
from ...process.ending.exit_report import end_at_once

__all__ = ["ADDRESS", "joined_by_others"]

log = logging.getLogger(__name__)

ADDRESS = "VLLM_HOST_IP"
"""vLLM's variable for the address of this host by which the others reach it."""


@contextmanager
def joined_by_others(settings: Settings, arguments: Mapping[str, str], ended: Event) -> Iterator[None]:
    """Waits until all hosts have joined, and tells them those of vLLM's `arguments` that this one decides; what is done
    within starts the core. From then on this process ends with any of them, and tells them once the core has `ended`.

    Raises StartError, naming who is missing.
    """
    if settings.parallel.nnodes == 1:
        yield
        return
    told = {name: arguments[name] for name in LEADERS}
    followers = Followers(settings.parallel, facts_of(settings), told, end_at_once)
    try:
        followers.gather()
        if followers.address:
            os.environ.setdefault(ADDRESS, followers.address)
        yield
    except BaseException as error:
        followers.close(f"the leader could not start: {error}")
        raise

    def tell() -> None:
        ended.wait()
        followers.close("the leader's engine has ended")

    Thread(target=tell, name="lmi-hosts", daemon=True).start()
