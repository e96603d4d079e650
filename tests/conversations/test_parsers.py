"""vLLM's parsers: every tool parser by option.tool_call_parser, text that stays text, and any split of an answer."""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ..demo.model import Question, question
from ..kit.answers.events import join_calls
from ..kit.api.errors import OptionError, ParameterError
from ..kit.api.types import Conversation, Token
from ..kit.engines.parsing import chat_renderer
from ..kit.models.any_tokens import AnyTokenizer

pytestmark = pytest.mark.engine

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
COHERE = ("cohere_command3", "cohere_command4")
ANSWER = "It is 5 degrees in Paris, and sunny."


@pytest.fixture(scope="module")
def cohere_config(demo_model: Path) -> Any:
    """The demo model by the name of Cohere's, of which vLLM's parsers want to know."""
    from vllm import EngineArgs

    named = {"architectures": ["Cohere2ForCausalLM"]}
    return EngineArgs(model=str(demo_model), enforce_eager=True, hf_overrides=named).create_model_config()


def asking() -> Conversation:
    return Conversation(
        messages=({"role": "user", "content": "How is the weather?"},), tools=(WEATHER,), tool_choice="auto"
    )


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool", "function", "developer", "ipython"])
def test_texts_alone_are_as_if_validated(tokenizer: Any, model_config: Any, role: str) -> None:
    messages = ({"role": role, "content": ""}, {"role": "user", "content": "Hi"})
    chat = chat_renderer(tokenizer, model_config)
    made = chat.request(Conversation(messages=messages, template_arguments={"a": 1}, add_special_tokens=True))
    validated = type(made)(**made.model_dump(exclude_unset=True))
    assert made.messages == [*messages]
    assert made.model_dump(exclude={"request_id"}) == validated.model_dump(exclude={"request_id"})


@pytest.mark.parametrize("message", [{"role": 5, "content": "Hi"}, {"role": "user", "content": 5}, {"content": "Hi"}])
def test_what_is_no_text_is_validated(tokenizer: Any, model_config: Any, message: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=r"^prompt\.messages\[0\]: "):
        chat_renderer(tokenizer, model_config).request(Conversation(messages=(message,)))


def tokens(tokenizer: Any, text: str) -> list[Token]:
    """A text as an engine brings it."""
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False)
    pieces = [tokenizer.decode([token_id]) for token_id in ids]
    assert "".join(pieces) == text
    return [Token(*pair) for pair in zip(ids, pieces, strict=True)]


def plain_answer(tokenizer: Any, model_config: Any, name: str) -> str:
    """The text that a parser leaves of an answer without a call."""
    chat = chat_renderer(tokenizer, model_config, tool_call_parser=name)
    request = chat.request(asking())
    splitter = chat.splitter(asking(), request, [1, 2, 3])
    part = splitter.feed(tokens(tokenizer, ANSWER), ended=True)
    assert part.calls == []
    return str(part.text)


def outcome(tokenizer: Any, model_config: Any, name: str) -> str:
    """What becomes of ANSWER, or why there is no such parser."""
    try:
        return plain_answer(tokenizer, model_config, name)
    except Exception as error:  # noqa: BLE001 - told by the test
        return f"{type(error).__name__}: {error}"


UNFIT = {
    "hf": "response_template",
    # Up to 0.28, of which the CPU builds lack it.
    "minimax_m3": "_rust_tool_parser",
    "openai": "it reads the answers of type gpt_oss alone",
}
"""What must be there for it: a part of vLLM's, a tokenizer's own metadata, the type of gpt-oss."""


def test_every_tool_parser_leaves_a_plain_answer_as_it_is(
    tokenizer: Any, model_config: Any, cohere_config: Any
) -> None:
    """With the special tokens that it wants in the vocabulary; or the start fails and says what is missing."""
    from vllm.tool_parsers import ToolParserManager

    names = ToolParserManager.list_registered()
    assert {"hermes", "mistral", "llama3_json"} <= set(names)
    configs: dict[str, Any] = dict.fromkeys(COHERE, cohere_config)
    outcomes = {name: outcome(AnyTokenizer(tokenizer), configs.get(name, model_config), name) for name in names}
    refused = {name: text for name, text in outcomes.items() if text != ANSWER}
    assert set(refused) <= set(UNFIT)
    for name, reason in refused.items():
        assert reason.startswith("OptionError: option.tool_call_parser: ")
        assert UNFIT[name] in reason


