"""gpt-oss on the real vLLM, tiny and with random weights: it is served, and a guide makes sense of what it says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from lmi.model.vllm.request.harmony.harmony import harmony_of

from .....kit.answers.events import join_calls
from .....kit.answers.openai import SETTINGS
from .....kit.api.errors import OptionError
from .....kit.api.options import make_settings
from .....kit.api.types import Conversation, Generation, Sampling, Started, StructuredOutput
from .....kit.engines import backends
from .....kit.engines.backends import deltas
from .....kit.engines.gpt_oss import front, with_options
from .....kit.engines.start import in_process
from .....kit.hosts.host import FAST_OPTIONS
from .....kit.models.vocabularies import vocabulary

pytestmark = pytest.mark.engine


@pytest.mark.parametrize(
    "options", [{}, {"tool_call_parser": "openai"}, {"reasoning_parser": "openai_gptoss"}], ids=str
)
def test_no_option_is_needed_and_its_own_change_nothing(options: dict[str, str]) -> None:
    asked = Conversation(messages=({"role": "user", "content": "Hi"},))
    renderer = with_options(**options)
    assert renderer.splitter(asked, renderer.request(asked), []) is not None
    assert renderer.reasoning_end is None
    assert renderer.beginning(asked, renderer.request(asked), [], waits=True).at_once


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"tool_call_parser": "hermes"},
            "option.tool_call_parser: expected 'openai' or none for a model of type gpt_oss",
        ),
        (
            {"reasoning_parser": "qwen3"},
            "option.reasoning_parser: expected 'openai_gptoss' or none for a model of type",
        ),
    ],
)
def test_other_parsers_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        with_options(**options)


@pytest.mark.parametrize(("option", "name"), [("tool_call_parser", "openai"), ("reasoning_parser", "openai_gptoss")])
def test_its_parsers_are_refused_for_another_model(option: str, name: str) -> None:
    core: Any = SimpleNamespace(model_config=SimpleNamespace(hf_config=SimpleNamespace(model_type="llama")))
    with pytest.raises(
        OptionError, match=f"option.{option}: '{name}' cannot be used with this model: .* type is llama"
    ):
        harmony_of(core, msgspec.structs.replace(SETTINGS, **{option: name}))


def test_a_default_effort_that_is_none_ends_the_start() -> None:
    expected = "option.default_chat_template_kwargs: reasoning_effort: expected one of high, medium, low"
    with pytest.raises(OptionError, match=f"^{expected}, which this model knows, got 'huge'$"):
        with_options(default_chat_template_kwargs={"reasoning_effort": "huge"})


# --- The engine ---


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder: Path = tmp_path_factory.mktemp("gptoss") / "model"
    folder.mkdir()
    for file in vocabulary("gptoss").iterdir():
        (folder / file.name).symlink_to(file)
    options = {**FAST_OPTIONS, "load_format": "dummy", "max_model_len": "2048", "stream_interval": "3"}
    engine = in_process(make_settings(folder, **options))
    yield engine
    engine.close()


SCHEMA = {
    "type": "object",
    "properties": {"unit": {"enum": ["celsius", "fahrenheit"]}},
    "required": ["unit"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}
USER = ({"role": "user", "content": "How is the weather?"},)
FORCED = Conversation(messages=USER, tools=(TOOL,), tool_choice="required")
NAMED = Conversation(messages=USER, tools=(TOOL,), tool_choice="auto", function="get_weather")
PLAIN = Conversation(messages=USER)


def likely() -> dict[int, float]:
    """What makes a model that has learned nothing end its messages, and write JSON without white space."""
    tokenizer = front().get_tokenizer()
    return {**dict.fromkeys(tokenizer.encode('{"unit":"celsius"}'), 90.0), tokenizer.encode("<|end|>")[0]: 100.0}


def run(backend: Any, prompt: Conversation, *, stream: bool, **sampling: Any) -> tuple[str, str, list[Any], Any]:
    given = Sampling(**{"temperature": 0.0, "max_tokens": 200, "ignore_eos": False, **sampling})
    (events,) = backends.run(backend, Generation(request_id="t", prompt=prompt, sampling=given, stream=stream))
    assert any(isinstance(event, Started) for event in events)
    parts = deltas(events)
    calls = join_calls((one.index, one.id, one.name, one.arguments) for part in parts for one in part.calls)
    text, reasoning = ("".join(getattr(part, name) for part in parts) for name in ("text", "reasoning"))
    return text, reasoning, [(call.name, call.text) for call in calls], parts[-1].finish


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("prompt", [FORCED, NAMED], ids=["required", "named"])
def test_a_forced_call_is_a_call(backend: Any, prompt: Conversation, *, stream: bool) -> None:
    text, _, calls, finish = run(backend, prompt, stream=stream, logit_bias=likely())
    assert text == ""
    ((name, arguments),) = calls
    assert name == "get_weather"
    assert json.loads(arguments)["unit"] in ("celsius", "fahrenheit")
    assert finish.reason == "eos"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_guided_answer_is_json(backend: Any, *, stream: bool) -> None:
    guide = StructuredOutput(json_schema=json.dumps(SCHEMA))
    text, reasoning, calls, _ = run(backend, PLAIN, stream=stream, structured_output=guide, logit_bias=likely())
    assert json.loads(text)["unit"] in ("celsius", "fahrenheit")
    assert calls == []
    assert isinstance(reasoning, str)


def test_whole_and_streamed_are_the_same(backend: Any) -> None:
    answers = [run(backend, PLAIN, stream=stream, max_tokens=50) for stream in (False, True)]
    assert answers[0] == answers[1]
    assert answers[0][3].generated_tokens == 50
    # Random tokens are no message, and shown.
    assert answers[0][0]


def test_a_stop_string_ends_a_whole_answer(backend: Any) -> None:
    shown, *_ = run(backend, PLAIN, stream=False, max_tokens=50)
    stop = shown[len(shown) // 2 : len(shown) // 2 + 3]
    for stream in (False, True):
        text, _, _, finish = run(backend, PLAIN, stream=stream, max_tokens=50, stop=(stop,))
        assert finish.stop == stop
        assert stop not in text
