"""Variables by which a host learns that it is one of several: LeaderWorkerSet's, before those of DJL Serving's images.

LeaderWorkerSet sets them in each of a group's pods (sigs.k8s.io/lws, api/leaderworkerset/v1, LwsGroupSize and others).
DJL Serving's are read by its own cluster code too (0.36, ClusterConfig, PyProcess); it has none for a host's number.
"""

from __future__ import annotations

from .variable import Variable, option

__all__ = ["CLUSTER"]


def _hosts(text: str) -> str:
    if not text.isdecimal():
        raise ValueError("a number of hosts")
    return text


CLUSTER: tuple[Variable, ...] = (
    option("LWS_GROUP_SIZE", "nnodes", convert=_hosts, help="Set by LeaderWorkerSet."),
    option("LWS_WORKER_INDEX", "node_rank", convert=_hosts, help="Set by LeaderWorkerSet."),
    option("LWS_LEADER_ADDRESS", "master_addr", help="Set by LeaderWorkerSet."),
    option("DJL_CLUSTER_SIZE", "nnodes", convert=_hosts, help="LeaderWorkerSet's goes first."),
    option("DJL_LEADER_ADDR", "master_addr", help="LeaderWorkerSet's goes first."),
)