@pytest.mark.parametrize("option", ["tool_call_parser", "reasoning_parser"])
@pytest.mark.parametrize("name", COHERE)
def test_a_parser_whose_package_is_missing_fails_the_start(
    tokenizer: Any, cohere_config: Any, name: str, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.reasoning import ReasoningParserManager
    from vllm.tool_parsers import ToolParserManager

    # Those that have been imported.
    monkeypatch.setattr(ToolParserManager, "tool_parsers", {})
    monkeypatch.setattr(ReasoningParserManager, "reasoning_parsers", {})
    for module in [module for module in sys.modules if module.startswith("vllm.") and ".cohere_command" in module]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "cohere_melody", None)
    with pytest.raises(OptionError, match=rf"^option\.{option}: .*cohere_melody.*pip install"):
        chat_renderer(AnyTokenizer(tokenizer), cohere_config, **{option: name})


@pytest.mark.parametrize("name", COHERE)
def test_a_parser_for_another_architecture_fails_the_start(tokenizer: Any, model_config: Any, name: str) -> None:
    """It makes a guide of tools, for architectures that it knows; 0.26 makes none."""
    pytest.importorskip("vllm.parser.cohere_command")
    with pytest.raises(OptionError, match=rf"^option\.tool_call_parser: '{name}' .*does not support Cohere"):
        chat_renderer(AnyTokenizer(tokenizer), model_config, tool_call_parser=name)


@pytest.mark.parametrize("name", ["mistral", "lfm2", "jamba"])
def test_a_parser_for_other_models_fails_the_start(tokenizer: Any, model_config: Any, name: str) -> None:
    with pytest.raises(
        OptionError, match=f"^option.tool_call_parser: '{name}' cannot be used with this model: .*token"
    ):
        chat_renderer(tokenizer, model_config, tool_call_parser=name)


@pytest.mark.parametrize("cuts", [1, 3, 1000])
@pytest.mark.parametrize("one_call", [True, False])
def test_a_parser_that_cannot_stream_parses_the_answer_at_its_end(
    tokenizer: Any, model_config: Any, cuts: int, one_call: bool
) -> None:
    """vLLM's phi4_mini_json gives nothing for single tokens."""
    cities = [{"name": "get_weather", "arguments": {"city": city}} for city in ("Paris", "Rome")]
    asked = msgspec.structs.replace(asking(), parallel_tool_calls=not one_call)
    chat = chat_renderer(AnyTokenizer(tokenizer), model_config, tool_call_parser="phi4_mini_json")
    splitter = chat.splitter(asked, chat.request(asked), [])
    parts = tokens(tokenizer, "functools" + json.dumps(cities))
    fed = [
        splitter.feed(parts[start : start + cuts], ended=start + cuts >= len(parts))
        for start in range(0, len(parts), cuts)
    ]
    calls = [call for part in fed for call in part.calls]
    assert "".join(part.text for part in fed) == ""
    joined = join_calls((call.index, call.id, call.name, call.arguments) for call in calls)
    assert [{"name": call.name, "arguments": call.arguments} for call in joined] == cities[: 1 if one_call else 2]
    assert len({call.id for call in joined} - {""}) == len(joined)


def split(chat: Any, asked: Question, groups: list[list[Token]]) -> tuple[str, str, list[tuple[str, str]], int]:
    """What groups of an answer's tokens become: text, reasoning, calls, and how many tokens are reasoning."""
    conversation = Conversation(
        messages=({"role": "user", "content": asked.prompt},),
        tools=tuple(dict(tool) for tool in asked.tools or ()),
        tool_choice="auto" if asked.tools else None,
    )
    splitter = chat.splitter(conversation, chat.request(conversation), [])
    parts = [splitter.feed(group, ended=False) for group in groups]
    parts.append(splitter.feed([], ended=True))
    calls = join_calls((call.index, call.id, call.name, call.arguments) for part in parts for call in part.calls)
    return (
        "".join(part.text for part in parts),
        "".join(part.reasoning for part in parts),
        [(call.name, call.text) for call in calls],
        splitter.reasoning_tokens,
    )


