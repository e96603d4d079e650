"""Options: the table, the file, the environment, and vLLM's own arguments."""

from __future__ import annotations

import codecs
import json
import re
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from lmi.model.options import Settings, load_settings, read_properties, settings_of
from lmi.model.options.table import OPTIONS, option_named, options_table

from ...kit.api.errors import OptionError
from ...kit.api.options import notes_of
from ...kit.paths import ROOT
from ...kit.rows import each_row


def settings(**properties: str) -> Settings:
    return settings_of(properties, model_dir="/opt/ml/model")


def refused(**properties: str) -> str:
    with pytest.raises(OptionError) as caught:
        settings(**properties)
    assert caught.value.param
    assert "\n" not in caught.value.message
    return caught.value.message


DEFAULTS = {
    "model_dir": "/opt/ml/model",
    "model_id": "/opt/ml/model",
    "model_name": "/opt/ml/model",
    "backend": "vllm",
    "rolling_batch": "vllm",
    "async_mode": False,
    "max_rolling_batch_size": 256,
    "tensor_parallel_degree": None,
    "pipeline_parallel_degree": 1,
    "dtype": "auto",
    "task": "auto",
    "normalize": None,
    "unknown_parameters": "ignore",
    "server_tools": "ignore",
    "output_formatter": None,
    "engine_arguments": {"model": "/opt/ml/model", "dtype": "auto", "max_num_seqs": "256"},
    "notes": (),
}


@each_row(("name", "value"), DEFAULTS.items())
def test_default(name: str, value: object) -> None:
    assert getattr(settings(), name) == value


# One property, an attribute of Settings, its value.
TYPED: list[tuple[str, str, str, object]] = [
    ("revision", "main", "revision", "main"),
    ("trust_remote_code", "True", "trust_remote_code", True),
    ("max_rolling_batch_size", "64", "max_rolling_batch_size", 64),
    ("max_num_seqs", "64", "max_rolling_batch_size", 64),
    ("tensor_parallel_degree", "2", "tensor_parallel_degree", 2),
    ("tensor_parallel_size", "2", "tensor_parallel_degree", 2),
    ("tensor_parallel_degree", "max", "tensor_parallel_degree", None),
    ("pipeline_parallel_degree", "2", "pipeline_parallel_degree", 2),
    ("served_model_name", "name", "model_name", "name"),
    ("output_formatter", "jsonlines", "output_formatter", "jsonlines"),
    ("output_formatter", "SSE", "output_formatter", "sse"),
    ("output_formatter", "mine:Dialect", "custom_formatter", "mine:Dialect"),
    ("output_formatter", "my.dialect", "custom_formatter", "my.dialect"),
    ("output_formatter", "json", "custom_formatter", None),
    ("input_formatter", "mine:read", "input_formatter", "mine:read"),
    ("content_filter", "guards.words:judge", "content_filter", "guards.words:judge"),
    ("user_code_threads", "8", "user_code_threads", 8),
    ("dialect", "LMI", "dialect", "lmi"),
    ("unknown_parameters", "error", "unknown_parameters", "error"),
    ("server_tools", "error", "server_tools", "error"),
    ("merge_records", "true", "merge_records", "true"),
    ("enable_streaming", "huggingface", "enable_streaming", True),
    ("task", "text-generation", "task", "generate"),
    ("task", "text-generation", "backend", "vllm"),
    ("task", "text-embedding", "task", "embed"),
    ("task", "feature-extraction", "task", "embed"),
    ("task", "embed", "task", "embed"),
    ("task", "text-embedding", "backend", "vllm-embedding"),
    ("runner", "pooling", "task", "embed"),
    ("convert", "embed", "task", "embed"),
    ("task", "text-ranking", "task", "rank"),
    ("task", "score", "task", "rank"),
    ("task", "text-classification", "task", "classify"),
    ("task", "classify", "task", "classify"),
    ("task", "score", "backend", "vllm-scoring"),
    ("convert", "classify", "task", "classify"),
    ("runner", "auto", "task", "auto"),
    ("normalize", "false", "normalize", False),
    ("normalize", "True", "normalize", True),
    ("rolling_batch", "vllm", "rolling_batch", "vllm"),
    ("rolling_batch", " vllm ", "rolling_batch", "vllm"),
    ("rolling_batch", "lmi-dist", "rolling_batch", "lmi-dist"),
    ("rolling_batch", "trtllm", "rolling_batch", "trtllm"),
    ("parameter_schema", "trtllm", "parameter_schema", "trtllm"),
    ("async_mode", "true", "rolling_batch", "disable"),
    *(
        ("dtype", given, "dtype", taken)
        for given, taken in {
            "auto": "auto", "fp32": "float32", "float32": "float32", "fp16": "float16", "float16": "float16",
            "half": "float16", "bf16": "bfloat16", "bfloat16": "bfloat16", "BF16": "bfloat16",
        }.items()
    ),
]  # fmt: skip


