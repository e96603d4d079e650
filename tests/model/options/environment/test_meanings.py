"""The variables of other containers: what each becomes, who goes first, and which name a message has."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from lmi.model.options.environment.document import variables_table
from lmi.model.options.environment.tgi import HUGGING_FACE, TGI
from lmi.model.options.environment.vllm_image import ARGUMENTS, LIBRARY

from ....kit.api.errors import OptionError
from ....kit.api.options import load_settings, notes_of, option_named, settings_of
from ....kit.api.types import Settings
from ....kit.paths import DOCS


def load(directory: Path, environment: dict[str, str], text: str = "", **overrides: str) -> Settings:
    """As `lmi serve` and `lmi check` do."""
    directory.joinpath("serving.properties").write_text(text)
    return load_settings(directory, environment=environment, overrides=overrides)


def refused(directory: Path, environment: dict[str, str], text: str = "") -> str:
    with pytest.raises(OptionError) as caught:
        load(directory, environment, text)
    return caught.value.message


# (variables, what the engine is told, the fields of Settings, Limits and AdapterOptions that they set)
MEANINGS: list[tuple[dict[str, str], dict[str, str], dict[str, object]]] = [
    # Hugging Face's, in LMI's container and in TGI's.
    ({"HF_MODEL_ID": "owner/model"}, {"model": "owner/model"}, {"model_id": "owner/model"}),
    ({"HF_MODEL_ID": "a/b", "HF_REVISION": "v1", "HF_TASK": "text-embedding"}, {"revision": "v1"}, {"task": "embed"}),
    ({"HF_MODEL_ID": "a/b", "HF_MODEL_REVISION": "v2"}, {"revision": "v2"}, {"revision": "v2"}),
    ({"HF_MODEL_QUANTIZE": "awq"}, {"quantization": "awq"}, {}),
    ({"HF_MODEL_QUANTIZE": "bitsandbytes-nf4"}, {"quantization": "fp8"}, {}),
    ({"HF_MODEL_TRUST_REMOTE_CODE": "true"}, {"trust_remote_code": "true"}, {"trust_remote_code": True}),
    # TGI's.
    ({"MODEL_ID": "owner/model", "REVISION": "main"}, {"model": "owner/model", "revision": "main"}, {}),
    ({"SM_NUM_GPUS": "2"}, {"tensor_parallel_size": "2"}, {"tensor_parallel_degree": 2}),
    ({"NUM_SHARD": "4"}, {"tensor_parallel_size": "4"}, {"tensor_parallel_degree": 4}),
    ({"SM_NUM_GPUS": "2", "NUM_SHARD": "4"}, {"tensor_parallel_size": "2"}, {}),
    ({"MODEL_ID": "a/b", "SHARDED": "false", "NUM_SHARD": "4"}, {"tensor_parallel_size": "1"}, {}),
    ({"MODEL_ID": "a/b", "SHARDED": "true", "NUM_SHARD": "4"}, {"tensor_parallel_size": "4"}, {}),
    ({"CUDA_MEMORY_FRACTION": "0.8"}, {"gpu_memory_utilization": "0.8"}, {}),
    ({"MODEL_ID": "a/b", "DTYPE": "bfloat16"}, {"dtype": "bfloat16"}, {"dtype": "bfloat16"}),
    ({"MODEL_ID": "a/b", "QUANTIZE": "gptq"}, {"quantization": "gptq"}, {}),
    ({"MODEL_ID": "a/b", "TRUST_REMOTE_CODE": "1"}, {"trust_remote_code": "true"}, {}),
    ({"MODEL_ID": "a/b", "KV_CACHE_DTYPE": "fp8_e4m3fn"}, {"kv_cache_dtype": "fp8_e4m3"}, {}),
    (
        {"HF_MODEL_ID": "a/b", "SPECULATE": "3"},
        {"speculative_config": '{"method": "ngram", "num_speculative_tokens": 3}'},
        {},
    ),
    ({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "2"}, {}, {"max_body_bytes": 2 << 20}),
    ({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "2", "SAGEMAKER_MAX_REQUEST_SIZE": "1000"}, {}, {"max_body_bytes": 1000}),
    ({"SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS": "90"}, {}, {"request_timeout": 90.0}),
    ({"MAX_CONCURRENT_REQUESTS": "128"}, {}, {"max_queued_requests": 128}),
    ({"MAX_INPUT_TOKENS": "1024", "MAX_TOTAL_TOKENS": "2048"}, {"max_model_len": "2048"}, {"max_prompt_tokens": 1024}),
    ({"MAX_INPUT_LENGTH": "1000"}, {}, {"max_prompt_tokens": 1000}),
    ({"MAX_BATCH_PREFILL_TOKENS": "4096"}, {"max_num_batched_tokens": "4096"}, {}),
    ({"MAX_BATCH_SIZE": "8"}, {"max_num_seqs": "8"}, {"max_rolling_batch_size": 8}),
    ({"MODEL_ID": "a/b", "PAYLOAD_LIMIT": "2000000"}, {}, {"max_body_bytes": 2_000_000}),
    ({"ENABLE_CUDA_GRAPHS": "true"}, {"enforce_eager": "false"}, {}),
    ({"ENABLE_CUDA_GRAPHS": "false"}, {"enforce_eager": "true"}, {}),
    ({"MODEL_ID": "a/b", "CUDA_GRAPHS": "0"}, {"enforce_eager": "true"}, {}),
    ({"MODEL_ID": "a/b", "CUDA_GRAPHS": "1, 2,4"}, {"cudagraph_capture_sizes": "1 2 4"}, {}),
    ({"MODEL_ID": "a/b", "USE_PREFIX_CACHING": "0"}, {"enable_prefix_caching": "false"}, {}),
    (
        {"LORA_ADAPTERS": "a=/adapters/a, b=/adapters/b"},
        {},
        {"enable_lora": True, "lora_modules": (("a", "/adapters/a"), ("b", "/adapters/b"))},
    ),
    # AWS's vLLM images.
    ({"SM_VLLM_MODEL": "owner/model"}, {"model": "owner/model"}, {"model_id": "owner/model"}),
    ({"SM_VLLM_MAX_MODEL_LEN": "4096"}, {"max_model_len": "4096"}, {}),
    ({"SM_VLLM_TENSOR_PARALLEL_SIZE": "2"}, {"tensor_parallel_size": "2"}, {"tensor_parallel_degree": 2}),
    ({"SM_VLLM_MAX_NUM_SEQS": "16"}, {"max_num_seqs": "16"}, {"max_rolling_batch_size": 16}),
    ({"SM_VLLM_ENFORCE_EAGER": "true"}, {"enforce_eager": "true"}, {}),
    ({"SM_VLLM_ENFORCE_EAGER": ""}, {"enforce_eager": "true"}, {}),
    ({"SM_VLLM_ENABLE_PREFIX_CACHING": "false"}, {"enable_prefix_caching": "false"}, {}),
    ({"SM_VLLM_NO_ENABLE_PREFIX_CACHING": "true"}, {"enable_prefix_caching": "false"}, {}),
    ({"SM_VLLM_NO_ENABLE_PREFIX_CACHING": "false"}, {}, {}),
    ({"SM_VLLM_QUANTIZATION": "fp8"}, {"quantization": "fp8"}, {}),
    (
        {"SM_VLLM_ENABLE_AUTO_TOOL_CHOICE": "true", "SM_VLLM_TOOL_CALL_PARSER": "hermes"},
        {},
        {"tool_call_parser": "hermes"},
    ),
    ({"SM_VLLM_LIMIT_MM_PER_PROMPT": '{"image": 2}'}, {"limit_mm_per_prompt": '{"image": 2}'}, {}),
    ({"SM_VLLM_SERVED_MODEL_NAME": "mine"}, {}, {"model_name": "mine"}),
    ({"SM_VLLM_SERVED_MODEL_NAME": '["mine", "yours"]'}, {}, {"model_name": "mine"}),
    (
        {"SM_VLLM_ENABLE_LORA": "true", "SM_VLLM_LORA_MODULES": "a=/adapters/a"},
        {},
        {"enable_lora": True, "lora_modules": (("a", "/adapters/a"),)},
    ),
    (
        {"SM_VLLM_ENABLE_LORA": "", "SM_VLLM_LORA_MODULES": '{"name": "a", "path": "/a"} {"name": "b", "path": "/b"}'},
        {},
        {"lora_modules": (("a", "/a"), ("b", "/b"))},
    ),
    # What is refused is refused where it says something.
    (
        {"SM_VLLM_DEFAULT_CHAT_TEMPLATE_KWARGS": '{"enable_thinking": false}'},
        {},
        {"default_chat_template_kwargs": {"enable_thinking": False}},
    ),
    (
        {"SM_VLLM_EXCLUDE_TOOLS_WHEN_TOOL_CHOICE_NONE": ""},
        {},
        {"exclude_tools_when_tool_choice_none": True},
    ),
    ({"SM_VLLM_RETURN_TOKENS_AS_TOKEN_IDS": "false"}, {}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("environment", "arguments", "fields"), MEANINGS, ids=[",".join(row[0]) for row in MEANINGS])
def test_what_a_variable_means(
    environment: dict[str, str], arguments: dict[str, str], fields: dict[str, object], tmp_path: Path
) -> None:
    taken = load(tmp_path, environment)
    always = {"model": str(tmp_path), "dtype": "auto", "max_num_seqs": "256"}
    if taken.model_id != str(tmp_path):
        always["model"] = taken.model_id
    assert taken.engine_arguments == {**always, **arguments} | {
        name: text for name, text in taken.engine_arguments.items() if name in {"revision", "runner", "convert"}
    }
    for name, value in fields.items():
        owner = next(one for one in (taken, taken.limits, taken.adapters) if hasattr(one, name))
        assert getattr(owner, name) == value


@pytest.mark.parametrize(
    ("environment", "text", "dtype", "size"),
    [
        ({"MAX_BATCH_SIZE": "8", "SM_VLLM_MAX_NUM_SEQS": "16"}, "", "auto", 8),
        ({"OPTION_MAX_ROLLING_BATCH_SIZE": "4", "MAX_BATCH_SIZE": "8"}, "", "auto", 4),
        ({"MAX_BATCH_SIZE": "8"}, "option.max_num_seqs=2", "auto", 2),
        ({"SM_VLLM_MAX_NUM_SEQS": "16"}, "max_rolling_batch_size=2", "auto", 2),
        ({"ARGS_MAX_NUM_SEQS": "3", "MAX_BATCH_SIZE": "8"}, "", "auto", 3),
        ({"SM_VLLM_DTYPE": "float16", "DTYPE": "bfloat16", "MODEL_ID": "a/b"}, "", "bfloat16", 256),
        ({"OPTION_DTYPE": "fp32", "DTYPE": "bfloat16", "MODEL_ID": "a/b"}, "", "float32", 256),
        ({"OPTION_DTYPE": "fp32", "SM_VLLM_DTYPE": "float16"}, "option.dtype=bf16", "bfloat16", 256),
    ],
)  # fmt: skip
def test_who_goes_first(environment: dict[str, str], text: str, dtype: str, size: int, tmp_path: Path) -> None:
    """The file, OPTION_*, Hugging Face's, TGI's, SM_VLLM_*; by any of an option's names."""
    taken = load(tmp_path, environment, text)
    assert (taken.dtype, taken.max_rolling_batch_size) == (dtype, size)


