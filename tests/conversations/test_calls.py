"""Calls that a request forces, from what the model writes to what a client gets, in every dialect with tools."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ..kit.answers.calls import ASKED, CALLING, Answered, legacy, streamed_legacy
from ..kit.engines.said import SaidEngine

pytestmark = pytest.mark.engine

STRINGS = {
    "brace": "a } b",
    "braces": "}}{{[]],",
    "end of the list": '"}}]',
    "quotes": 'say "}" \\" and \\',
    "backslashes": "\\\\\\",
    "lines": "a\n\t}\r\nb",
    "unicode": "é 世界 } 👩‍👩‍👧",
    "control": "\u0000\u001f }",
    "marks": '<tool_call>{"name": "x"}</tool_call> [{"name": "y", "parameters": {}}]',
    "empty": "",
}
SCHEMA = {"type": "object", "properties": {"code": {"type": "string"}}}
OPTIONS: dict[str, dict[str, str]] = {
    "tool parser": {"tool_call_parser": "xlam"},
    "no parser": {},
    "reasoning": {"reasoning_parser": "qwen3"},
}


@pytest.fixture(scope="module", params=OPTIONS)
def engine(request: pytest.FixtureRequest, demo_model: Path) -> Iterator[SaidEngine]:
    """What the options name makes no difference, as far as a forced call is written as JSON."""
    made = SaidEngine(demo_model, **OPTIONS[request.param])
    yield made
    made.close()


def read(
    engine: SaidEngine, dialect: str, stream: bool, body: dict[str, Any], answer: list[int], **how: Any
) -> Answered:
    known = CALLING[dialect]
    # Azure has no parallel_tool_calls of its own.
    headers = {"extra-parameters": "pass-through"}
    given = engine.ask(dialect, {**body, "stream": stream}, answer, headers=headers, **how)
    return (known.stream if stream else known.whole)(given)


def written(name: str, arguments: list[Any], dump: Callable[[Any], str]) -> str:
    return dump([{"name": name, "parameters": one} for one in arguments])


DUMPS: dict[str, Callable[[Any], str]] = {
    "as it is": lambda value: json.dumps(value, ensure_ascii=False),
    "escaped": json.dumps,
    "spaced": lambda value: json.dumps(value, indent=2),
}
WAYS = ((False, 1), (True, 1), (True, 3), (False, 5), (False, 1000))
"""Whether each letter has a token of its own, and how many come in a step."""


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("dialect", CALLING)
@pytest.mark.parametrize("kind", ["required", "named"])
def test_every_string_of_a_forced_call_arrives(engine: SaidEngine, kind: str, dialect: str, stream: bool) -> None:
    """Whatever a string holds, however it is written, and however its tokens come."""
    # Where there is a parser of calls it might take them for its own; the others are to leave them alone.
    dumps = DUMPS if engine.settings.tool_call_parser else {"as it is": DUMPS["as it is"]}
    ways = WAYS if stream else WAYS[1::2]
    body = CALLING[dialect].body(kind, [CALLING[dialect].tool("run", SCHEMA)], "run")
    wrong: dict[Any, Any] = {}
    for what, string in STRINGS.items():
        for how, dump in dumps.items():
            arguments = {"code": string, "more": [{"}": string}, 1, None]}
            answer = dump(arguments) if kind == "named" else written("run", [arguments], dump)
            for letters, per_step in ways:
                ids = engine.ids(answer, letters=letters)
                found = read(engine, dialect, stream, body, ids, per_step=per_step)
                ((call,), rest) = found.calls, found.text
                if (call.name, call.arguments, rest, bool(call.id)) != ("run", arguments, "", True):
                    wrong[what, how, letters, per_step] = found
                if dialect != "anthropic" and call.text.split() != dump(arguments).split():
                    wrong[what, how, letters, per_step] = call.text
                assert found.ended in (CALLING[dialect].finished[0], "stop" if kind == "named" else None)
    assert not wrong


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("dialect", CALLING)
@pytest.mark.parametrize("parallel", [True, False])
def test_several_forced_calls(engine: SaidEngine, dialect: str, stream: bool, parallel: bool) -> None:
    """Each with its own arguments, without any where it has none; the first alone where a client wants one."""
    known = CALLING[dialect]
    body = known.body("required", [known.tool("run", SCHEMA)])
    if not parallel and dialect == "anthropic":
        body["tool_choice"] = {**body["tool_choice"], "disable_parallel_tool_use": True}
    elif not parallel:
        body["parallel_tool_calls"] = False
    given: list[Any] = [{}, {"code": "a } b"}, {}, {"code": "}]"}]
    found = read(engine, dialect, stream, body, engine.ids(written("run", given, json.dumps)), per_step=2)
    assert [call.arguments for call in found.calls] == (given if parallel else given[:1])
    assert len({call.id for call in found.calls}) == len(found.calls)
    assert found.text == ""


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("dialect", CALLING)
@pytest.mark.parametrize("kind", ["required", "named"])
def test_a_forced_call_that_is_cut_off_is_given_as_it_came(
    engine: SaidEngine, kind: str, dialect: str, stream: bool
) -> None:
    known = CALLING[dialect]
    body = known.body(kind, [known.tool("run", SCHEMA)], "run")
    arguments = '{"code": "a } b'
    answer = arguments if kind == "named" else f'[{{"name": "run", "parameters": {arguments}'
    if dialect == "anthropic" and stream:
        # Clients that join a stream fail on it by themselves.
        return
    ids = engine.ids(answer)
    found = read(engine, dialect, stream, {**body, known.cut: len(ids)}, ids, whole=False)
    (call,) = found.calls
    assert (call.name, found.text, found.ended) == ("run", "", known.finished[1])
    assert call.text == ("{}" if dialect == "anthropic" else arguments)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("dialect", CALLING)
@pytest.mark.parametrize("answer", ['[{"name": "ru', "I will not.", '{"name": "run"}', "[1]"])
def test_an_answer_that_is_no_forced_call_stays_text(
    engine: SaidEngine, dialect: str, stream: bool, answer: str
) -> None:
    """Guided decoding makes none, but for one that is cut off."""
    known = CALLING[dialect]
    ids = engine.ids(answer)
    body = {**known.body("required", [known.tool("run", SCHEMA)]), known.cut: len(ids)}
    found = read(engine, dialect, stream, body, ids, whole=False)
    assert (found.calls, found.text, found.ended) == ([], answer, known.finished[1])


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_reasoning_comes_before_a_forced_call(demo_model: Path, stream: bool) -> None:
    made = SaidEngine(demo_model, reasoning_parser="qwen3", tool_call_parser="xlam")
    try:
        known = CALLING["openai"]
        body = known.body("required", [known.tool("run", SCHEMA)], stream=stream)
        answer = "<think>Hm }] {</think>\n\n" + written("run", [{"code": "a } b"}], json.dumps)
        given = made.ask("openai", body, made.ids(answer))
        found = (known.stream if stream else known.whole)(given)
        (call,) = found.calls
        assert (call.name, call.arguments, found.text.strip()) == ("run", {"code": "a } b"}, "")
        assert b"Hm }] {" in b"".join(given) or stream
    finally:
        made.close()


FITS, OTHERS = {"code": "a } b"}, {"code": 5}


@pytest.fixture(scope="module")
def hermes(demo_model: Path) -> Iterator[SaidEngine]:
    made = SaidEngine(demo_model, tool_call_parser="hermes")
    yield made
    made.close()


@pytest.mark.parametrize("dialect", CALLING)
@pytest.mark.parametrize("strict", [None, True, False])
@pytest.mark.parametrize("kind", ["auto", "required", "named"])
def test_arguments_fit_the_schema_where_a_client_wants_it(
    hermes: SaidEngine, kind: str, strict: bool | None, dialect: str
) -> None:
    """Of a forced call unless `strict` is false, of another where it is true."""
    known = CALLING[dialect]
    more = {} if strict is None else {"strict": strict}
    body = known.body(kind, [known.tool("run", SCHEMA, **more)], "run")

    def text(arguments: Any) -> str:
        return f"<tool_call>\n{json.dumps({'name': 'run', 'arguments': arguments})}\n</tool_call>"

    assert hermes.guided_to(dialect, body, text(FITS))
    enforced = strict or (strict is None and kind != "auto")
    assert hermes.guided_to(dialect, body, text(OTHERS)) is not enforced


@pytest.mark.parametrize("kind", ["required", "named"])
@pytest.mark.parametrize("schema", [None, {}])
def test_a_forced_call_of_a_function_without_a_schema_has_an_object(
    engine: SaidEngine, kind: str, schema: dict[str, Any] | None
) -> None:
    body = CALLING["openai"].body(kind, [CALLING["openai"].tool("run", schema)], "run")
    for arguments, allowed in (({}, True), (5, False)):
        answer = json.dumps(arguments) if kind == "named" else written("run", [arguments], json.dumps)
        assert engine.guided_to("openai", body, answer) is allowed


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_every_string_of_a_forced_function_arrives(engine: SaidEngine, stream: bool) -> None:
    """In OpenAI's deprecated form: `functions` and `function_call`."""
    function = {"name": "run", "parameters": SCHEMA}
    body = {"functions": [function], "function_call": {"name": "run"}, "stream": stream}
    for string in STRINGS.values():
        ids = engine.ids(json.dumps({"code": string}))
        found = (streamed_legacy if stream else legacy)(engine.ask("openai", {**ASKED, **body}, ids))
        assert [(call.name, call.arguments) for call in found.calls] == [("run", {"code": string})]
        assert (found.text, found.ended) == ("", "function_call")


