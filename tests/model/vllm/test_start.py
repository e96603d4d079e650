"""What of vLLM's configuration follows from several options together (all of it: setup/test_config_of_server.py)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lmi.model.vllm.start import make_config

from ...kit.api.engine import start_error
from ...kit.api.options import make_settings
from ...kit.hosts.host import model_directory

pytestmark = pytest.mark.engine


def tokens_of_a_step(config: Any) -> int:
    return int(config.scheduler_config.max_num_batched_tokens)


def settings(model: Path, folder: Path, **options: str) -> Any:
    # What tests set so that engines start fast is what is asked here.
    return make_settings(model_directory(model, folder / "model", {"option.max_num_batched_tokens": "none", **options}))


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
