"""How many devices and hosts run the model together, and how the hosts find each other."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ..option import Option

__all__ = ["ParallelOptions"]


# fmt: off
class ParallelOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the options say of it, beside the degrees (Settings)."""

    data_parallel_size: Annotated[int, Option(
        "How many copies of the model one worker runs, among which its requests are spread. `tensor_parallel_degree` "
        "counts the devices of all of them: vLLM's own tensor size is that divided by it.", ge=1,
        argument="data_parallel_size",
    )] = 1
    nnodes: Annotated[int, Option(
        "How many hosts run the model together; on all but the first one `lmi follow` runs. `tensor_parallel_degree` "
        "counts the devices of one of them.", ge=1,
    )] = 1
    node_rank: Annotated[int, Option("The number of this host; 0 is the leader, which takes requests.", ge=0)] = 0
    master_addr: Annotated[str | None, Option(
        "The leader's name or address, as the other hosts reach it.",
    )] = None
    master_port: Annotated[int, Option("The leader's port for vLLM's processes.", ge=1)] = 29501
    node_port: Annotated[int, Option("The leader's port for `lmi follow`.", ge=1)] = 29600
    node_start_timeout: Annotated[float, Option("Seconds that a start waits for the other hosts.", ge=1)] = 300.0
    node_timeout: Annotated[float, Option(
        "Seconds without a sign of life after which another host counts as lost.", ge=1,
    )] = 10.0
# fmt: on

    @property
    def follows(self) -> bool:
        """Whether this host is one of several, and not their leader."""
        return self.nnodes > 1 and self.node_rank > 0
