"""`lmi migrate`: what becomes of configurations of LMI, of TGI and of vLLM's images."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lmi.handler.commands.migrate import MigrateError, escaped, migrate

from ...kit.api.errors import Fault, OptionError
from ...kit.api.handler import check_model_dir, lmi_command
from ...kit.api.options import read_properties
from ...kit.installed import without_vllm
from ...kit.rows import each_row


@pytest.fixture(autouse=True)
def _without_vllm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the tests that are marked see it."""
    if not request.node.get_closest_marker("engine"):
        without_vllm(monkeypatch)


ASYNC = {
    "engine": "Python",
    "option.entryPoint": "lmi.handler",
    "option.rolling_batch": "disable",
    "option.async_mode": "true",
    "retry_threshold": "10",
}
"""What is written for a container without modes."""
PLAIN = {"engine": "Python", "option.entryPoint": "lmi.handler"}


def of_environment(folder: Path, environment: dict[str, str]) -> tuple[dict[str, str], str]:
    """What is written for it: entries, and the whole text."""
    file = folder / "container.json"
    file.write_text(json.dumps(environment))
    text = migrate(file).text
    return read_properties(text), text


# (the environment, its entries beside those of ASYNC, comments that are there)
ENVIRONMENTS: list[tuple[dict[str, str], dict[str, str], list[str]]] = [
    (
        # text-generation-inference, docs/source/reference/launcher.md; SageMaker's entry script
        {"HF_MODEL_ID": "owner/model", "SM_NUM_GPUS": "4", "MAX_INPUT_LENGTH": "2048", "MAX_TOTAL_TOKENS": "4096",
         "MAX_CONCURRENT_REQUESTS": "128", "HUGGING_FACE_HUB_TOKEN": "hf_secret", "PORT": "80"},
        {"option.model_id": "owner/model", "option.tensor_parallel_degree": "4", "option.max_prompt_tokens": "2048",
         "option.max_model_len": "4096", "option.max_queued_requests": "128", "job_queue_size": "128",
         "option.tgi_compat": "true"},
        ["# SM_NUM_GPUS=4\n", "# dropped: PORT has no effect: the host says where it listens",
         "# Still to be set in the environment, where they are read: HUGGING_FACE_HUB_TOKEN\n",
         "# TGI's answers to `inputs`, which are read as LMI's: max_new_tokens is 30 unless given",
         "# Requests with the attribute dialect=tgi are read as TGI's.\noption.tgi_compat=true\n"],
    ),
    (
        {"HF_MODEL_ID": "/opt/ml/model", "HF_MODEL_QUANTIZE": "bitsandbytes-nf4", "DTYPE": "bfloat16"},
        {"option.quantize": "fp8", "option.dtype": "bfloat16", "option.tgi_compat": "true"},
        ["# dropped: HF_MODEL_ID=/opt/ml/model: the model is the model directory's\n",
         "# HF_MODEL_QUANTIZE=bitsandbytes-nf4 is read as option.quantize=fp8 (it quantizes any model to 8 bits",
         "# HF_MODEL_QUANTIZE=bitsandbytes-nf4: vLLM's `bitsandbytes` has 4 bits"],
    ),
    (
        # The model is an argument there.
        {"DTYPE": "float16", "ROPE_SCALING": "dynamic", "MAX_BEST_OF": "2", "API_KEY": "sk-secret"},
        {"option.dtype": "float16", "option.tgi_compat": "true"},
        ["# refused: ROPE_SCALING: 'dynamic' cannot be served: set option.hf_overrides=",
         "# dropped: MAX_BEST_OF has no effect: ", "# dropped: API_KEY has no effect: SageMaker checks"],
    ),
    (
        {"MODEL_ID": "a/b", "LORA_ADAPTERS": "x=/adapters/x,y=/adapters/y", "SPECULATE": "2"},
        {"option.model_id": "a/b", "option.enable_lora": "true", "option.lora_modules": "x=/adapters/x y=/adapters/y",
         "option.speculative_draft_model": "ngram", "option.speculative_length": "2", "option.tgi_compat": "true"},
        ["# LORA_ADAPTERS=x=/adapters/x,y=/adapters/y: Folders only"],
    ),
    (
        # aws.github.io/deep-learning-containers/vllm/configuration
        {"SM_VLLM_MODEL": "openai/gpt-oss-20b", "SM_VLLM_TENSOR_PARALLEL_SIZE": "4", "SM_VLLM_MAX_MODEL_LEN": "4096",
         "SM_VLLM_ENFORCE_EAGER": "true", "SM_VLLM_HF_TOKEN": "hf_secret", "SM_VLLM_HOST": "0.0.0.0",
         "SM_VLLM_API_KEY": "sk-secret", "VLLM_USE_V1": "1", "DTYPE": "other software's"},
        {"option.model_id": "openai/gpt-oss-20b", "option.tensor_parallel_size": "4", "option.max_model_len": "4096",
         "option.enforce_eager": "true"},
        ["# dropped: SM_VLLM_HF_TOKEN: set HF_TOKEN in the environment", "# dropped: SM_VLLM_HOST has no effect: ",
         "# refused: SM_VLLM_API_KEY: its value cannot be served: unset it",
         "# Still to be set in the environment, where they are read: VLLM_USE_V1\n"],
    ),
    (
        {"DJL_ENTRY_POINT": "djl_python.huggingface", "OPTION_ENABLE_STATEFUL_SESSIONS": "true",
         "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"},
        {},
        ["# DJL_ENTRY_POINT=djl_python.huggingface\n",
         "# option.entryPoint=djl_python.huggingface: this handler takes LMI's place\n",
         "# dropped: option.enable_stateful_sessions=true: it is the default; written out, it makes DJL Serving start",
         "# dropped: VLLM_ALLOW_RUNTIME_LORA_UPDATING: option.enable_lora=true lets adapters come and go\n"],
    ),
    (
        {"SM_VLLM_MODEL": "/opt/ml/model", "SM_VLLM_DTYPE": "auto"},
        {"option.dtype": "auto", "option.tensor_parallel_degree": "1"},
        ["# vLLM's default; here it is all devices\n"],
    ),
    (
        {"SM_VLLM_ENABLE_LORA": "true", "SM_VLLM_MAX_CPU_LORAS": "2", "SM_VLLM_TENSOR_PARALLEL_SIZE": "1"},
        {"option.enable_lora": "true", "option.max_cpu_loras": "2", "option.max_loras": "1",
         "option.tensor_parallel_size": "1"},
        ["# vLLM's default; here it is 4\noption.max_loras=1\n"],
    ),
    (
        # vLLM's older arguments, each with what to write instead.
        {"SM_VLLM_ROPE_SCALING": "{}", "SM_VLLM_SWAP_SPACE": "4", "SM_VLLM_LIMIT_MM_PER_PROMPT": "image=2",
         "SM_VLLM_TENSOR_PARALLEL_SIZE": "1"},
        {"option.limit_mm_per_prompt": '{"image": 2}', "option.tensor_parallel_size": "1"},
        ["# refused: option.rope_scaling: set option.hf_overrides=", "# dropped: option.swap_space=4: vLLM computes",
         "# SM_VLLM_LIMIT_MM_PER_PROMPT=image=2 is read as option.limit_mm_per_prompt={\"image\": 2} (for images"],
    ),
    (
        {"SERVING_LOAD_MODELS": "test::MPI=/opt/ml/model", "OPTION_ROLLING_BATCH": "vllm", "CUSTOM_FASTAPI_HOST": "x",
         "VLLM_API_KEY": "sk-secret", "NCCL_DEBUG": "INFO", "CUSTOM_FASTAPI_KEY": "secret"},
        {"option.rolling_batch": "vllm", "option.async_mode": "", "retry_threshold": ""},
        ["# refused: SERVING_LOAD_MODELS: write SERVING_LOAD_MODELS=test::Python=/opt/ml/model (one worker uses all",
         "# Still to be set in the environment, where they are read: NCCL_DEBUG\n",
         "# dropped: nothing here reads CUSTOM_FASTAPI_HOST, VLLM_API_KEY, CUSTOM_FASTAPI_KEY\n"],
    ),
    (
        # serving/docs/lmi/user_guides/vllm_user_guide.md, with an entry point of LMI's
        {"HF_MODEL_ID": "a/b", "TENSOR_PARALLEL_DEGREE": "max", "OPTION_ROLLING_BATCH": "lmi-dist",
         "OPTION_ENTRYPOINT": "djl_python.huggingface", "OPTION_MAX_ROLLING_BATCH_SIZE": "64", "ARGS_MAXWORKERS": "1",
         "DJL_ENTRY_POINT": "mine.py", "SERVING_JOB_QUEUE_SIZE": "500", "OPTION_QUANTISE": "awq",
         "SERVING_FEATURES": "vllm"},
        {"option.model_id": "a/b", "option.tensor_parallel_degree": "max", "option.rolling_batch": "vllm",
         "option.max_rolling_batch_size": "64", "job_queue_size": "500", "maxworkers": "1", "option.quantise": "awq",
         "option.async_mode": "", "retry_threshold": ""},
        ["# dropped: DJL_ENTRY_POINT=mine.py: option.entryPoint goes first\n",
         "# option.rolling_batch=lmi-dist: vLLM has taken the place of lmi-dist\n",
         "# option.entryPoint=djl_python.huggingface: this handler takes LMI's place\n",
         "# Still to be set in the environment, where they are read: SERVING_FEATURES\n"],
    ),
]  # fmt: skip