def test_the_command_line_goes_before_all(tmp_path: Path) -> None:
    taken = load(tmp_path, {"MAX_BATCH_SIZE": "8", "HF_MODEL_ID": "a/b"}, max_num_seqs="2", model="c/d")
    assert (taken.max_rolling_batch_size, taken.model_id) == (2, "c/d")


def test_a_degree_of_javas_goes_first(tmp_path: Path) -> None:
    assert load(tmp_path, {"TENSOR_PARALLEL_DEGREE": "1", "SM_NUM_GPUS": "2"}).tensor_parallel_degree == 1


@pytest.mark.parametrize("variable", ["DTYPE", "REVISION", "QUANTIZE", "TRUST_REMOTE_CODE", "CUDA_GRAPHS", "SPECULATE"])
def test_a_common_name_counts_beside_a_models_only(variable: str, tmp_path: Path) -> None:
    """Other software sets it too."""
    assert load(tmp_path, {variable: "whatever"}) == load(tmp_path, {})


def test_names_that_other_software_sets_are_never_read(tmp_path: Path) -> None:
    strange = {"HOSTNAME": "pod-1", "PORT": "tcp", "MASTER_PORT": "x", "JSON_OUTPUT": "maybe", "API_KEY": "secret"}
    assert load(tmp_path, {"MODEL_ID": "a/b", **strange}) == load(tmp_path, {"MODEL_ID": "a/b"})


