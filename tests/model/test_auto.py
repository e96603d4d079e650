"""backend=auto: vLLM, or the transformers engine for what vLLM does not have."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import httpx
import pytest

from lmi.model.auto import first_that_runs, refusal

from ..kit.api.errors import OptionError
from ..kit.api.options import make_settings
from ..kit.api.types import Generation, Sampling
from ..kit.engines.backends import deltas, run
from ..kit.engines.start import ON_TRANSFORMERS, engine_arguments, in_process, vllm_only_reads_options
from ..kit.hosts.host import Server, model_directory

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def model_dir(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_directory(demo_model, tmp_path_factory.mktemp("transformers") / "model", ON_TRANSFORMERS)


GPT_NEO = {
    "vocab_size": 640, "hidden_size": 32, "num_layers": 2, "num_heads": 2, "intermediate_size": 64, "window_size": 8,
    "attention_types": [[["global", "local"], 1]], "max_position_embeddings": 128, "bos_token_id": 1, "eos_token_id": 3,
}  # fmt: skip


@pytest.fixture(scope="module")
def foreign(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of an architecture that vLLM does not have."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    target = tmp_path_factory.mktemp("foreign") / "model"
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(AutoConfig.for_model("gpt_neo", **GPT_NEO)).save_pretrained(target)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (target / name).symlink_to(demo_model / name)
    return target


def test_the_fallback_for_an_architecture_that_vllm_does_not_have(
    foreign: Path, model_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:

    assert refusal(make_settings(model_dir, rolling_batch="auto", backend="auto")) is None
    assert refusal(make_settings(model_dir, rolling_batch="auto", backend="auto", attn_implementation="eager")) is None
    with pytest.raises(Exception, match="not supported for now"):
        in_process(make_settings(foreign))
    with caplog.at_level(logging.WARNING, "lmi"):
        only_here = {"attn_implementation": "eager"}
        engine: Any = in_process(
            make_settings(foreign, backend="auto", enforce_eager="true", stream_interval="3", **only_here)
        )
    assert engine.info.engine == "transformers"
    assert engine._loaded.model.config._attn_implementation == "eager"
    sampling = Sampling(temperature=0.0, max_tokens=5, ignore_eos=True)
    asked = Generation(request_id="test", prompt="Hello", sampling=sampling, tokens=True)
    (events,) = run(engine, asked)
    engine.close()
    assert [token.id for delta in deltas(events) for token in delta.tokens] == greedy(foreign, "Hello", 5)[0]
    logged = [record.getMessage() for record in caplog.records]
    (line,) = [line for line in logged if "transformers engine runs this model" in line]
    assert "GPTNeoForCausalLM" in line
    assert "without effect on the transformers engine: option.stream_interval" in logged


def greedy(model: Path, prompt: str, count: int) -> tuple[list[int], str]:
    """What transformers itself goes on with, past any end: ids and text."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(model)
    loaded: Any = AutoModelForCausalLM.from_pretrained(model).eval()
    given = tokenizer(prompt, return_tensors="pt")
    made = loaded.generate(**given, do_sample=False, min_new_tokens=count, max_new_tokens=count, pad_token_id=0)
    new = [int(token) for token in made[0, given["input_ids"].shape[1] :]]
    return new, str(tokenizer.decode(new))


def test_the_fallback_behind_the_local_server(foreign: Path, tmp_path: Path) -> None:
    properties = {"option.backend": "auto", "option.attn_implementation": "eager", "option.max_model_len": "128"}
    running = Server(model_directory(foreign, tmp_path / "model", properties), tmp_path / "log")
    try:
        parameters = {"max_new_tokens": 8, "ignore_eos_token": True, "skip_special_tokens": False}
        body = {"inputs": "Hello there", "parameters": parameters}
        answer = httpx.post(f"{running.url}/invocations", json=body, timeout=60)
        assert answer.status_code == 200, answer.text
        assert answer.json()["generated_text"] == greedy(foreign, "Hello there", 8)[1]
        (line,) = [line for line in running.log_text().splitlines() if "transformers engine runs this model" in line]
        assert "GPTNeoForCausalLM" in line
    finally:
        running.stop()


def test_what_vllm_does_not_have_is_told_where_it_is_chosen(
    model_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With backend=auto; a choice of vLLM alone refuses it, as any name that is wrong."""

    vllm_only_reads_options(monkeypatch)
    auto = {"rolling_batch": "auto", "backend": "auto"}
    taken: Any = first_that_runs(make_settings(model_dir, **auto, attn_implementation="eager", device_map="auto"))
    assert "attn_implementation" not in taken
    first_that_runs(make_settings(model_dir, **auto))
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("lmi.")]
    assert ours == ["without effect on vLLM: option.attn_implementation, option.device_map"]
    with pytest.raises(OptionError, match=r"option\.attn_implementation: there is no such option"):
        engine_arguments(make_settings(model_dir, rolling_batch="vllm", attn_implementation="eager"))
    with pytest.raises(OptionError, match=r"did you mean option\.attn"):
        first_that_runs(make_settings(model_dir, **auto, attn_implementatoin="eager"))
