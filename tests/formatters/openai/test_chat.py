"""OpenAI chat answers (docs/decisions.md: Chat chunks): events and their bytes, whole and incremental."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from lmi.formatters.openai import parse

from ...kit.answers.events import end, same_shape
from ...kit.answers.openai import (
    CHAT,
    CHATS,
    COMPLETIONS,
    DETAILS,
    INVOCATIONS,
    PROMPT_DETAILS,
    REASONING,
    SETTINGS,
    TEXT,
    TOOLS,
    USAGE,
    call,
    chunks,
    reply,
    whole,
)
from ...kit.api.errors import GenerationError
from ...kit.api.types import CallDelta, Delta, Event, Failed, Finish, Request, Settings, Started, Token, TopToken
from ...kit.rows import each_row

# --- The examples of the completions document and of the streaming document ---

EXAMPLE_WHOLE: dict[str, Any] = {
    "id": "chatcmpl-30c3dbfa9f8b4208bff3f8db99e04a31",
    "object": "chat.completion",
    "created": 1754927010,
    "model": "/opt/ml/model",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "\n\n# Clinical Case",
                "refusal": None,
                "annotations": None,
                "audio": None,
                "function_call": None,
                "tool_calls": [],
                # The document has the older name alone, vLLM the newer one (docs/decisions.md: Reasoning).
                "reasoning": "\nOkay, let's try",
                "reasoning_content": "\nOkay, let's try",
            },
            "logprobs": None,
            "finish_reason": "stop",
            "stop_reason": None,
        }
    ],
    "service_tier": None,
    "system_fingerprint": None,
    "usage": {"prompt_tokens": 234, "completion_tokens": 1613, "total_tokens": 1847, **PROMPT_DETAILS},
    "prompt_logprobs": None,
    "kv_transfer_params": None,
}
"""The completions document, Chat Completion, Example (texts cut), with the streaming document's details."""


CUSTOM: list[Any] = [{"type": "custom", "custom": {"name": "patch"}}, *TOOLS]
CUSTOM_CALLS: list[tuple[CallDelta, ...]] = [
    (CallDelta(0, "call_1", "patch", '{"inp'),),
    (CallDelta(0, arguments='ut": "a \\"b\\"\\'),),
    (CallDelta(0, arguments='n"}'), CallDelta(1, "call_2", "get_weather", "{")),
    (CallDelta(1, arguments="}"),),
    (CallDelta(2, "call_3", "patch", '{"input": "c'),),
]
CALLED: list[Any] = [
    {"id": "call_1", "type": "custom", "custom": {"name": "patch", "input": 'a "b"\n'}},
    {"id": "call_2", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}},
    # Cut off.
    {"id": "call_3", "type": "custom", "custom": {"name": "patch", "input": '{"input": "c'}},
]


def test_calls_of_custom_tools() -> None:
    from openai.types.chat import ChatCompletion

    told: list[Event] = [
        Started(1),
        *(Delta(0, "", calls=calls) for calls in CUSTOM_CALLS),
        Delta(0, "", finish=end("length")),
    ]
    body = whole(reply(tools=CUSTOM), *told)
    assert body["choices"][0]["message"]["tool_calls"] == CALLED
    read: Any = ChatCompletion.model_validate(body).choices[0].message.tool_calls
    assert [call.type for call in read] == ["custom", "function", "custom"]
    assert read[0].custom.input == 'a "b"\n'
    joined: dict[int, dict[str, Any]] = {}
    for chunk in chunks(reply(tools=CUSTOM, stream=True), *told):
        for new in chunk["choices"][0]["delta"].get("tool_calls", ()):
            one = joined.setdefault(new["index"], {})
            one |= {name: new[name] for name in ("id", "type") if name in new}
            for kind in ("function", "custom"):
                for name, text in new.get(kind, {}).items():
                    one.setdefault(kind, {}).setdefault(name, "")
                    one[kind][name] += text
    assert [one for _, one in sorted(joined.items())] == CALLED