@each_row(("name", "text", "attribute", "value"), TYPED)
def test_typed(name: str, text: str, attribute: str, value: object) -> None:
    assert getattr(settings(**{name: text}), attribute) == value


# One property, what must become of it among the engine's arguments.
PASSED = [
    ("quantize", "fp8", "quantization", "fp8"),
    ("quantization", "fp8", "quantization", "fp8"),
    ("max_rolling_batch_prefill_tokens", "8k", "max_num_batched_tokens", "8k"),
    ("max_num_batched_tokens", "8192", "max_num_batched_tokens", "8192"),
    ("cpu_offload_gb_per_gpu", "4", "cpu_offload_gb", "4"),
    ("tensor_parallel_degree", "2", "tensor_parallel_size", "2"),
    ("pipeline_parallel_degree", "2", "pipeline_parallel_size", "2"),
    ("max_rolling_batch_size", "64", "max_num_seqs", "64"),
    ("dtype", "bf16", "dtype", "bfloat16"),
    ("gpu_memory_utilization", "0.5", "gpu_memory_utilization", "0.5"),
    ("load_format", "dummy", "load_format", "dummy"),
    ("max_logprobs", "5", "max_logprobs", "5"),
    ("speculative_config", '{"method": "ngram"}', "speculative_config", '{"method": "ngram"}'),
]


@each_row(("name", "text", "argument", "value"), PASSED)
def test_engine_argument(name: str, text: str, argument: str, value: str) -> None:
    assert settings(**{name: text}).engine_arguments[argument] == value