def test_the_model_of_the_directory_goes_before_a_variables(tmp_path: Path) -> None:
    tmp_path.joinpath("config.json").write_text("{}")
    for variable in ("HF_MODEL_ID", "MODEL_ID", "SM_VLLM_MODEL"):
        taken = load(tmp_path, {variable: "owner/model"})
        assert taken.model_id == str(tmp_path)
        assert notes_of(taken) == [f"{variable}=owner/model has no effect: {tmp_path} holds a model"]
        assert load(tmp_path, {variable: str(tmp_path)}).notes == ()
        # DJL Serving has downloaded it to that directory.
        assert load(tmp_path, {variable: "s3://bucket/model/"}).notes == ()


@pytest.mark.parametrize(
    ("environment", "note"),
    [
        ({"MODEL_ID": "a/b", "WAITING_SERVED_RATIO": "0.3"}, "WAITING_SERVED_RATIO has no effect: vLLM schedules"),
        ({"SM_VLLM_PORT": "8000"}, "SM_VLLM_PORT has no effect: the host says where it listens"),
        ({"SM_VLLM_NORMALIZE": "false"}, "SM_VLLM_NORMALIZE=false has no effect without option.task=text-embedding"),
    ],
)
def test_what_has_no_effect_is_said(environment: dict[str, str], note: str, tmp_path: Path) -> None:
    assert [one for one in notes_of(load(tmp_path, environment)) if one.startswith(note)]