def test_example_whole() -> None:
    body = whole(
        reply(REASONING),
        Started(234),
        Delta(0, "\n\n# Clinical Case", (), end(count=1613), reasoning="\nOkay, let's try"),
    )
    same_shape(body, EXAMPLE_WHOLE)
    assert re.fullmatch("chatcmpl-[0-9a-f]{32}", body["id"])
    assert body | {"id": "", "created": 0} == EXAMPLE_WHOLE | {"id": "", "created": 0}


def _chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {
        "id": "chatcmpl-2e46f7e56d474ad8874756df2b358a10",
        "object": "chat.completion.chunk",
        "created": 1752128962,
        "model": "/opt/ml/model",
        "choices": [
            {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish, "stop_reason": None},
        ],
    }


EXAMPLE_CHUNKS = [
    _chunk({"role": "assistant", "content": ""}),
    _chunk({"reasoning": "\n", "reasoning_content": "\n"}),
    _chunk({"reasoning": "Okay", "reasoning_content": "Okay"}),
    _chunk({"reasoning": ".\n", "reasoning_content": ".\n"}),
    _chunk({"content": "\n\n"}),
    _chunk({"content": "The"}),
    _chunk({"content": "..."}),
    _chunk({"content": ""}, "stop"),
]
"""The completions document, Chat Completion (Streaming), Example; like lines left out."""


def test_example_stream() -> None:
    thoughts = [Delta(0, "", reasoning=text) for text in ("\n", "Okay", ".\n")]
    texts = [Delta(0, text) for text in ("\n\n", "The", "...")]
    made = chunks(reply(REASONING, stream=True), Started(5), *thoughts, *texts, Delta(0, "", (), end()))
    assert len({(chunk["id"], chunk["created"]) for chunk in made}) == 1
    for chunk, documented in zip(made, EXAMPLE_CHUNKS, strict=True):
        same_shape(chunk, documented)
        assert chunk["choices"] == documented["choices"]


FULL_CHUNK_LOGPROBS: dict[str, Any] = {
    "content": [
        {
            "token": "Hello",
            "logprob": -0.31725305,
            "bytes": [72, 101, 108, 108, 111],
            "top_logprobs": [{"token": "Hello", "logprob": -0.31725305, "bytes": [72, 101, 108, 108, 111]}],
        }
    ],
    "refusal": None,
}
"""The streaming document, Full Chunk Format, logprobs."""

HELLO = Token(9, "Hello", -0.31725305, top=(TopToken(9, "Hello", -0.31725305, b"Hello"),), raw=b"Hello")


def test_example_logprobs() -> None:
    made = chunks(
        reply(stream=True, logprobs=True, top_logprobs=1),
        Started(5),
        Delta(0, "Hello", (HELLO,)),
        Delta(0, "", (), end()),
    )
    assert [chunk["choices"][0]["logprobs"] for chunk in made] == [
        {"content": [], "refusal": None},
        FULL_CHUNK_LOGPROBS,
        {"content": [], "refusal": None},
    ]
    body = whole(reply(logprobs=True, top_logprobs=1), Started(5), Delta(0, "Hello", (HELLO,), end()))
    assert body["choices"][0]["logprobs"] == FULL_CHUNK_LOGPROBS


EXAMPLE_CALLS: list[dict[str, Any]] = [
    {"index": 0, "id": "call_abc123", "type": "function", "function": {"name": "get_weather", "arguments": ""}},
    {"index": 0, "function": {"arguments": '{"loc'}},
    {"index": 0, "function": {"arguments": 'ation": "San'}},
]
"""The streaming document, Tool Call Streaming."""

CALLS = [
    CallDelta(0, "call_abc123", "get_weather", ""),
    CallDelta(0, arguments='{"loc'),
    CallDelta(0, arguments='ation": "San'),
]


def test_example_tool_calls() -> None:
    deltas = [Delta(0, "", calls=(call,)) for call in CALLS]
    made = chunks(reply(stream=True, tools=TOOLS), Started(5), *deltas, Delta(0, "", (), end()))
    assert [chunk["choices"][0]["delta"] for chunk in made] == [
        {"role": "assistant", "content": ""},
        *({"tool_calls": [call]} for call in EXAMPLE_CALLS),
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in made] == [None] * 4 + ["tool_calls"]
    (choice,) = whole(reply(tools=TOOLS), Started(5), *deltas, Delta(0, "", (), end()))["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert choice["message"]["tool_calls"] == [
        {
            "id": "call_abc123",
            "type": "function",
            "function": {"name": "get_weather", "arguments": '{"location": "San'},
        }
    ]