# One property and what the message must say.
WRONG = [
    ("tensor_paralel_degree", "2", "did you mean option.tensor_parallel_degree?"),
    ("max_rolling_batchsize", "2", "did you mean option.max_rolling_batch_size?"),
    (
        "tensor_parallel_degree",
        "two",
        "option.tensor_parallel_degree: expected a number of at least 1, or max, got 'two'",
    ),
    ("tensor_parallel_degree", "0", "at least 1"),
    ("max_rolling_batch_size", "0", "option.max_rolling_batch_size: expected an integer of at least 1, got '0'"),
    ("max_num_seqs", "x", "option.max_num_seqs"),
    ("cpu_offload_gb", "nan", "expected a number of at least 0, got 'nan'"),
    ("dtype", "int8", "write option.quantize=fp8"),
    ("dtype", "fp8", "one of auto, fp32"),
    ("async_mode", "yes", "option.async_mode: expected true or false, got 'yes'"),
    ("output_formatter", "my formatter", "json, jsonlines, sse, or module:name, got 'my formatter'"),
    ("output_formatter", "mine:1", "json, jsonlines, sse, or module:name"),
    ("content_filter", "guard", "option.content_filter: expected module:name, got 'guard'"),
    ("user_code_threads", "0", "an integer of at least 1"),
    ("speculative_config", "{x", "a JSON object"),
    ("speculative_config", "[]", "a JSON object"),
    ("model_id", "s3://bucket/model", "s3://"),
    ("cluster_size", "many", "option.cluster_size: expected an integer, got 'many'"),
    ("rolling_batch", "sometimes", "one of auto, vllm, lmi-dist, trtllm, scheduler, hf-accelerate, disable"),
    ("parameter_schema", "vllm", "one of common, trtllm"),
    ("backend", "other", "one of vllm, transformers, or module:name, got 'other'"),
    ("backend", "auto", "option.backend: remove it: without it vLLM takes transformers' modelling where it has none"),
    ("device_map", "balanced", "set option.device_map=auto for all devices, or option.tensor_parallel_degree=N for"),
    ("device_map", '{"": 0}', "set option.device_map=auto for all devices"),
    ("load_in_8bit", "true", "write option.quantize=fp8"),
    ("attn_implementation", "sdpa", "remove it: vLLM chooses the kernel; option.attention_backend names another one"),
    ("task", "text", "one of auto, text-generation, generate, text-embedding, feature-extraction, embed, text-ranking"),
    ("runner", "draft", "does not support draft models on their own"),
    ("normalize", "yes", "option.normalize: expected true or false, got 'yes'"),
    ("pooler_config", "MEAN", "option.pooler_config: expected a JSON object"),
    ("tgi_compat", "1", "option.tgi_compat: expected true or false, got '1'"),
    ("default_chat_template_kwargs", "[]", "option.default_chat_template_kwargs: expected a JSON object with var"),
    ("default_chat_template_kwargs", '{"a": 1', "option.default_chat_template_kwargs: expected a JSON object with var"),
    ("default_chat_template_kwargs", '{"chat_template": "x"}', "(the template itself is option.chat_template)"),
    ("default_chat_template_kwargs", '{"a": 1, "padding": true, "tokenize": 1}', "(padding, tokenize is none)"),
    ("default_mm_loras", "[]", "option.default_mm_loras: expected a JSON object with the folder of an adapter"),
    ("enable_auto_tool_choice", "true", "option.tool_call_parser"),
    ("enable_reasoning", "true", "option.reasoning_parser"),
    ("reasoning_parser_plugin", "x.py", "got 'x.py': there is no file /opt/ml/model/x.py"),
    ("tool_parser_plugin", "/no/such/x.py", "got '/no/such/x.py': there is no file /no/such/x.py"),
    ("speculative_length", "-1", "option.speculative_length: expected an integer of at least 0, got '-1'"),
    ("spec_length", "two", "option.spec_length: expected an integer of at least 0, got 'two'"),
    ("draft_model_id", "s3://bucket/draft", "only DJL Serving downloads s3://"),
    ("load_format", "sagemaker_fast_model_loader", "set option.load_format=runai_streamer, or sharded_state"),
    ("input_formatter", "x", "module:name"),
    ("mpi_mode", "true", "engine=Python"),
]


@each_row(("name", "text", "said"), WRONG)
def test_refused(name: str, text: str, said: str) -> None:
    message = refused(**{name: text})
    assert said in message
    assert f"option.{name}" in message


def test_all_faults_in_one_message() -> None:
    message = refused(dtype="int9", async_mode="perhaps", default_mm_loras="s")
    assert message.startswith("3 options are wrong: (1) option.dtype")
    assert "option.async_mode" in message
    assert "option.default_mm_loras" in message


@pytest.mark.parametrize("option", [option for option in OPTIONS if option.unsupported], ids=lambda option: option.name)
def test_default_of_what_is_not_there_passes(option: Any) -> None:
    assert option.name not in settings(**{option.name: option.default}).engine_arguments


def test_async_mode_excludes_rolling_batch() -> None:
    taken = settings(async_mode="true", rolling_batch="disable")
    assert (taken.rolling_batch, taken.async_mode) == ("disable", True)
    assert "option.rolling_batch=disable" in refused(async_mode="true", rolling_batch="vllm")


# Options, the backend that they choose, and what the batching is resolved to.
BACKENDS: list[tuple[dict[str, str], str, str]] = [
    ({"backend": "vllm"}, "vllm", "vllm"),
    ({"backend": "transformers"}, "vllm", "vllm"),
    ({"rolling_batch": "scheduler"}, "vllm", "scheduler"),
    ({"rolling_batch": "hf-accelerate"}, "vllm", "hf-accelerate"),
    ({"rolling_batch": "scheduler", "backend": "transformers"}, "vllm", "scheduler"),
    ({"backend": "transformers", "async_mode": "true"}, "vllm", "disable"),
    ({"backend": "transformers", "task": "text-embedding"}, "vllm-embedding", "vllm"),
    ({"backend": "my.engine:Mine"}, "my.engine:Mine", "vllm"),
    ({"backend": "my.engine:Mine", "task": "text-embedding"}, "my.engine:Mine", "vllm"),
    ({"backend": "my.engine:Mine", "rolling_batch": "disable"}, "my.engine:Mine", "disable"),
]


