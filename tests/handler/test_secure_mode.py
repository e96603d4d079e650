"""SageMaker's secure mode, by the rules of DJL Serving's plugin (plugins/secure-mode, 0.36)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lmi.handler.secure_mode import SecureMode, secure_mode

from ..kit.adapters import LLAMA, write_adapter
from ..kit.api.errors import LmiError, OptionError
from ..kit.api.handler import djl_worker
from ..kit.api.options import load_settings, settings_of
from ..kit.djl.hosting import available, djl_python_path
from ..kit.registered import llama_dir, registered
from ..kit.rows import each_row

SCRIPTS = "DISALLOW_CUSTOM_INFERENCE_SCRIPTS"
PICKLES = "DISALLOW_PICKLE_FILES"
TEMPLATES = "DISALLOW_CHAT_TEMPLATE"
REQUIREMENTS = "DISALLOW_REQUIREMENTS_TXT"
REMOTE_CODE = "DISALLOW_TRUST_REMOTE_CODE"
ALL = f"{SCRIPTS},{PICKLES},{TEMPLATES},{REQUIREMENTS},{REMOTE_CODE}"


def environment(controls: str) -> dict[str, str]:
    return {"SAGEMAKER_SECURE_MODE": "True", "SAGEMAKER_SECURITY_CONTROLS": controls}


def mode(controls: str) -> SecureMode:
    made = secure_mode(environment(controls))
    assert made is not None
    return made


@each_row("given", [{}, {"SAGEMAKER_SECURE_MODE": "false"}, {"SAGEMAKER_SECURE_MODE": "1"}], ids=str)
def test_off(given: dict[str, str]) -> None:
    assert secure_mode({"SAGEMAKER_SECURITY_CONTROLS": ALL, **given}) is None


@each_row("on", ["true", "True", "true\n", " TRUE"])
def test_it_must_be_said_what_is_forbidden(on: str) -> None:
    with pytest.raises(OptionError, match=r"^SAGEMAKER_SECURITY_CONTROLS: expected what"):
        secure_mode({"SAGEMAKER_SECURE_MODE": on})


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
    ({"LORA_ADAPTERS": "a=/tmp"}, "", "LORA_ADAPTERS: DJL Serving prohibits"),
    ({"SM_VLLM_TRUST_REMOTE_CODE": ""}, REMOTE_CODE, "SM_VLLM_TRUST_REMOTE_CODE: expected false in secure mode"),
    ({"ARGS_TRUST_REMOTE_CODE": "true"}, REMOTE_CODE, "ARGS_TRUST_REMOTE_CODE: expected false in secure mode"),
    ({"SM_VLLM_TRUST_REMOTE_CODE": ""}, TEMPLATES, ""),
    ({"SM_VLLM_TENSOR_PARALLEL_SIZE": "2", "SM_VLLM_QUANTIZATION": "awq", "ARGS_MAX_MODEL_LEN": "9"}, ALL, ""),
    ({"HF_MODEL_ID": "a/b", "HF_REVISION": "c", "HF_TASK": "text-generation", "SPECULATE": "3"}, ALL, ""),
    ({"ARGS_TOKENIZER": "", "PATH": "/bin"}, ALL, ""),
]  # fmt: skip


@each_row(("variables", "controls", "said"), VARIABLES, ids=str)
def test_variables_that_djl_serving_does_not_look_at(
    tmp_path: Path, variables: dict[str, str], controls: str, said: str
) -> None:
    """Of `lmi check`, and behind DJL Serving, which delivers ARGS_* and knows nothing of the others."""
    local = load_settings(tmp_path, environment=variables, overrides={})
    delivered = {name.removeprefix("ARGS_").lower(): text for name, text in variables.items() if "ARGS_" in name}
    behind = settings_of(delivered, model_dir=str(tmp_path), environment=variables)
    secure = mode(controls)
    for settings in (local, behind):
        if not said:
            secure.check_variables(settings, variables)
            continue
        with pytest.raises(OptionError) as caught:
            secure.check_variables(settings, variables)
        assert said in caught.value.message


def test_behind_djl_serving_what_its_plugin_judges_is_left_to_it(tmp_path: Path) -> None:
    (tmp_path / "serving.properties").write_text("option.async_mode=true\n")
    (tmp_path / "weights.bin").write_text("")
    variables = {"OPTION_MAX_BODY_BYTES": "7"}
    delivered = {"async_mode": "true", "rolling_batch": "disable", "max_body_bytes": "7"}
    mode(ALL).check_variables(settings_of(delivered, model_dir=str(tmp_path), environment=variables), variables)


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