@each_row(("environment", "entries", "comments"), ENVIRONMENTS, ids=[next(iter(row[0])) for row in ENVIRONMENTS])
def test_an_environment(
    environment: dict[str, str], entries: dict[str, str], comments: list[str], tmp_path: Path
) -> None:
    written, text = of_environment(tmp_path, environment)
    assert written == {name: value for name, value in {**ASYNC, **entries}.items() if value}
    for comment in comments:
        assert comment in text
    assert "secret" not in text


# (serving.properties, what is written, comments that are there)
FILES: list[tuple[str, dict[str, str], list[str]]] = [
    ("option.model_id=s3://bucket/model/\n", {**PLAIN, "option.model_id": "s3://bucket/model/"}, []),
    (
        "# Mine\n\nengine=MPI\noption.mpi_mode=true\noption.tensor_parallel_degree=4\n",
        {**PLAIN, "option.tensor_parallel_degree": "4"},
        ["# Mine\n", "# engine=MPI: one worker uses all devices\n", "# dropped: option.mpi_mode=true: one worker uses"],
    ),
    (
        "option.entryPoint=djl_python.lmi_vllm.vllm_async_service\noption.async_mode=True\noption.rolling_batch=disable\n",
        {**PLAIN, "option.async_mode": "True", "option.rolling_batch": "disable"},
        ["# option.entryPoint=djl_python.lmi_vllm.vllm_async_service: this handler takes LMI's place\n"],
    ),
    (
        "option.rolling_batch=trtllm\noption.max_num_tokens=50000\noption.max_input_len=256\noption.fp8_scheme=X\n",
        {**PLAIN, "option.rolling_batch": "vllm", "option.parameter_schema": "trtllm",
         "option.max_prompt_tokens": "256"},
        ["# option.rolling_batch=trtllm: vLLM runs the model", "# dropped: option.max_num_tokens=50000: ",
         "# dropped: option.fp8_scheme=X: a checkpoint says how it was made\n"],
    ),
    (
        "option.entryPoint=djl_python.huggingface\noption.rolling_batch=disable\noption.device_map=auto\n\
option.load_in_8bit=true\noption.attn_implementation=sdpa\noption.backend=auto\n",
        {**PLAIN, "option.rolling_batch": "disable", "option.quantize": "fp8"},
        ["# dropped: option.device_map=auto: it has no effect: all devices are used, unless",
         "# option.load_in_8bit=true: it quantizes any model to 8 bits while it is loaded\n",
         "# dropped: option.attn_implementation=sdpa: vLLM chooses the kernel",
         "# dropped: option.backend=auto: without it vLLM takes transformers' modelling where"],
    ),
    (
        "option.rolling_batch=scheduler\noption.device_map=balanced\n",
        {**PLAIN, "option.rolling_batch": "scheduler"},
        ["# vLLM runs the model, with transformers' modelling\noption.rolling_batch=scheduler\n",
         "# dropped: option.device_map=balanced: it has no effect: all devices are used, unless"],
    ),
    (
        "engine=Rust\noption.model_id=BAAI/bge-base-en-v1.5\npooling=cls\nbatch_size=8\n",
        {**PLAIN, "option.model_id": "BAAI/bge-base-en-v1.5", "option.task": "text-embedding", "batch_size": "8",
         "option.pooler_config": '{"pooling_type": "CLS"}'},
        ["# engine=Rust: vLLM makes the vectors, not DJL's Rust\n", "# pooling=cls: vLLM's form of it\n"],
    ),
    (
        "engine=Rust\noption.model_id=BAAI/bge-reranker-base\nreranking=true\n",
        {**PLAIN, "option.model_id": "BAAI/bge-reranker-base", "option.task": "text-ranking"},
        ["# engine=Rust: vLLM makes the vectors, not DJL's Rust\n", "# reranking=true: the task says it\n"],
    ),
    (
        "option.model_id=a/b\noption.task=text-embedding\noption.reranking=false\n",
        {**PLAIN, "option.model_id": "a/b", "option.task": "text-embedding"},
        ["# dropped: option.reranking=false: it is the default\n"],
    ),
    (
        "option.load_format=sagemaker_fast_model_loader\noption.max_new_tokens=100\noption.dtype=int4\nmine=1\n",
        {**PLAIN, "mine": "1"},
        ["# refused: option.load_format: set option.load_format=runai_streamer, or",
         "#option.load_format=sagemaker_fast_model_loader\n", "# refused: option.max_new_tokens: remove it: requests",
         "# refused: option.dtype: expected one of auto", "#option.dtype=int4\n"],
    ),
    (
        "option.dtype=int4\noption.max_loras=x\noption.speculative_config={\\\n  \"a\": 1}\noption.max_loras=y\n",
        {**PLAIN, "option.speculative_config": '{"a": 1}'},
        ["# refused: option.dtype: ", "# refused: option.max_loras: expected an integer of at least 1, got 'y'\n",
         "#option.max_loras=y\n"],
    ),
    (
        # TensorRT-LLM's, transformers-NeuronX's, older vLLM's
        """
option.n_positions=2048
option.paged_attention=true
option.guided_decoding_backend=outlines
option.guided_decoding_disable_any_whitespace=True
option.max_output_len=256
option.quantize=smoothquant
""".lstrip(),
        {**PLAIN, "option.max_model_len": "2048", "option.quantize": "fp8",
         "option.structured_outputs_config": '{"backend": "outlines", "disable_any_whitespace": true}'},
        ["# option.n_positions=2048: transformers-NeuronX's name of it\n",
         "# dropped: option.paged_attention=true: vLLM's KV cache always has pages\n",
         "# option.guided_decoding_backend=outlines: ", "# refused: option.max_output_len: remove it: requests say it",
         "# option.guided_decoding_disable_any_whitespace=True: "],
    ),
    (
        "option.model_id=\"a/b\"\noption.dtype=fp32 # memory\noption.revision='main' # or a tag\n",
        {**PLAIN, "option.model_id": "a/b", "option.dtype": "fp32", "option.revision": "main"},
        ['# option.model_id="a/b": without the quotes, part of the value otherwise\noption.model_id=a/b\n',
         "# option.dtype=fp32 # memory: without the comment, part of the value otherwise\n"],
    ),
    (
        "option.backend=mine:Engine\noption.n_positions=5\n",
        {**PLAIN, "option.backend": "mine:Engine", "option.n_positions": "5"},
        [],
    ),
    (
        "option.enable_lora=true\noption.adapters=adapters\noption.long_lora_scaling_factors=4.0\n",
        {**PLAIN, "option.enable_lora": "true"},
        ["# dropped: option.adapters=adapters: it has no effect: the folder of adapters is always `adapters`\n",
         "# dropped: option.long_lora_scaling_factors=4.0: it has no effect: "],
    ),
    (
        # Tabs and form feeds between and in lines; a backslash before what is not ASCII, which is Latin-1 for Java.
        "engine\t=\tPython\noption.model_id\f=\ta/\\\n\t\fb\noption.revision=a\tb\noption.served_model_name=\\Å\\\\Å\n",
        {**PLAIN, "option.model_id": "a/b", "option.revision": "a\tb", "option.served_model_name": "Ã\x85\\Ã\x85"},
        ["engine\t=\tPython\noption.model_id\f=\ta/\\\n\t\fb\noption.revision=a\tb\n"],
    ),
    ("\ufeff# Mine\noption.model_id=a/b\n", {**PLAIN, "option.model_id": "a/b"}, ["# Mine\noption.model_id=a/b\n"]),
    ("\ufeff\noption.model_id=a/b\n", {**PLAIN, "option.model_id": "a/b"}, []),
]  # fmt: skip