REFUSALS: list[tuple[dict[str, str], str]] = [
    ({"HF_MODEL_QUANTIZE": "exl2"}, "HF_MODEL_QUANTIZE: remove it: a checkpoint that is quantized already needs no"),
    ({"HF_MODEL_ID": "a/b", "HF_TASK": "question-answering"}, "HF_TASK: expected one of auto, text-generation"),
    ({"HF_MODEL_ID": "s3://bucket/model"}, "HF_MODEL_ID: expected a hub id or a path (only DJL Serving downloads s3://"),
    ({"HF_MODEL_TRUST_REMOTE_CODE": "yes"}, "HF_MODEL_TRUST_REMOTE_CODE: expected true or false, got 'yes'"),
    ({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "6 MB"}, "SAGEMAKER_MAX_PAYLOAD_IN_MB: expected a number of MiB, got '6 MB'"),
    ({"SM_NUM_GPUS": "all"}, "SM_NUM_GPUS: expected a number of at least 1, or max, got 'all'"),
    ({"MAX_INPUT_TOKENS": "1k"}, "MAX_INPUT_TOKENS: expected an integer of at least 1, got '1k'"),
    ({"MODEL_ID": "a/b", "DTYPE": "int4"}, "DTYPE: expected one of auto"),
    ({"MODEL_ID": "a/b", "SPECULATE": "some"}, "SPECULATE: expected a number of tokens, got 'some'"),
    ({"MODEL_ID": "a/b", "CUDA_GRAPHS": "all"}, "CUDA_GRAPHS: expected batch sizes with commas between"),
    ({"LORA_ADAPTERS": "predibase/dbpedia"}, "LORA_ADAPTERS: expected name=folder, with commas between"),
    ({"LORA_ADAPTERS": "a=owner/a@main"}, "LORA_ADAPTERS: expected name=folder"),
    ({"MODEL_ID": "a/b", "ROPE_SCALING": "dynamic"}, "ROPE_SCALING: 'dynamic' cannot be served: set option.hf"),
    ({"MODEL_ID": "a/b", "TOKENIZER_CONFIG_PATH": "/x"}, "TOKENIZER_CONFIG_PATH: '/x' cannot be served: set "),
    ({"SM_VLLM_DTYPE": "int4"}, "SM_VLLM_DTYPE: expected one of auto"),
    ({"SM_VLLM_API_KEY": "secret"}, "SM_VLLM_API_KEY: its value cannot be served: unset it: SageMaker checks"),
    ({"SM_VLLM_MIDDLEWARE": "a.b"}, "SM_VLLM_MIDDLEWARE: 'a.b' cannot be served: unset it:"),
    ({"SM_VLLM_LORA_MODULES": "a"}, "SM_VLLM_LORA_MODULES: expected name=folder, several with blanks between"),
    ({"SM_VLLM_TENSOR_PARALEL_SIZE": "2"}, "SM_VLLM_TENSOR_PARALEL_SIZE: there is no such option; did you mean SM_"),
    ({"SM_VLLM_ENABLE_AUTO_TOOL_CHOICE": ""}, "SM_VLLM_ENABLE_AUTO_TOOL_CHOICE: expected option.tool"),
    ({"OPTION_DTYPE": "int4"}, "OPTION_DTYPE: expected one of auto"),
    ({"OPTION_tensor_parallel_degree": "x"}, "OPTION_tensor_parallel_degree: expected a number"),
    ({"TENSOR_PARALLEL_DEGREE": "x"}, "TENSOR_PARALLEL_DEGREE: expected a number"),
]  # fmt: skip