WRITTEN = {
    "hermes": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>',
    "qwen3_coder": (
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>"
    ),
}


@pytest.mark.parametrize(("name", "held"), [("hermes", True), ("qwen3_coder", False)])
def test_arguments_come_as_they_are_written_unless_a_call_is_held_back(
    tokenizer: Any, model_config: Any, name: str, held: bool
) -> None:
    """Those of families whose streams vLLM reads wrong (tests/families) are held back until each is whole."""
    chat = chat_renderer(tokenizer, model_config, tool_call_parser=name)
    splitter = chat.splitter(asking(), chat.request(asking()), [])
    parts = tokens(tokenizer, WRITTEN[name])
    fed = [splitter.feed([token], ended=token is parts[-1]) for token in parts]
    (call,) = join_calls((call.index, call.id, call.name, call.arguments) for part in fed for call in part.calls)
    assert (call.name, call.arguments) == ("get_weather", {"city": "Paris"})
    assert (call.pieces == 1) is held


WORDS = (" system", "music", " c", " call", ":", '"', "'", ">", '">', " ", "\n", "\n\n", "]", " no", ".", "1")
"""Of some of them marks of some families begin: '">', 'call:'."""
PLAIN = (
    ("deepseek_v4", None), ("gemma4", None), ("minimax_m2", None), ("qwen3_coder", None),
    (None, "minimax_m2"), (None, "qwen3"), ("qwen3_coder", "qwen3"), ("hermes", "qwen3"),
)  # fmt: skip


@pytest.mark.parametrize("names", PLAIN, ids=lambda names: "-".join(map(str, names)))
def test_words_that_the_parser_gets_together_are_told_once(
    tokenizer: Any, model_config: Any, names: tuple[str | None, str | None]
) -> None:
    """A parser holds back what a mark may begin with, and that has been told already where words are known as such."""
    tool_parser, reasoner = names
    options = {"tool_call_parser": tool_parser, "reasoning_parser": reasoner}
    chat = chat_renderer(AnyTokenizer(tokenizer), model_config, **{name: one for name, one in options.items() if one})
    asked = asking() if tool_parser else Conversation(messages=({"role": "user", "content": "?"},))
    request = chat.request(asked)

    @settings(max_examples=150, deadline=None)
    @given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=12))
    @example([" system", '"', "\n", " no"])
    @example([" no", " c", "\n", " no"])
    @example(["\n", '"', '"', " system", "\n", " no"])
    def told_once(words: list[str]) -> None:
        splitter = chat.splitter(asked, request, [])
        last = len(words) - 1
        parts = [splitter.feed([Token(1000 + at, word)], ended=at == last) for at, word in enumerate(words)]
        said = "".join(part.reasoning for part in parts) + "".join(part.text for part in parts)
        assert said.strip() == "".join(words).strip()

    told_once()


ANSWERED = [question(kind) for kind in ("plain", "reasoning", "tool_call", "parallel_tool_calls")]


@pytest.mark.parametrize("asked", ANSWERED, ids=lambda asked: asked.kind)
def test_any_split_of_the_tokens_gives_the_same_message(tokenizer: Any, model_config: Any, asked: Question) -> None:
    chat = chat_renderer(tokenizer, model_config, tool_call_parser="hermes", reasoning_parser="qwen3")
    parts = tokens(tokenizer, asked.answer)
    one_by_one = split(chat, asked, [[token] for token in parts])
    assert bool(one_by_one[2]) is bool(asked.tools)
    assert bool(one_by_one[3]) is bool(one_by_one[1]) is (asked.kind == "reasoning")

    @settings(max_examples=25)
    @given(st.lists(st.integers(1, len(parts)), max_size=10))
    def any_cuts(cuts: list[int]) -> None:
        ends = [0, *sorted(cuts), len(parts)]
        assert split(chat, asked, [parts[start:end] for start, end in pairwise(ends)]) == one_by_one

    any_cuts()


