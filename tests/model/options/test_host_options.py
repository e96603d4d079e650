"""What DJL Serving 0.36 and its Python engine put among a model's options by themselves: all of it is known.

The list is closed, each name with the place that adds it, so that a user's misspelling is refused all the same. The
tests' own host adds the same (tests/kit/djl/host: Added.java; tests/kit/djl/test_hosting.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lmi.model.options import Settings, load_settings, settings_of
from lmi.model.options.table import option_named

from ...kit.api.errors import OptionError
from ...kit.rows import each_row

# Name, value, the place in DJL Serving's source.
ADDED = [
    ("maxWorkers", "1", "ModelInfo.initialize (SERVING_MAX_WORKERS), LmiUtils.configureLmiModel, PyModel.load"),
    ("minWorkers", "1", "ModelInfo.initialize (SERVING_MIN_WORKERS), PyModel.load"),
    ("gpu.minWorkers", "1", "PyModel.load"),
    ("gpu.maxWorkers", "1", "PyModel.load"),
    ("engine", "Python", "ModelInfo.loadServingProperties (OPTION_ENGINE)"),
    ("entryPoint", "djl_python.sagemaker", "SageMakerUtils.inferSageMakerEngine"),
    ("modelName", "model.bst", "SageMakerUtils.inferSageMakerEngine"),
    ("model_loading_timeout", "1200", "SageMakerCompatibility.applyModelCompatibility (SAGEMAKER_STARTUP_TIMEOUT)"),
    ("predict_timeout", "60", "applyModelCompatibility (SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS)"),
    ("default_accept", "text/csv", "applyModelCompatibility (SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT)"),
    ("batch_size", "1", "ModelInfo.configPerModelSettings (max_dynamic_batch_size)"),
    ("batchifier", "stack", "ModelInfo.load"),
    ("application", "undefined", "ModelInfo.load"),
    ("translator", "a.B", "ModelInfo.load"),
    ("translatorFactory", "a.B", "ModelInfo.load"),
    ("metric_dimension", "m", "ModelInfo.load"),
    ("load_on_devices", "0", "LmiConfigRecommender.setPropertiesForLora"),
    ("handler", "handle", "PyProcess.predictStandard"),
    ("failed", "1", "PyProcess.stopPythonProcess"),
    ("model_dir", "/opt/ml/model", "djl_python.service_loader"),
    ("device_id", "-1", "djl_python.python_sync_engine"),
    ("cluster_size", "1", "djl_python.python_sync_engine"),
    ("is_peft_model", "true", "LmiConfigRecommender.setIsPeftModel"),
    ("mpi_mode", "false", "LmiConfigRecommender.setRollingBatch (lmi-dist), ModelInfo.configPerModelSettings"),
    ("pipeline_parallel_degree", "1", "LmiConfigRecommender.setPipelineParallelDegree"),
    ("tensor_parallel_degree", "1", "LmiConfigRecommender.setTensorParallelDegree, PyModel.load"),
    ("max_rolling_batch_size", "32", "LmiConfigRecommender.setRollingBatchSize"),
    ("max_num_tokens", "16384", "LmiConfigRecommender.setRollingBatchSize (trtllm)"),
    ("model_id", "/tmp/download/abc", "ModelInfo.load (s3://)"),
    ("speculative_draft_model", "/tmp/download/abc", "ModelInfo.downloadDraftModel (s3://)"),
]
MODES = [
    {"rolling_batch": "vllm"},
    {"rolling_batch": "disable", "async_mode": "true"},
    {"rolling_batch": "disable", "batch_size": "8"},
    {"rolling_batch": "scheduler"},
    {"rolling_batch": "trtllm", "tensor_parallel_degree": "1", "mpi_mode": "true"},
]


def settings(**properties: str) -> Settings:
    return settings_of(properties, model_dir="/opt/ml/model")


@each_row("mode", MODES, ids=str)
@each_row(("name", "value"), [(name, value) for name, value, _ in ADDED])
def test_what_the_host_adds_is_taken(name: str, value: str, mode: dict[str, str]) -> None:
    if name == "batchifier" and mode.get("batch_size") is None:
        # The size is one of SERVING_BATCH_SIZE or POST /models, which no option tells of.
        with pytest.raises(OptionError, match="SERVING_BATCH_SIZE"):
            settings(**{name: value, **mode})
        return
    taken = settings(**{name: value, **mode})
    # None is left for the engine's side to wonder about: a name that the table has not would be.
    assert option_named(name) is not None
    assert name not in taken.engine_arguments


def test_all_of_it_at_once() -> None:
    taken = settings(**{name: value for name, value, _ in ADDED})
    assert taken.host["batchifier"] == "stack"
    assert (taken.max_rolling_batch_size, taken.tensor_parallel_degree) == (32, 1)


@pytest.mark.parametrize("name", ["model_loading_timeouts", "tensor_parallel_degre", "pipeline_paralel_degree"])
def test_a_misspelling_of_what_the_host_adds_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match=f"option.{name}: there is no such option; did you mean option"):
        settings(**{name: "1"})


def test_variables_named_args_are_options_that_come_last(tmp_path: Path) -> None:
    """ModelInfo.loadServingProperties and PyModel.load: options go before keys without `option.`, which go before
    ARGS_*."""
    environment = {
        "ARGS_DTYPE": "fp16",
        "ARGS_REVISION": "main",
        "ARGS_maxWorkers": "2",
        "ARGS_TASK": "",
        "ARGS_SEED": "1",
    }
    taken = load_settings(tmp_path, environment=environment, overrides={})
    assert (taken.dtype, taken.revision, taken.host["maxWorkers"]) == ("float16", "main", "2")
    assert taken.engine_arguments["seed"] == "1"
    (tmp_path / "serving.properties").write_text("dtype=fp32\noption.seed=2")
    taken = load_settings(tmp_path, environment={**environment, "OPTION_REVISION": "v1"}, overrides={})
    assert (taken.dtype, taken.revision, taken.engine_arguments["seed"]) == ("float32", "v1", "2")
    (tmp_path / "serving.properties").write_text("dtype=fp32\noption.dtype=bf16")
    assert load_settings(tmp_path, environment=environment, overrides={}).dtype == "bfloat16"


def test_an_unknown_variable_named_args_is_for_somebody_else(tmp_path: Path) -> None:
    """As a key of the user's own in serving.properties: the engine's side takes those that it knows."""
    environment = {"ARGS_MINE": "1", "ARGS_SEED": "1", "ARGS_OURS": "1", "OPTION_OURS": "2", "ARGS_REVISION": "main"}
    properties = {"mine": "1", "seed": "1", "ours": "2", "revision": "main"}
    assert load_settings(tmp_path, environment=environment, overrides={}).unprefixed == ("mine", "revision", "seed")
    behind_djl = settings_of(properties, model_dir=str(tmp_path), environment=environment)
    assert behind_djl.unprefixed == ("mine", "revision", "seed")
    assert settings_of(properties, model_dir=str(tmp_path)).unprefixed == ()


def test_a_misspelled_variable_named_args_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"did you mean ARGS_MAX_ROLLING_BATCH_SIZE\?"):
        load_settings(tmp_path, environment={"ARGS_MAX_ROLING_BATCH_SIZE": "1"}, overrides={})


# What Java's ModelInfo, PyModel, PyProcess, RollingBatch, LmiUtils and LmiConfigRecommender read or set, and what the
# init call adds.
HOST = [
    "engine", "entryPoint", "handler", "pythonExecutable", "env", "predict_timeout", "model_loading_timeout",
    "parallel_loading", "enable_venv", "use_passive_workers", "retry_threshold", "minWorkers", "maxWorkers",
    "gpu.minWorkers", "gpu.maxWorkers", "cpu.minWorkers", "cpu.maxWorkers", "job_queue_size", "max_batch_delay",
    "max_idle_time", "load_on_devices", "required_memory_mb", "reserved_memory_mb", "gpu.required_memory_mb",
    "gpu.reserved_memory_mb", "log_request_metric", "metrics_aggregation", "metric_dimension", "modelName",
    "optimization", "is_peft_model", "model_dir", "max_output_size", "default_accept", "translatorFactory",
]  # fmt: skip


@each_row("name", HOST)
def test_the_hosts_own_are_never_unknown(name: str) -> None:
    taken = settings(**{name: "1"})
    assert taken.host == ({name: "1"} if name != "env" else {})
    assert taken.engine_arguments == settings().engine_arguments
