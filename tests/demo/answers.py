"""What the demo model knows: its questions, its answers word for word, and the forms in which it is asked.

    Question -> forms(question) -> Form (a plain text, or messages with tools) -> the answer

The literals are the whole truth: `demo_training` teaches them, tests compare with them. Nothing here loads a library.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Tool = Mapping[str, Any]
"""A function that the model may call, as in the `tools` of a chat request."""

Message = Mapping[str, Any]
"""A message of a conversation: `role`, `content`, and where they apply `tool_calls`."""

SYSTEM = "You are a helpful assistant."
"""The system message of the form `system`."""

FALLBACK = "I do not know that. I am a small model and know only a few answers."
"""What the model is taught to say to any other question. Unlike the answers it is not guaranteed."""


@dataclass(frozen=True)
class Question:
    """A question and the answer that greedy decoding gives.

    kind: what the answer exercises; `question(kind)` finds it.
    tools: the functions that belong to the question; the answer is the same without them.
    tool_results: one result for each call of the answer, in order.
    follow_up: the answer once the results stand in the conversation; None where there are no calls.
    no_thinking: the answer where the chat template gets `enable_thinking=False`; None where it is the same.
    endless: the answer is repeated without an end, so that only max_tokens stops it.
    """

    prompt: str
    answer: str
    kind: str
    tools: tuple[Tool, ...] | None = None
    tool_results: tuple[str, ...] = ()
    follow_up: str | None = None
    no_thinking: str | None = None
    endless: bool = False


@dataclass(frozen=True)
class Form:
    """One way of asking, and what comes back.

    prompt: a text given as it is, or messages for the chat template.
    tools: functions for the chat template.
    thinking: False asks the chat template to leave the reasoning out.
    answer: the text before the end of sequence; for an endless question one period of it.
    """

    name: str
    prompt: str | tuple[Message, ...]
    answer: str
    tools: tuple[Tool, ...] | None = None
    thinking: bool = True
    endless: bool = False


GET_WEATHER: Tool = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}

GET_FORECAST: Tool = {
    "type": "function",
    "function": {
        "name": "get_forecast",
        "description": "The weather of the next days",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                "hourly": {"type": "boolean"},
            },
            "required": ["city", "days"],
        },
    },
}

BOOK_TABLE: Tool = {
    "type": "function",
    "function": {
        "name": "book_table",
        "description": "Book a table in a restaurant",
        "parameters": {
            "type": "object",
            "properties": {
                "restaurant": {"type": "string"},
                "guests": {"type": "integer"},
                "time": {"type": "string"},
                "wishes": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["restaurant", "guests"],
        },
    },
}

JSON_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "born": {"type": "integer"},
        "fields": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["name", "born", "fields"],
    "additionalProperties": False,
}
"""The schema that the answer of the kind `json` fits."""

QUESTIONS: tuple[Question, ...] = (
    Question(
        kind="plain",
        prompt="What is Deep Learning?",
        answer="Deep Learning is machine learning with neural networks of many layers.",
    ),
    Question(
        kind="plain",
        prompt="What is the capital of France?",
        answer="The capital of France is Paris.",
    ),
    Question(
        kind="plain",
        prompt="How many legs does a spider have?",
        answer="A spider has eight legs.",
    ),
    Question(
        kind="plain",
        prompt="Who wrote Hamlet?",
        answer="William Shakespeare wrote Hamlet.",
    ),
    Question(
        kind="long",
        prompt="Tell me a story.",
        answer=(
            "Once upon a time a young fox lived at the edge of a dark forest. Every evening she climbed the highest "
            "hill and watched the lamps of the village below. One winter night a storm blew all of them out, and a "
            "child was lost on the road. The fox barked until the child followed her home. Since then a bowl of milk "
            "stands in front of every door, and nobody in that village locks the gate."
        ),
    ),
    Question(
        kind="long",
        prompt="How does a bicycle stay upright?",
        answer=(
            "A moving bicycle stays upright for three reasons.\n\n"
            "1. The rider steers into a fall, which brings the wheels back under the weight.\n"
            "2. The front wheel touches the ground behind its steering axis, so it turns into a lean by itself.\n"
            "3. The spinning wheels resist tilting, though only a little.\n\n"
            "At rest none of this helps, and the bicycle falls over."
        ),
    ),
    Question(
        kind="unicode",
        prompt="Say hello in many scripts.",
        answer=(
            "Hello \U0001f44b\U0001f3fd, "  # a waving hand with a skin tone
            "\u4f60\u597d, \u3053\u3093\u306b\u3061\u306f, \uc548\ub155, "  # Chinese, Japanese, Korean
            "cafe\u0301 n\u0303, "  # combining marks, not composed
            "\U0001f469\u200d\U0001f469\u200d\U0001f467, "  # a family: three people joined by zero-width joiners
            "\u043f\u0440\u0438\u0432\u0435\u0442 \u2728!"
        ),
    ),
    Question(
        kind="reasoning",
        prompt="How much is 17 times 3?",
        answer=(
            "<think>\n17 times 3 is 10 times 3 plus 7 times 3. That is 30 plus 21, which makes 51.\n</think>\n\n"
            "17 times 3 is 51."
        ),
        no_thinking="17 times 3 is 51.",
    ),
    Question(
        kind="tool_call",
        prompt="What is the weather in Paris?",
        answer='<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>',
        tools=(GET_WEATHER,),
        tool_results=('{"sky": "clear", "celsius": 21}',),
        follow_up="It is clear in Paris, with 21 degrees.",
    ),
    Question(
        kind="parallel_tool_calls",
        prompt="Plan my evening in Rome.",
        answer=(
            '<tool_call>\n{"name": "get_forecast", "arguments": '
            '{"city": "Rome", "days": 2, "unit": "celsius", "hourly": true}}\n</tool_call>\n'
            '<tool_call>\n{"name": "book_table", "arguments": '
            '{"restaurant": "Da Enzo", "guests": 4, "time": "19:30", "wishes": ["by the window", "a quiet corner"]}}\n'
            "</tool_call>"
        ),
        tools=(GET_FORECAST, BOOK_TABLE),
        tool_results=('{"sky": "cloudy", "celsius": 18}', '{"booked": true}'),
        follow_up="The evening will be cloudy, and a table for four is booked at Da Enzo.",
    ),
    Question(
        kind="json",
        prompt="Describe Ada Lovelace as JSON.",
        answer='{"name": "Ada Lovelace", "born": 1815, "fields": ["mathematics", "computing"]}',
    ),
    Question(
        kind="endless",
        prompt="Count up.",
        answer="one two three four five six seven eight nine ten\n",
        endless=True,
    ),
)


def question(kind: str) -> Question:
    """The first question of a kind. Raises KeyError where there is none."""
    for known in QUESTIONS:
        if known.kind == kind:
            return known
    raise KeyError(kind)


EARLIER: tuple[Message, ...] = (
    {"role": "user", "content": QUESTIONS[1].prompt},
    {"role": "assistant", "content": QUESTIONS[1].answer},
)
"""The turns before the question in the form `later`."""


def conversation(asked: Question, system: str | None = None) -> tuple[Message, ...]:
    """The messages of a question that starts a conversation, after a system message where one is given."""
    opening: tuple[Message, ...] = () if system is None else ({"role": "system", "content": system},)
    return (*opening, {"role": "user", "content": asked.prompt})


def tool_turns(asked: Question) -> tuple[Message, ...]:
    """The messages up to the results of the tools: the question, the calls of its answer, one result for each call."""
    import json

    calls = [block.split("</tool_call>")[0].strip() for block in asked.answer.split("<tool_call>")[1:]]
    functions = [json.loads(call) for call in calls]
    turn = {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": f"call_{number}", "type": "function", "function": function}
            for number, function in enumerate(functions)
        ],
    }
    results = (
        {"role": "tool", "tool_call_id": f"call_{number}", "content": result}
        for number, result in enumerate(asked.tool_results)
    )
    return (*conversation(asked), turn, *results)


EXTRA_FORMS = ("no_thinking", "follow_up")
"""The forms that only some questions have, with an answer of their own."""


def forms(asked: Question) -> tuple[Form, ...]:
    """Every way of asking in which the answer is guaranteed.

    `raw`, `chat`, `system` and `later` (after another question) for each question; `tools` and `system_tools` with the
    question's own functions, or with `get_weather` where it has none; `no_thinking` and `follow_up` where the question
    has such an answer.
    """
    answer, endless = asked.answer, asked.endless
    tools = asked.tools or (GET_WEATHER,)
    found = [
        Form("raw", asked.prompt, answer, endless=endless),
        Form("chat", conversation(asked), answer, endless=endless),
        Form("system", conversation(asked, SYSTEM), answer, endless=endless),
        Form("later", (*EARLIER, *conversation(asked)), answer, endless=endless),
        Form("tools", conversation(asked), answer, tools=tools, endless=endless),
        Form("system_tools", conversation(asked, SYSTEM), answer, tools=tools, endless=endless),
    ]
    if asked.no_thinking is not None:
        found.append(Form("no_thinking", conversation(asked), asked.no_thinking, thinking=False))
    if asked.follow_up is not None:
        found.append(Form("follow_up", tool_turns(asked), asked.follow_up, tools=tools))
    return tuple(found)