@pytest.fixture(scope="module")
def kimi(demo_model: Path) -> Iterator[SaidEngine]:
    from transformers import AutoConfig, LlamaConfig

    made = SaidEngine(demo_model, tool_call_parser="xlam", hf_overrides='{"model_type": "kimi_k2"}')
    # vLLM has told transformers that the type in config.json is the overridden one, for this whole process.
    AutoConfig.register("llama", LlamaConfig, exist_ok=True)
    yield made
    made.close()


HISTORY = [
    {"role": "user", "content": "Look!"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": f"functions.run:{number}", "type": "function", "function": {"name": "run", "arguments": "{}"}}
            for number in range(2)
        ],
    },
    *({"role": "tool", "tool_call_id": f"functions.run:{number}", "content": "Done"} for number in range(2)),
    {"role": "user", "content": "And now?"},
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("kind", ["required", "named"])
def test_kimis_ids_count_the_calls_of_the_conversation(kimi: SaidEngine, kind: str, before: int, stream: bool) -> None:
    """As vLLM makes them, in its parser of whole answers too; the model has seen no others."""
    theirs: Any = importlib.import_module("vllm.parser.abstract_parser")
    known = CALLING["openai"]
    body = known.body(kind, [known.tool("run", SCHEMA), known.tool("stop", SCHEMA)], "run", messages=HISTORY[-1:])
    if before:
        body["messages"] = HISTORY
    names = ["run"] if kind == "named" else ["run", "stop"]
    answer = "{}" if kind == "named" else json.dumps([{"name": name, "parameters": {}} for name in names])
    found = read(kimi, "openai", stream, body, kimi.ids(answer), per_step=2)
    expected = [theirs.make_tool_call_id("kimi_k2", name, before + index) for index, name in enumerate(names)]
    assert [call.id for call in found.calls] == expected