@pytest.mark.parametrize(("environment", "message"), REFUSALS, ids=[next(reversed(row[0])) for row in REFUSALS])
def test_a_refusal_names_the_variable(environment: dict[str, str], message: str, tmp_path: Path) -> None:
    assert refused(tmp_path, environment).startswith(message)


def test_several_refusals_at_once(tmp_path: Path) -> None:
    message = refused(tmp_path, {"MAX_BATCH_SIZE": "0", "SM_VLLM_SSL_KEYFILE": "k"}, "option.dtype=int4")
    assert message.startswith("3 options are wrong: ")
    for name in ("MAX_BATCH_SIZE: expected", "SM_VLLM_SSL_KEYFILE: ", "option.dtype: expected"):
        assert name in message


def test_what_the_file_says_is_not_looked_at_in_the_environment(tmp_path: Path) -> None:
    assert (
        load(tmp_path, {"HF_MODEL_QUANTIZE": "exl2"}, "option.quantize=fp8").engine_arguments["quantization"] == "fp8"
    )


# Behind DJL Serving: what its init call delivers in LMI's container, where the entry script has set further variables.
@pytest.mark.parametrize(
    ("environment", "delivered", "arguments", "named"),
    [
        # dockerd-entrypoint-with-cuda-compat.sh, translateTGIToLMI
        ({"HF_MODEL_QUANTIZE": "bitsandbytes-nf4", "OPTION_QUANTIZE": "bitsandbytes-nf4"},
         {"quantize": "bitsandbytes-nf4"}, {"quantization": "fp8"}, {"quantize": "HF_MODEL_QUANTIZE"}),
        ({"ENABLE_CUDA_GRAPHS": "no", "OPTION_ENFORCE_EAGER": "true"},
         {"enforce_eager": "true"}, {"enforce_eager": "true"}, {"enforce_eager": "ENABLE_CUDA_GRAPHS"}),
        ({"MAX_BATCH_SIZE": "8", "OPTION_MAX_ROLLING_BATCH_SIZE": "4"},
         {"max_rolling_batch_size": "4"}, {"max_num_seqs": "4"},
         {"max_rolling_batch_size": "OPTION_MAX_ROLLING_BATCH_SIZE"}),
        ({"SM_NUM_GPUS": "2", "TENSOR_PARALLEL_DEGREE": "2"},
         {"tensor_parallel_degree": "2"}, {"tensor_parallel_size": "2"}, {"tensor_parallel_degree": "SM_NUM_GPUS"}),
        # LmiConfigRecommender sets these where nobody has.
        ({"SM_VLLM_MAX_NUM_SEQS": "16", "SM_VLLM_TENSOR_PARALLEL_SIZE": "2"},
         {"max_rolling_batch_size": "32", "tensor_parallel_degree": "4", "pipeline_parallel_degree": "1"},
         {"max_num_seqs": "16", "tensor_parallel_size": "2"}, {"max_rolling_batch_size": "SM_VLLM_MAX_NUM_SEQS"}),
        # What the user has set stays.
        ({"SM_VLLM_MAX_NUM_SEQS": "16", "OPTION_MAX_ROLLING_BATCH_SIZE": "32"},
         {"max_rolling_batch_size": "32"}, {"max_num_seqs": "32"}, {}),
        ({"SM_VLLM_MAX_MODEL_LEN": "64"}, {"max_model_len": "128"}, {"max_model_len": "128"}, {}),
    ],
)  # fmt: skip
def test_behind_djl(
    environment: dict[str, str], delivered: dict[str, str], arguments: dict[str, str], named: dict[str, str],
    tmp_path: Path,
) -> None:  # fmt: skip
    tmp_path.joinpath("config.json").write_text("{}")
    taken = settings_of(delivered, model_dir=str(tmp_path), environment=environment)
    assert {name: taken.engine_arguments.get(name) for name in arguments} == arguments
    assert {name: taken.sources.get(name) for name in named} == named


