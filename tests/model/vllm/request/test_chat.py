"""Conversations on the real vLLM: the chat template, reasoning, tool calls, guided decoding."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ....demo.model import JSON_SCHEMA, QUESTIONS, Question, question
from ....kit.answers.events import join_calls
from ....kit.api.types import Conversation, Delta, Generation, Sampling, StructuredOutput
from ....kit.engines import backends
from ....kit.engines.backends import PICK, deltas

pytestmark = pytest.mark.engine


@pytest.fixture
def backend(chat_backend: Any) -> Any:
    """Several tokens a step where streamed: the split must not show."""
    return chat_backend


def asking(asked: Question, **fields: Any) -> Conversation:
    tools = {"tools": asked.tools, "tool_choice": "auto"} if asked.tools else {}
    return Conversation(messages=({"role": "user", "content": asked.prompt},), **{**tools, **fields})


def generation(conversation: Conversation, *, stream: bool, **sampling: Any) -> Generation:
    greedy = Sampling(**{"temperature": 0.0, **sampling})
    return Generation(request_id="test", prompt=conversation, sampling=greedy, stream=stream)


def run(backend: Any, one: Generation) -> list[Delta]:
    (events,) = backends.run(backend, one)
    return deltas(events)


def joined(deltas: list[Delta]) -> tuple[str, str, list[tuple[str, Any]]]:
    """Text, reasoning, and the calls with their arguments decoded."""
    parts = [call for delta in deltas for call in delta.calls]
    calls = join_calls((call.index, call.id, call.name, call.arguments) for call in parts)
    text, reasoning = "".join(delta.text for delta in deltas), "".join(delta.reasoning for delta in deltas)
    return text, reasoning, [(call.name, call.arguments) for call in calls]


PLAIN = [asked for asked in QUESTIONS if asked.kind in {"plain", "unicode", "json"}]


def test_a_plain_answer_is_no_reasoning(backend: Any) -> None:
    """vLLM's parser alone takes an answer without </think> for reasoning."""
    asked = [(one, stream) for one in PLAIN for stream in (False, True)]
    answers = backends.run(backend, *(generation(asking(one), stream=stream) for one, stream in asked))
    for (one, _), events in zip(asked, answers, strict=True):
        assert joined(deltas(events)) == (one.answer, "", [])
        finish = deltas(events)[-1].finish
        assert finish is not None
        assert finish.reasoning_tokens == 0


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_reasoning_comes_before_the_text(backend: Any, stream: bool) -> None:
    asked = question("reasoning")
    deltas = run(backend, generation(asking(asked), stream=stream))
    text, reasoning, calls = joined(deltas)
    assert f"<think>{reasoning}</think>{text}" == asked.answer
    assert calls == []
    finish = deltas[-1].finish
    assert finish is not None
    assert 0 < finish.reasoning_tokens < finish.generated_tokens
    if stream:
        first_text = next(index for index, delta in enumerate(deltas) if delta.text)
        assert not any(delta.reasoning for delta in deltas[first_text + 1 :])


@pytest.mark.parametrize("kind", ["tool_call", "parallel_tool_calls"])
def test_tool_calls_streamed_and_whole(backend: Any, kind: str) -> None:
    asked = question(kind)
    streamed = run(backend, generation(asking(asked), stream=True))
    whole = run(backend, generation(asking(asked), stream=False))
    assert joined(streamed) == joined(whole)
    written = [json.loads(call) for call in asked.answer.replace("</tool_call>", "").split("<tool_call>")[1:]]
    assert joined(streamed)[2] == [(call["name"], call["arguments"]) for call in written]
    heads = [call for delta in streamed for call in delta.calls if call.id is not None]
    assert len(heads) == len({call.id for call in heads}) == len(written)
    assert all(call.name for call in heads)


def test_without_parallel_calls_the_first_one_is_all(backend: Any) -> None:
    asked = question("parallel_tool_calls")
    (call,) = joined(run(backend, generation(asking(asked, parallel_tool_calls=False), stream=True)))[2]
    assert call[0] == "get_forecast"


def test_tool_choice_none_leaves_the_text(backend: Any) -> None:
    asked = question("tool_call")
    text, _, calls = joined(run(backend, generation(asking(asked, tool_choice="none"), stream=True)))
    assert (text, calls) == (asked.answer, [])


def test_truncation_keeps_the_end_of_the_prompt(backend: Any) -> None:
    """Of what the template made, tools and all, and what is left is told apart from reasoning as before."""
    asked = question("tool_call")

    def ids(conversation: Conversation, **sampling: Any) -> list[int]:
        return list(backend.prepare(1, generation(conversation, stream=False, **sampling)).prompt_ids)

    whole = ids(asking(asked))
    assert ids(asking(asked), truncate=9) == whole[-9:]
    assert ids(asking(asked), truncate=len(whole)) == ids(asking(asked), truncate=5000) == whole
    long = Conversation(messages=({"role": "user", "content": "word " * 8000 + asked.prompt},))
    assert ids(long, truncate=9) == whole[-9:]
    text, reasoning, calls = joined(run(backend, generation(asking(asked), stream=True, truncate=len(whole) - 1)))
    assert (text, reasoning, [name for name, _ in calls]) == ("", "", ["get_weather"])


