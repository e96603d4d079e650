"""`lmi check`: what start-up would refuse, told without an engine."""

from __future__ import annotations

import importlib.util
import json
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from ...kit.api.errors import OptionError
from ...kit.api.handler import check_model_dir as check
from ...kit.api.types import Settings
from ...kit.installed import without_vllm
from ...kit.rows import each_row


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    """A model directory in which every file that is looked for is there; the weights are a file of none."""
    files = {
        "serving.properties": "engine=Python\noption.entryPoint=lmi.handler\noption.rolling_batch=auto\n",
        "config.json": json.dumps({"architectures": ["LlamaForCausalLM"], "model_type": "llama"}),
        "tokenizer.json": "{}",
    }
    for name, text in files.items():
        tmp_path.joinpath(name).write_text(text)
    tmp_path.joinpath("model.safetensors").write_bytes(safetensors({}))
    return tmp_path


def safetensors(tensors: dict[str, object], data: bytes = b"") -> bytes:
    """A file of safetensors: the header's length, the header, the data."""
    header = json.dumps(tensors).encode()
    return struct.pack("<Q", len(header)) + header + data


@pytest.fixture(autouse=True)
def _without_vllm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the tests that are marked see it."""
    if not request.node.get_closest_marker("engine"):
        without_vllm(monkeypatch)


def refused(model_dir: Path, **overrides: str) -> str:
    with pytest.raises(OptionError) as caught:
        check(model_dir, overrides, here=False)
    return caught.value.message


def test_good(model_dir: Path) -> None:
    lines = check(model_dir, {})
    assert lines[0] == "options: good; vllm, rolling batch of at most 256"
    assert "entry point: lmi.handler" in lines
    assert f"model: {model_dir}, LlamaForCausalLM" in lines
    assert lines[-1].startswith("vLLM is not installed here")


def test_overrides(model_dir: Path) -> None:
    assert check(model_dir, {"async_mode": "true", "rolling_batch": "disable"})[0] == "options: good; vllm, async mode"
    assert check(model_dir, {"rolling_batch": "disable"})[0] == "options: good; vllm, dynamic batches"


def test_transformers_modelling(model_dir: Path) -> None:
    lines = check(model_dir, {"rolling_batch": "scheduler"})
    assert lines[:2] == [
        "options: good; vllm, rolling batch of at most 256",
        "note: option.rolling_batch=scheduler runs on vLLM, with transformers' modelling (model_impl=transformers)",
    ]
    assert "option.attn_implementation: remove it" in refused(model_dir, attn_implementation="eager")


def test_several_hosts(model_dir: Path) -> None:
    hosts = {"nnodes": "2", "master_addr": "leader"}
    where = "hosts: 2, which meet at ports {} of leader; this one is node"
    leader = f"{where.format('29600 and 29501')} 0, the leader; on the others run lmi follow"
    assert leader in check(model_dir, hosts)
    follower = f"{where.format('4001 and 4000')} 1, a follower: run lmi follow"
    assert follower in check(model_dir, {**hosts, "node_rank": "1", "node_port": "4001", "master_port": "4000"})
    assert not any(line.startswith("hosts: ") for line in check(model_dir, {}))


def test_embeddings(model_dir: Path) -> None:
    assert check(model_dir, {"task": "text-embedding"})[0] == (
        "options: good; vllm-embedding, rolling batch of at most 256"
    )
    assert "option.runner: expected pooling with option.task=text-embedding, got 'generate'" in refused(
        model_dir, task="text-embedding", runner="generate"
    )


def test_environment(model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTION_TENSOR_PARALEL_DEGREE", "2")
    assert "did you mean OPTION_TENSOR_PARALLEL_DEGREE?" in refused(model_dir)


@pytest.mark.engine
def test_an_unknown_variable_of_vllms_image(model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SM_VLLM_LOAD_FROMAT", "dummy")
    message = refused(model_dir)
    assert message.startswith("SM_VLLM_LOAD_FROMAT: there is no such option and no such argument of vLLM ")
    assert message.endswith("; did you mean SM_VLLM_LOAD_FORMAT?")


def test_what_user_code_lacks_is_told_by_the_variable(model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTION_CONTENT_FILTER", "nowhere:judge")
    assert refused(model_dir).startswith("OPTION_CONTENT_FILTER: 'nowhere:judge': there is no module nowhere ")


def test_a_model_that_djl_downloads(model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it starts the handler; `lmi serve` cannot."""
    model_dir.joinpath("config.json").unlink()
    assert "model: s3://bucket/model/, not checked" in check(model_dir, {"model_id": "s3://bucket/model/"})
    monkeypatch.setenv("HF_MODEL_ID", "s3://bucket/other/")
    assert "model: s3://bucket/other/, not checked" in check(model_dir, {})