def test_what_the_file_says_goes_before_the_environment_behind_djl(tmp_path: Path) -> None:
    tmp_path.joinpath("config.json").write_text("{}")
    tmp_path.joinpath("serving.properties").write_text("option.max_rolling_batch_size=32\noption.dtype=fp16\n")
    environment = {"SM_VLLM_MAX_NUM_SEQS": "16", "SM_VLLM_DTYPE": "float32"}
    delivered = {"max_rolling_batch_size": "32", "dtype": "fp16"}
    taken = settings_of(delivered, model_dir=str(tmp_path), environment=environment)
    assert (taken.max_rolling_batch_size, taken.dtype, taken.sources) == (32, "float16", {})


def test_what_djl_has_chosen_gives_way_with_a_word(tmp_path: Path) -> None:
    tmp_path.joinpath("config.json").write_text("{}")
    taken = settings_of(
        {"max_rolling_batch_size": "32"}, model_dir=str(tmp_path), environment={"SM_VLLM_MAX_NUM_SEQS": "16"}
    )
    assert notes_of(taken) == [
        "SM_VLLM_MAX_NUM_SEQS=16 takes precedence over option.max_rolling_batch_size=32, which DJL Serving has chosen",
    ]


def test_the_tables_are_sound() -> None:
    declared = [*HUGGING_FACE, *TGI, *LIBRARY, *ARGUMENTS.values()]
    names = [variable.name for variable in declared]
    assert len(set(names)) == len(names)
    assert all(bool(variable.options) is (variable.fate == "option") for variable in declared)
    assert all(variable.help for variable in declared if variable.fate != "option")


def test_the_documentation_has_the_variables() -> None:
    page = DOCS.joinpath("migrating.md").read_text("utf-8")
    assert page.partition("<!-- variables -->\n")[2].partition("\n<!-- /variables -->")[0] == variables_table()


@pytest.mark.engine
def test_each_argument_of_vllms_server_is_judged() -> None:
    """Those that are not the engine's are options of ours, or in the table."""
    from importlib import import_module

    from vllm import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    try:
        module = import_module("vllm.entrypoints.openai.cli_args")
    except ModuleNotFoundError:  # 0.32
        module = import_module("vllm.entrypoints.launchers.cli_args")
    names = {action.dest for action in module.make_arg_parser(FlexibleArgumentParser())._actions}
    names -= {"help", "model_tag", *(field.name for field in dataclasses.fields(EngineArgs))}
    assert {
        name for name in names if f"SM_VLLM_{name.upper()}" not in ARGUMENTS and option_named(name) is None
    } == set()


def test_what_djl_serving_reads_itself(tmp_path: Path) -> None:
    """Behind it these variables are its own: it says by options what they mean there."""
    environment = {"SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS": "90", "SAGEMAKER_NUM_MODEL_WORKERS": "2"}
    without = load(tmp_path, environment)
    behind = settings_of({"predict_timeout": "90"}, model_dir=str(tmp_path), environment=environment)
    assert (without.limits.request_timeout, behind.limits.request_timeout) == (90.0, 3600.0)
    noted = "SAGEMAKER_NUM_MODEL_WORKERS has no effect: one process serves, on all devices"
    assert (noted in notes_of(without), noted in notes_of(behind)) == (True, False)
