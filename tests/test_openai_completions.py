"""OpenAI text completions (specs 000): what is asked of the engine, and the answers, whole and incremental."""

from __future__ import annotations

import json
import re
import timeit
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmi.formatters.base import JSON, SSE, Call, Reply, Request
from lmi.formatters.openai import parse
from lmi.model.errors import ContextError, GenerationError, LmiError, ParameterError, PayloadError, UnsupportedError
from lmi.model.events import Delta, Event, Failed, Finish, FinishReason, Started, Token, TopToken
from lmi.model.options import Settings

SETTINGS = Settings(model_dir="/opt/ml/model", model_id="/opt/ml/model", model_name="/opt/ml/model")
DONE = b"data: [DONE]\n\n"
USAGE = {"stream_options": {"include_usage": True}}
DETAILS = {
    "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
    "completion_tokens_details": {
        "reasoning_tokens": 0,
        "audio_tokens": 0,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    },
}
"""Specs 001's usage details, which wire-decisions adds to 000's usage."""


def call(**fields: Any) -> Call:
    return parse({"prompt": "hi", **fields}, Request(b"", request_id="7"), SETTINGS)


def feed(answer: Reply, *events: tuple[int, Event]) -> list[bytes]:
    records: list[bytes] = []
    for prompt, event in events:
        assert not answer.finished
        records += answer.feed(event, prompt)
    assert all(records)
    return records


def whole(answer: Reply, *events: tuple[int, Event]) -> Any:
    (body,) = feed(answer, *events)
    assert answer.content_type == JSON
    return json.loads(body)


def chunks(answer: Reply, *events: tuple[int, Event]) -> list[Any]:
    records = feed(answer, *events)
    assert (answer.finished, answer.content_type, records[-1]) == (True, SSE, DONE)
    assert all(re.fullmatch(rb"data: [^\n]+\n\n", record) for record in records)
    return [json.loads(record.removeprefix(b"data: ")) for record in records[:-1]]


def first(*events: Event) -> list[tuple[int, Event]]:
    """Events of the first prompt."""
    return [(0, event) for event in events]


def end(reason: FinishReason = "eos", count: int = 1, **more: Any) -> Finish:
    return Finish(reason, generated_tokens=count, **more)


# --- What is asked ---


@pytest.mark.parametrize(
    ("prompt", "prompts", "names"),
    [
        ("hi", ["hi"], ["prompt"]),
        ("", [""], ["prompt"]),
        (["hi"], ["hi"], ["prompt"]),
        (["a", "b"], ["a", "b"], ["prompt[0]", "prompt[1]"]),
        ([1, 2], [(1, 2)], ["prompt"]),
        ([[1, 2], [3]], [(1, 2), (3,)], ["prompt[0]", "prompt[1]"]),
    ],
)
def test_prompts(prompt: Any, prompts: list[Any], names: list[str]) -> None:
    made = call(prompt=prompt).generations
    assert [one.prompt for one in made] == prompts
    assert [one.prompt_field for one in made] == names
    assert {(one.sampling.max_tokens, one.overflow, one.request_id, one.tokens) for one in made} == {
        (16, "refuse", "7", False)
    }


@pytest.mark.parametrize(
    ("fields", "logprobs", "prompt_logprobs", "max_tokens"),
    [
        ({"logprobs": 0}, 0, None, 16),
        ({"logprobs": 5, "max_tokens": 3}, 5, None, 3),
        ({"logprobs": 20}, 20, None, 16),
        ({"echo": True}, None, None, 16),
        ({"echo": True, "logprobs": 2}, 2, 2, 16),
        ({"echo": True, "logprobs": 2, "prompt_logprobs": 4}, 2, 4, 16),
        ({"echo": True, "max_tokens": 0}, None, None, 1),
        ({"echo": True, "max_tokens": 0, "logprobs": 1}, None, 1, 1),
        ({"best_of": 1}, None, None, 16),
        ({"best_of": 2, "n": 2}, None, None, 16),
        ({"suffix": ""}, None, None, 16),
    ],
)
def test_sampling(fields: dict[str, Any], logprobs: int | None, prompt_logprobs: int | None, max_tokens: int) -> None:
    (made,) = call(**fields).generations
    sampling = made.sampling
    assert (sampling.logprobs, sampling.prompt_logprobs, sampling.max_tokens) == (logprobs, prompt_logprobs, max_tokens)
    assert made.tokens is (logprobs is not None)


def test_the_text_of_an_echo() -> None:
    """The engine is asked for it only where the request does not have it."""
    made = [call(prompt=prompt, echo=True).generations[0] for prompt in ("hi", [1, 2])]
    assert [one.echo for one in made] == [False, True]