def test_a_text_after_a_call_does_not_change_how_the_answer_ends() -> None:
    told = (Delta(0, "", calls=tuple(CALLS)), Delta(0, "\n"), Delta(0, "", (), end()))
    *_, last = chunks(reply(stream=True, tools=TOOLS), *told)
    assert last["choices"][0]["finish_reason"] == "tool_calls"


def test_example_usage_chunk() -> None:
    """The streaming document, Final Chunk with Usage; the others have `usage: null` (docs/decisions.md: Usage)."""
    made = chunks(
        reply(REASONING, stream=True, **USAGE),
        Started(9, 4),
        Delta(0, "Hello", reasoning="Hm"),
        Delta(0, "", (), end(count=12, reasoning_tokens=3)),
    )
    assert [chunk["usage"] for chunk in made[:-1]] == [None] * 3
    assert made[-1] | {"id": "", "created": 0} == {
        "id": "",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": "/opt/ml/model",
        "choices": [],
        "usage": {
            "prompt_tokens": 9,
            "completion_tokens": 12,
            "total_tokens": 21,
            "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
            "completion_tokens_details": DETAILS["completion_tokens_details"] | {"reasoning_tokens": 3},
        },
    }


@each_row(("own", "chat"), [(CHATS, True), (COMPLETIONS, False)])
def test_usage_of_a_whole_answer_on_invocations_is_the_documents(own: str, chat: bool) -> None:
    """docs/decisions.md: Usage"""
    for path, details in ((own, DETAILS), (INVOCATIONS, PROMPT_DETAILS)):
        answer = reply(path=path) if chat else call(path).reply
        usage = whole(answer, Started(9), Delta(0, "a", (), end(count=12)))["usage"]
        assert usage == {"prompt_tokens": 9, "completion_tokens": 12, "total_tokens": 21, **details}


def test_example_error_in_a_stream() -> None:
    """The streaming document, Error Handling; then [DONE] (docs/decisions.md: OpenAI errors)."""
    answer = reply(stream=True)
    made = chunks(answer, Started(5), Delta(0, "Hello"), Failed.of(GenerationError("the reason")))
    same_shape(made[-1], {"error": {"message": "x", "type": "x", "param": None, "code": "x"}})
    assert made[-1]["error"]["message"] == "the reason"
    assert (answer.status, type(answer.failure)) == (200, GenerationError)


def test_kv_transfer_params() -> None:
    """The completions document: an object or null, at the root of whole answers; chunks have no such field."""
    given: dict[str, Any] = {"do_remote_decode": True}
    told = end(kv_transfer_params={"remote_block_ids": [1, 2]})
    for asked, answer in (
        (CHAT, whole(reply(kv_transfer_params=given), Started(1), Delta(0, "a", (), told))),
        (TEXT, whole(call(kv_transfer_params=given).reply, Started(1), Delta(0, "a", (), told))),
    ):
        assert answer["kv_transfer_params"] == {"remote_block_ids": [1, 2]}
        (made,) = parse({**asked, "kv_transfer_params": given}, Request(b""), SETTINGS).generations
        assert made.kv_transfer_params == given
    made_chunks = chunks(reply(kv_transfer_params=given, stream=True), Delta(0, "a", (), told))
    assert not any("kv_transfer_params" in chunk for chunk in made_chunks)


# --- Errors and endings ---


def test_an_abort_is_an_error() -> None:
    answer = reply(stream=True)
    made = chunks(answer, Delta(0, "a"), Delta(0, "b", (), end("abort")))
    assert [chunk["choices"][0]["delta"]["content"] for chunk in made[:-1]] == ["", "a", "b"]
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in made[:-1])
    assert made[-1]["error"]["message"] == "the generation was cut off before its end"
    silent = reply()
    assert whole(silent, Delta(0, "b", (), end("abort")))["error"]["type"] == "server_error"
    assert silent.status == 500