@each_row(("properties", "backend", "rolling_batch"), BACKENDS, ids=str)
def test_backend(properties: dict[str, str], backend: str, rolling_batch: str) -> None:
    taken = settings(**properties)
    assert (taken.backend, taken.rolling_batch) == (backend, rolling_batch)


@pytest.mark.parametrize(
    ("rolling_batch", "backend"),
    [("vllm", "transformers"), ("lmi-dist", "transformers"), ("scheduler", "vllm")],
)
def test_contradicting_backends_are_refused(rolling_batch: str, backend: str) -> None:
    assert f"contradicts option.rolling_batch={rolling_batch}" in refused(rolling_batch=rolling_batch, backend=backend)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"backend": "transformers"}, "option.backend=transformers"),
        ({"backend": "transformers", "async_mode": "true"}, "option.backend=transformers"),
        ({"rolling_batch": "scheduler"}, "option.rolling_batch=scheduler"),
        ({"rolling_batch": "hf-accelerate", "model_impl": "transformers"}, "option.rolling_batch=hf-accelerate"),
    ],
    ids=str,
)
def test_transformers_modelling_runs_on_vllm(given: dict[str, str], why: str) -> None:
    taken = settings(**given)
    assert taken.engine_arguments["model_impl"] == "transformers"
    assert f"{why} runs on vLLM, with transformers' modelling (model_impl=transformers)" in notes_of(taken)
    assert f"option.model_impl: 'vllm' contradicts {why}" in refused(**{**given, "model_impl": "vllm"})
    assert "model_impl" not in settings(rolling_batch="vllm").engine_arguments


@each_row(
    ("name", "value"), [("backend", "transformers"), ("rolling_batch", "scheduler"), ("rolling_batch", "hf-accelerate")]
)
@each_row("task", ["text-ranking", "text-classification"])
def test_scores_need_vllms_own_modelling(task: str, name: str, value: str) -> None:
    expected = f"option.{name}: expected vLLM's own modelling with option.task={task}, got {value!r}"
    assert refused(task=task, **{name: value}) == expected


def test_options_that_transformers_has_and_vllm_calls_otherwise() -> None:
    taken = settings(device_map="auto", load_in_8bit="false", load_in_4bit="true", low_cpu_mem_usage="true")
    assert taken.engine_arguments["quantization"] == "bitsandbytes"
    assert taken.written["quantization"] == "load_in_4bit"
    assert "device_map" not in taken.engine_arguments
    assert settings(load_in_4bit="true", quantize="bitsandbytes").written == settings().written
    assert "option.load_in_4bit: contradicts option.quantize=fp8" in refused(load_in_4bit="true", quantize="fp8")
    assert "quantization" not in settings(load_in_4bit="false").engine_arguments


@each_row(
    ("given", "dynamic"),
    [
        ({"rolling_batch": "disable"}, True),
        ({"rolling_batch": "disable", "batch_size": "8"}, True),
        ({"rolling_batch": "auto", "batch_size": "8"}, True),
        # What DJL Serving 0.36 adds to a model with dynamic batches (ModelInfo.load).
        ({"rolling_batch": "disable", "batch_size": "8", "batchifier": "stack"}, True),
        ({"max_dynamic_batch_size": "8"}, True),
        ({"batch_size": "1"}, False),
        ({"rolling_batch": "disable", "async_mode": "true"}, False),
        ({"rolling_batch": "vllm"}, False),
    ],
    ids=str,
)
def test_dynamic_batches(given: dict[str, str], dynamic: bool) -> None:
    assert settings(**given).dynamic_batch is dynamic


def test_async_mode_excludes_dynamic_batches() -> None:
    """DJL Serving's predictor asks for an output a request of a batch, async mode gives one for all: 400 for each."""
    given = {"rolling_batch": "disable", "async_mode": "true"}
    assert "option.async_mode: expected batch_size=1 with it" in refused(**given, batch_size="8")
    assert "set option.rolling_batch=disable, no async_mode" in refused(**given, max_dynamic_batch_size="8")
    assert settings(**given, batch_size="1").async_mode