@pytest.mark.parametrize(
    ("fields", "kind", "message"),
    [
        ({"prompt": []}, ParameterError, "prompt: expected a string, a list of token ids, or a list of these, not an "),
        ({"prompt": [[]]}, ParameterError, "prompt[0]: expected at least one token id, got []"),
        ({"prompt": ["a", 5]}, PayloadError, "prompt[1]: expected a string, got 5"),
        ({"prompt": [5, "a"]}, PayloadError, "prompt[1]: expected an integer >= 0, got 'a'"),
        ({"prompt": [[1], "a"]}, PayloadError, "prompt[1]: expected a list of token ids, got 'a'"),
        ({"prompt": [-1]}, ParameterError, "prompt[0]: expected an integer >= 0, got -1"),
        ({"prompt": [True]}, PayloadError, "prompt[0]: expected an integer >= 0, got True"),
        ({"prompt": [None]}, PayloadError, "prompt[0]: expected a list of token ids, got None"),
        ({"prompt": ["a"] * 2049}, ParameterError, "prompt: expected at most 2048 choices, prompts times n"),
        ({"prompt": ["a"] * 17, "n": 128}, ParameterError, "prompt: expected at most 2048 choices, prompts times n"),
        ({"logprobs": 21}, ParameterError, "logprobs: expected an integer from 0 to 20, got 21"),
        ({"max_tokens": 0}, ParameterError, "max_tokens: expected an integer >= 1 (0 goes with echo: true only), got"),
        (
            {"best_of": 3},
            UnsupportedError,
            "best_of: expected the value of n, 1, the only one that is supported, got",
        ),
        ({"best_of": 1, "n": 2}, UnsupportedError, "best_of: expected the value of n, 2, the only one that is support"),
        ({"suffix": "end"}, UnsupportedError, "suffix: not supported"),
        ({"prompt_embeds": "x"}, UnsupportedError, "prompt_embeds: not supported"),
        ({"add_special_tokens": False}, UnsupportedError, "add_special_tokens: expected True, the only value that is"),
    ],
)
def test_refused(fields: dict[str, Any], kind: type[LmiError], message: str) -> None:
    with pytest.raises(LmiError) as caught:
        call(**fields)
    assert type(caught.value) is kind
    assert caught.value.message.startswith(message)
    assert caught.value.param == message.partition(":")[0]


# --- The examples of specs 000 ---


def _example(choices: list[str], usage: tuple[int, int]) -> dict[str, Any]:
    return {
        "id": "",
        "object": "text_completion",
        "created": 0,
        "model": "/opt/ml/model",
        "choices": [
            {
                "index": index,
                "text": text,
                "logprobs": None,
                "finish_reason": "stop",
                "stop_reason": None,
                "prompt_logprobs": None,
            }
            for index, text in enumerate(choices)
        ],
        "service_tier": None,
        "system_fingerprint": None,
        "usage": {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage), **DETAILS},
        "kv_transfer_params": None,
    }


def test_example_single_prompt() -> None:
    """000, Text Completion, Example (Single Prompt)."""
    text = "If you have a fever and body aches ..."
    body = whole(call().reply, *first(Started(53), Delta(0, text, (), end(count=1230))))
    documented = _example([text], (53, 1230))
    assert re.fullmatch("cmpl-[0-9a-f]{32}", body["id"])
    assert isinstance(body["created"], int)
    assert body | {"id": "", "created": 0} == documented
    assert (list(body), list(body["choices"][0])) == (list(documented), list(documented["choices"][0]))


def test_example_multiple_prompts() -> None:
    """000, Text Completion, Example (Multiple Prompts); the second ends first."""
    texts = ["To maintain good kidney health ...", "Best practices for kidney care include ..."]
    body = whole(
        call(prompt=["a", "b"]).reply,
        (0, Started(8)),
        (1, Started(12)),
        (1, Delta(0, texts[1], (), end(count=20))),
        (0, Delta(0, texts[0], (), end(count=30))),
    )
    assert body | {"id": "", "created": 0} == _example(texts, (20, 50))


EXAMPLE_LINE = (
    rb'data: {"id":"cmpl-[0-9a-f]{32}","object":"text_completion","created":[0-9]{10},"model":"/opt/ml/model",'
    rb'"choices":\[{"index":0,"text":"%s","logprobs":null,"finish_reason":%s,"stop_reason":null}\],"usage":null}\n\n'
)
"""000, Text Completion (Streaming), Example."""


