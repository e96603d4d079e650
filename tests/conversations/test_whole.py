"""Answers with calls, by the tool parsers of many families, as clients get them: what tests/families does not tell."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ..kit.answers.calls import CALLING, Answered
from ..kit.answers.openai import CHATS
from ..kit.engines.said import SaidEngine

pytestmark = pytest.mark.engine

Call = tuple[str, dict[str, Any]]
Write = Callable[[Sequence[Call]], str]


def listed(before: str, key: str, after: str, between: str = ", ") -> Write:
    """A list of JSON objects between two marks."""
    return lambda calls: before + f"[{between.join(dumped(key, call) for call in calls)}]" + after


def each(before: str, key: str, after: str) -> Write:
    """A JSON object for each call between two marks."""
    return lambda calls: "".join(before + dumped(key, call) + after for call in calls)


def dumped(key: str, call: Call) -> str:
    return json.dumps({"name": call[0], key: call[1]}, ensure_ascii=False)


def marked(before: str, function: tuple[str, str], parameter: tuple[str, str], after: str) -> Write:
    """A call as marks around its function's name, and around each of its arguments."""

    def write(calls: Sequence[Call]) -> str:
        return "".join(
            before
            + function[0].format(name)
            + "".join(
                parameter[0].format(key) + (value if isinstance(value, str) else json.dumps(value)) + parameter[1]
                for key, value in arguments.items()
            )
            + function[1]
            + after
            for name, arguments in calls
        )

    return write


QWEN = marked(
    "<tool_call>\n", ("<function={}>\n", "</function>\n"), ("<parameter={}>\n", "\n</parameter>\n"), "</tool_call>\n"
)
FAMILIES: dict[str, Write] = {
    "functiongemma": lambda calls: "".join(
        f"<start_function_call>call:{name}{{"
        + ",".join(f"{key}:<escape>{value}<escape>" for key, value in arguments.items())
        + "}<end_function_call>"
        for name, arguments in calls
    ),
    "granite": listed("<|tool_call|>", "arguments", ""),
    "hermes": each("<tool_call>\n", "arguments", "\n</tool_call>\n"),
    "hunyuan_a13b": listed("<tool_calls>", "arguments", "</tool_calls>"),
    "internlm": each("<|action_start|><|plugin|>", "parameters", "<|action_end|>"),
    "jamba": listed("<tool_calls>", "arguments", "</tool_calls>"),
    "llama3_json": lambda calls: "; ".join(dumped("parameters", call) for call in calls),
    "mistral": lambda calls: "".join(f"[TOOL_CALLS]{name}{json.dumps(arguments)}" for name, arguments in calls),
    "phi4_mini_json": listed("functools", "arguments", ""),
    "qwen3_coder": QWEN,
    "qwen3_xml": QWEN,
    "seed_oss": marked(
        "<seed:tool_call>\n",
        ("<function={}>\n", "</function>\n"),
        ("<parameter={}>", "</parameter>\n"),
        "</seed:tool_call>",
    ),
    "step3": lambda calls: (
        "<｜tool_calls_begin｜>"
        + marked(
            "<｜tool_call_begin｜>function<｜tool_sep｜>",
            ('<steptml:invoke name="{}">', "</steptml:invoke>"),
            ('<steptml:parameter name="{}">', "</steptml:parameter>"),
            "<｜tool_call_end｜>",
        )(calls)
        + "<｜tool_calls_end｜>"
    ),
    "xlam": listed("", "arguments", ""),
}
"""Tool parsers, and how their models write calls."""

MARKS = [
    "<start_function_call>", "<end_function_call>", "<escape>", "<|tool_call|>", "<tool_calls>", "</tool_calls>",
    "<|action_start|>", "<|plugin|>", "<|action_end|>", "[TOOL_CALLS]", "[ARGS]",
    "<seed:tool_call>", "</seed:tool_call>",
    "<｜tool_calls_begin｜>", "<｜tool_calls_end｜>", "<｜tool_call_begin｜>", "<｜tool_call_end｜>", "<｜tool_sep｜>",
    "<|python_tag|>", "<seed:think>", "</seed:think>", "<seed:cot_budget_reflect>", "</seed:cot_budget_reflect>",
]  # fmt: skip
"""What these models have as single tokens; the demo model has <tool_call>."""

LOOK: Call = ("look_up", {"word": "Paris"})
ANSWERS: dict[str, Call] = {
    "one call": LOOK,
    "a brace": ("look_up", {"word": "a } b"}),
    "no arguments": ("look_up", {}),
    "unicode": ("look_up", {"word": "é 世界"}),
}

SCHEMA = {"type": "object", "properties": {"word": {"type": "string"}, "again": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "look_up", "description": "Looks up", "parameters": SCHEMA}}
BODY = CALLING["openai"].body("auto", [TOOL])


def writes_own_form(family: str) -> bool:
    """Whether vLLM has a forced call written in the family's own form, and not in JSON."""
    from vllm.tool_parsers import ToolParserManager

    return ToolParserManager.get_tool_parser(family).structural_tag_model is not None


@pytest.fixture(scope="module")
def marked_model(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model with these families' tokens in its tokenizer."""
    from transformers import AutoTokenizer

    made = tmp_path_factory.mktemp("families") / "model"
    made.mkdir()
    for file in demo_model.iterdir():
        (made / file.name).write_bytes(file.read_bytes())
    tokenizer: Any = AutoTokenizer.from_pretrained(made)
    tokenizer.add_tokens(MARKS)
    tokenizer.save_pretrained(made)
    return made


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, marked_model: Path) -> Iterator[tuple[str, SaidEngine]]:
    made = SaidEngine(marked_model, tool_call_parser=request.param)
    yield request.param, made
    made.close()


