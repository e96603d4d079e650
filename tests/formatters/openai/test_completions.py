"""OpenAI text completions: what is asked of the engine, and the answers, whole and incremental."""

from __future__ import annotations

import json
import re
import timeit
from typing import Any

import pytest

from lmi.formatters.openai import parse

from ...kit.answers.events import Told, end, feed
from ...kit.answers.openai import COMPLETIONS, DETAILS, DONE, PROMPT_DETAILS, SETTINGS, USAGE, call, chunks, whole
from ...kit.api.errors import ContextError, LmiError, ParameterError
from ...kit.api.types import JSON, Delta, Failed, Request, Started
from ...kit.rows import each_row

# --- What is asked ---


@each_row(
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
    asked = call(prompt=prompt)
    made = asked.generations
    assert [one.prompt for one in made] == prompts
    assert [asked.fields.name("prompt", number) for number in range(len(made))] == names
    assert {(one.sampling.max_tokens, one.overflow, one.request_id, one.tokens) for one in made} == {
        (16, "refuse", "7", False)
    }


@each_row(
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
        ({"best_of": 3}, None, None, 16),
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


@each_row(
    ("fields", "kind", "message"),
    [
        ({"prompt": ["a"] * 2049}, ParameterError, "prompt: expected at most 2048 of them, got 2049"),
        ({"prompt": ["a"] * 17, "n": 128}, ParameterError, "prompt: expected at most 2048 choices, prompts times n"),
        ({"max_tokens": 0}, ParameterError, "max_tokens: expected an integer >= 1 (0 requires echo: true), got"),
        (
            {"prompt": ["a"] * 17, "best_of": 128},
            ParameterError,
            "prompt: expected at most 2048 choices, prompts times n or best_of",
        ),
    ],
)
def test_refused(fields: dict[str, Any], kind: type[LmiError], message: str) -> None:
    with pytest.raises(LmiError) as caught:
        call(**fields)
    assert type(caught.value) is kind
    assert caught.value.message.startswith(message)
    assert caught.value.param == message.partition(":")[0]


# --- The examples of the completions document ---


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
        "usage": {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
        | PROMPT_DETAILS,
        "kv_transfer_params": None,
    }


def test_example_single_prompt() -> None:
    """The completions document, Text Completion, Example (Single Prompt)."""
    text = "If you have a fever and body aches ..."
    body = whole(call().reply, Started(53), Delta(0, text, (), end(count=1230)))
    documented = _example([text], (53, 1230))
    assert re.fullmatch("cmpl-[0-9a-f]{32}", body["id"])
    assert isinstance(body["created"], int)
    assert body | {"id": "", "created": 0} == documented
    assert (list(body), list(body["choices"][0])) == (list(documented), list(documented["choices"][0]))


def test_example_multiple_prompts() -> None:
    """The completions document, Text Completion, Example (Multiple Prompts); the second ends first."""
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
"""The completions document, Text Completion (Streaming), Example."""


def test_example_stream() -> None:
    texts = ["If", " you", " have", " a"]
    deltas = [Delta(0, text) for text in texts[:3]]
    records = feed(call(stream=True).reply, Started(3), *deltas, Delta(0, texts[3], (), end()))
    assert records[-1] == DONE
    for record, text, finish in zip(records[:-1], texts, [b"null"] * 3 + [b'"stop"'], strict=True):
        assert re.fullmatch(EXAMPLE_LINE % (text.encode(), finish), record)


# --- Answers ---


def test_several_prompts_are_interleaved() -> None:
    events: list[Told] = [
        (1, Started(2)),
        (1, Delta(1, "d")),
        (0, Started(1)),
        (0, Delta(0, "a", (), end("length", last=False))),
        (1, Delta(0, "c", (), end("stop", 2, stop="END", last=False))),
        (0, Delta(1, "b", (), end())),
        (1, Delta(1, "D", (), end(count=3))),
    ]
    asked: dict[str, Any] = {"prompt": ["x", "y"], "n": 2}
    body = whole(call(COMPLETIONS, **asked).reply, *events)
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
    assert (made[-1]["choices"], made[-1]["usage"]) == ([], {**DETAILS, **body["usage"]})
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (3, 7)


@each_row("stream", [True, False])
def test_an_error_of_one_prompt_ends_the_request(stream: bool) -> None:
    answer = call(prompt=["a", "b"], stream=stream).reply
    records = feed(answer, (0, Started(1)), (1, Failed.of(ContextError("the reason", "prompt[1]"))))
    assert (answer.status, answer.content_type, answer.finished) == (400, JSON, True)
    assert json.loads(records[0])["error"]["param"] == "prompt[1]"
    assert isinstance(answer.failure, ContextError)


@pytest.mark.timing
@pytest.mark.parametrize("body", [{"prompt": "hi"}, {"messages": [{"role": "user", "content": "hi"}]}])
def test_a_chunk_is_cheap(body: dict[str, Any]) -> None:
    """About 0.6 microseconds where this was written; the bound leaves room for slow and busy machines."""
    answer = parse({**body, "stream": True}, Request(b""), SETTINGS).reply
    delta = Delta(0, " token")
    answer.feed(delta)
    best = min(timeit.repeat(lambda: answer.feed(delta), number=2000, repeat=20)) / 2000
    assert best < 20e-6