def test_example_stream() -> None:
    texts = ["If", " you", " have", " a"]
    deltas = [Delta(0, text) for text in texts[:3]]
    records = feed(call(stream=True).reply, *first(Started(3), *deltas, Delta(0, texts[3], (), end())))
    assert records[-1] == DONE
    for record, text, finish in zip(records[:-1], texts, [b"null"] * 3 + [b'"stop"'], strict=True):
        assert re.fullmatch(EXAMPLE_LINE % (text.encode(), finish), record)


# --- Answers ---


def test_several_prompts_are_interleaved() -> None:
    events: list[tuple[int, Event]] = [
        (1, Started(2)),
        (1, Delta(1, "d")),
        (0, Started(1)),
        (0, Delta(0, "a", (), end("length", last=False))),
        (1, Delta(0, "c", (), end("stop", 2, stop="END", last=False))),
        (0, Delta(1, "b", (), end())),
        (1, Delta(1, "D", (), end(count=3))),
    ]
    asked = {"prompt": ["x", "y"], "n": 2}
    body = whole(call(**asked).reply, *events)
    assert [(choice["index"], choice["text"], choice["finish_reason"]) for choice in body["choices"]] == [
        (0, "a", "length"),
        (1, "b", "stop"),
        (2, "c", "stop"),
        (3, "dD", "stop"),
    ]
    assert body["choices"][2]["stop_reason"] == "END"
    made = chunks(call(**asked, stream=True, **USAGE).reply, *events)
    assert [chunk["choices"][0]["index"] for chunk in made[:-1]] == [3, 0, 2, 1, 3]
    assert [chunk["usage"] for chunk in made[:-1]] == [None] * 5
    assert (made[-1]["choices"], made[-1]["usage"]) == ([], body["usage"])
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (3, 7)


FOX = "🦊".encode()
TOKENS = (
    Token(1, "A", -0.5, top=(TopToken(1, "A", -0.5), TopToken(2, "B", -1.5))),
    Token(3, "", -2.0, raw=FOX[:2]),
    Token(4, "🦊", -0.25, raw=FOX[2:], top=(TopToken(4, "", -0.25),)),
    Token(5, "", -0.1, special=True),
)
COLUMNS = {
    "tokens": ["A", "", "🦊"],
    "token_logprobs": [-0.5, -2.0, -0.25],
    "top_logprobs": [{"A": -0.5, "B": -1.5}, {"": -2.0}, {"🦊": -0.25}],
    "text_offset": [0, 1, 1],
}


def test_logprobs() -> None:
    body = whole(call(logprobs=2).reply, *first(Started(1), Delta(0, "A🦊", TOKENS, end())))
    assert body["choices"][0]["logprobs"] == COLUMNS
    deltas = [Delta(0, token.text, (token,)) for token in TOKENS]
    made = chunks(call(logprobs=2, stream=True).reply, *first(Started(1), *deltas, Delta(0, "", (), end())))
    parts = [chunk["choices"][0]["logprobs"] for chunk in made]
    assert {name: [one for part in parts for one in part[name]] for name in COLUMNS} == COLUMNS


PREFILL = (Token(7, "x"), Token(8, "y", -1.0, top=(TopToken(8, "y", -1.0), TopToken(9, "z", -1.5))))


@pytest.mark.parametrize(("prompt", "text"), [("xy", ""), ([7, 8], "xy")])
def test_echo(prompt: Any, text: str) -> None:
    events = first(Started(2, 0, PREFILL, text), Delta(0, "A", TOKENS[:1], end()))
    (choice,) = whole(call(prompt=prompt, echo=True, logprobs=1).reply, *events)["choices"]
    assert choice["text"] == "xyA"
    assert choice["logprobs"] == {
        "tokens": ["x", "y", "A"],
        "token_logprobs": [None, -1.0, -0.5],
        "top_logprobs": [None, {"y": -1.0}, {"A": -0.5, "B": -1.5}],
        "text_offset": [0, 1, 2],
    }
    assert choice["prompt_logprobs"] is None
    made = chunks(call(prompt=prompt, echo=True, stream=True, n=2).reply, *events, (0, Delta(1, "B", (), end())))
    assert [(chunk["choices"][0]["index"], chunk["choices"][0]["text"]) for chunk in made] == [
        (0, "xy"),
        (0, "A"),
        (1, "xy"),
        (1, "B"),
    ]


