"""SageMaker's secure mode, by the rules of DJL Serving's plugin (plugins/secure-mode, 0.36)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lmi.handler.secure_mode import SecureMode, secure_mode

from ..kit.adapters import LLAMA, write_adapter
from ..kit.api.errors import LmiError, OptionError
from ..kit.api.handler import djl_worker
from ..kit.api.options import load_settings, make_settings, settings_of
from ..kit.djl.hosting import available, djl_python_path
from ..kit.registered import llama_dir, registered

SCRIPTS = "DISALLOW_CUSTOM_INFERENCE_SCRIPTS"
PICKLES = "DISALLOW_PICKLE_FILES"
TEMPLATES = "DISALLOW_CHAT_TEMPLATE"
REQUIREMENTS = "DISALLOW_REQUIREMENTS_TXT"
REMOTE_CODE = "DISALLOW_TRUST_REMOTE_CODE"
ALL = f"{SCRIPTS},{PICKLES},{TEMPLATES},{REQUIREMENTS},{REMOTE_CODE}"


def environment(controls: str, *channels: Path) -> dict[str, str]:
    return {
        "SAGEMAKER_SECURE_MODE": "True",
        "SAGEMAKER_SECURITY_CONTROLS": controls,
        "SAGEMAKER_UNTRUSTED_CHANNELS": " , ".join(map(str, channels)),
    }


def mode(controls: str, *channels: Path) -> SecureMode:
    made = secure_mode(environment(controls, *channels))
    assert made is not None
    return made


def refused(folder: Path, controls: str, *channels: Path, **options: str) -> str:
    """What is said of a model directory."""
    with pytest.raises(OptionError) as caught:
        mode(controls, *channels).check_model(make_settings(folder, **options), {})
    assert "\n" not in caught.value.message
    return caught.value.message


@pytest.mark.parametrize("given", [{}, {"SAGEMAKER_SECURE_MODE": "false"}, {"SAGEMAKER_SECURE_MODE": "1"}], ids=str)
def test_off(given: dict[str, str]) -> None:
    assert secure_mode({"SAGEMAKER_SECURITY_CONTROLS": ALL, **given}) is None


@pytest.mark.parametrize("on", ["true", "True", "true\n", " TRUE"])
def test_it_must_be_said_what_is_forbidden(on: str) -> None:
    with pytest.raises(OptionError, match=r"^SAGEMAKER_SECURITY_CONTROLS: expected what"):
        secure_mode({"SAGEMAKER_SECURE_MODE": on})


def test_a_good_model(tmp_path: Path) -> None:
    (tmp_path / "serving.properties").write_text(
        "engine=Python\noption.rolling_batch=vllm\noption.max_rolling_batch_size=8\nminWorkers=1\n"
    )
    (tmp_path / "tokenizer_config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_text("")
    mode(ALL, tmp_path).check_model(make_settings(tmp_path), {"OPTION_MAX_MODEL_LEN": "100", "OPTION_ENTRYPOINT": "x"})


# A file in the model directory, the control, what is said.
FILES = [
    *((f"inner/weights.{kind}", PICKLES, f"weights.{kind}: only safetensors") for kind in ("bin", "PT", "pth", "ckpt")),
    ("a.pkl", PICKLES, "a.pkl: only safetensors are permitted in secure mode (DISALLOW_PICKLE_FILES)"),
    ("inner/tokenizer_config.json", TEMPLATES, "tokenizer_config.json: chat_template is prohibited in secure mode"),
    ("requirements.txt", REQUIREMENTS, "requirements.txt: prohibited in secure mode"),
    ("model.py", SCRIPTS, "code of your own (model.py, formatters, filters, dialects, engines, parsers) is prohibited"),
]


@pytest.mark.parametrize(("name", "control", "said"), FILES)
def test_files(tmp_path: Path, name: str, control: str, said: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(json.dumps({"chat_template": "{{ x }}"}))
    assert said in refused(tmp_path, control, tmp_path)
    assert said in refused(tmp_path, ALL, tmp_path)
    others = ",".join(one for one in ALL.split(",") if one != control)
    mode(others, tmp_path).check_model(make_settings(tmp_path), {})


def test_trusted_folders_are_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_text("")
    mode(ALL).check_model(make_settings(tmp_path), {})
    assert "expected folders, got '/no/such/folder'" in refused(tmp_path, ALL, Path("/no/such/folder"))


# Options, the control, what is said.
OPTIONS = [
    ({"trust_remote_code": "true"}, REMOTE_CODE, "option.trust_remote_code: expected false in secure mode"),
    ({"chat_template": "{{ messages }}"}, TEMPLATES, "option.chat_template: prohibited in secure mode"),
    ({"request_chat_template": "true"}, TEMPLATES, "option.request_chat_template: prohibited in secure mode"),
    ({"input_formatter": "mine:read"}, SCRIPTS, "code of your own"),
    ({"backend": "mine:Engine"}, SCRIPTS, "code of your own"),
    ({"tool_parser_plugin": "/etc/hostname"}, SCRIPTS, "code of your own"),
    ({"pythonExecutable": "/tmp/python"}, "", "option.pythonExecutable: expected /opt/djl/vllm_venv/bin/python or"),
]


@pytest.mark.parametrize(("options", "control", "said"), OPTIONS, ids=str)
def test_options(tmp_path: Path, options: dict[str, str], control: str, said: str) -> None:
    assert said in refused(tmp_path, control, **options)


def test_only_some_properties_may_be_set(tmp_path: Path) -> None:
    (tmp_path / "serving.properties").write_text("engine=Python\noption.async_mode=true\nmax_model_len=5\n")
    variables = {"OPTION_MAX_BODY_BYTES": "7", "OPTION_DTYPE": "fp16", "HOME": "/"}
    taken = make_settings(tmp_path, rolling_batch="disable")
    with pytest.raises(OptionError) as caught:
        mode("").check_model(taken, variables)
    said = caught.value.message
    assert said == (
        "3 options are wrong: (1) option.async_mode: DJL Serving prohibits this property in secure mode; "
        "(2) max_model_len: DJL Serving prohibits this property in secure mode; "
        "(3) option.max_body_bytes: DJL Serving prohibits this property in secure mode"
    )


# Variables that DJL Serving's plugin does not look at, the controls, what is said of them; nothing: they are permitted.
VARIABLES = [
    ({"SM_VLLM_HF_OVERRIDES": "{}"}, "", "SM_VLLM_HF_OVERRIDES: DJL Serving prohibits"),
    ({"SM_VLLM_TOKENIZER": "somebody/else"}, "", "SM_VLLM_TOKENIZER: DJL Serving prohibits"),
    ({"SM_VLLM_ASYNC_SCHEDULING": ""}, "", "SM_VLLM_ASYNC_SCHEDULING: DJL Serving prohibits"),
    ({"ARGS_TOKENIZER": "somebody/else"}, "", "ARGS_TOKENIZER: DJL Serving prohibits"),
    ({"ARGS_tokenizer": "a", "ARGS_TOKENIZER": "b"}, "", "ARGS_TOKENIZER: DJL Serving prohibits"),
    ({"KV_CACHE_DTYPE": "fp8", "MODEL_ID": "x"}, "", "KV_CACHE_DTYPE: DJL Serving prohibits"),
    ({"SM_VLLM_TOOL_PARSER_PLUGIN": "/etc/hostname"}, "", "SM_VLLM_TOOL_PARSER_PLUGIN: DJL Serving prohibits"),
    ({"SM_VLLM_CHAT_TEMPLATE": "{{ messages }}"}, "", "SM_VLLM_CHAT_TEMPLATE: DJL Serving prohibits"),
    ({"SM_VLLM_CHAT_TEMPLATE": "{{ messages }}"}, TEMPLATES, "SM_VLLM_CHAT_TEMPLATE: prohibited in secure mode"),
    ({"LORA_ADAPTERS": "a=/tmp"}, "", "LORA_ADAPTERS: DJL Serving prohibits"),
    ({"SM_VLLM_TRUST_REMOTE_CODE": ""}, REMOTE_CODE, "SM_VLLM_TRUST_REMOTE_CODE: expected false in secure mode"),
    ({"ARGS_TRUST_REMOTE_CODE": "true"}, REMOTE_CODE, "ARGS_TRUST_REMOTE_CODE: expected false in secure mode"),
    ({"SM_VLLM_TRUST_REMOTE_CODE": ""}, TEMPLATES, ""),
    ({"SM_VLLM_TENSOR_PARALLEL_SIZE": "2", "SM_VLLM_QUANTIZATION": "awq", "ARGS_MAX_MODEL_LEN": "9"}, ALL, ""),
    ({"HF_MODEL_ID": "a/b", "HF_REVISION": "c", "HF_TASK": "text-generation", "SPECULATE": "3"}, ALL, ""),
    ({"ARGS_TOKENIZER": "", "PATH": "/bin"}, ALL, ""),
]  # fmt: skip


@pytest.mark.parametrize(("variables", "controls", "said"), VARIABLES, ids=str)
def test_variables_that_djl_serving_does_not_look_at(
    tmp_path: Path, variables: dict[str, str], controls: str, said: str
) -> None:
    """On the local server, and behind DJL Serving, which delivers ARGS_* and knows nothing of the others."""
    local = load_settings(tmp_path, environment=variables, overrides={})
    delivered = {name.removeprefix("ARGS_").lower(): text for name, text in variables.items() if "ARGS_" in name}
    behind = settings_of(delivered, model_dir=str(tmp_path), environment=variables)
    secure = mode(controls)
    for check, settings in ((secure.check_model, local), (secure.check_variables, behind)):
        if not said:
            check(settings, variables)
            continue
        with pytest.raises(OptionError) as caught:
            check(settings, variables)
        assert said in caught.value.message


def test_behind_djl_serving_what_its_plugin_judges_is_left_to_it(tmp_path: Path) -> None:
    (tmp_path / "serving.properties").write_text("option.async_mode=true\n")
    (tmp_path / "weights.bin").write_text("")
    variables = {"OPTION_MAX_BODY_BYTES": "7"}
    delivered = {"async_mode": "true", "rolling_batch": "disable", "max_body_bytes": "7"}
    mode(ALL, tmp_path).check_variables(
        settings_of(delivered, model_dir=str(tmp_path), environment=variables), variables
    )


@pytest.mark.skipif(available() is not None, reason=str(available()))
def test_a_worker_does_not_start_with_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(djl_python_path()))
    for name, value in {**environment(REMOTE_CODE), "SM_VLLM_TRUST_REMOTE_CODE": ""}.items():
        monkeypatch.setenv(name, value)
    from djl_python import Input

    inputs: Any = Input()
    inputs.properties = {"model_dir": str(tmp_path), "rolling_batch": "vllm", "backend": "nowhere:Engine"}
    error = djl_worker()._load(inputs)
    assert error.message.startswith("SM_VLLM_TRUST_REMOTE_CODE: expected false in secure mode")


@pytest.mark.parametrize(
    ("name", "control"),
    [("model.py", SCRIPTS), ("requirements.txt", REQUIREMENTS), ("inner/adapter_model.bin", PICKLES)],
)
def test_adapters(tmp_path: Path, name: str, control: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("")
    with pytest.raises(LmiError) as caught:
        mode(ALL).check_adapter(tmp_path)
    assert (caught.value.status, caught.value.param) == (400, "src")
    assert f"prohibited in secure mode ({control})" in caught.value.message
    mode(TEMPLATES).check_adapter(tmp_path)


def test_adapters_that_are_registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the folder of the model, before the code in theirs is executed, and while the server runs."""
    for name, value in environment(SCRIPTS).items():
        monkeypatch.setenv(name, value)
    coded = write_adapter(llama_dir(tmp_path / "model") / "adapters" / "coded", LLAMA)
    (coded / "model.py").write_text("1 / 0")
    said = r"adapters/coded: model\.py is prohibited in secure mode"
    with registered(tmp_path) as server, pytest.raises(OptionError, match=said):
        server.begin()
    (coded / "model.py").unlink()
    later = write_adapter(tmp_path / "later", LLAMA)
    (later / "model.py").write_text("1 / 0")
    with registered(tmp_path) as server:
        with pytest.raises(LmiError, match=r"^model\.py is prohibited in secure mode") as caught:
            server.begin().register("later", str(later))
        assert caught.value.status == 400
        assert server.names == ["coded"]