def test_dynamic_batches_exclude_rolling_batch() -> None:
    assert "option.rolling_batch: expected disable" in refused(rolling_batch="vllm", batch_size="8")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"task": "text-generation", "runner": "pooling"},
            "option.task: expected text-embedding with option.runner=pooling, got 'text-generation'",
        ),
        (
            {"task": "generate", "convert": "embed"},
            "option.task: expected text-embedding with option.convert=embed, got 'generate'",
        ),
        (
            {"task": "text-embedding", "runner": "generate"},
            "option.runner: expected pooling with option.task=text-embedding, got 'generate'",
        ),
        (
            {"convert": "embed", "runner": "generate"},
            "option.runner: expected pooling with option.convert=embed, got 'generate'",
        ),
        (
            {"task": "embed", "speculative_draft_model": "ngram"},
            "option.speculative_draft_model: expected no such option with task=text-embedding: nothing is generated",
        ),
    ],
    ids=str,
)
def test_options_that_contradict_the_task(given: dict[str, str], message: str) -> None:
    assert refused(**given) == message


def test_normalize_means_nothing_to_a_model_that_generates() -> None:
    assert "option.normalize=false has no effect" in notes_of(settings(normalize="false"))[0]
    assert settings(normalize="true").notes == settings(normalize="false", task="embed").notes == ()


def test_streaming_is_an_option_of_dynamic_batches_alone() -> None:
    assert settings(enable_streaming="true").notes != ()
    alone = settings(enable_streaming="true", rolling_batch="disable")
    assert (alone.enable_streaming, alone.notes) == (True, ())
    assert "batch_size > 1" in notes_of(settings(enable_streaming="true", batch_size="8"))[0]


@pytest.mark.parametrize(
    ("given", "config"),
    [
        ({"speculative_draft_model": "ngram"}, {"method": "ngram", "num_speculative_tokens": 4}),
        # TensorRT-LLM's.
        ({"draft_model_id": "ngram", "spec_length": "3"}, {"method": "ngram", "num_speculative_tokens": 3}),
        (
            {"draft_model_id": "ngram", "speculative_draft_model": "ngram"},
            {"method": "ngram", "num_speculative_tokens": 4},
        ),
        # vLLM gives a draft model as many devices as its model has.
        (
            {"speculative_draft_model": "owner/draft"},
            {"method": "draft_model", "model": "owner/draft", "num_speculative_tokens": 4},
        ),
        (
            {"speculative_draft_model": "owner/draft", "speculative_length": "7", "draft_model_tp_size": "2"},
            {
                "method": "draft_model",
                "model": "owner/draft",
                "num_speculative_tokens": 7,
                "draft_tensor_parallel_size": 2,
            },
        ),
    ],
    ids=str,
)
def test_speculative_decoding_by_older_names(given: dict[str, str], config: dict[str, Any]) -> None:
    assert json.loads(settings(**given).engine_arguments["speculative_config"]) == config


def test_a_draft_model_in_the_model_directory(tmp_path: Path) -> None:
    (tmp_path / "draft").mkdir()
    taken = load(tmp_path, "option.speculative_draft_model=draft\n")
    assert json.loads(taken.engine_arguments["speculative_config"])["model"] == str(tmp_path / "draft")


def test_what_only_a_draft_model_gives_a_meaning(tmp_path: Path) -> None:
    assert "speculative_config" not in settings(speculative_length="5", draft_model_tp_size="1").engine_arguments
    for given in ({"spec_length": "0"}, {"draft_model_id": "ngram", "spec_length": "0"}):
        assert "speculative_config" not in settings(**given).engine_arguments
    both = refused(speculative_draft_model="x", speculative_config='{"method": "ngram"}')
    assert "option.speculative_draft_model: expected it or option.speculative_config, got both" in both
    variables = {"OPTION_SPECULATIVE_DRAFT_MODEL": "x", "SM_VLLM_SPECULATIVE_CONFIG": '{"method": "ngram"}'}
    with pytest.raises(OptionError) as caught:
        load_settings(tmp_path, environment=variables, overrides={})
    said = "OPTION_SPECULATIVE_DRAFT_MODEL: expected it or SM_VLLM_SPECULATIVE_CONFIG, got both"
    assert caught.value.message == said


