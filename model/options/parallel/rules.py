"""vLLM's sizes, of DJL Serving's degrees: DJL cuts `tensor_parallel_degree` x `pipeline_parallel_degree` devices of its
own host out for a worker, whatever the worker makes of them (ModelInfo.getLoadOnDevices, Connection.getVisibleDevices).

    devices of a host x nnodes = tensor size x pipeline size x data_parallel_size
"""

from __future__ import annotations

from ...errors import Fault
from ..option_reader import OptionReader
from ..settings import Settings

__all__ = ["check_parallel"]

DEGREE, SIZE = "tensor_parallel_degree", "tensor_parallel_size"
STAGES = "pipeline_parallel_degree"
ELSEWHERE = (
    "data_parallel_size_local", "data_parallel_start_rank", "data_parallel_rank", "data_parallel_address",
    "data_parallel_rpc_port", "data_parallel_external_lb", "data_parallel_hybrid_lb",
)  # fmt: skip
"""vLLM's arguments for copies of the model that run on other hosts, or behind a balancer of somebody else's."""


def check_parallel(settings: Settings, reader: OptionReader) -> None:
    """Faults of what does not go together; puts vLLM's sizes and the hosts among the engine's arguments."""
    parallel, stages = settings.parallel, settings.pipeline_parallel_degree
    copies, hosts = parallel.data_parallel_size, parallel.nnodes
    for name in ELSEWHERE:
        if reader.arguments.get(name, "").lower() not in {"", "none", "null", "false"}:
            why = "copies of the model run in this worker (data_parallel_size)"
            reader.fault(name, why, expected="no such option")
    if hosts > 1:
        _check_hosts(settings, reader)
    elif copies == 1:
        return
    degree = settings.tensor_parallel_degree
    if degree is None or reader.name_given(DEGREE) != DEGREE:
        return
    devices = degree * hosts
    parts = copies if hosts == 1 else copies * stages
    if devices % parts:
        by, size = ("data_parallel_size", copies) if hosts == 1 else ("pipeline_parallel_size", stages)
        expected = f"a multiple of {reader.called(by)}={size}, as it counts all devices of the worker"
        across = f"{degree} (x nnodes={hosts})" if hosts > 1 else str(degree)
        reader.found(Fault(DEGREE, expected=expected, given=across))
    reader.arguments[SIZE] = str(devices // parts)


def _check_hosts(settings: Settings, reader: OptionReader) -> None:
    parallel = settings.parallel
    hosts = parallel.nnodes
    several = f"{reader.called('nnodes')}={hosts}"
    if parallel.data_parallel_size > 1:
        why = "copies on several hosts are endpoints of their own"
        reader.fault("data_parallel_size", why, expected=f"1 with {several}")
    if parallel.master_addr is None:
        reader.fault("master_addr", expected=f"the leader's address with {several}, but it is not set")
    if parallel.node_rank >= hosts:
        reader.fault("node_rank", expected=f"less than {several}", given=parallel.node_rank)
    if reader.name_given(STAGES) == STAGES and settings.pipeline_parallel_degree > 1:
        expected = f"option.pipeline_parallel_size in its place with {several}"
        reader.fault(STAGES, "DJL Serving takes the degree for devices of its own host", expected=expected)
    reader.arguments |= {
        "nnodes": str(hosts), "node_rank": str(parallel.node_rank), "master_addr": str(parallel.master_addr),
        "master_port": str(parallel.master_port),
    }  # fmt: skip