def asked(engine: SaidEngine, ids: list[int]) -> Answered:
    return CALLING["openai"].whole(engine.ask("openai", BODY, ids))


def test_a_call_that_is_cut_off_or_malformed_loses_no_answer(family: tuple[str, SaidEngine]) -> None:
    """Something comes of every beginning of an answer, and of a call without a name: no error, nothing empty."""
    name, engine = family
    whole = FAMILIES[name]([LOOK])
    ids = engine.ids(whole)
    for size in range(1, len(ids), max(1, len(ids) // 12)):
        given = engine.ask("openai", {**BODY, "max_tokens": size}, ids[:size], whole=False)
        found = CALLING["openai"].whole(given)
        assert found.text or found.calls, engine.tokenizer.decode(ids[:size])
        assert found.ended == "length"
    for text in (whole.replace("look_up", ""), whole.replace("Paris", 'Pa"ris'), whole[::-1]):
        found = asked(engine, engine.ids(text))
        assert found.text or found.calls, text


UNGUIDED = {
    **{("mistral", answer): "from vLLM 0.32 on its own tokenizer alone has a grammar" for answer in ANSWERS},
    ("qwen3_xml", "no arguments"): "the grammar has another white space",
    ("qwen3_coder", "no arguments"): "the same",
}
"""What no guide of a version lets a model write, in the forms of FAMILIES."""


@pytest.mark.parametrize("kind", ["required", "named"])
@pytest.mark.parametrize("answer", ANSWERS)
def test_a_forced_call_is_read_as_it_is_made(family: tuple[str, SaidEngine], kind: str, answer: str) -> None:
    """In JSON or in the family's own form: by what the model is guided to write."""
    name, engine = family
    known = CALLING["openai"]
    body = known.body(kind, [TOOL], "look_up")
    call = ANSWERS[answer]
    given = json.dumps(call[1] if kind == "named" else [{"name": call[0], "parameters": call[1]}], ensure_ascii=False)
    forms = [text for text in (given, FAMILIES[name]([call]).strip()) if engine.guided_to("openai", body, text)]
    if not forms:
        pytest.skip(UNGUIDED[name, answer])
    (text,) = forms
    assert (text == given) is not writes_own_form(name)
    for read, stream in ((known.whole, False), (known.stream, True)):
        found = read(engine.ask("openai", {**body, "stream": stream}, engine.ids(text)))
        assert [(one.name, one.arguments) for one in found.calls] == [call]
        assert found.text == ""


EMPTY = ("granite", "internlm", "jamba", "llama3_json", "step3")
"""Families whose parsers give a stream nothing for a call without arguments."""


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_call_without_arguments_has_an_empty_object(family: tuple[str, SaidEngine], stream: bool) -> None:
    name, engine = family
    ids = engine.ids(FAMILIES[name]([("look_up", {})]))
    for dialect, known in CALLING.items():
        tool = known.tool("look_up", SCHEMA)
        given = engine.ask(dialect, known.body("auto", [tool], stream=stream), ids)
        found = (known.stream if stream else known.whole)(given)
        assert [call.text for call in found.calls] == ["{}"] * len(found.calls)
        assert found.calls or name not in EMPTY


@pytest.fixture(scope="module")
def thinking(demo_model: Path) -> Iterator[SaidEngine]:
    made = SaidEngine(demo_model, tool_call_parser="hermes", reasoning_parser="qwen3")
    yield made
    made.close()


def test_all_else_of_a_whole_answer_is_as_without_parsers(thinking: SaidEngine) -> None:
    """Several answers, their log-probabilities, the tokens that are reasoning."""
    ids = thinking.ids("<think>Let me see.</think>It is " + FAMILIES["hermes"]([LOOK]))
    body = {**BODY, "n": 3, "logprobs": True, "top_logprobs": 0}
    (answer,) = [json.loads(record) for record in thinking.ask("openai", body, ids, path=CHATS)]
    inner = len(thinking.ids("Let me see."))
    assert answer["usage"]["completion_tokens"] == 3 * (len(ids) + 1)
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] == 3 * inner
    assert len(answer["choices"]) == 3
    for choice in answer["choices"]:
        message = choice["message"]
        assert (message["reasoning"], message["content"].strip()) == ("Let me see.", "It is")
        (call,) = message["tool_calls"]
        assert json.loads(call["function"]["arguments"]) == LOOK[1]
        assert [entry["token"] for entry in choice["logprobs"]["content"]][: len(ids)] == [
            thinking.tokenizer.decode([token_id]) for token_id in ids
        ]
    assert len({choice["message"]["tool_calls"][0]["id"] for choice in answer["choices"]}) == 3


@pytest.mark.parametrize("per_step", [1, 4])
def test_a_stop_string_ends_a_whole_answer(thinking: SaidEngine, per_step: int) -> None:
    ids = thinking.ids("<think>Let me see.</think>It is here, I think.")
    (record,) = thinking.ask("openai", {**BODY, "stop": [", I"]}, ids, per_step=per_step, path=CHATS)
    (choice,) = json.loads(record)["choices"]
    assert (choice["message"]["reasoning"], choice["message"]["content"]) == ("Let me see.", "It is here")
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", ", I")
    usage = json.loads(record)["usage"]
    assert usage["completion_tokens_details"]["reasoning_tokens"] == len(thinking.ids("Let me see."))
    assert usage["completion_tokens"] == len(thinking.ids("<think>Let me see.</think>It is here, I"))
