"""vLLM's sizes, of DJL Serving's degrees and of the numbers of copies and hosts."""

from __future__ import annotations

import pytest

from ....kit.api.errors import OptionError
from ....kit.api.options import make_settings
from ....kit.rows import each_row

HOSTS = {"nnodes": "2", "master_addr": "leader"}

SIZES = {
    "the degree alone is vLLM's size": ({"tensor_parallel_degree": "4"}, "4"),
    "with copies it counts all devices": ({"tensor_parallel_degree": "8", "data_parallel_size": "4"}, "2"),
    "of each stage": (
        {"tensor_parallel_degree": "4", "pipeline_parallel_degree": "2", "data_parallel_size": "2"}, "2"),
    "vLLM's name is vLLM's size": ({"tensor_parallel_size": "2", "data_parallel_size": "4"}, "2"),
    "vLLM's name goes before the degree that DJL Serving sets": (
        {"tensor_parallel_size": "2", "tensor_parallel_degree": "8", "data_parallel_size": "4"}, "2"),
    "on several hosts it counts those of one": ({**HOSTS, "tensor_parallel_degree": "8"}, "16"),
    "which the stages share": ({**HOSTS, "tensor_parallel_degree": "8", "pipeline_parallel_size": "2"}, "8"),
    "vLLM's name is vLLM's size on several hosts": ({**HOSTS, "tensor_parallel_size": "4"}, "4"),
    "max is left to the engine's side": ({"tensor_parallel_degree": "max", "data_parallel_size": "2"}, None),
}  # fmt: skip


@each_row("given", SIZES)
def test_sizes(given: str) -> None:
    options, size = SIZES[given]
    assert make_settings(**options).engine_arguments.get("tensor_parallel_size") == size


FAULTS = {
    "a degree that copies do not divide": (
        {"tensor_parallel_degree": "4", "data_parallel_size": "3"},
        "expected a multiple of option.data_parallel_size=3, as it counts all devices of the worker, got 4"),
    "one that stages do not divide": (
        {**HOSTS, "tensor_parallel_degree": "3", "pipeline_parallel_size": "4"},
        "expected a multiple of option.pipeline_parallel_size=4, as it counts all devices of the worker, got 3 (x nno"),
    "no leader": ({"nnodes": "2"}, "option.master_addr: expected the leader's address with option.nnodes=2, but it is"),
    "a number beyond": ({**HOSTS, "node_rank": "2"}, "option.node_rank: expected less than option.nnodes=2, got 2"),
    "copies on several hosts": (
        {**HOSTS, "data_parallel_size": "2"}, "option.data_parallel_size: expected 1 with option.nnodes=2: copies on"),
    "DJL Serving's stages on several hosts": (
        {**HOSTS, "pipeline_parallel_degree": "2"},
        "option.pipeline_parallel_degree: expected option.pipeline_parallel_size in its place with option.nnodes=2"),
    "vLLM's copies elsewhere": ({"data_parallel_rank": "1"}, "option.data_parallel_rank: expected no such option"),
    "an external balancer": ({"data_parallel_external_lb": "true"}, "option.data_parallel_external_lb: expected no"),
}  # fmt: skip


@each_row("fault", FAULTS)
def test_what_does_not_go_together(fault: str) -> None:
    options, message = FAULTS[fault]
    with pytest.raises(OptionError) as refused:
        make_settings(**options)
    assert message in refused.value.message


def test_vllm_is_told_of_the_hosts() -> None:
    taken = make_settings(**HOSTS, node_rank="1", master_port="4000", node_port="4001", backend="transformers")
    arguments = taken.engine_arguments
    assert [arguments[name] for name in ("nnodes", "node_rank", "master_addr", "master_port")] == [
        "2", "1", "leader", "4000",
    ]  # fmt: skip
    assert taken.backend == "vllm"
    assert taken.parallel.follows
    assert not make_settings(**HOSTS).parallel.follows
    alone = make_settings(nnodes="1", master_addr="leader", node_rank="0")
    assert not {"nnodes", "master_addr", "node_rank"} & alone.engine_arguments.keys()


def test_one_copy_is_what_there_is_without_the_option() -> None:
    assert make_settings(data_parallel_size="1").engine_arguments["data_parallel_size"] == "1"
    assert make_settings(data_parallel_external_lb="false", data_parallel_rank="none").parallel.data_parallel_size == 1