@each_row(
    ("finish", "called", "word", "stop_reason"),
    [
        (end("eos"), False, "stop", None),
        (end("stop", stop="END"), False, "stop", "END"),
        (end("stop", stop=7), False, "stop", 7),
        (end("length"), False, "length", None),
        (end("eos"), True, "tool_calls", None),
        (end("stop", stop=7), True, "tool_calls", 7),
        (end("length"), True, "length", None),
    ],
)
@each_row("stream", [True, False])
def test_finish_reasons(finish: Finish, called: bool, word: str, stop_reason: Any, stream: bool) -> None:
    delta = Delta(0, "a", (), finish, calls=tuple(CALLS) if called else ())
    answer = reply(stream=stream, tools=TOOLS)
    body = chunks(answer, delta)[-1] if stream else whole(answer, delta)
    assert (body["choices"][0]["finish_reason"], body["choices"][0]["stop_reason"]) == (word, stop_reason)


def test_functions_are_answered_in_kind() -> None:
    """functions and function_call are answered in kind (docs/decisions.md: Tool calls in chunks)."""
    functions = [TOOLS[0]["function"]]
    deltas = [Delta(0, "", calls=(CALLS[0], CALLS[1])), Delta(0, "", calls=(CALLS[2],)), Delta(0, "", (), end())]
    (choice,) = whole(reply(functions=functions), *deltas)["choices"]
    assert choice["finish_reason"] == "function_call"
    assert choice["message"]["function_call"] == {"name": "get_weather", "arguments": '{"location": "San'}
    assert choice["message"]["tool_calls"] == []
    made = chunks(reply(functions=functions, stream=True), *deltas)
    assert [chunk["choices"][0]["delta"] for chunk in made[1:]] == [
        {"function_call": {"name": "get_weather", "arguments": '{"loc'}},
        {"function_call": {"arguments": 'ation": "San'}},
        {},
    ]
    assert made[-1]["choices"][0]["finish_reason"] == "function_call"


@each_row(
    ("settings", "fields", "there"),
    [(SETTINGS, {}, False), (REASONING, {}, True), (REASONING, {"include_reasoning": False}, False)],
)
def test_reasoning_only_with_a_parser(settings: Settings, fields: dict[str, Any], there: bool) -> None:
    (choice,) = whole(reply(settings, **fields), Delta(0, "a", (), end()))["choices"]
    for name in ("reasoning", "reasoning_content"):
        assert (name in choice["message"]) is there
        assert choice["message"].get(name, "") == ""


def test_reasoning_of_a_model_that_needs_no_parser() -> None:
    (choice,) = whole(reply(SETTINGS), Delta(0, "a", (), end(), "Hm."))["choices"]
    assert choice["message"]["reasoning"] == choice["message"]["reasoning_content"] == "Hm."


A = Token(1, "a", -0.5, raw=b"a")


@each_row("logprobs", [False, True])
def test_usage_in_each_chunk(logprobs: bool) -> None:
    """vLLM's `continuous_usage_stats`: what has come so far, of all choices; a role counts nothing of its own."""
    options = {"include_usage": True, "continuous_usage_stats": True}
    asked: dict[str, Any] = {"stream": True, "n": 2, "stream_options": options, "logprobs": logprobs}
    assert call(**CHAT, **asked).generations[0].tokens
    made = chunks(
        reply(**asked),
        Delta(0, "a", (A,)),
        Delta(1, "bc", (A, A)),
        Delta(0, "d", (A,), end(count=3)),
        Delta(1, "", (), end(count=2)),
    )
    counts = [(chunk["usage"]["completion_tokens"], chunk["usage"]["total_tokens"]) for chunk in made]
    prompt = made[0]["usage"]["prompt_tokens"]
    assert [count for count, _ in counts] == [0, 1, 1, 3, 5, 5, 5]
    assert all(total == prompt + count for count, total in counts)
    assert made[-1]["choices"] == []


