"""SageMaker's functions in a model.py, of the model and of an adapter: what is called with what, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lmi.handler.user_code.formatters.sagemaker_functions import formatters_of

from ....kit.adapters import LLAMA, write_adapter
from ....kit.api.errors import AdapterError, OptionError
from ....kit.api.types import Delta, EngineEvent, Finish, Started
from ....kit.registered import llama_dir
from ....kit.rows import each_row
from ....kit.user_code.service import MakeScripted, ScriptedService

END = Finish("eos", generated_tokens=1)
INPUT = """
def input_fn(request_body, content_type):
    return {"inputs": f"{content_type}: {request_body.decode()}"}
"""
OUTPUT = """
def output_fn(prediction, response_content_type):
    text = prediction if isinstance(prediction, str) else prediction["generated_text"]
    return f"{response_content_type}: {text}"
"""

Make = Callable[..., ScriptedService]


@pytest.fixture
def served(scripted: MakeScripted, tmp_path: Path) -> Make:
    """Serves such a model.py with an engine that answers at once."""
    llama_dir(tmp_path)

    def make(code: str, **options: str) -> ScriptedService:
        then: list[EngineEvent] = [Started(1), Delta(0, "Hello", finish=END)]
        return scripted({"model.py": code}, then=then, **{"entryPoint": "lmi.handler", **options})

    return make


def ask(made: ScriptedService, body: bytes, headers: dict[str, str] | None = None) -> tuple[int, str, str]:
    opened = made.ended(body, headers)
    reply = opened.call.reply
    return reply.status, reply.content_type, b"".join(opened.records).decode()


def test_input_fn_has_the_body_as_it_came(served: Make) -> None:
    made = served(INPUT)
    status, _, body = ask(made, b"\xc3\xa9,1", {"content-type": "text/csv"})
    assert (status, json.loads(body)) == (200, {"generated_text": "Hello"})
    ask(made, b"x")
    assert [generation.prompt for generation in made.engine.generations] == ["text/csv: é,1", "application/json: x"]


@each_row("accept", ["", "*/*", "text/csv"])
def test_output_fn_has_the_response_and_what_is_accepted(served: Make, accept: str) -> None:
    made = served(OUTPUT)
    told = ask(made, b'{"inputs": "Hi"}', {"accept": accept} if accept else {})
    assert told == (200, "application/json", f"{accept if accept == 'text/csv' else 'application/json'}: Hello")


@each_row(
    ("returned", "content_type", "body"),
    [("('a,b', 'text/csv')", "text/csv", "a,b"), ("b'bytes'", "application/json", "bytes")],
)
def test_what_output_fn_may_return(served: Make, returned: str, content_type: str, body: str) -> None:
    made = served(f"def output_fn(prediction, accept):\n    return {returned}\n")
    assert ask(made, b'{"inputs": "Hi"}') == (200, content_type, body)


def test_a_stream_is_formatted_chunk_by_chunk(served: Make) -> None:
    made = served("def output_fn(prediction, accept):\n    return prediction\n")
    status, content_type, body = ask(made, b'{"prompt": "Hi", "stream": true}')
    assert (status, content_type) == (200, "text/event-stream")
    assert body.endswith("data: [DONE]\n\n")


@each_row(
    ("code", "said"),
    [
        ("def input_fn(body, kind):\n    raise KeyError('x')\n", "model.py: input_fn raised KeyError: 'x'"),
        ("def input_fn(body, kind):\n    return [1]\n", "model.py: input_fn returned a list, expected a dict"),
        ("def output_fn(body, kind):\n    raise KeyError('x')\n", "model.py: output_fn raised KeyError: 'x'"),
    ],
)
def test_what_fails_is_named(served: Make, code: str, said: str) -> None:
    made = served(code)
    status, _, body = ask(made, b'{"inputs": "Hi"}')
    assert (status, said in json.loads(body)["error"]) == (424, True)


MARKED = "def f(x, **kwargs):\n    return x\nf.is_{} = True\n"


@each_row("mark", ["input_formatter", "output_formatter"])
def test_what_is_decorated_goes_first(served: Make, mark: str) -> None:
    """As in djl_python, SageMaker's functions are not looked for then."""
    wrong = "def input_fn(body, kind):\n    raise RuntimeError\ndef model_fn(model_dir):\n    raise RuntimeError\n"
    made = served(wrong + MARKED.format(mark))
    assert ask(made, b'{"inputs": "Hi"}')[0] == 200


@each_row("entry", ["", "model.py"])
def test_a_model_py_that_is_the_entry_point_has_them_for_itself(served: Make, entry: str) -> None:
    served("def model_fn(model_dir):\n    raise RuntimeError\n" + INPUT, entryPoint=entry)


REFUSED = {
    "model_fn": "def model_fn(model_dir):\n    pass\n" + INPUT,
    "predict_fn": "def predict_fn(input_data, model):\n    pass\n",
    "@init_handler f": MARKED.format("init_handler"),
    "@prediction_handler f": MARKED.format("prediction_handler") + INPUT,
    r"class Mine\(VLLMHandler\)": (
        "class VLLMHandler:\n    __module__ = 'djl_python.lmi_vllm.vllm_async_service'\n"
        "class Mine(VLLMHandler):\n    pass\n"
    ),
}


@each_row(("name", "code"), REFUSED.items())
def test_what_stands_in_the_engines_place_fails_the_start(served: Make, name: str, code: str) -> None:
    with pytest.raises(
        OptionError, match=f"^model.py: {name} stands in the place of the engine.*expected option.model_id"
    ):
        served(code)


@each_row(
    ("code", "said"),
    [
        (
            "def input_fn(body):\n    pass\n",
            r"model.py: input_fn: expected \(request_body, content_type\), got \(body\)",
        ),
        (
            "def output_fn(a, b, c):\n    pass\n",
            r"model.py: output_fn: expected \(prediction, accept\), got \(a, b, c\)",
        ),
    ],
)
def test_a_wrong_signature_fails_the_start(served: Make, code: str, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        served(code)


def test_those_of_an_adapter(served: Make, tmp_path: Path) -> None:
    made = served("", enable_lora="true")
    registry = made.service.adapters
    assert registry is not None

    def register(name: str, code: str) -> None:
        path = write_adapter(tmp_path / "others" / name, LLAMA)
        (path / "model.py").write_text(code)
        registry.load(registry.enter(name, str(path), alias=None))

    register("a", INPUT + OUTPUT)
    told = ask(made, b"x", {"x-amzn-sagemaker-adapter-identifier": "a"})
    assert told == (200, "application/json", "application/json: Hello")
    assert made.engine.generations[0].prompt == "application/json: x"
    with pytest.raises(AdapterError, match=r"Failed to load custom code for adapter b: .*model\.py: predict_fn stands"):
        register("b", REFUSED["predict_fn"])


def test_a_module_without_any() -> None:
    assert formatters_of(json) == {}