@each_row("architecture", ["BertModel", "XLMRobertaModel", "NomicBertModel", "BertForMaskedLM"])
def test_an_encoder_generates_nothing(model_dir: Path, architecture: str) -> None:
    model_dir.joinpath("config.json").write_text(json.dumps({"architectures": [architecture]}))
    assert refused(model_dir) == (
        f"option.task: expected text-embedding with {architecture}, which generates no text, got 'auto': "
        "write option.task=text-embedding"
    )
    assert check(model_dir, {"task": "text-embedding"})


@each_row(("labels", "task"), [(1, "text-ranking"), (3, "text-classification"), (0, "text-classifi")])
def test_a_head_for_classes_generates_nothing(model_dir: Path, labels: int, task: str) -> None:
    """Without labels transformers has two."""
    config: dict[str, Any] = {"architectures": ["BertForSequenceClassification"]}
    if labels:
        config["id2label"] = {str(index): str(index) for index in range(labels)}
    model_dir.joinpath("config.json").write_text(json.dumps(config))
    assert refused(model_dir).startswith(f"option.task: expected {task}")
    if labels == 1:
        assert "vllm-scoring" in "\n".join(check(model_dir, {"task": "text-ranking"}))
    else:
        several = f"option.task: expected text-classification with this model, which has {labels or 2} classes"
        assert refused(model_dir, task="text-ranking").startswith(several)
    assert "vllm-scoring" in "\n".join(check(model_dir, {"task": "text-classification"}))


