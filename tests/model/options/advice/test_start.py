"""What a start, and `lmi check`, say of names and values of other servers: no likeness of names, but what to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from ....kit.api.errors import OptionError
from ....kit.api.options import load_settings, make_settings, settings_of
from ....kit.rows import each_row


def refused(**options: str) -> str:
    with pytest.raises(OptionError) as caught:
        make_settings(**options)
    return caught.value.message


# (options, the message)
NAMES = [
    ({"max_input_len": "256"}, "option.max_input_len: write option.max_prompt_tokens=256"),
    (
        {"guided_decoding_backend": "outlines"},
        'option.guided_decoding_backend: write option.structured_outputs_config={"backend": "outlines"}',
    ),
    ({"rope_theta": "1000000.0"}, 'option.rope_theta: set option.hf_overrides={"rope_parameters": {"rope_type"'),
    ({"swap_space": "4"}, "option.swap_space: remove it: "),
    ({"dtype": "int8"}, "option.dtype: write option.quantize=fp8"),
    ({"limit_mm_per_prompt": "image=2"}, 'option.limit_mm_per_prompt: write option.limit_mm_per_prompt={"image": 2}'),
    ({"rolling_batch": "vlm"}, "got 'vlm'; did you mean vllm?"),
]


@each_row(("options", "message"), NAMES, ids=lambda one: next(iter(one)) if isinstance(one, dict) else "")
def test_what_to_write_instead(options: dict[str, str], message: str) -> None:
    assert message in refused(**options)


def test_all_at_once() -> None:
    assert refused(max_input_len="256", paged_attention="true", dtype="fp99").startswith("3 options are wrong: ")


def test_an_engine_of_the_users_has_names_of_its_own() -> None:
    settings = make_settings(backend="mine:Engine", n_positions="5", max_input_len="256")
    assert settings.engine_arguments["n_positions"] == "5"


def test_what_may_be_meant_for_others_is_let_pass(tmp_path: Path) -> None:
    """Keys without `option.`, which DJL Serving delivers too: the engine's side says that it ignores them."""
    tmp_path.joinpath("serving.properties").write_text('n_positions=5\nmine="quoted" # and more\n')
    settings = load_settings(tmp_path, environment={}, overrides={})
    assert settings.unprefixed == ("mine", "n_positions")


# (option, its text, what it is to be)
MISREAD = [
    ("model_id", '"a/b"', "a/b"),
    ("model_id", "'a/b'", "a/b"),
    ("model_id", "a/b # the model", "a/b"),
    ("model_id", '"a/b" # the model', "a/b"),
    ("dtype", "fp32 # memory", "fp32"),
    ("dtype", "fp32 #memory", "fp32"),
    ("served_model_name", '"name"', "name"),
    ("revision", "# none yet", ""),
    ("tokenizer", "a/b\t# its tokenizer", "a/b"),
    ("max_num_tokens", "50000 # without effect", "50000"),
    ("max_logprobs", '"5"', "5"),
    ("speculative_config", '\'{"method": "ngram"}\'', '{"method": "ngram"}'),
    ("speculative_config", '"{"method": "ngram"}"', '{"method": "ngram"}'),
    ("speculative_config", '{"method": "ngram"} # drafts', '{"method": "ngram"}'),
    ("chat_template", '"template.jinja"', "template.jinja"),
    ("job_queue_size", "1000 # requests", "1000"),
    ("entryPoint", '"lmi.handler"', "lmi.handler"),
]


@each_row(("name", "text", "meant"), MISREAD)
def test_quotes_and_comments_are_part_of_a_value(name: str, text: str, meant: str) -> None:
    """java.util.Properties: a comment is a line of its own, and quotes are letters as any other."""
    message = refused(**{name: text})
    assert message.startswith(f"option.{name}: write option.{name}={meant} (the ")
    assert message.endswith(f" part of the value), got {text!r}")
    make_settings(**{name: meant})


@each_row(
    ("name", "text"),
    [
        ("chat_template", "{# nobody #}{{ messages[0]['content'] }} # \"{{ x }}\""),
        ("chat_template", "\"{{ messages[0]['content'] }}\""),
        ("speculative_config", '{"method": "ngram", "note": "a # b"}'),
        ("lora_modules", '["a=/a #1"]'),
        ("otlp_traces_endpoint", "http://host/path#fragment"),
        ("model_id", "it's/a-model's"),
    ],
)
def test_what_is_meant_so(name: str, text: str) -> None:
    make_settings(**{name: text})


def test_a_variable_is_named(tmp_path: Path) -> None:
    """Docker's --env-file keeps quotes."""
    for variable, option in (("OPTION_MODEL_ID", "model_id"), ("HF_MODEL_ID", "model_id"), ("SM_VLLM_DTYPE", "dtype")):
        with pytest.raises(OptionError) as caught:
            load_settings(tmp_path, environment={variable: '"auto"'}, overrides={})
        assert caught.value.message == (
            f"{variable}: write option.{option}=auto (the quotes are part of the value), got '\"auto\"'"
        )
        assert caught.value.param == option
    with pytest.raises(
        OptionError, match=r"^OPTION_MODEL_ID: write option\.model_id=a/b \(the quotes are part of the value\)"
    ):
        settings_of({"model_id": '"a/b"'}, model_dir=str(tmp_path), environment={"OPTION_MODEL_ID": '"a/b"'})