@pytest.mark.parametrize("forced", [{"tool_choice": "required"}, {"function": "pick"}], ids=["required", "named"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_call_that_must_be_made(backend: Any, forced: dict[str, Any], stream: bool) -> None:
    conversation = asking(question("plain"), tools=(PICK,), parallel_tool_calls=False, **forced)
    calls = joined(run(backend, generation(conversation, stream=stream, max_tokens=60)))[2]
    assert [name for name, _ in calls] == ["pick"]
    assert calls[0][1]["city"] in {"Paris", "Rome"}


def test_guides_are_followed(backend: Any) -> None:
    import jsonschema

    asked = question("json")
    schema = StructuredOutput(json_schema=json.dumps(JSON_SCHEMA))
    text, _, _ = joined(run(backend, generation(asking(asked), stream=True, structured_output=schema)))
    jsonschema.validate(json.loads(text), JSON_SCHEMA)
    for guide, wanted in [
        (StructuredOutput(choice=("yes", "no")), {"yes", "no"}),
        (StructuredOutput(regex="[ab]c"), {"ac", "bc"}),
        (StructuredOutput(grammar='root ::= "one" | "two"'), {"one", "two"}),
        (StructuredOutput(grammar='start: "one" | "two"'), {"one", "two"}),
    ]:
        conversation = asking(question("plain"), template_arguments={"enable_thinking": False})
        assert joined(run(backend, generation(conversation, stream=False, structured_output=guide)))[0] in wanted


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_guide_begins_behind_the_reasoning_of_a_model_that_thinks(backend: Any, stream: bool) -> None:
    """Which says so itself: nothing in the prompt does."""
    asked = question("reasoning")
    schema = StructuredOutput(json_schema=json.dumps({"type": "object", "properties": {"a": {"enum": [1, 2]}}}))
    text, reasoning, _ = joined(run(backend, generation(asking(asked), stream=stream, structured_output=schema)))
    assert asked.answer.startswith(f"<think>{reasoning}</think>")
    assert json.loads(text) in ({}, {"a": 1}, {"a": 2})


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_guide_begins_at_once_where_no_reasoning_is_to_be_shown(backend: Any, stream: bool) -> None:
    """As in vLLM's server."""
    guide = StructuredOutput(choice=("yes", "no"))
    conversation = asking(question("reasoning"), include_reasoning=False)
    text, reasoning, _ = joined(run(backend, generation(conversation, stream=stream, structured_output=guide)))
    assert (text in {"yes", "no"}, reasoning) == (True, "")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_forced_call_comes_behind_the_reasoning(backend: Any, stream: bool) -> None:
    asked = question("reasoning")
    conversation = asking(asked, tools=(PICK,), tool_choice="required", parallel_tool_calls=False)
    text, reasoning, calls = joined(run(backend, generation(conversation, stream=stream, max_tokens=300)))
    assert text == ""
    assert [name for name, _ in calls] == ["pick"]
    assert calls[0][1]["city"] in {"Paris", "Rome"}
    assert isinstance(reasoning, str)


@pytest.mark.parametrize("prompt", ["Is it?", "Is it?<think>\nPerhaps.\n</think>\n"])
def test_a_guide_of_a_plain_prompt_is_followed_where_there_is_a_reasoning_parser(backend: Any, prompt: str) -> None:
    """No reasoning comes that vLLM would have to wait for."""
    sampling = Sampling(temperature=0.0, max_tokens=10, structured_output=StructuredOutput(regex="(yes|no)"))
    one = Generation(request_id="test", prompt=prompt, sampling=sampling, stream=False)
    assert joined(run(backend, one))[0] in {"yes", "no"}


@pytest.mark.parametrize("odd", [None, [], 5, "text"], ids=str)
def test_a_tools_schema_may_hold_anything(backend: Any, odd: Any) -> None:
    """vLLM overlooks `$defs` that are no object."""
    parameters = {"type": "object", "properties": {"a": {"type": "string"}}, "$defs": odd}
    tool = {"type": "function", "function": {"name": "find", "parameters": parameters}}
    conversation = Conversation(messages=({"role": "user", "content": "Hi"},), tools=(tool,), tool_choice="required")
    backend.prepare(1, generation(conversation, stream=False))


def test_a_prefix_of_the_answer_is_continued(backend: Any) -> None:
    asked = question("plain")
    begun = " ".join(asked.answer.split(" ")[:4])
    rest = asked.answer.removeprefix(begun)
    messages = ({"role": "user", "content": asked.prompt}, {"role": "assistant", "content": begun})
    conversation = Conversation(messages=messages, add_generation_prompt=False, continue_final_message=True)
    assert joined(run(backend, generation(conversation, stream=True)))[0] == rest


def test_template_arguments_reach_the_template(backend: Any) -> None:
    asked = question("reasoning")
    conversation = asking(asked, template_arguments={"enable_thinking": False})
    text, reasoning, _ = joined(run(backend, generation(conversation, stream=True)))
    assert (text, reasoning) == (asked.no_thinking, "")


def test_the_prompts_text_is_what_the_template_made(backend: Any) -> None:
    """What a content filter judges: whatever of the request the template brings into the prompt."""
    tool = {
        "type": "function",
        "function": {
            "name": "find_ferry",
            "description": "Ferries of today",
            "parameters": {"type": "object", "properties": {"harbour": {"description": "Where from"}}},
        },
    }
    conversation = Conversation(
        messages=({"role": "system", "content": "Be brief."}, {"role": "user", "name": "Eve", "content": "Hi"}),
        tools=(tool,),
        tool_choice="auto",
        template_arguments={"enable_thinking": False},
    )
    prepared = backend.prepare(1, generation(conversation, stream=False))
    text = backend.prompt_text(prepared)
    for brought in ("<|im_start|>system", "Be brief.", "find_ferry", "Ferries of today", "harbour", "Where from"):
        assert brought in text
    assert text.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    # This template has no names.
    assert "Eve" not in text
    # The same of token ids.
    ids = Generation(request_id="test", prompt=tuple(prepared.prompt_ids), sampling=Sampling(max_tokens=1))
    assert backend.prompt_text(backend.prepare(2, ids)) == text
