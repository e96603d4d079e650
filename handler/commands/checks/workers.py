"""What `lmi check` says of the workers that DJL Serving starts: how many, on which devices, and what they share.

The rules are those of DJL Serving 0.36: ModelInfo (getLoadOnDevices, getMaxWorkers), LmiConfigRecommender,
PyModel.load, Connection.getVisibleDevices. Nothing of them is this handler's to change.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ....model.options import Settings

__all__ = ["Machine", "worker_lines"]

SINGLE = ("enable_lora", "enable_stateful_sessions")
"""Options that, written out as true, make DJL Serving start one worker (LmiConfigRecommender)."""
DEGREES = {"tensor_parallel_degree": "tensor_parallel_size", "pipeline_parallel_degree": "pipeline_parallel_size"}
"""What DJL Serving cuts the devices out by, and vLLM's own names of the same."""
CPU_WORKERS = 2
"""How many there are at most on a CPU where neither maxWorkers nor OMP_NUM_THREADS says it."""
GIB = 1 << 30


@dataclass(frozen=True)
class Machine:
    """What of a machine decides on the workers."""

    devices: tuple[str, ...]
    """The GPUs, by their names in CUDA_VISIBLE_DEVICES; none: the model runs on the CPU."""
    cores: int

    @classmethod
    def here(cls, environment: Mapping[str, str]) -> Machine:
        """This one; CUDA_VISIBLE_DEVICES goes before what torch counts, so that it may stand for another machine."""
        cores = os.cpu_count() or 1
        if (visible := environment.get("CUDA_VISIBLE_DEVICES")) is not None:
            return cls(tuple(name.strip() for name in visible.split(",") if name.strip() not in {"", "-1"}), cores)
        if importlib.util.find_spec("torch") is None:
            return cls((), cores)
        import torch

        return cls(tuple(str(number) for number in range(torch.cuda.device_count())), cores)


def worker_lines(
    settings: Settings, given: Mapping[str, str], environment: Mapping[str, str], machine: Machine
) -> list[str]:
    """Lines for a person. `given` are the options as they are written, without `option.`."""
    single = [f"option.{name}=true" for name in SINGLE if given.get(name, "").strip().lower() == "true"]
    nodes = settings.parallel.nnodes > 1
    if machine.devices:
        lines, most = _on_devices(settings, given, machine.devices, bool(single), nodes)
    else:
        lines, most = _on_cpu(settings, given, environment, machine.cores, bool(single))
    if single:
        where = "on the first devices" if machine.devices else "on device 0: without a GPU it does not start"
        lines.append(f"note: {' and '.join(single)}: DJL Serving starts one worker only, {where}")
    if most > 1:
        one = "load_on_devices=0 and maxWorkers=1" if machine.devices else "maxWorkers=1"
        lines += [*_shared(settings, one), *_clashes(settings, environment, one)]
    return lines


def _on_devices(
    settings: Settings, given: Mapping[str, str], devices: tuple[str, ...], single: bool, nodes: bool
) -> tuple[list[str], int]:
    """The lines, and how many workers there will be at most; 0 where DJL Serving does not start."""
    lines = [
        f"warning: option.{name}: DJL Serving does not know it, and counts devices by option.{known} alone: "
        f"set option.{known}={given[name]}"
        for known, name in DEGREES.items()
        # Stages over several nodes are nothing of its own devices.
        if name in given and known not in given and not (nodes and known == "pipeline_parallel_degree")
    ]
    size = _devices_of_worker(settings, given, len(devices))
    starts = _starts(given, len(devices), size, single)
    if not size or not starts or max(starts) + size > len(devices):
        wanted = f"one worker takes {size}, there are {len(devices)}"
        return [
            *lines,
            f'warning: DJL Serving will not start: "GPU devices are not enough to run {size} partitions", {wanted}',
        ], 0
    each, most = _numbers(given, "gpu", 1, single)
    groups = " and ".join(",".join(devices[start : start + size]) for start in starts)
    lines.append(f"workers: {_range(len(starts) * each, len(starts) * most)}, on devices {groups}")
    if left := len(devices) - len(starts) * size:
        lines.append(f"note: no worker uses {left} of the {len(devices)} devices")
    if most > 1:
        lines.append(
            f"warning: maxWorkers={most}: up to {most} workers use the same devices, each with its own copy of the "
            "model; option.gpu_memory_utilization of all of them together has to stay below 1"
        )
    return lines, len(starts) * most


def _devices_of_worker(settings: Settings, given: Mapping[str, str], devices: int) -> int:
    stages = settings.pipeline_parallel_degree if "pipeline_parallel_degree" in given else 1
    if "tensor_parallel_degree" not in given and "tensor_parallel_size" in given:
        return devices // stages * stages
    if settings.tensor_parallel_degree is not None:
        return settings.tensor_parallel_degree * stages
    written = (
        given.get("tensor_parallel_degree")
        and settings.sources.get("tensor_parallel_degree") != "TENSOR_PARALLEL_DEGREE"
    )
    # Java does not divide the devices by the stages where `max` is written out as an option (getLoadOnDevices).
    return devices * stages if written else devices // stages * stages


