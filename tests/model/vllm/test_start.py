"""vLLM's configuration of a server, on devices that this machine does not have, and of what the user did not set."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lmi.model.vllm.start import make_config

from ...kit.api.engine import start_error
from ...kit.api.options import make_settings
from ...kit.hosts.host import model_directory

pytestmark = pytest.mark.engine

DEVICES = {
    "NVIDIA A10G": 24,
    "NVIDIA L4": 24,
    "NVIDIA A100-SXM4-80GB": 80,
    "NVIDIA H100 80GB HBM3": 80,
    "NVIDIA H200": 141,
    "NVIDIA B200": 192,
}
"""GiB of memory by the name that the driver has for them."""


class Device:
    """vLLM's platform, but for the device that vLLM's defaults are by (arg_utils.py, get_batch_defaults)."""

    def __init__(self, platform: Any, name: str) -> None:
        self._platform = platform
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._platform, name)

    def get_device_name(self, device_id: int = 0) -> str:
        del device_id
        return self._name

    def get_device_total_memory(self, device_id: int = 0) -> int:
        del device_id
        return DEVICES[self._name] << 30

    def is_cpu(self) -> bool:
        return False


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    from vllm.engine import arg_utils as module

    arg_utils: Any = module
    monkeypatch.setattr(arg_utils, "current_platform", Device(arg_utils.current_platform, request.param))
    return str(request.param)


def tokens_of_a_step(config: Any) -> int:
    return int(config.scheduler_config.max_num_batched_tokens)


def servers_step(model: Path, **arguments: Any) -> int:
    """What `vllm serve` has: its server's own context, which is the default of the function that starts its engine."""
    from vllm import EngineArgs
    from vllm.entrypoints.openai import api_server

    signature = inspect.signature(api_server.build_async_engine_client_from_engine_args)
    context = signature.parameters["usage_context"].default
    arguments = {"model": str(model), "max_model_len": 2048, "enforce_eager": True, **arguments}
    return tokens_of_a_step(EngineArgs(**arguments).create_engine_config(usage_context=context))


def settings(model: Path, folder: Path, **options: str) -> Any:
    # What tests set so that engines start fast is what is asked here.
    return make_settings(model_directory(model, folder / "model", {"option.max_num_batched_tokens": "none", **options}))


def test_a_step_computes_as_many_tokens_as_vllms_server(device: str, demo_model: Path, tmp_path: Path) -> None:
    config, _ = make_config(settings(demo_model, tmp_path))
    assert tokens_of_a_step(config) == servers_step(demo_model)


DRAFTED = 9
"""With so many drafted tokens 256 sequences take 2,560 in a step, which vLLM insists on for adapters."""


def test_drafted_tokens_and_adapters_make_no_step_smaller(device: str, demo_model: Path, tmp_path: Path) -> None:
    options = {
        "option.enable_lora": "true",
        "option.speculative_draft_model": "ngram",
        "option.speculative_length": str(DRAFTED),
    }
    config, _ = make_config(settings(demo_model, tmp_path, **options))
    assert tokens_of_a_step(config) == max(256 * (DRAFTED + 1), servers_step(demo_model))


def draft_size(config: Any) -> int:
    """The tensor size of the draft model; raises what vLLM's worker raises when it loads one."""
    from vllm.v1.spec_decode.draft_model import DraftModelProposer

    speculative, proposer = config.speculative_config, cast("Any", DraftModelProposer)
    proposer._raise_if_draft_tp_mismatch(SimpleNamespace(speculative_config=speculative))
    return int(speculative.draft_tensor_parallel_size)


@pytest.mark.parametrize("devices", ["1", "2"])
def test_a_draft_model_has_as_many_devices_as_its_model(demo_model: Path, tmp_path: Path, devices: str) -> None:
    options = {"option.speculative_draft_model": str(demo_model), "option.tensor_parallel_degree": devices}
    config, _ = make_config(settings(demo_model, tmp_path, **options))
    assert draft_size(config) == int(devices)


MISMATCHES = {
    "one": ({"speculative_draft_model": "DRAFT", "draft_model_tp_size": "1"}, "draft_model_tp_size"),
    "three": ({"speculative_draft_model": "DRAFT", "draft_model_tp_size": "3"}, "draft_model_tp_size"),
    "vLLM's own": (
        {
            "speculative_config": '{"model": "DRAFT", "draft_tensor_parallel_size": 1, "num_speculative_tokens": 2}',
        },
        "speculative_config",
    ),
}


@pytest.mark.parametrize("case", MISMATCHES)
def test_an_error_names_the_option_that_was_written(demo_model: Path, tmp_path: Path, case: str) -> None:
    given, option = MISMATCHES[case]
    options = {f"option.{name}": text.replace("DRAFT", str(demo_model)) for name, text in given.items()}
    asked = settings(demo_model, tmp_path, **{"option.tensor_parallel_degree": "2", **options})

    def start() -> None:
        config, _ = make_config(asked)
        draft_size(config)

    with pytest.raises(Exception, match=r".") as caught:
        start()
    error = start_error(caught.value, asked)
    assert error.param == option, error
    assert error.message.startswith(f"the engine could not start, see option.{option}: ")


def test_a_small_step_makes_room_for_fewer_sequences(demo_model: Path, tmp_path: Path) -> None:
    """vLLM refuses more sequences than tokens in a step; ours are 256 only where nobody says otherwise."""
    config, _ = make_config(settings(demo_model, tmp_path, **{"option.max_num_batched_tokens": "64"}))
    assert config.scheduler_config.max_num_seqs == tokens_of_a_step(config) == 64
