"""Answers of gpt-oss: a table of what the model writes and what is to become of it, beside vLLM's own parser.

Ours is right in each case, in any split; the table says of each why vLLM's is not (tried in 0.26 and 0.32).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from .....kit.answers.events import join_calls
from .....kit.api.types import CallDelta, Conversation, Token
from .....kit.engines.gpt_oss import front, gpt_oss, tokens
from .....kit.rows import each_row
from .....kit.toml import read_toml

pytestmark = pytest.mark.engine

Calls = list[tuple[str, Any]]


@dataclass(frozen=True)
class Case:
    """One answer, of answers.toml."""

    name: str
    text: str
    content: str = ""
    reasoning: str = ""
    calls: tuple[str, ...] = ()
    tools: bool = True
    cut: bool = False
    thought: int | None = None
    vllm: str = ""


def cases() -> dict[str, Case]:
    """The table, by names."""
    given = read_toml(Path(__file__).with_name("answers.toml")).get("case", ())
    return {case["name"]: Case(**case) for case in given}


# Python 3.10 cannot read the table.
pytest.importorskip("tomllib")
CASES = cases()
WEATHER = ("get_weather", {"city": "Paris"})
NAMES = ("get_weather", "get_time", "run_code")
TOOLS = tuple({"type": "function", "function": {"name": name}} for name in NAMES)


def decoded(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


Outcome = tuple[str, str, Calls]


def expected(case: Case) -> Outcome:
    calls = [(name, decoded(arguments)) for name, _, arguments in (call.partition(" ") for call in case.calls)]
    return case.content, case.reasoning, calls


def steps(case: Case, size: int) -> Iterator[tuple[list[Token], bool]]:
    """Some tokens at a time, and whether they are the last."""
    given = tokens(case.text)
    parts = [given[start : start + size] for start in range(0, len(given), size)] or [[]]
    for number, part in enumerate(parts, 1):
        yield part, number == len(parts)


def conversation(case: Case, **fields: Any) -> Conversation:
    offered: Any = {"tools": TOOLS, "tool_choice": "auto"} if case.tools else {}
    return Conversation(messages=({"role": "user", "content": "Hi"},), **offered, **fields)


def ours(case: Case, size: int, **fields: Any) -> tuple[Outcome, Any]:
    """What becomes of it, and what took it apart."""
    asked = conversation(case, **fields)
    splitter = gpt_oss().splitter(asked, gpt_oss().request(asked), [])
    assert splitter is not None
    content = reasoning = ""
    calls = list[CallDelta]()
    for some, last in steps(case, size):
        part = splitter.feed(some, ended=last, cut=last and case.cut)
        content, reasoning = content + part.text, reasoning + part.reasoning
        calls += part.calls
    joined = join_calls((call.index, call.id, call.name, call.arguments) for call in calls)
    assert all(call.id for call in joined)
    return (content, reasoning, [(call.name, decoded(call.text)) for call in joined]), splitter


@each_row("size", [1, 3, 10_000], ids=["by 1", "by 3", "at once"])
@each_row("name", CASES)
def test_an_answer_is_taken_apart(name: str, size: int) -> None:
    case = CASES[name]
    outcome, splitter = ours(case, size)
    assert outcome == expected(case)
    if case.thought is not None:
        assert splitter.reasoning_tokens == case.thought


def their_parser() -> Any:
    from vllm.parser import ParserManager

    parser: Any = ParserManager.get_parser(
        tool_parser_name="openai", reasoning_parser_name="openai_gptoss", enable_auto_tools=True, is_harmony=True
    )
    return parser(front().get_tokenizer())


def theirs(case: Case, size: int | None) -> Outcome | str:
    """What becomes of it in vLLM's server (entrypoints/openai/chat_completion/serving.py), whole where there is no
    size; or the error that it ends with.
    """
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    form: Any = ChatCompletionRequest
    request = form(messages=[{"role": "user", "content": "Hi"}], tools=[*TOOLS])
    parser = their_parser()
    try:
        if size is None:
            ids = [token.id for token in tokens(case.text)]
            reasoning, content, calls = parser.parse("", request, True, model_output_token_ids=ids)
            return content or "", reasoning or "", [(call.name, decoded(call.arguments)) for call in calls or ()]
        content, reasoning, deltas = "", "", []
        for some, last in steps(case, size):
            delta = parser.parse_delta("", [token.id for token in some], request, None, finished=last)
            if delta is not None:
                content, reasoning = content + (delta.content or ""), reasoning + (delta.reasoning or "")
                deltas += [(one.index, one.id, one.function.name, one.function.arguments) for one in delta.tool_calls]
        joined = join_calls(deltas)
    except Exception as error:  # noqa: BLE001 - openai_harmony's, which ends the request
        return f"{type(error).__name__}: {error}"
    return content, reasoning, [(call.name, decoded(call.text)) for call in joined]


def same(outcome: Outcome | str, case: Case) -> bool:
    """Whether it is the right one. vLLM puts line breaks between messages of a whole answer, and none in a stream;
    and knows no empty arguments but in a text.
    """
    if isinstance(outcome, str):
        return False
    (content, reasoning, calls), (text, thought, right) = outcome, expected(case)
    texts = ["".join(one.split()) for one in (content, reasoning)] == ["".join(one.split()) for one in (text, thought)]
    ours, found = ([(name, arguments or {}) for name, arguments in one] for one in (right, calls))
    return texts and ours == found


def test_vllms_own_parser_agrees() -> None:
    """Where the table does not say why it does not: it is no invention of ours."""
    ways = (None, 1, 3, 10_000)
    wrong = {name for name, case in CASES.items() if not any(same(theirs(case, size), case) for size in ways)}
    assert wrong == {name for name, case in CASES.items() if case.vllm}


def test_reasoning_is_hidden() -> None:
    outcome, splitter = ours(CASES["a preamble and a call"], 1, include_reasoning=False)
    assert outcome == ("I look.", "", [WEATHER])
    assert splitter.reasoning_tokens == 2


def test_one_call_where_there_may_be_one() -> None:
    outcome, _ = ours(CASES["two calls"], 1, parallel_tool_calls=False)
    assert outcome == ("", "", [WEATHER])


@pytest.mark.parametrize("begin", ["<|channel|>final<|message|>", ""], ids=["final", "no message"])
def test_a_stop_string_cuts_the_text(begin: str) -> None:
    """The text is the detokenizer's: what it has cut of a token's text is not shown."""
    given = tokens(f"{begin}It is sunny")
    asked = conversation(CASES["final"])
    splitter = gpt_oss().splitter(asked, gpt_oss().request(asked), [])
    assert splitter is not None
    cut = [*given[:-1], msgspec.structs.replace(given[-1], text=" su")]
    assert splitter.feed(cut, ended=True).text == "It is su"


def test_an_answer_goes_on_with_a_message() -> None:
    asked = Conversation(
        messages=({"role": "user", "content": "Hi"}, {"role": "assistant", "content": "It"}),
        add_generation_prompt=False,
        continue_final_message=True,
    )
    splitter = gpt_oss().splitter(asked, gpt_oss().request(asked), [])
    assert splitter is not None
    assert splitter.feed(tokens(" is sunny.<|return|>"), ended=True).text == " is sunny."