@pytest.mark.parametrize("stream", [True, False])
def test_echo_alone(stream: bool) -> None:
    """max_tokens 0: the prompt and its log-probabilities; the token that the engine made is not told of."""
    events = first(Started(2, 0, PREFILL), Delta(0, "A", (), end("stop", stop="A")))
    answer = call(prompt="xy", echo=True, max_tokens=0, logprobs=1, stream=stream, **(USAGE if stream else {})).reply
    if stream:
        made = chunks(answer, *events)
        choices, usage = [chunk["choices"][0] for chunk in made[:-1]], made[-1]["usage"]
    else:
        body = whole(answer, *events)
        choices, usage = body["choices"], body["usage"]
    assert "".join(choice["text"] for choice in choices) == "xy"
    assert (choices[-1]["finish_reason"], choices[-1]["stop_reason"]) == ("length", None)
    assert choices[0]["logprobs"]["tokens"] == ["x", "y"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (2, 0, 2)


def test_prompt_logprobs() -> None:
    body = whole(call(prompt_logprobs=1).reply, *first(Started(2, 0, PREFILL), Delta(0, "A", (), end())))
    assert body["choices"][0]["prompt_logprobs"] == [
        None,
        {
            "8": {"logprob": -1.0, "rank": 1, "decoded_token": "y"},
            "9": {"logprob": -1.5, "rank": 2, "decoded_token": "z"},
        },
    ]


@pytest.mark.parametrize("stream", [True, False])
def test_an_error_of_one_prompt_ends_the_request(stream: bool) -> None:
    answer = call(prompt=["a", "b"], stream=stream).reply
    records = feed(answer, (0, Started(1)), (1, Failed.of(ContextError("the reason", "prompt[1]"))))
    assert (answer.status, answer.content_type, answer.finished) == (400, JSON, True)
    assert json.loads(records[0])["error"]["param"] == "prompt[1]"
    assert isinstance(answer.failure, ContextError)


def test_an_error_in_a_stream() -> None:
    answer = call(prompt=["a", "b"], stream=True).reply
    made = chunks(answer, (0, Delta(0, "x")), (1, Failed.of(GenerationError("the reason"))))
    assert made[-1] == {
        "error": {"message": "the reason", "type": "server_error", "param": None, "code": "generation_failed"}
    }
    assert answer.status == 200


letters = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)


@given(
    st.lists(st.lists(letters, min_size=1, max_size=6), min_size=1, max_size=3),
    st.lists(st.booleans(), min_size=18, max_size=18),
    st.booleans(),
)
def test_any_split_gives_the_same_answer(sequences: list[list[str]], cuts: list[bool], echo: bool) -> None:
    asked = {"prompt": ["p"] * len(sequences), "logprobs": 1, "echo": echo}
    started: list[tuple[int, Event]] = [(prompt, Started(1)) for prompt in range(len(sequences))]
    events, merged = list(started), list(started)
    cut = iter(cuts)
    for prompt, texts in enumerate(sequences):
        tokens = [Token(5, text, -1.5, raw=text.encode()) for text in texts]
        held: list[Token] = []
        for token in tokens:
            held.append(token)
            if next(cut):
                events.append((prompt, Delta(0, "".join(one.text for one in held), tuple(held))))
                held = []
        finish = end("length", len(tokens))
        events.append((prompt, Delta(0, "".join(one.text for one in held), tuple(held), finish)))
        merged.append((prompt, Delta(0, "".join(texts), tuple(tokens), finish)))
    body = whole(call(**asked).reply, *merged)
    assert body["choices"] == whole(call(**asked).reply, *events)["choices"]
    made = chunks(call(**asked, stream=True, **USAGE).reply, *events)
    assert made[-1]["usage"] == body["usage"]
    for choice in body["choices"]:
        own = [chunk["choices"][0] for chunk in made[:-1] if chunk["choices"][0]["index"] == choice["index"]]
        assert "".join(one["text"] for one in own) == choice["text"]
        assert [one["finish_reason"] for one in own if one["finish_reason"]] == [choice["finish_reason"]]
        for name, column in choice["logprobs"].items():
            assert [value for one in own for value in one["logprobs"][name]] == column
        assert "".join(choice["logprobs"]["tokens"]) == choice["text"][int(echo) :]


@pytest.mark.parametrize("body", [{"prompt": "hi"}, {"messages": [{"role": "user", "content": "hi"}]}])
def test_a_chunk_is_cheap(body: dict[str, Any]) -> None:
    """About 0.6 microseconds where this was written; the bound leaves room for slow and busy machines."""
    answer = parse({**body, "stream": True}, Request(b""), SETTINGS).reply
    delta = Delta(0, " token")
    answer.feed(delta)
    best = min(timeit.repeat(lambda: answer.feed(delta), number=2000, repeat=20)) / 2000
    assert best < 20e-6