def test_an_activation_that_is_not_known(model_dir: Path) -> None:
    """Of sentence-transformers', in config.json."""
    config = {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "a"}}
    trained = {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Tanh"}}
    model_dir.joinpath("config.json").write_text(json.dumps({**config, **trained}))
    assert "expected Identity, Sigmoid or Softmax" in refused(model_dir, task="text-ranking")


def test_no_directory(model_dir: Path) -> None:
    assert "found nothing" in refused(model_dir / "missing")
    assert "found a file" in refused(model_dir / "config.json")


@pytest.mark.parametrize(
    ("missing", "said"),
    [("config.json", "no config.json"), ("tokenizer.json", "no tokenizer"), ("model.safetensors", "no weights")],
)
def test_missing_file(model_dir: Path, missing: str, said: str) -> None:
    model_dir.joinpath(missing).unlink()
    assert said in refused(model_dir)


def test_broken_config(model_dir: Path) -> None:
    model_dir.joinpath("config.json").write_text("{")
    assert "config.json is not JSON" in refused(model_dir)
    model_dir.joinpath("config.json").write_text("[]")
    assert "is not a JSON object" in refused(model_dir)
    # Nor do transformers and vLLM read it.
    model_dir.joinpath("config.json").write_text("{}", "utf-8-sig")
    assert "config.json is not JSON: Unexpected UTF-8 BOM" in refused(model_dir)


TENSOR = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@each_row(
    ("content", "said"),
    [
        (b"", "cut off in its header: it has 0 bytes"),
        (b"not weights at all", "cut off in its header: it has 18 bytes"),
        (safetensors({"a": TENSOR}, bytes(8))[:30], "cut off in its header: it has 30 bytes"),
        (safetensors({"a": TENSOR}, bytes(7)), "is cut off: it has 76 of 77 bytes"),
        (struct.pack("<Q", 4) + b"nope", "its header cannot be read"),
        (safetensors({"a": {}}), "its header cannot be read"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "is a Git LFS pointer"),
    ],
    ids=["empty", "text", "half a header", "a byte short", "no JSON", "no offsets", "LFS"],
)
def test_broken_weights(model_dir: Path, content: bytes, said: str) -> None:
    """The file is named."""
    model_dir.joinpath("model-2.safetensors").write_bytes(content)
    message = refused(model_dir)
    assert message.startswith(f"{model_dir / 'model-2.safetensors'} ")
    assert said in message


def test_whole_weights(model_dir: Path) -> None:
    data = safetensors({"__metadata__": {"format": "pt"}, "a": TENSOR}, bytes(8))
    model_dir.joinpath("model.safetensors").write_bytes(data)
    assert check(model_dir, {})


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_broken_tokenizer(model_dir: Path, name: str) -> None:
    model_dir.joinpath(name).write_text("{")
    assert f"{name} is not JSON" in refused(model_dir)
    model_dir.joinpath(name).write_text("[]")
    assert f"{name} is not a JSON object" in refused(model_dir)
    model_dir.joinpath(name).write_text("{}", "utf-8-sig")
    assert f"{name} is not JSON: Unexpected UTF-8 BOM" in refused(model_dir)


def test_weights_that_are_elsewhere_are_not_looked_for(model_dir: Path) -> None:
    """Some of vLLM's loaders know of other places."""
    model_dir.joinpath("model.safetensors").unlink()
    for loader in ("runai_streamer", "dummy"):
        assert check(model_dir, {"load_format": loader})


def test_missing_shard(model_dir: Path) -> None:
    weights = {"a": "model.safetensors", "b": "model-2.safetensors"}
    model_dir.joinpath("model.safetensors.index.json").write_text(json.dumps({"weight_map": weights}))
    assert "lacks 1 of 2 files of weights, as model-2.safetensors" in refused(model_dir)
    model_dir.joinpath("model.safetensors.index.json").write_text("{}")
    assert "is not an index" in refused(model_dir)


def test_model_elsewhere(model_dir: Path) -> None:
    assert any("owner/model on the hub" in line for line in check(model_dir, {"model_id": "owner/model"}))
    assert "/no/such/path does not exist" in refused(model_dir, model_id="/no/such/path")
    assert "./missing does not exist" in refused(model_dir, model_id="./missing")
    (model_dir / "inside").mkdir()
    assert "no config.json" in refused(model_dir, model_id="inside")


@each_row(
    ("entry", "said"),
    [
        ("no_such_module", "no module no_such_module"),
        ("lmi.no_such_module", "no module lmi.no_such_module"),
        ("missing.py", "there is no file"),
    ],
)
def test_wrong_entry_point(model_dir: Path, entry: str, said: str) -> None:
    assert said in refused(model_dir, entryPoint=entry)


def test_entry_points_of_the_users_own(model_dir: Path) -> None:
    model_dir.joinpath("mine_only_here.py").write_text("from lmi.handler import handle\n")
    for entry in ("mine_only_here", "mine_only_here.py"):
        assert f"entry point: {entry}" in check(model_dir, {"entryPoint": entry})
    assert any(
        "DJL Serving's own handler" in line for line in check(model_dir, {"entryPoint": "djl_python.huggingface"})
    )


def test_the_entry_point_of_the_environment(model_dir: Path) -> None:
    """The option goes first, in DJL Serving too."""
    environment = {"DJL_ENTRY_POINT": "missing.py"}
    assert "entry point: lmi.handler" in check(model_dir, {"entryPoint": "lmi.handler"}, environment=environment)
    model_dir.joinpath("serving.properties").unlink()
    assert "entry point: lmi.handler" in check(model_dir, {}, environment={"DJL_ENTRY_POINT": "lmi.handler"})
    with pytest.raises(OptionError, match=r"^DJL_ENTRY_POINT: there is no file .*missing\.py"):
        check(model_dir, {}, environment=environment)


def test_no_entry_point(model_dir: Path) -> None:
    model_dir.joinpath("serving.properties").unlink()
    assert any("set option.entryPoint=lmi.handler" in line for line in check(model_dir, {}))
    model_dir.joinpath("model.py").write_text("")
    assert any(line.startswith("entry point: model.py") for line in check(model_dir, {}))


@pytest.mark.engine
def test_arguments_of_vllm(model_dir: Path) -> None:
    lines = check(model_dir, {"max_model_len": "64", "kv_cache_memory_bytes": "1000"}, here=False)
    assert any(line.startswith("vLLM ") and "max_model_len=64" in line for line in lines)
    assert "did you mean option.load_format?" in refused(model_dir, load_fromat="dummy")
    assert "option.max_model_len: expected an integer, got 'long'" in refused(model_dir, max_model_len="long")
    lines = check(model_dir, {"task": "text-embedding"}, here=False)
    assert any(line.startswith("vLLM ") and "runner=pooling, convert=embed" in line for line in lines)


@pytest.mark.engine
def test_bare_keys_are_told(model_dir: Path) -> None:
    with model_dir.joinpath("serving.properties").open("a") as file:
        file.write("mine=1\n")
    assert "warning: unknown, and without `option.`, therefore ignored: mine" in check(model_dir, {}, here=False)


def test_code_of_the_users_is_loaded(model_dir: Path) -> None:
    """What of it cannot be: tests/handler/threads/test_deferred.py."""
    (model_dir / "guard_checked.py").write_text("def judge(text, stage): ...\n")
    lines = check(model_dir, {"content_filter": "guard_checked:judge"})
    assert "your own code: content filter" in lines
    assert str(model_dir) not in sys.path
    (model_dir / "model.py").write_text("import no_such_thing")
    with pytest.raises(OptionError, match=r"model\.py: ModuleNotFoundError"):
        check(model_dir, {})


def test_what_needs_djl_python_is_a_note(model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The container alone may have it."""
    for name in [name for name in sys.modules.copy() if name.partition(".")[0] == "djl_python"]:
        # Another test's.
        monkeypatch.delitem(sys.modules, name)
    assert importlib.util.find_spec("djl_python") is None
    (model_dir / "model.py").write_text("from djl_python.input_parser import input_formatter\n")
    told = "note: not checked, as it needs djl_python"
    assert any(line.startswith(told) for line in check(model_dir, {}))


def test_a_chat_template_that_is_not_there(model_dir: Path) -> None:
    assert f"option.chat_template: {model_dir}/missing.jinja: " in refused(model_dir, chat_template="missing.jinja")


def test_a_chat_template_that_is_none(model_dir: Path) -> None:
    pytest.importorskip("transformers")
    assert "option.chat_template: line 1: " in refused(model_dir, chat_template="{{ messages")
    assert check(model_dir, {"chat_template": "{{ messages[0].content }}"})


# (option, name, message); the names are those of vLLM 0.23 and 0.32.
PARSERS = [
    ("tool_call_parser", "openai", "option.tool_call_parser: 'openai' cannot be used with this model: "),
    (
        "reasoning_parser",
        "openai_gptoss",
        "'openai_gptoss' cannot be used with this model: it reads the answers of type",
    ),
    ("tool_call_parser", "hermess", ", got 'hermess'; did you mean hermes?"),
    ("tool_call_parser", "nothing_like_it", ", got 'nothing_like_it'"),
    ("reasoning_parser", "qwen33", ", got 'qwen33'; did you mean qwen3?"),
    ("tool_call_parser", "Hermes", ", got 'Hermes'"),
]


@each_row(("option", "name", "message"), PARSERS)
def test_parsers_that_are_none(model_dir: Path, option: str, name: str, message: str) -> None:
    assert message in refused(model_dir, **{option: name})


@pytest.mark.engine
@each_row(("option", "name", "message"), PARSERS)
def test_parsers_that_vllm_does_not_have(model_dir: Path, option: str, name: str, message: str) -> None:
    assert message in refused(model_dir, **{option: name})


@each_row(("option", "name"), [("tool_call_parser", "hermes"), ("reasoning_parser", "qwen3")])
def test_parsers_that_are_there(model_dir: Path, option: str, name: str) -> None:
    assert check(model_dir, {option: name})


def test_a_parser_that_is_not_used(model_dir: Path) -> None:
    assert check(model_dir, {"tool_call_parser": "openai", "enable_auto_tool_choice": "false"})


def test_parsers_of_the_users(model_dir: Path) -> None:
    """Their names are not refused: no engine tells which there are."""
    plugin = model_dir / "my_parser.py"
    plugin.write_text("")
    assert check(model_dir, {"tool_parser_plugin": plugin.name, "tool_call_parser": "mine"})
    assert f"there is no file {model_dir}/other.py" in refused(model_dir, reasoning_parser_plugin="other.py")


REGISTERED = """
from vllm.tool_parsers import ToolParser, ToolParserManager

ToolParserManager.register_module("mine_to_check")(type("Mine", (ToolParser,), {}))
"""


@pytest.mark.engine
def test_parsers_of_the_users_are_imported(model_dir: Path) -> None:
    plugin = model_dir / "my_parser.py"
    plugin.write_text(REGISTERED)
    options = {"tool_parser_plugin": plugin.name, "tool_call_parser": "mine_to_check"}
    assert f"parsers of your own: {plugin}" in check(model_dir, options, here=False)
    assert ", got 'another'" in refused(model_dir, **{**options, "tool_call_parser": "another"})
    plugin.write_text("import nothing_of_that_name")
    assert f"option.tool_parser_plugin: {plugin}, line 1: ModuleNotFoundError" in refused(model_dir, **options)


@pytest.mark.engine
def test_lmcache_may_be_in_the_container_alone(model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, package=None: None if name == "lmcache" else find(name, package)
    )
    lines = check(model_dir, {"lmcache_auto_config": "true"}, here=False)
    assert "warning: option.lmcache_auto_config requires the package lmcache, which is not installed here" in lines


@pytest.fixture
def secure(model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The model directory, where code of the hub's and pickles are forbidden."""
    monkeypatch.setenv("SAGEMAKER_SECURE_MODE", "true")
    monkeypatch.setenv("SAGEMAKER_SECURITY_CONTROLS", "DISALLOW_TRUST_REMOTE_CODE,DISALLOW_PICKLE_FILES")
    return model_dir


def test_secure_mode(secure: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a model what DJL Serving does not look at."""
    controls = "DISALLOW_PICKLE_FILES, DISALLOW_TRUST_REMOTE_CODE"
    left = "files, serving.properties, OPTION_* and the entry point are DJL Serving's to judge"
    assert f"secure mode: variables and adapters good, with {controls}; {left}" in check(secure, {})
    monkeypatch.setenv("SM_VLLM_TRUST_REMOTE_CODE", "")
    assert refused(secure).startswith("SM_VLLM_TRUST_REMOTE_CODE: expected false in secure mode")


@pytest.mark.parametrize(
    ("entry", "forbidden"),
    [("lmi.handler", "lmi.handler"), ("mine.py", "mine.py"), ("", "model.py"), ("djl_python.huggingface", None)],
)
def test_an_entry_point_that_secure_mode_forbids(
    secure: Path, monkeypatch: pytest.MonkeyPatch, entry: str, forbidden: str | None
) -> None:
    """By docs/deploying.md; DJL Serving judges it, before it starts a worker."""
    monkeypatch.setenv("SAGEMAKER_SECURITY_CONTROLS", "DISALLOW_CUSTOM_INFERENCE_SCRIPTS")
    (secure / "serving.properties").write_text(f"option.entryPoint={entry}\n" if entry else "")
    if forbidden and forbidden.endswith(".py"):
        (secure / forbidden).write_text("from lmi.handler import handle\n")
    found = [line for line in check(secure, {}) if "prohibits" in line]
    said = f"warning: DJL Serving prohibits the entry point {forbidden} (DISALLOW_CUSTOM_INFERENCE_SCRIPTS)"
    assert found == ([f"{said}: such an endpoint cannot run this handler"] if forbidden else [])


OF_THE_HUB = {
    "a tokenizer": ({"tokenizer": "owner/name"}, "tokenizer"),
    "of a variable": ({"OPTION_TOKENIZER": "owner/name"}, "tokenizer"),
    "a draft model": ({"speculative_draft_model": "owner/name"}, "speculative_draft_model"),
    "a draft model, in vLLM's words": (
        {"speculative_config": '{"model": "owner/name", "method": "eagle", "num_speculative_tokens": 2}'},
        "speculative_config",
    ),
    "a configuration": ({"hf_config_path": "owner"}, "hf_config_path"),
    "of generation": ({"generation_config": "owner/name"}, "generation_config"),
    "n-grams": ({"speculative_draft_model": "ngram"}, None),
    "words": ({"generation_config": "vllm", "tokenizer": "none"}, None),
    "a path": ({"tokenizer": "MODEL", "speculative_draft_model": "/no/such"}, None),
}
"""What a model that is here takes from the hub, by the option that says so."""


@pytest.mark.engine
@each_row("case", OF_THE_HUB)
def test_what_is_on_the_hub_is_not_fetched(model_dir: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    given, option = OF_THE_HUB[case]
    asked: list[str] = []

    def refuses(settings: Settings) -> None:
        asked.append(settings.model_id)

    monkeypatch.setattr("lmi.model.vllm.configured.tried", refuses)
    monkeypatch.setattr("lmi.model.vllm.configured.runs_here", lambda: True)
    variables = {name: text for name, text in given.items() if name.isupper()}
    options = {name: text.replace("MODEL", str(model_dir)) for name, text in given.items() if name not in variables}
    lines = check(model_dir, options, environment=variables)
    called = next(iter(variables), f"option.{option}")
    said = f"note: not checked whether vLLM takes all that together: {called} names what only a start fetches"
    assert (said in lines) is (option is not None)
    assert len(asked) == (option is None)