@each_row(
    ("given", "size"),
    [
        ({}, 256),
        ({"max_num_batched_tokens": "64"}, 64),
        ({"max_rolling_batch_prefill_tokens": "64"}, 64),
        ({"max_num_batched_tokens": "8k"}, 256),
        ({"max_num_batched_tokens": "8192"}, 256),
        # vLLM has the last word on what the user has set.
        ({"max_num_batched_tokens": "64", "max_num_seqs": "128"}, 128),
        ({"max_num_batched_tokens": "16", "rolling_batch": "scheduler"}, 16),
    ],
    ids=str,
)
def test_no_more_sequences_than_tokens_in_a_step(given: dict[str, str], size: int) -> None:
    taken = settings(**given)
    assert (taken.max_rolling_batch_size, taken.engine_arguments["max_num_seqs"]) == (size, str(size))


def test_contradicting_aliases_are_refused() -> None:
    assert "option.quantize=awq" in refused(quantize="awq", quantization="fp8")
    assert settings(quantize="awq", quantization="awq").engine_arguments["quantization"] == "awq"
    assert "option.speculative_draft_model=a" in refused(speculative_draft_model="a", draft_model_id="b")
    assert "option.speculative_length=4" in refused(speculative_length="4", spec_length="5")


@pytest.mark.parametrize(
    "names", [("max_rolling_batch_size", "max_num_seqs"), ("max_num_seqs", "max_rolling_batch_size")]
)
def test_vllms_name_goes_before_what_the_host_fills_in(names: tuple[str, str]) -> None:
    values = {"max_rolling_batch_size": "32", "max_num_seqs": "64"}
    taken = settings(**{name: values[name] for name in names})
    assert taken.max_rolling_batch_size == 64
    assert taken.engine_arguments["max_num_seqs"] == "64"
    assert notes_of(taken) == ["option.max_num_seqs=64 takes precedence over option.max_rolling_batch_size=32"]


def test_max_leaves_no_degree_behind() -> None:
    taken = settings(tensor_parallel_degree="max")
    assert "tensor_parallel_size" not in taken.engine_arguments


def test_notes_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """What has no effect as a warning; what is only said is none."""
    caplog.set_level("INFO", "lmi")
    taken = settings(rolling_batch="lmi-dist", normalize="false")
    assert [record.getMessage() for record in caplog.records] == notes_of(taken)
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    assert "runs on vLLM" in notes_of(taken)[0]
    assert "has no effect" in notes_of(taken)[1]


# What the real host's init call delivered of a model directory with these options and one bare key of the user's own.
INIT = {
    "mine": "3", "maxWorkers": "1", "job_queue_size": "7", "handler": "handle", "engine": "Python",
    "predict_timeout": "33", "dtype": "bf16", "rolling_batch": "disable", "entryPoint": "init_probe", "minWorkers": "1",
    "async_mode": "true", "cluster_size": 1, "device_id": "-1",
}  # fmt: skip


def test_init_call_of_the_real_host(tmp_path: Path) -> None:
    tmp_path.joinpath("serving.properties").write_text("mine=3\njob_queue_size=7\noption.dtype=bf16\n")
    properties = {**cast("dict[str, str]", INIT), "model_dir": str(tmp_path)}
    taken = settings_of(properties, model_dir=str(tmp_path))
    assert (taken.dtype, taken.async_mode, taken.notes) == ("bfloat16", True, ())
    assert taken.host["cluster_size"] == "1"
    assert taken.unprefixed == ("mine",)


def test_more_machines_than_the_engine_uses_are_told() -> None:
    assert notes_of(settings(cluster_size="2")) == [
        "cluster_size=2: the engine uses this machine's devices only (option.nnodes)",
    ]
    assert settings(cluster_size="1").notes == ()
    assert "option.cluster_size: expected an integer, got 'two'" in refused(cluster_size="two")


def test_settings_travel() -> None:
    taken = settings(
        dtype="bf16", tensor_parallel_degree="2", max_logprobs="3", rolling_batch="lmi-dist", minWorkers="1"
    )
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(taken), type=Settings) == taken