def _starts(given: Mapping[str, str], devices: int, size: int, single: bool) -> list[int]:
    """The first device of each worker."""
    chosen = "0" if single else given.get("load_on_devices", "*").strip()
    if chosen == "*":
        return list(range(0, devices - size + 1, size)) if size else []
    return [int(text) for text in chosen.split(";") if text.strip().isdecimal()]


def _on_cpu(
    settings: Settings, given: Mapping[str, str], environment: Mapping[str, str], cores: int, single: bool
) -> tuple[list[str], int]:
    threads = environment.get("OMP_NUM_THREADS", "")
    spread = cores // min(int(threads), cores) if threads.isdecimal() and int(threads) else CPU_WORKERS
    least, most = _numbers(given, "cpu", spread, single)
    lines = [f"workers: {_range(least, most)}, on the CPU"]
    if most > 1:
        size, space = (
            settings.engine_arguments.get("kv_cache_memory_bytes", ""),
            environment.get("VLLM_CPU_KVCACHE_SPACE", ""),
        )
        one = int(size) / GIB if size.isdecimal() else int(space) if space.isdecimal() else None
        if one is None:
            lines.append("note: each has a KV cache of its own: set option.kv_cache_memory_bytes to what one may take")
        else:
            lines.append(f"note: each has a KV cache of {one:.2f} GiB, {most * one:.2f} GiB in all")
    return lines, most


def _numbers(given: Mapping[str, str], kind: str, otherwise: int, single: bool) -> tuple[int, int]:
    """How many workers a group of devices has at first, and at most."""

    def number(name: str, otherwise: int) -> int:
        # That of the kind of device goes first; what is not above 0 says nothing.
        text = given.get(f"{kind}.{name}", given.get(name, "")).strip()
        return int(text) if text.isdecimal() and int(text) else otherwise

    most = 1 if single else number("maxWorkers", otherwise)
    return min(number("minWorkers", 1), most), most


def _range(least: int, most: int) -> str:
    many = f"{most} worker{'' if most == 1 else 's'}"
    return many if least == most else f"{least} to {many}, more than {least} under load"


def _shared(settings: Settings, one: str) -> Iterator[str]:
    limits = f"{settings.max_rolling_batch_size} sequences at once, {settings.limits.max_queued_requests} waiting"
    yield f"workers take requests from one queue; each has its own engine, KV cache and limits ({limits})"
    if settings.sessions.enable_stateful_sessions:
        yield "sessions: the workers share them, in one folder (option.sessions_path)"
    if settings.lmcache_auto_config:
        alone = "each worker sizes its caches for the whole machine"
        yield f"warning: option.lmcache_auto_config: {alone}: for one set {one}"


def _clashes(settings: Settings, environment: Mapping[str, str], one: str) -> Iterator[str]:
    """The ports that vLLM (up to 0.32) and `lmi follow` take as they are given; others are free ones.

    A second worker that wants one does not start: "Address already in use".
    """
    for what, port in _fixed_ports(settings, environment):
        first = f"every worker wants port {port}, and only the first one gets it"
        yield f"warning: {what}: {first}: for one worker set {one}"


def _fixed_ports(settings: Settings, environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    arguments, parallel = settings.engine_arguments, settings.parallel
    if parallel.nnodes > 1:
        yield "several hosts", f"{parallel.node_port} (option.node_port)"
        yield "several hosts", f"{parallel.master_port} (option.master_port)"
    transfer = _object(arguments.get("kv_transfer_config", ""))
    for name in _connectors(transfer):
        if name == "NixlConnector":
            yield name, environment.get("VLLM_NIXL_SIDE_CHANNEL_PORT", "5600")
        elif name == "P2pNcclConnector":
            yield name, str(transfer.get("kv_port", 14579))
        elif name == "MooncakeConnector":
            yield name, environment.get("VLLM_MOONCAKE_BOOTSTRAP_PORT", "8998")
    events = _object(arguments.get("kv_events_config", ""))
    if events.get("enable_kv_cache_events"):
        yield "option.kv_events_config", str(events.get("endpoint", "tcp://*:5557")).rpartition(":")[2]


def _connectors(transfer: Mapping[str, Any]) -> Iterator[str]:
    """The names of the connectors of a `kv_transfer_config`, those inside a MultiConnector too."""
    yield str(transfer.get("kv_connector", ""))
    inner: Any = transfer.get("kv_connector_extra_config") or {}
    for one in inner.get("connectors", ()) if isinstance(inner, dict) else ():
        yield from _connectors(one)


def _object(text: str) -> dict[str, Any]:
    """An option's JSON object; empty where it is none, which vLLM will say."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