@pytest.mark.parametrize("earlier", ["<think>\nSo.\n</think>\n\nYes.", "<think>\nSo", "It writes </think>.", "Yes."])
def test_an_answer_thinks_whatever_earlier_messages_thought(tokenizer: Any, model_config: Any, earlier: str) -> None:
    """vLLM's parsers alone look for the end of a thought in all of the prompt, and take the next one for text."""
    chat = chat_renderer(tokenizer, model_config, reasoning_parser="qwen3")
    conversation = Conversation(messages=({"role": "user", "content": "?"},))
    prompt = f"<|im_start|>assistant\n{earlier}<|im_end|>\n<|im_start|>user\n?<|im_end|>\n<|im_start|>assistant\n"
    answer = question("reasoning").answer
    for written, thought in ((answer, True), (ANSWER, False)):
        ids = tokenizer.encode(prompt, add_special_tokens=False)
        splitter = chat.splitter(conversation, chat.request(conversation), ids)
        part = splitter.feed(tokens(tokenizer, written), ended=True)
        assert bool(part.reasoning) is thought
        assert (f"<think>{part.reasoning}</think>" if thought else "") + part.text == written


THOUGHT = "<think>Let me see.</think>"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ("Hi", THOUGHT + ANSWER),
        (f"Hi {THOUGHT} It is. And now?", THOUGHT + ANSWER),
        ("Hi <tool_call>", THOUGHT + ANSWER),
        (f"Hi {THOUGHT} It is. And now? <think>", THOUGHT.removeprefix("<think>") + ANSWER),
    ],
    ids=["first", "after another's", "after a call's mark", "begun in the prompt"],
)
@pytest.mark.parametrize("reasoner", ["qwen3", "deepseek_r1", "glm45"])
def test_an_answer_has_its_own_reasoning(
    tokenizer: Any, model_config: Any, reasoner: str, prompt: str, answer: str, stream: bool
) -> None:
    chat = chat_renderer(tokenizer, model_config, tool_call_parser="hermes", reasoning_parser=reasoner)
    ids = tokenizer.encode(prompt, add_special_tokens=False)
    splitter = chat.splitter(asking(), chat.request(asking()), ids)
    said = tokens(tokenizer, answer)
    part = (
        splitter.feed(said, ended=True) if stream else splitter.whole(answer, [token.id for token in said], cut=False)
    )
    assert (part.reasoning, part.text, part.calls) == ("Let me see.", ANSWER, [])


@pytest.mark.parametrize("opened", [False, True], ids=["begun by the answer", "opened by the prompt"])
@pytest.mark.parametrize("reasoner", ["deepseek_r1", "qwen3"])
@pytest.mark.parametrize("whole", [False, True], ids=["streamed", "whole"])
def test_tokens_of_reasoning_are_counted(
    tokenizer: Any, model_config: Any, reasoner: str, *, opened: bool, whole: bool
) -> None:
    chat = chat_renderer(tokenizer, model_config, reasoning_parser=reasoner)
    conversation = Conversation(messages=({"role": "user", "content": "?"},))
    ids = tokenizer.encode("<|im_start|>assistant\n" + opened * "<think>", add_special_tokens=False)
    splitter = chat.splitter(conversation, chat.request(conversation), ids)
    said = tokens(tokenizer, (not opened) * "<think>" + "Let me see.</think>Yes.")
    if whole:
        part = splitter.whole("".join(token.text for token in said), [token.id for token in said], cut=False)
        assert (part.reasoning, part.text) == ("Let me see.", "Yes.")
    else:
        for token in said:
            splitter.feed([token], ended=token is said[-1])
    assert splitter.reasoning_tokens == len(tokenizer.encode("Let me see.", add_special_tokens=False))


THOUGHTS = ("Let me see.", "", "So it is: <b>five</b>, or\n\nsix.", "Let me see.")


