"""Answers of gpt-oss: a table of what the model writes and what is to become of it, beside vLLM's own parser.

Ours is right in each case, in any split; the table says of each where vLLM's is not (tried in 0.26, 0.28 and 0.32).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from .....kit.answers.events import join_calls
from .....kit.api.types import CallDelta, Conversation, Token
from .....kit.engines.gpt_oss import front, gpt_oss, tokens

pytestmark = pytest.mark.engine

Calls = list[tuple[str, Any]]


@dataclass(frozen=True)
class Case:
    """One answer."""

    text: str
    content: str = ""
    reasoning: str = ""
    calls: Calls = field(default_factory=Calls)
    tools: bool = True
    """Whether tools may be called."""
    cut: bool = False
    """Whether it ended before the model ended it."""
    thought: int | None = None
    """Tokens of its reasoning; None: not looked at."""


def said(channel: str, text: str, end: str = "<|end|>", to: str = "") -> str:
    return f"<|channel|>{channel}{to}<|message|>{text}{end}"


def then(*messages: str) -> str:
    return "<|start|>assistant".join(messages)


HM = said("analysis", "Hm.")
TO = " to=functions.get_weather"
PARIS = '{"city": "Paris"}'
JSON = " <|constrain|>json"
CALL = said("commentary", PARIS, "<|call|>", f"{TO}{JSON}")
WEATHER: Calls = [("get_weather", {"city": "Paris"})]
HI = said("final", "Hi!", "<|return|>")
NESTED = '{"code": "a } \\"b\\" { ]", "list": [{"a": {}}, []]}'

CASES: dict[str, Case] = {
    # What a model writes that keeps to the format.
    "final": Case(HI, "Hi!", thought=0),
    "reasoning and final": Case(then(HM, HI), "Hi!", "Hm.", thought=2),
    "line breaks and blanks": Case(then(said("analysis", " Hm.\n\n"), said("final", "\n Hi! \n", "<|return|>")), "\n Hi! \n", " Hm.\n\n"),
    "other scripts": Case(then(said("analysis", "日本語 👩‍👩‍👧"), said("final", "Ünïcödé العربية 🎉", "<|return|>")), "Ünïcödé العربية 🎉", "日本語 👩‍👩‍👧"),
    "braces and quotes": Case(said("final", '{"a": "}"} <b>&amp;</b> `', "<|return|>"), '{"a": "}"} <b>&amp;</b> `'),
    "marks in letters": Case(said("final", "It ends with < |end|> or <|END|>.", "<|return|>"), "It ends with < |end|> or <|END|>."),
    "a call": Case(CALL, calls=WEATHER, thought=0),
    "reasoning and a call": Case(then(HM, CALL), "", "Hm.", WEATHER, thought=2),
    "a preamble and a call": Case(then(HM, said("commentary", "I look."), CALL), "I look.", "Hm.", WEATHER),
    "a preamble and final": Case(then(said("commentary", "I look."), HI), "I look.\nHi!"),
    "reasoning in two parts": Case(then(HM, said("commentary", "So."), said("analysis", "Well."), HI), "So.\nHi!", "Hm.\nWell."),
    "the recipient before the channel": Case(f"{TO}<|channel|>commentary{JSON}<|message|>{PARIS}<|call|>", calls=WEATHER),
    "the same after reasoning": Case(then(HM, f"{TO}<|channel|>commentary{JSON}<|message|>{PARIS}<|call|>"), "", "Hm.", WEATHER),
    "without the mark of the format": Case(said("commentary", PARIS, "<|call|>", f"{TO} json"), calls=WEATHER),
    "without a format": Case(said("commentary", PARIS, "<|call|>", TO), calls=WEATHER),
    "the mark without a blank": Case(said("commentary", PARIS, "<|call|>", f"{TO}<|constrain|>json"), calls=WEATHER),
    "a call in the channel of reasoning": Case(said("analysis", PARIS, "<|call|>", f"{TO}{JSON}"), calls=WEATHER),
    "a call to a bare name": Case(said("commentary", PARIS, "<|call|>", f" to=get_weather{JSON}"), calls=WEATHER),
    "a call without arguments": Case(said("commentary", "{}", "<|call|>", f" to=functions.get_time{JSON}"), calls=[("get_time", {})]),
    "a call with nothing for arguments": Case(said("commentary", "", "<|call|>", f" to=functions.get_time{JSON}"), calls=[("get_time", {})]),
    "a call with a blank for arguments": Case(said("commentary", " \n", "<|call|>", f" to=functions.get_time{JSON}"), calls=[("get_time", {})]),
    "nested arguments": Case(said("commentary", NESTED, "<|call|>", f" to=functions.run_code{JSON}"), calls=[("run_code", json.loads(NESTED))]),
    "arguments of other scripts": Case(said("commentary", '{"city": "Köln 🎉"}', "<|call|>", f"{TO}{JSON}"), calls=[("get_weather", {"city": "Köln 🎉"})]),
    "arguments with a mark in letters": Case(said("commentary", '{"city": "<|call |>"}', "<|call|>", f"{TO}{JSON}"), calls=[("get_weather", {"city": "<|call |>"})]),
    "a tool that there is not": Case(said("commentary", "{}", "<|call|>", f" to=functions.look{JSON}"), calls=[("look", {})]),
    "two calls": Case(then(said("commentary", PARIS, to=f"{TO}{JSON}"), said("commentary", "{}", "<|call|>", f" to=functions.get_time{JSON}")), calls=[*WEATHER, ("get_time", {})]),
    "the same call twice": Case(then(said("commentary", PARIS, to=f"{TO}{JSON}"), CALL), calls=WEATHER * 2),
    "a call and final": Case(then(said("commentary", PARIS, to=f"{TO}{JSON}"), HI), "Hi!", calls=WEATHER),
    "JSON that a guide lays down": Case(then(HM, said("final", '{"a": 1}', "<|return|>", JSON)), '{"a": 1}', "Hm."),
    "JSON, without the mark": Case(said("final", '{"a": 1}', "<|return|>", " json"), '{"a": 1}'),
    "reasoning alone": Case(said("analysis", "Hm.", "<|return|>"), "", "Hm.", thought=2),
    "nothing but an empty message": Case(said("final", "", "<|return|>")),
    "no token but the end": Case("<|return|>"),
    # What max_tokens cuts.
    "nothing at all": Case("", cut=True),
    "cut in the first mark": Case("<|channel|>", cut=True),
    "cut in the first channel": Case("<|channel|>analysis", cut=True),
    "cut in the reasoning": Case("<|channel|>analysis<|message|>Hm. I", "", "Hm. I", cut=True, thought=3),
    "cut behind the reasoning": Case(HM, "", "Hm.", cut=True),
    "cut in a header": Case(then(HM, "<|channel|>final"), "", "Hm.", cut=True),
    "cut behind the role": Case(then(HM, ""), "", "Hm.", cut=True),
    "cut in a preamble": Case(then(HM, said("commentary", "I", "")), "I", "Hm.", cut=True),
    "cut in a recipient": Case(then(HM, "<|channel|>commentary to=functions.get_"), "", "Hm.", cut=True),
    "cut in the format of a call": Case(then(HM, f"<|channel|>commentary{TO} <|constrain|>"), "", "Hm.", cut=True),
    "cut in final": Case(then(HM, said("final", "It is", "")), "It is", "Hm.", cut=True),
    "cut in arguments": Case(said("commentary", '{"city": "Pa', "", f"{TO}{JSON}"), calls=[("get_weather", '{"city": "Pa')], cut=True),
    "cut before arguments": Case(said("commentary", "", "", f"{TO}{JSON}"), calls=[("get_weather", "")], cut=True),
    # What is no such format: shown, and nothing lost of what is around it.
    "text alone": Case("Hello there.<|return|>", "Hello there."),
    "text alone, cut": Case("Hello there", "Hello there", cut=True),
    "a message without a channel": Case("<|message|>Hi!<|return|>", "Hi!"),
    "a later message without a channel": Case(then(HM, "<|message|>Hi!<|return|>"), "Hi!", "Hm."),
    "a channel that there is not": Case(said("thoughts", "Hi!", "<|return|>"), "Hi!"),
    "a channel without a message": Case("<|channel|>final Hello there<|return|>", "<|channel|>final Hello there"),
    "a header that says too much": Case(then(HM, said("commentary", PARIS, "<|call|>", f"{TO} is now json")), f"<|channel|>commentary{TO} is now json<|message|>{PARIS}", "Hm."),
    "the same before others": Case(then(said("final", "A", to=" b c d"), HI), "<|channel|>final b c d<|message|>A\nHi!"),
    "an empty channel": Case(then(HM, "<|channel|><|message|>Hi!<|return|>"), "<|channel|><|message|>Hi!", "Hm."),
    "text after a message": Case(f"{HM}Hello there.<|return|>", "Hello there.", "Hm."),
    "a message without its start": Case(f"{HM}{HI}", "Hi!", "Hm."),
    "a message without its end": Case(f"<|channel|>analysis<|message|>Hm.{HI}", "Hi!", "Hm."),
    "a message that another one ends": Case(f"<|channel|>analysis<|message|>Hm.<|start|>assistant{HI}", "Hi!", "Hm."),
    "the role again": Case(f"assistant{HI}", "Hi!"),
    "text for a recipient": Case(said("commentary", "So.", "<|return|>", " to=assistant"), "So."),
    "a tool of the model's own": Case(said("commentary", "print(1)", "<|call|>", " to=python code"), "print(1)"),
    "the same in the reasoning": Case(then(said("analysis", "print(1)", to=" to=python code"), HI), "Hi!", "print(1)"),
    "what it makes up for a tool": Case(f"{said('commentary', PARIS, to=f'{TO}{JSON}')}<|start|>functions.get_weather to=assistant<|channel|>commentary<|message|>5<|end|>", calls=WEATHER),
    "what it makes up for the user": Case(f"{said('final', 'Hi!')}<|start|>user<|message|>And you?<|end|>", "Hi!"),
    "a call where none may be": Case(CALL, PARIS, tools=False),
    "arguments that are no JSON": Case(said("commentary", "Paris", "<|call|>", f"{TO}{JSON}"), calls=[("get_weather", "Paris")]),
}  # fmt: skip

NAMES = ("get_weather", "get_time", "run_code")
TOOLS = tuple({"type": "function", "function": {"name": name}} for name in NAMES)


def decoded(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


Outcome = tuple[str, str, Calls]


def expected(case: Case) -> Outcome:
    return case.content, case.reasoning, case.calls


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


@pytest.mark.parametrize("size", [1, 3, 10_000], ids=["by 1", "by 3", "at once"])
@pytest.mark.parametrize("name", CASES)
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

    request = ChatCompletionRequest(messages=[{"role": "user", "content": "Hi"}], tools=[*TOOLS])
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
    content, reasoning, calls = outcome
    texts = [("".join(one.split()), "".join(two.split())) for one, two in ((content, case.content), (reasoning, case.reasoning))]
    named = [(name, arguments or {}) for name, arguments in calls]
    return all(one == two for one, two in texts) and named == [(name, arguments or {}) for name, arguments in case.calls]


WRONG_IN_VLLM = {
    # It goes on reading arguments, or a format, where there is none.
    "a call with a blank for arguments", "JSON, without the mark",
    # It shows a header that was cut off, and the end itself.
    "no token but the end", "cut in the first mark", "cut in the first channel", "cut in a header",
    "cut behind the role", "cut in a recipient", "cut in the format of a call", "text alone",
    "a channel without a message",
    # It drops what is in no channel that it knows, or for a recipient that it does not know.
    "a message without a channel", "a later message without a channel", "a channel that there is not",
    "text for a recipient", "a tool of the model's own",
    # 0.26 fails with an error, later versions drop all that follows.
    "a header that says too much", "the same before others", "an empty channel", "text after a message",
    "a message without its start",
    # It takes the marks for text.
    "a message without its end", "a message that another one ends",
    # It leaves this to others.
    "a call where none may be",
}  # fmt: skip


def test_vllms_own_parser_agrees() -> None:
    """In all other cases: they are no invention of ours."""
    ways = (None, 1, 3, 10_000)
    wrong = {name for name, case in CASES.items() if not any(same(theirs(case, size), case) for size in ways)}
    assert wrong == WRONG_IN_VLLM


def test_reasoning_is_hidden() -> None:
    outcome, splitter = ours(CASES["a preamble and a call"], 1, include_reasoning=False)
    assert outcome == ("I look.", "", WEATHER)
    assert splitter.reasoning_tokens == 2


def test_one_call_where_there_may_be_one() -> None:
    outcome, _ = ours(CASES["two calls"], 1, parallel_tool_calls=False)
    assert outcome == ("", "", WEATHER)


def test_a_stop_string_cuts_the_text() -> None:
    """The text is the detokenizer's: what it has cut of a token's text is not shown."""
    given = tokens("<|channel|>final<|message|>It is sunny")
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