def test_relative_model_id(tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    assert settings_of({"model_id": "weights"}, model_dir=str(tmp_path)).model_id == str(tmp_path / "weights")
    assert settings_of({"model_id": "owner/weights"}, model_dir=str(tmp_path)).model_id == "owner/weights"


# Text of a .properties file, its entries (as java.util.Properties reads them).
FILES: list[tuple[str, dict[str, str]]] = [
    ("", {}),
    ("a=b", {"a": "b"}),
    ("# a=b\n! c=d\n  # e=f\n", {}),
    ("a = b", {"a": "b"}),
    ("a:b", {"a": "b"}),
    ("a b", {"a": "b"}),
    ("a", {"a": ""}),
    ("a=", {"a": ""}),
    ("  a=b=c:d", {"a": "b=c:d"}),
    ("a=b \\\n   c\nd=e", {"a": "b c", "d": "e"}),
    ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
    ("a=b\\\n# c", {"a": "b# c"}),
    ("a=\\u00e9\\t\\:\\q", {"a": "é\t:q"}),
    ("a\\ b\\=c=d", {"a b=c": "d"}),
    ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
    ("a=1\na=2", {"a": "2"}),
    ("a=b\\", {"a": "b"}),
    ('option.x={"a": 1}', {"option.x": '{"a": 1}'}),
    ("option.x=\\ud83d\\ude00 \\ud83d", {"option.x": "\U0001f600 \ud83d"}),
]


@each_row(("text", "entries"), FILES)
def test_properties_file(text: str, entries: dict[str, str]) -> None:
    assert read_properties(text) == entries


BOM = codecs.BOM_UTF8.decode("latin-1")
"""As Java reads it, who takes it for letters."""


@pytest.mark.parametrize("text", ["option.a=b", "engine", "\\\n engine=Python"])
def test_a_byte_order_mark_would_be_part_of_a_name(text: str) -> None:
    with pytest.raises(OptionError, match=r"^serving.properties: begins with a byte order mark") as caught:
        read_properties(BOM + text)
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("text", ["# a comment\na=b", "\na=b", "! x\na=b"])
def test_a_byte_order_mark_before_a_comment_does_no_harm(text: str) -> None:
    assert read_properties(BOM + text) == {"a": "b"}


def test_properties_file_with_a_broken_escape() -> None:
    with pytest.raises(OptionError, match="four hexadecimal digits"):
        read_properties("a=\\u00g1")


def load(directory: Path, text: str, environment: dict[str, str] | None = None) -> Settings:
    directory.joinpath("serving.properties").write_text(text)
    return load_settings(directory, environment=environment or {}, overrides={})


def test_file_before_environment(tmp_path: Path) -> None:
    environment = {"OPTION_DTYPE": "fp16", "OPTION_MAX_MODEL_LEN": "64", "OPTION_REVISION": "", "OTHER": "1"}
    taken = load(tmp_path, "option.dtype=bf16\nminWorkers=1\n", environment)
    assert taken.dtype == "bfloat16"
    assert taken.engine_arguments["max_model_len"] == "64"
    assert taken.revision is None
    assert taken.host == {"minWorkers": "1"}


def test_overrides_go_first_by_any_name(tmp_path: Path) -> None:
    text = "option.quantize=awq\noption.dtype=fp16"
    tmp_path.joinpath("serving.properties").write_text(text)
    overrides = {"quantization": "fp8", "option.dtype": "bf16"}
    taken = load_settings(tmp_path, environment={}, overrides=overrides)
    assert (taken.engine_arguments["quantization"], taken.dtype) == ("fp8", "bfloat16")


def test_environment_of_the_container(tmp_path: Path) -> None:
    environment = {"HF_MODEL_ID": "owner/model", "HF_REVISION": "main", "TENSOR_PARALLEL_DEGREE": "2"}
    taken = load(tmp_path, "", environment)
    assert (taken.model_id, taken.revision, taken.tensor_parallel_degree) == ("owner/model", "main", 2)
    assert load(tmp_path, "option.tensor_parallel_degree=1", environment).tensor_parallel_degree == 1
    tmp_path.joinpath("config.json").write_text("{}")
    taken = load(tmp_path, "", environment)
    assert (taken.model_id, taken.revision) == (str(tmp_path), None)


def test_entry_point_of_the_environment(tmp_path: Path) -> None:
    assert load(tmp_path, "", {"OPTION_ENTRYPOINT": "lmi.handler"}).host == {"entryPoint": "lmi.handler"}


def test_the_acceptance_rate_of_drafts_is_always_counted(tmp_path: Path) -> None:
    taken = load(tmp_path, "option.record_acceptance_rate=true")
    assert notes_of(taken) == ["option.record_acceptance_rate has no effect: vLLM counts accepted drafts by itself"]
    assert "record_acceptance_rate" not in taken.engine_arguments


def test_a_users_own_bare_keys_are_told_apart(tmp_path: Path) -> None:
    taken = load(tmp_path, "mine=1\noption.max_logprobs=3\nseed=1")
    assert taken.unprefixed == ("mine", "seed")


def test_shipped_configuration() -> None:
    taken = load_settings(ROOT, environment={}, overrides={})
    assert taken.host["entryPoint"] == "lmi.handler"
    assert taken.notes == ()
    text = ROOT.joinpath("serving.properties").read_text()
    shown = {name.removeprefix("option.") for name in re.findall(r"^#?([\w.]+)=", text, re.MULTILINE)}
    assert {"rolling_batch", "max_model_len", "tensor_parallel_degree"} <= shown
    assert {name for name in shown if option_named(name) is None} <= {"max_logprobs"}


def test_the_documentation_has_the_table() -> None:
    """Some page has it; wherever it stands, it is the one that the declarations make."""
    pages = [path.read_text() for path in (ROOT / "docs" / "options.md", ROOT / "README.md") if path.is_file()]
    tables = [
        table for page in pages for table in re.findall(r"<!-- options -->\n(.*?)<!-- /options -->", page, re.DOTALL)
    ]
    assert [table.strip() for table in tables] == [options_table().strip()]


def test_trtllm_as_djl_serving_starts_it() -> None:
    """It adds mpi_mode and max_num_tokens by itself (LmiConfigRecommender)."""
    added = {"mpi_mode": "true", "max_num_tokens": "16384"}
    one = settings(rolling_batch="trtllm", tensor_parallel_degree="1", **added)
    assert one.rolling_batch == "trtllm"
    assert "max_num_tokens" not in one.engine_arguments
    assert [note for note in notes_of(one) if "trtllm" in note] == [
        "option.rolling_batch=trtllm runs on vLLM, with TensorRT-LLM's defaults of parameters"
    ]
    stages = {"tensor_parallel_degree": "1", "pipeline_parallel_degree": "2"}
    for degrees in ({"tensor_parallel_degree": "2"}, {}, stages):
        message = refused(rolling_batch="trtllm", **added, **degrees)
        assert "option.rolling_batch=vllm and option.parameter_schema=trtllm" in message


def test_names_of_the_table_are_unique() -> None:
    names = [name for option in OPTIONS for name in option.names]
    assert len(names) == len(set(names))


def test_conversations() -> None:
    taken = settings(tool_call_parser="hermes", reasoning_parser="qwen3", chat_template="x.jinja")
    assert (taken.tool_call_parser, taken.reasoning_parser, taken.chat_template) == ("hermes", "qwen3", "x.jinja")
    # vLLM's name of it too.
    assert not taken.request_chat_template
    assert settings(trust_request_chat_template="true").request_chat_template
    assert taken.engine_arguments["reasoning_parser"] == "qwen3"
    assert taken.chat_template_content_format == "auto"
    assert taken.default_chat_template_kwargs == {}
    variables = '{"enable_thinking": false, "reasoning_effort": "low", "a": [1, {"b": null}]}'
    assert settings(default_chat_template_kwargs=variables).default_chat_template_kwargs == json.loads(variables)
    assert settings(default_chat_template_kwargs="none").default_chat_template_kwargs == {}
    assert "default_chat_template_kwargs" not in settings(default_chat_template_kwargs=variables).engine_arguments
    assert settings(exclude_tools_when_tool_choice_none="true").exclude_tools_when_tool_choice_none
    assert settings(tool_call_parser="hermes", enable_auto_tool_choice="true").tool_call_parser == "hermes"
    assert settings(tool_call_parser="hermes", enable_auto_tool_choice="false").tool_call_parser is None


def test_tasks_that_contradict_each_other() -> None:
    assert "option.convert: expected classify with option.task=score" in refused(task="score", convert="embed")
    assert "option.convert: expected embed with option.task=embed" in refused(task="embed", convert="classify")
    assert "option.task: expected text-classification with option.convert=classify" in refused(
        task="generate", convert="classify"
    )
    assert settings(task="text-ranking", convert="classify", runner="pooling").task == "rank"