@each_row(("text", "entries", "comments"), FILES, ids=[row[0].splitlines()[0] for row in FILES])
def test_a_model_directory(text: str, entries: dict[str, str], comments: list[str], tmp_path: Path) -> None:
    tmp_path.joinpath("serving.properties").write_text(text)
    migrated = migrate(tmp_path)
    assert read_properties(migrated.text) == entries
    for comment in comments:
        assert comment in migrated.text
    refused = [line.removeprefix("# refused: ") for line in migrated.text.splitlines() if line.startswith("# refused")]
    assert len(refused) == len(migrated.refused)
    # What it writes needs no migration, and passes by itself.
    tmp_path.joinpath("serving.properties").write_text(migrated.text)
    assert check_model_dir(tmp_path, {}, environment={}, files=False)
    assert read_properties(migrate(tmp_path).text) == entries


def test_code_of_the_users_is_checked_too(tmp_path: Path) -> None:
    tmp_path.joinpath("serving.properties").write_text("option.entryPoint=mine_to_move.py\n")
    tmp_path.joinpath("mine_to_move.py").write_text("from lmi.handler import handle\n")
    migrated = migrate(tmp_path)
    assert "entry point: mine_to_move.py" in [finding.message for finding in migrated.checked]
    assert "# code of yours: it serves through this handler if it imports lmi.handler" in migrated.text