@pytest.mark.parametrize("reasoner", ["deepseek_r1", "qwen3", "nemotron_v3"])
def test_answers_of_one_model_are_counted_apart(tokenizer: Any, model_config: Any, reasoner: str) -> None:
    """One of vLLM's parsers counts those of all answers that are not streamed; each is to be as if it were alone."""
    chat = chat_renderer(tokenizer, model_config, reasoning_parser=reasoner)
    conversation = Conversation(messages=({"role": "user", "content": "?"},))
    ids = tokenizer.encode("<|im_start|>assistant\n<think>", add_special_tokens=False)
    for thought in THOUGHTS:
        said = tokens(tokenizer, f"{thought}</think>Yes.")
        splitter = chat.splitter(conversation, chat.request(conversation), ids)
        part = splitter.whole("".join(token.text for token in said), [token.id for token in said], cut=False)
        assert (part.reasoning, part.text) == (thought, "Yes.")
        assert splitter.reasoning_tokens == len(tokenizer.encode(thought, add_special_tokens=False))


COUNTED = (
    "<think>", "</think>", "<tool_call>", "<|im_end|>", " so", "\n", " <b>", "</", "think", ">", "\u4e16", "</think>\n",
)  # fmt: skip


@pytest.mark.parametrize("opened", [False, True], ids=["begun by the answer", "opened by the prompt"])
@pytest.mark.parametrize("reasoner", ["deepseek_r1", "qwen3", "nemotron_v3", "glm45", "minimax_m2"])
def test_reasoning_is_counted_as_by_vllm(tokenizer: Any, model_config: Any, reasoner: str, *, opened: bool) -> None:
    """By a parser of vLLM's that has read nothing else."""
    from vllm.reasoning import ReasoningParserManager

    known: Any = AnyTokenizer(tokenizer)
    parser = ReasoningParserManager.get_reasoning_parser(reasoner)
    chat = chat_renderer(known, model_config, reasoning_parser=reasoner)
    conversation = Conversation(messages=({"role": "user", "content": "?"},))
    request = chat.request(conversation)
    begun = [known.get_vocab()[parser(known).reasoning_start_str]] if opened else []

    @settings(max_examples=100, deadline=None)
    @given(st.lists(st.sampled_from(COUNTED), max_size=10))
    @example([" so", "\n", "</think>", " so", "<|im_end|>"])
    @example(["<think>", " so", "</think>", " so", "</think>"])
    @example([" so", "<|im_end|>"])
    @example([" so", "<|im_end|>", " so", "</think>"])
    @example(["\n", "<think>", " so"])
    @example(["</think>", "<think>", "<tool_call>"])
    def counted(words: list[str]) -> None:
        ids = [one for word in words for one in known.encode(word, add_special_tokens=False)]
        splitter = chat.splitter(conversation, request, begun)
        part = splitter.whole(known.decode(ids), ids, cut=False)
        # Without a mark vLLM's takes all for reasoning, which here none has begun.
        if opened or part.reasoning:
            assert splitter.reasoning_tokens == parser(known).count_reasoning_tokens([*begun, *ids])

    counted()


@pytest.mark.parametrize("reasoner", ["qwen3", "nemotron_v3"])
def test_what_no_parser_takes_for_reasoning_is_counted_as_by_vllm(
    tokenizer: Any, model_config: Any, reasoner: str
) -> None:
    """A model that was told not to think writes the marks all the same."""
    from vllm.reasoning import ReasoningParserManager

    variables = {"enable_thinking": False}
    chat = chat_renderer(tokenizer, model_config, reasoning_parser=reasoner)
    conversation = Conversation(messages=({"role": "user", "content": "?"},), template_arguments=variables)
    ids = tokenizer.encode("<think>\n\n</think>Yes.", add_special_tokens=False)
    splitter = chat.splitter(conversation, chat.request(conversation), [])
    splitter.whole(tokenizer.decode(ids), ids, cut=False)
    alone = ReasoningParserManager.get_reasoning_parser(reasoner)(tokenizer, chat_template_kwargs=variables)
    assert splitter.reasoning_tokens == alone.count_reasoning_tokens(ids)