SAID: dict[str, Any] = {"role": "assistant", "content": "Once "}
PARTS: dict[str, Any] = {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}


@each_row(
    ("last", "fields", "echoed"),
    [
        (SAID, {"continue_final_message": True}, "Once "),
        (SAID, {}, "Once "),
        (PARTS, {"continue_final_message": True}, "a\nb"),
        (CHAT["messages"][-1], {}, ""),
        (CHAT["messages"][-1], {"add_generation_prompt": False}, "hi"),
        (SAID, {"continue_final_message": True, "echo": False}, ""),
    ],
)
def test_an_echo_comes_before_the_answer(last: dict[str, Any], fields: dict[str, Any], echoed: str) -> None:
    """vLLM's `echo`: the last message, where it is of the answer's role; in a stream after the chunk of the role."""
    asked = {"messages": [*CHAT["messages"], last], "n": 2, "echo": True, **fields}
    events = (Delta(0, "upon", (), end()), Delta(1, "more", (), end()))
    body = whole(call(**asked).reply, *events)
    assert [one["message"]["content"] for one in body["choices"]] == [f"{echoed}upon", f"{echoed}more"]
    made = [chunk["choices"][0] for chunk in chunks(call(**asked, stream=True).reply, *events)]
    said = [one["delta"].get("content") for one in made if one["index"] == 0]
    assert said == ["", *([echoed] if echoed else []), "upon"]


def test_usage_in_each_chunk_has_all_that_is_told_so_far() -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    encoder = call(**CHAT, stream=True, n=2, stream_options=options).reply
    encoder.feed(Started(7, cached_tokens=4))
    told = [
        json.loads(encoder.feed(delta)[-1].removeprefix(b"data: "))["usage"]
        for delta in (
            Delta(0, "a", (A,), Finish("eos", generated_tokens=5, reasoning_tokens=3, last=False)),
            Delta(1, "b", (A, A)),
        )
    ]
    assert [one["prompt_tokens_details"]["cached_tokens"] for one in told] == [4, 4]
    assert [one["completion_tokens_details"]["reasoning_tokens"] for one in told] == [3, 3]
    assert [(one["completion_tokens"], one["total_tokens"]) for one in told] == [(5, 12), (7, 14)]


def test_usage_in_each_chunk_goes_with_include_usage_alone() -> None:
    made = chunks(reply(stream=True, stream_options={"continuous_usage_stats": True}), Delta(0, "a", (A,), end()))
    assert not any("usage" in chunk for chunk in made)


@each_row("stream", [False, True])
def test_the_older_name_of_reasoning_can_be_left_out(stream: bool) -> None:
    settings = msgspec.structs.replace(REASONING, reasoning_content=False)
    made = reply(settings, stream=stream)
    answer = (Delta(0, "", reasoning='"H'), Delta(0, "", reasoning="m"), Delta(0, "a", (), end(), reasoning="."))
    messages = (
        [chunk["choices"][0]["delta"] for chunk in chunks(made, *answer)]
        if stream
        else [whole(made, *answer)["choices"][0]["message"]]
    )
    assert "".join(message.get("reasoning", "") for message in messages) == '"Hm.'
    assert not [message for message in messages if "reasoning_content" in message]


def test_n_choices() -> None:
    events: list[Event] = [
        Started(4),
        Delta(1, "b"),
        Delta(0, "a"),
        Delta(1, "B", (), end("length", 2, last=False)),
        Delta(2, "", (), end("eos", 1, last=False)),
        Delta(0, "A", (), end("eos", 2)),
    ]
    body = whole(reply(n=3), *events)
    assert [(choice["index"], choice["message"]["content"]) for choice in body["choices"]] == [
        (0, "aA"),
        (1, "bB"),
        (2, ""),
    ]
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (4, 5)
    made = [chunk["choices"][0] for chunk in chunks(reply(n=3, stream=True), *events)]
    for index, word in enumerate(["stop", "length", "stop"]):
        own = [choice for choice in made if choice["index"] == index]
        assert own[0]["delta"] == {"role": "assistant", "content": ""}
        assert [choice["finish_reason"] for choice in own] == [None] * (len(own) - 1) + [word]