def test_what_no_entry_is_to_blame_for_ends_it(tmp_path: Path) -> None:
    """The model's own files, say: they are named where they lie."""
    tmp_path.joinpath("serving.properties").write_text("option.dtype=fp16\n")
    tmp_path.joinpath("config.json").write_text("{}")
    with pytest.raises(OptionError, match=f"{tmp_path} has no weights"):
        migrate(tmp_path)


def test_what_ends_it_stays_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(directory: Path, *_: object, **__: object) -> None:
        raise OptionError.of_all([Fault("task", f"{directory} has no head", "text-embedding"), Fault("dtype", "no")])

    monkeypatch.setattr("lmi.handler.commands.migrate.check", check)
    tmp_path.joinpath("serving.properties").write_text("option.model_id=a/b\n")
    with pytest.raises(OptionError) as caught:
        migrate(tmp_path)
    assert caught.value.faults == (Fault("task", f"{tmp_path} has no head", "text-embedding"), Fault("dtype", "no"))
    assert caught.value.message == OptionError.of_all(caught.value.faults).message
    assert caught.value.param == "task"


def test_all_that_a_refusal_says_to_write_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No entry is to blame for an option that is missing, and several may be what is to stand there."""
    fault = Fault("task", "it is needed", instead="option.task=text-embedding and option.model_id=a=b and c")
    answers = iter([OptionError.of_all([fault]), None])

    def check(*_: object, **__: object) -> list[object]:
        if error := next(answers):
            raise error
        return []

    monkeypatch.setattr("lmi.handler.commands.migrate.check", check)
    tmp_path.joinpath("serving.properties").write_text("option.dtype=fp16\n")
    text = migrate(tmp_path).text
    entries = {**PLAIN, "option.dtype": "fp16", "option.task": "text-embedding", "option.model_id": "a=b and c"}
    assert read_properties(text) == entries
    assert text.count(f"# {fault.sentence('option.')}\n") == 1


def test_what_is_passed_through_is_still_to_be_set(tmp_path: Path) -> None:
    """Docker takes a variable without a value from where it is started."""
    file = tmp_path / "docker.sh"
    file.write_text("docker run -e HF_TOKEN -e SM_VLLM_DTYPE -e MINE -e SM_VLLM_MODEL=a/b -e NCCL_DEBUG=INFO i\n")
    text = migrate(file).text
    assert read_properties(text) == {**ASYNC, "option.model_id": "a/b", "option.tensor_parallel_degree": "1"}
    stay = "HF_TOKEN, SM_VLLM_DTYPE, NCCL_DEBUG"
    assert f"# Still to be set in the environment, where they are read: {stay}\n" in text
    assert "# dropped: nothing here reads MINE\n" in text


def test_what_is_no_configuration(tmp_path: Path) -> None:
    with pytest.raises(MigrateError, match=r"has no serving\.properties: where variables say it all, give a file"):
        migrate(tmp_path)
    with pytest.raises(MigrateError, match="expected a model directory or a file with an environment, found nothing"):
        migrate(tmp_path / "missing")


@each_row("value", ["a\\b", "two\nlines", " blank", "\ttab", "\fform\ffeed", "ä€😀", "a=b:c#d!e", '{"a": "b"}', ""])
def test_a_value_is_read_as_it_was(value: str) -> None:
    assert read_properties(f"option.x={escaped(value)}") == {"option.x": value}
    assert escaped(value).isascii()


def test_what_is_not_ascii(tmp_path: Path) -> None:
    """serving.properties is Latin-1 for Java; what no comment may have is escaped too."""
    tmp_path.joinpath("serving.properties").write_bytes("# grün\noption.served_model_name=grün\t1\n".encode("latin-1"))
    migrated = migrate(tmp_path).text
    assert migrated.isascii()
    assert read_properties(migrated)["option.served_model_name"] == "grün\t1"
    written, text = of_environment(tmp_path, {"OPTION_SERVED_MODEL_NAME": "€1", "SM_VLLM_CHAT_TEMPLATE": "{{ '€'\n }}"})
    assert text.isascii()
    assert (written["option.served_model_name"], written["option.chat_template"]) == ("€1", "{{ '€'\n }}")


def test_a_file_in_utf8_keeps_its_lines(tmp_path: Path) -> None:
    """0x85, a part of some letters in UTF-8, ends no line for Java, which reads Latin-1; comments are for people."""
    text = "# Århus\noption.served_model_name=Århus\n"
    tmp_path.joinpath("serving.properties").write_text(text, "utf-8")
    migrated = migrate(tmp_path).text
    assert read_properties(migrated)["option.served_model_name"] == "Århus".encode().decode("latin-1")
    assert "# \\u00c5rhus\n" in migrated
    assert migrated.count("rhus") == 2


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, folder = tmp_path / "tgi.env", tmp_path / "model"
    source.write_text("MODEL_ID=a/b\nROPE_SCALING=dynamic\n")
    folder.mkdir()
    lmi_command(["migrate", str(source)])
    output, errors = capsys.readouterr()
    assert output.startswith("# Made by lmi migrate of tgi.env.")
    assert "option.model_id=a/b\n" in output
    assert "lmi: check: options: good; vllm, async mode\n" in errors
    assert "lmi: refused: ROPE_SCALING: 'dynamic' cannot be served: set option.hf_overrides=" in errors
    lmi_command(["migrate", str(source), "-o", str(folder)])
    assert capsys.readouterr().out == f"lmi: wrote {folder / 'serving.properties'}\n"
    assert (folder / "serving.properties").read_text() == output


def test_nothing_is_written_over_unasked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "serving.properties"
    file.write_text("option.dtype=fp16\n")
    with pytest.raises(SystemExit) as ended:
        lmi_command(["migrate", str(tmp_path), "-o", str(tmp_path)])
    assert ended.value.code == 1
    assert capsys.readouterr().err.splitlines()[-1] == f"lmi: {file} exists: --force writes over it"
    assert file.read_text() == "option.dtype=fp16\n"
    lmi_command(["migrate", str(tmp_path), "-o", str(file), "--force"])
    assert "option.entryPoint=lmi.handler" in file.read_text()


@pytest.mark.engine
def test_what_vllm_says_stands_beside_the_file(tmp_path: Path) -> None:
    """vLLM writes to standard output while it is imported: a shell's > gets the file alone."""
    source = tmp_path / "vllm.env"
    source.write_text("SM_VLLM_MODEL=a/b\nSM_VLLM_MAX_MODEL_LENGTH=64\n")
    environment = {**os.environ, "VLLM_LOGGING_LEVEL": "INFO"}
    command = [sys.executable, "-m", "lmi.handler.commands.cli", "migrate", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True, env=environment)
    assert all(line.startswith(("#", "engine=", "option.", "retry_")) for line in done.stdout.splitlines())
    assert "#option.max_model_length=64\n" in done.stdout
    assert "lmi: refused: option.max_model_length: there is no such option and no such argument of vLLM" in done.stderr
    assert "did you mean option.max_model_len?" in done.stderr
