"""A model that cannot be served: start-up says why in one line that names the file or the option, and exits with 1."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ....kit.api.options import load_settings, make_settings
from ....kit.djl import hosting
from ....kit.djl.hosting import HostError
from ....kit.faults.start_faults import FAULTS, copy, weights
from ....kit.hosts.host import djl_host, free_port, model_directory
from ....kit.installed import LMI
from ....kit.paths import ROOT
from ....kit.rows import each_row

Told = tuple[str, int, str, str | None]

OURS = "the engine could not start, see option."
EXPECTED: dict[str, tuple[str, int, str]] = {
    # name: class, status, and what the message has in it
    "no weights": ("OptionError", 500, "has no weights"),
    "weights cut off": ("OptionError", 500, "model.safetensors is cut off: it has "),
    "weights of another shape": ("StartError", 500, f"{OURS}model_id: the weights do not fit config.json: "),
    "no config": ("OptionError", 500, "has no config.json"),
    "broken config": ("OptionError", 500, "config.json is not JSON"),
    "empty config": ("StartError", 500, "model_type"),
    "no tokenizer": ("OptionError", 500, "has no tokenizer"),
    "architecture": ("StartError", 500, f"{OURS}model_id: vLLM has no such architecture, and cannot"),
    "modelling": ("StartError", 500, f"{OURS}model_id: The Transformers implementation of 'GPTNeoForCausalLM' is not"),
    "model type": ("StartError", 500, f"{OURS}model_id: "),
    "code of its own": ("StartError", 500, f"{OURS}trust_remote_code: "),
    "dtype": ("OptionError", 500, "option.quantize: expected a method of vLLM's, one of "),
    "unsupported dtype": ("StartError", 500, "float32 is not supported for quantization method fp8"),
    "context": ("StartError", 500, f"{OURS}max_model_len: User-specified max_model_len (100000)"),
    "few KV blocks": ("StartError", 500, f"{OURS}max_model_len: the KV cache holds less than one request"),
    "too much KV cache": ("MemoryShortError", 507, f"{OURS}kv_cache_memory_bytes: "),
    "tensor parallel": ("StartError", 500, f"{OURS}tensor_parallel_degree: "),
    "experts": (
        "StartError",
        500,
        f"{OURS}enable_expert_parallel: Number of experts in the model must be greater than ",
    ),
    "unknown option": ("OptionError", 500, "did you mean option.max_model_len?"),
    "wrong option": ("OptionError", 500, "option.block_size: expected an integer, got 'many'"),
    "reasoning parser": ("OptionError", 500, "option.reasoning_parser: "),
    "tool parser": ("OptionError", 500, "option.tool_call_parser: "),
    "chat template": ("OptionError", 500, "option.chat_template: /no/such/file.jinja"),
    "broken chat template": ("OptionError", 500, "option.chat_template: line 2: unexpected end of template"),
    "draft model": ("StartError", 500, "/no/such/model"),
    "parsers": ("OptionError", 500, "mine.py, line 1: ModuleNotFoundError: No module named 'nosuch'"),
    "KV transfer": ("OptionError", 500, "option.kv_transfer_config: expected what vLLM takes (Please specify kv_role "),
    "KV offloading": ("StartError", 500, f"{OURS}kv_offloading_size: CPU Offloading is currently only supported on "),
    "hub": ("StartError", 500, f"{OURS}model_id: "),
    "load format": ("StartError", 500, f"{OURS}load_format: "),
}


@pytest.fixture(scope="module")
def told(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Told]:
    """What is told of each fault."""
    command = [
        sys.executable,
        "-m",
        "tests.kit.faults.start_faults",
        str(demo_model),
        str(tmp_path_factory.mktemp("faults")),
        "FAULTS",
    ]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)
    done = subprocess.run(
        command,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=500,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('["')]
    found: dict[str, Told] = {name: tuple(rest) for name, *rest in lines}
    assert found.keys() == FAULTS.keys(), done.stderr[-4000:]
    return found


@pytest.mark.engine
@each_row("fault", FAULTS)
def test_the_cause_is_told(told: dict[str, Told], fault: str) -> None:
    kind, status, part = EXPECTED[fault]
    assert told[fault][:2] == (kind, status), told[fault]
    message = told[fault][2]
    assert part in message
    assert "\n" not in message
    assert len(message) < 900
    # What surrounds a cause in vLLM says nothing to a user.
    for noise in ("validation error for", "input_value", "dict_keys", "pydantic"):
        assert noise not in message


def serve(model_dir: Path, *arguments: str, **environment: str) -> tuple[int, str, str]:
    """The exit status of `lmi serve`, the last line that it wrote, and all of them."""
    command = [*LMI, "serve", str(model_dir), *arguments]
    done = subprocess.run(
        command,
        check=False,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
    )
    lines = done.stdout.strip().splitlines()
    return done.returncode, lines[-1] if lines else "", done.stdout


@pytest.fixture
def port() -> str:
    return str(free_port())


@pytest.mark.parametrize(
    ("host", "number", "said"),
    [
        ("no-such-host.invalid", "8080", "lmi: --host no-such-host.invalid --port 8080: "),
        ("127.0.0.1", "99999", "lmi: --host 127.0.0.1 --port 99999: "),
    ],
)
def test_serve_where_nobody_can_listen(demo_model: Path, host: str, number: str, said: str) -> None:
    status, last, _ = serve(demo_model, "--host", host, "--port", number)
    assert status == 1
    assert last.startswith(said)


def test_serve_with_a_wrong_option(demo_model: Path, port: str) -> None:
    status, last, _ = serve(demo_model, "--port", port, "--set", "max_rolling_batch_size=many")
    assert (status, last) == (1, "lmi: option.max_rolling_batch_size: expected an integer of at least 1, got 'many'")


def test_serve_with_broken_weights(demo_model: Path, tmp_path: Path, port: str) -> None:
    """Told by the engine's process, before it loads the engine's library."""
    directory = copy(demo_model, tmp_path / "model")
    weights(directory).write_bytes(weights(directory).read_bytes()[:-1])
    status, last, everything = serve(directory, "--port", port)
    assert status == 1
    assert last.startswith(f"lmi: {weights(directory)} is cut off: it has ")
    assert "Traceback" not in everything


@pytest.mark.engine
def test_serve_with_too_little_memory(demo_model: Path, tmp_path: Path, port: str) -> None:
    """vLLM itself says of the core no more than `See ROOT cause above`."""
    properties = {"option.kv_cache_memory_bytes": str(1 << 20)}
    directory = model_directory(demo_model, tmp_path / "model", properties)
    status, last, everything = serve(directory, "--port", port)
    assert status == 1
    assert last.startswith(f"lmi: {OURS}max_model_len: the KV cache holds less than one request of max_model_len: ")
    assert "To serve at least one request with the model's max seq len (2048)" in last
    # All that the core had to say is there too.
    assert "(EngineCore pid=" in everything


@pytest.mark.djl
@pytest.mark.skipif(hosting.available() is not None, reason=str(hosting.available()))
def test_djl_is_told_the_cause(demo_model: Path, tmp_path: Path) -> None:
    """In what its start ends with, too (tests/robustness/test_failed_starts.py: other causes, in every mode)."""
    directory = copy(demo_model, tmp_path / "model")
    (directory / "serving.properties").write_text("engine=Python\noption.entryPoint=lmi.handler\n")
    weights(directory).write_bytes(b"")
    with pytest.raises(HostError, match=r"Failed to initialize model: \S+model\.safetensors is not a safetensors file"):
        djl_host(directory, tmp_path / "log", mode="rolling")


@pytest.mark.parametrize(
    ("options", "said", "option"),
    [
        ({"speculative_draft_model": "a/b"}, "Unsupported speculative method", "speculative_draft_model"),
        ({"speculative_config": '{"model": "a"}'}, "Unsupported speculative method", "speculative_config"),
        ({"speculative_draft_model": "a/b"}, "'draft_tensor_parallel_size' must be the same", "draft_model_tp_size"),
        ({"speculative_config": '{"model": "a"}'}, "'draft_tensor_parallel_size' must be 1", "speculative_config"),
    ],
)
def test_an_error_names_the_option_that_was_written(options: dict[str, str], said: str, option: str) -> None:
    from lmi.model.process.ending.start_errors import start_error

    error = start_error(ValueError(said), make_settings(**options))
    assert (error.param, error.message) == (option, f"the engine could not start, see option.{option}: {said}")


@pytest.mark.parametrize(
    ("options", "environment", "said", "option", "called"),
    [
        ({}, {"SM_VLLM_MAX_MODEL_LEN": "9"}, "derived max_model_len", "max_model_len", "SM_VLLM_MAX_MODEL_LEN"),
        ({}, {"OPTION_MAX_MODEL_LEN": "9"}, "derived max_model_len", "max_model_len", "OPTION_MAX_MODEL_LEN"),
        ({"max_model_len": "9"}, {"OPTION_MAX_MODEL_LEN": "8"}, "derived max_model_len", "max_model_len", ""),
        ({}, {"SM_VLLM_TENSOR_PARALLEL_SIZE": "3"}, "bad tensor_parallel_size", "tensor_parallel_size",
         "SM_VLLM_TENSOR_PARALLEL_SIZE"),
        ({}, {"OPTION_MAX_NUM_BATCHED_TOKENS": "7"}, "max_num_batched_tokens (7) is small", "max_num_batched_tokens",
         "OPTION_MAX_NUM_BATCHED_TOKENS"),
        ({"max_num_batched_tokens": "7"}, {}, "max_num_batched_tokens (7) is small", "max_num_batched_tokens", ""),
        ({}, {"OPTION_SPECULATIVE_DRAFT_MODEL": "a/b"}, "Unsupported speculative method", "speculative_draft_model",
         "OPTION_SPECULATIVE_DRAFT_MODEL"),
    ],
    ids=str,
)  # fmt: skip
def test_an_error_names_the_variable(
    tmp_path: Path, options: dict[str, str], environment: dict[str, str], said: str, option: str, called: str
) -> None:
    from lmi.model.process.ending.start_errors import start_error

    error = start_error(ValueError(said), load_settings(tmp_path, environment=environment, overrides=options))
    look = called or f"option.{option}"
    assert (error.param, error.message) == (option, f"the engine could not start, see {look}: {said}")


def test_a_model_that_cannot_be_fetched() -> None:
    """Whatever is raised around what the hub's library says: transformers and vLLM have words of their own."""
    from huggingface_hub.errors import LocalEntryNotFoundError

    from lmi.model.process.ending.start_errors import start_error

    offline = LocalEntryNotFoundError("Cannot find it on the local disk and outgoing traffic has been disabled.")
    around = OSError("We couldn't connect to the hub to load the files, and couldn't find them in the cached files.")
    around.__cause__ = offline
    for error in (offline, around):
        told = start_error(error, make_settings(model_id="acme/model"))
        said = "acme/model is no directory here, and could not be fetched from the hub: "
        assert told.message.startswith(f"the engine could not start, see option.model_id: {said}")
        assert "outgoing traffic has been disabled" in told.message
        assert told.param == "model_id"
        assert said not in start_error(error, make_settings(model_id="/opt/ml/model")).message
    assert "fetched" not in start_error(ValueError("no such thing"), make_settings(model_id="acme/model")).message


def test_an_error_without_a_text_is_named_by_its_statement() -> None:
    from lmi.model.process.ending.start_errors import start_error

    def fail() -> None:
        raise NotImplementedError

    with pytest.raises(NotImplementedError) as caught:
        fail()
    message = start_error(caught.value).message
    told = "the engine could not start: NotImplementedError: raise NotImplementedError (test_start_errors.py, line "
    assert message.startswith(told)
    assert message.endswith(", in fail)")


def test_a_cause_is_never_many_lines() -> None:
    from lmi.model.process.ending.start_errors import start_error

    def fail() -> Any:
        try:
            raise ValueError("one\n\n  two")
        except ValueError as error:
            raise RuntimeError("three\r\nfour " + "x " * 1000) from error

    with pytest.raises(RuntimeError) as caught:
        fail()
    message = start_error(caught.value).message
    assert message.startswith("the engine could not start: three four x x")
    assert message.endswith("...")
    assert start_error(MemoryError()).status == 507
