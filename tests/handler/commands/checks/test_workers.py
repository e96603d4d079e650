"""What `lmi check` says of the workers that DJL Serving starts: its rules, as tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from lmi.handler.commands.checks.workers import Machine, worker_lines

from ....kit.api.handler import check_model_dir as check
from ....kit.api.options import load_settings

pytestmark = pytest.mark.once

EIGHT = tuple("01234567")
SHARED = [
    (
        "workers take requests from one queue; each has its own engine, KV cache and limits (256 sequences at once, "
        "1000 waiting)"
    ),
    "sessions: the workers share them, in one folder (option.sessions_path)",
]
FOR_ALL = "sizes its caches for the whole machine"
ONE = "load_on_devices=0 and maxWorkers=1"
ONLY = "DJL Serving starts one worker only, on the first devices"


def lines(
    options: Mapping[str, str],
    devices: tuple[str, ...] = (),
    cores: int = 2,
    variables: Mapping[str, str] | None = None,
) -> list[str]:
    """What is said of `options`, written in serving.properties without `option.`, on such a machine."""
    environment = dict(variables or {})
    given = {"tensor_parallel_degree": environment["TENSOR_PARALLEL_DEGREE"]} if environment else {}
    settings = load_settings(Path("/nowhere"), environment=environment, overrides=options)
    return worker_lines(settings, {**given, **options}, environment, Machine(devices, cores))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "workers: 1 worker, on devices 0,1,2,3,4,5,6,7"),
        ({"tensor_parallel_degree": "max"}, "workers: 1 worker, on devices 0,1,2,3,4,5,6,7"),
        ({"pipeline_parallel_degree": "2"}, "workers: 1 worker, on devices 0,1,2,3,4,5,6,7"),
        ({"tensor_parallel_degree": "8"}, "workers: 1 worker, on devices 0,1,2,3,4,5,6,7"),
        ({"tensor_parallel_degree": "4"}, "workers: 2 workers, on devices 0,1,2,3 and 4,5,6,7"),
        ({"tensor_parallel_degree": "2"}, "workers: 4 workers, on devices 0,1 and 2,3 and 4,5 and 6,7"),
        (
            {"tensor_parallel_degree": "2", "pipeline_parallel_degree": "2"},
            "workers: 2 workers, on devices 0,1,2,3 and 4,5,6,7",
        ),
        ({"tensor_parallel_degree": "1"}, "workers: 8 workers, on devices 0 and 1 and 2 and 3 and 4 and 5 and 6 and 7"),
        ({"tensor_parallel_degree": "2", "load_on_devices": "0;4"}, "workers: 2 workers, on devices 0,1 and 4,5"),
        # Of a group of devices, not of the machine.
        ({"tensor_parallel_degree": "4", "maxWorkers": "1"}, "workers: 2 workers, on devices 0,1,2,3 and 4,5,6,7"),
        (
            {"tensor_parallel_degree": "4", "maxWorkers": "2"},
            "workers: 2 to 4 workers, more than 2 under load, on devices 0,1,2,3 and 4,5,6,7",
        ),
        (
            {"tensor_parallel_degree": "4", "gpu.minWorkers": "2", "gpu.maxWorkers": "2", "maxWorkers": "1"},
            "workers: 4 workers, on devices 0,1,2,3 and 4,5,6,7",
        ),
        ({"tensor_parallel_degree": "2", "enable_lora": "true"}, "workers: 1 worker, on devices 0,1"),
        ({"tensor_parallel_degree": "2", "enable_stateful_sessions": "true"}, "workers: 1 worker, on devices 0,1"),
    ],
    ids=str,
)
def test_devices(options: dict[str, str], said: str) -> None:
    assert said in lines(options, EIGHT)


def test_devices_have_the_containers_names() -> None:
    assert "workers: 2 workers, on devices 0,2 and 3,7" in lines({"tensor_parallel_degree": "2"}, ("0", "2", "3", "7"))


@pytest.mark.parametrize(
    ("options", "devices", "size"),
    [
        ({"tensor_parallel_degree": "4"}, EIGHT[:2], 4),
        ({"tensor_parallel_degree": "2", "pipeline_parallel_degree": "2"}, EIGHT[:2], 4),
        # Java multiplies a `max` that is written out by the stages.
        ({"tensor_parallel_degree": "max", "pipeline_parallel_degree": "2"}, EIGHT, 16),
        ({"pipeline_parallel_degree": "4"}, EIGHT[:2], 0),
        ({"tensor_parallel_degree": "2", "load_on_devices": "7"}, EIGHT, 2),
    ],
    ids=str,
)
def test_too_few_devices(options: dict[str, str], devices: tuple[str, ...], size: int) -> None:
    assert lines(options, devices) == [
        (
            f'warning: DJL Serving will not start: "GPU devices are not enough to run {size} partitions", '
            f"one worker takes {size}, there are {len(devices)}"
        )
    ]


def test_max_in_the_environment_leaves_room_for_stages() -> None:
    """LmiConfigRecommender makes a number of it, as of what is not set."""
    said = lines({"pipeline_parallel_degree": "2"}, EIGHT, variables={"TENSOR_PARALLEL_DEGREE": "max"})
    assert said == ["workers: 1 worker, on devices 0,1,2,3,4,5,6,7"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tensor_parallel_degree": "3"}, "note: no worker uses 2 of the 8 devices"),
        (
            {"tensor_parallel_degree": "4", "maxWorkers": "2"},
            (
                "warning: maxWorkers=2: up to 2 workers use the same devices, each with its own copy of the model; "
                "option.gpu_memory_utilization of all of them together has to stay below 1"
            ),
        ),
        (
            {"tensor_parallel_size": "2"},
            (
                "warning: option.tensor_parallel_size: DJL Serving does not know it, and counts devices by "
                "option.tensor_parallel_degree alone: set option.tensor_parallel_degree=2"
            ),
        ),
        ({"tensor_parallel_degree": "4", "enable_lora": "true"}, f"note: option.enable_lora=true: {ONLY}"),
        ({"enable_stateful_sessions": "True"}, f"note: option.enable_stateful_sessions=true: {ONLY}"),
        (
            {"tensor_parallel_degree": "4", "lmcache_auto_config": "true"},
            f"warning: option.lmcache_auto_config: each worker {FOR_ALL}: for one set {ONE}",
        ),
    ],
    ids=str,
)
def test_notes(options: dict[str, str], said: str) -> None:
    assert said in lines(options, EIGHT)
    assert said not in lines({"tensor_parallel_degree": "4"}, EIGHT)


def test_one_device_of_vllms_own_name_is_one_worker_of_all_devices() -> None:
    assert lines({"tensor_parallel_size": "2"}, EIGHT)[1] == "workers: 1 worker, on devices 0,1,2,3,4,5,6,7"


@pytest.mark.parametrize(
    ("options", "cores", "threads", "said"),
    [
        ({}, 8, None, "1 to 2 workers, more than 1 under load"),
        ({}, 8, "1", "1 to 8 workers, more than 1 under load"),
        ({}, 8, "4", "1 to 2 workers, more than 1 under load"),
        ({}, 2, "16", "1 worker"),
        ({"minWorkers": "2", "maxWorkers": "2"}, 8, None, "2 workers"),
        ({"minWorkers": "4", "maxWorkers": "2"}, 8, None, "2 workers"),
        ({"maxWorkers": "3", "cpu.maxWorkers": "1"}, 8, None, "1 worker"),
        ({"maxWorkers": "3", "gpu.maxWorkers": "1"}, 8, None, "1 to 3 workers, more than 1 under load"),
        ({"maxWorkers": "-1"}, 8, None, "1 to 2 workers, more than 1 under load"),
        ({"minWorkers": "2", "maxWorkers": "2", "enable_lora": "true"}, 8, None, "1 worker"),
    ],
    ids=str,
)
def test_on_a_cpu(options: dict[str, str], cores: int, threads: str | None, said: str) -> None:
    settings = load_settings(Path("/nowhere"), environment={}, overrides=options)
    environment = {"OMP_NUM_THREADS": threads} if threads else {}
    assert worker_lines(settings, options, environment, Machine((), cores))[0] == f"workers: {said}, on the CPU"


def test_one_worker_on_a_cpu_is_none() -> None:
    starts = "starts one worker only, on device 0: without a GPU it does not start"
    said = lines({"enable_stateful_sessions": "true"})
    assert said[1:] == [f"note: option.enable_stateful_sessions=true: DJL Serving {starts}"]


@pytest.mark.parametrize(
    ("options", "variables", "said"),
    [
        ({}, {}, "each has a KV cache of its own: set option.kv_cache_memory_bytes to what one may take"),
        ({"kv_cache_memory_bytes": str(3 << 29)}, {}, "each has a KV cache of 1.50 GiB, 4.50 GiB in all"),
        ({}, {"VLLM_CPU_KVCACHE_SPACE": "2"}, "each has a KV cache of 2.00 GiB, 6.00 GiB in all"),
    ],
    ids=str,
)
def test_memory_on_a_cpu(options: dict[str, str], variables: dict[str, str], said: str) -> None:
    settings = load_settings(Path("/nowhere"), environment={}, overrides={**options, "maxWorkers": "3"})
    told = worker_lines(settings, {**options, "maxWorkers": "3"}, variables, Machine((), 4))
    assert told[1:] == [f"note: {said}", *SHARED]


def test_stages_over_several_nodes_are_not_of_the_hosts_devices() -> None:
    over_nodes = {"pipeline_parallel_size": "2", "nnodes": "2", "master_addr": "a"}
    assert lines(over_nodes, EIGHT) == ["workers: 1 worker, on devices 0,1,2,3,4,5,6,7"]
    assert lines({"pipeline_parallel_size": "2"}, EIGHT)[0].startswith("warning: option.pipeline_parallel_size: ")


def test_what_several_workers_share() -> None:
    assert lines({"tensor_parallel_degree": "4"}, EIGHT)[1:] == SHARED
    assert lines({"tensor_parallel_degree": "8"}, EIGHT)[1:] == []
    without = {"tensor_parallel_degree": "4", "enable_stateful_sessions": "false"}
    assert lines(without, EIGHT)[1:] == SHARED[:1]


NIXL = {"kv_connector": "NixlConnector", "kv_role": "kv_both"}
MULTI = {"kv_connector": "MultiConnector", "kv_connector_extra_config": {"connectors": [NIXL]}}


@pytest.mark.parametrize(
    ("options", "variables", "what", "port"),
    [
        ({"kv_transfer_config": json.dumps(NIXL)}, {}, "NixlConnector", "5600"),
        ({"kv_transfer_config": json.dumps(MULTI)}, {"VLLM_NIXL_SIDE_CHANNEL_PORT": "7000"}, "NixlConnector", "7000"),
        ({"kv_transfer_config": '{"kv_connector": "P2pNcclConnector"}'}, {}, "P2pNcclConnector", "14579"),
        ({"kv_transfer_config": '{"kv_connector": "MooncakeConnector"}'}, {}, "MooncakeConnector", "8998"),
        ({"kv_events_config": '{"enable_kv_cache_events": true}'}, {}, "option.kv_events_config", "5557"),
    ],
    ids=str,
)
def test_ports_that_are_not_chosen_free(
    options: dict[str, str], variables: dict[str, str], what: str, port: str
) -> None:
    two = {"tensor_parallel_degree": "4", **options}
    settings = load_settings(Path("/nowhere"), environment={}, overrides=two)
    told = worker_lines(settings, two, variables, Machine(EIGHT, 2))
    gets = f"and only the first one gets it: for one worker set {ONE}"
    note = f"warning: {what}: every worker wants port {port}, {gets}"
    assert told[1:] == [*SHARED, note]
    one = {**two, "tensor_parallel_degree": "8"}
    settings = load_settings(Path("/nowhere"), environment={}, overrides=one)
    assert note not in worker_lines(settings, one, variables, Machine(EIGHT, 2))


def test_ports_of_several_hosts() -> None:
    hosts = {"tensor_parallel_degree": "4", "nnodes": "2", "master_addr": "a", "master_port": "30000"}
    told = lines(hosts, EIGHT)
    for port in ("29600 (option.node_port)", "30000 (option.master_port)"):
        note = f"warning: several hosts: every worker wants port {port}, and only the first one gets it"
        assert f"{note}: for one worker set {ONE}" in told


def test_visible_devices_stand_for_a_machine_with_them() -> None:
    assert Machine.here({"CUDA_VISIBLE_DEVICES": "0, 2,GPU-8f1"}).devices == ("0", "2", "GPU-8f1")
    assert Machine.here({"CUDA_VISIBLE_DEVICES": ""}).devices == ()
    assert Machine.here({"CUDA_VISIBLE_DEVICES": "-1"}).devices == ()


def test_lmi_check_says_it(tmp_path: Path) -> None:
    (tmp_path / "serving.properties").write_text("option.entryPoint=lmi.handler\noption.tensor_parallel_degree=2\n")
    environment = {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}
    said = check(tmp_path, {"option.load_format": "dummy"}, environment=environment, files=False)
    assert "workers: 2 workers, on devices 0,1 and 2,3" in said
    assert SHARED[0] in said
