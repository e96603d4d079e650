"""How the page cuts responses into records and reads them: its modules in a real Chromium, asked without the page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ....kit.clients.browser import Browser, program
from ....kit.hosts.local_server import serving
from ....kit.rows import each_row

pytestmark = [
    pytest.mark.once,
    pytest.mark.browser,
    pytest.mark.skipif(program() is None, reason="chromium is not on PATH: Debian's package chromium"),
]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with serving(tmp_path_factory.mktemp("model")) as make, Browser(tmp_path_factory.mktemp("browser")) as browser:
        browser.open(f"http://127.0.0.1:{make().port}/")
        yield browser


def call(page: Browser, module: str, expression: str) -> Any:
    """The value of an expression of the module's names, which are `m`'s."""
    return page.evaluate(f"import('/playground/{module}').then((m) => {expression})")


EVENTS = 'event: a\ndata: {"x": 1}\n\ndata: [DONE]\n\n'


@each_row("size", [1, 2, 7, 1000])
@each_row(
    ("form", "text", "records"),
    [
        ("events", EVENTS, ['event: a\ndata: {"x": 1}\n\n', "data: [DONE]\n\n"]),
        ("events", "data: 1\r\n\r\ndata: 2", ["data: 1\r\n\r\n", "data: 2"]),
        ("lines", '{"a":1}\n{"b":2}\n', ['{"a":1}\n', '{"b":2}\n']),
        ("whole", '{\n"a":1}\n', ['{\n"a":1}\n']),
        ("text", "Hi.\n\nHo.\n", ["Hi.\n\nHo.\n"]),
    ],
)
def test_records_are_the_same_however_they_arrive(
    page: Browser, form: str, text: str, records: list[str], size: int
) -> None:
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    cut = f"((s) => [...{json.dumps(pieces)}.flatMap((one) => s.push(one)), ...s.end()])(new m.Splitter('{form}'))"
    assert call(page, "records.js", cut) == records


@each_row(
    ("kind", "streamed", "status", "form"),
    [
        ("text/event-stream; charset=utf-8", False, 200, "events"),
        ("application/jsonlines", True, 200, "lines"),
        ("application/json", True, 200, "lines"),
        ("application/json", False, 200, "whole"),
        ("application/json", True, 400, "whole"),
        ("text/plain; charset=utf-8", True, 200, "text"),
        ("text/plain", False, 404, "whole"),
    ],
)
def test_the_form_of_a_response(page: Browser, kind: str, streamed: bool, status: int, form: str) -> None:
    assert call(page, "records.js", f"m.formOf('{kind}', {json.dumps(streamed)}, {status})") == form


def test_what_a_record_carries(page: Browser) -> None:
    record = json.dumps('event: ping\ndata: {"type":\ndata: "ping"}\n\n')
    assert call(page, "records.js", f"m.contentOf({record}, 'events')") == {"event": "ping", "value": {"type": "ping"}}
    assert "value" not in call(page, "records.js", "m.contentOf('data: [DONE]', 'events')")
    assert call(page, "records.js", "m.contentOf('Hi.', 'text')") == {"event": "", "value": {"text": "Hi."}}


TOKEN = {"token": "Hi", "logprob": -0.5, "top_logprobs": [{"token": "Ho", "logprob": -1.5}]}
READ_TOKEN = {"text": "Hi", "logprob": -0.5, "top": [["Ho", -1.5]]}
SEEN = [
    # What each says: the record, and what is found in it.
    ({"choices": [{"delta": {"content": "Hi"}, "index": 1, "logprobs": {"content": [TOKEN]}}]},
     {"texts": [[1, "Hi"]], "tokens": [READ_TOKEN]}),
    ({"choices": [{"index": 0, "message": {"reasoning": "so", "content": None, "tool_calls": [
        {"id": "c", "function": {"name": "f", "arguments": "{}"}}]}, "finish_reason": "tool_calls"}],
      "usage": {"prompt_tokens": 3, "completion_tokens": 4}},
     {"reasoning": [[0, "so"]], "calls": [{"key": "0.0", "id": "c", "name": "f", "text": "{}"}],
      "finish": "tool_calls", "prompt": 3, "generated": 4}),
    ({"choices": [{"index": 0, "text": "Hi", "logprobs": {
        "tokens": ["Hi"], "token_logprobs": [-0.5], "top_logprobs": [{"Ho": -1.5}]}}]},
     {"texts": [[0, "Hi"]], "tokens": [READ_TOKEN]}),
    ({"token": {"id": 1, "text": "Hi", "log_prob": -0.5}, "top_tokens": [{"text": "Ho", "log_prob": -1.5}]},
     {"texts": [[0, "Hi"]], "tokens": [READ_TOKEN]}),
    ([{"generated_text": "Hi", "details": {"finish_reason": "length", "generated_tokens": 1,
                                           "tokens": [{"text": "Hi", "logprob": -0.5}]}}],
     {"texts": [[0, "Hi"]], "tokens": [{"text": "Hi", "logprob": -0.5, "top": []}], "finish": "length",
      "generated": 1}),
    ({"token": {"id": 2, "text": "</s>", "logprob": -0.5, "special": True}, "generated_text": "Hi"},
     {"tokens": [{"text": "</s>", "logprob": -0.5, "top": []}]}),
    ({"message": {"role": "assistant", "content": "Hi"}, "done": False, "index": 0}, {"texts": [[0, "Hi"]]}),
    ({"type": "message_start", "message": {"usage": {"input_tokens": 7, "output_tokens": 1}, "content": []}},
     {"prompt": 7}),
    ({"type": "content_block_start", "index": 1,
      "content_block": {"type": "tool_use", "id": "t", "name": "f", "input": {}}},
     {"calls": [{"key": "1", "id": "t", "name": "f", "text": ""}]}),
    ({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"a"'}},
     {"calls": [{"key": "1", "id": "", "name": "", "text": '{"a"'}]}),
    ({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
     {"texts": [[0, "Hi"]]}),
    ({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "so"}},
     {"reasoning": [[0, "so"]]}),
    ({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
     {"finish": "end_turn", "generated": 5}),
    ({"type": "message", "content": [{"type": "text", "text": "Hi"},
                                     {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}],
      "stop_reason": "tool_use", "usage": {"input_tokens": 1, "output_tokens": 2}},
     {"texts": [[0, "Hi"]], "calls": [{"key": "1", "id": "t", "name": "f", "text": '{"a":1}'}],
      "finish": "tool_use", "prompt": 1, "generated": 2}),
    ({"type": "ping"}, {}),
    ({"type": "response.output_text.delta", "delta": "Hi", "logprobs": [TOKEN]},
     {"texts": [[0, "Hi"]], "tokens": [READ_TOKEN]}),
    ({"type": "response.reasoning_text.delta", "delta": "so"}, {"reasoning": [[0, "so"]]}),
    ({"type": "response.output_item.added", "output_index": 1,
      "item": {"type": "function_call", "name": "f", "call_id": "c", "arguments": ""}},
     {"calls": [{"key": "1", "id": "c", "name": "f", "text": ""}]}),
    ({"type": "response.function_call_arguments.delta", "output_index": 1, "delta": "{}"},
     {"calls": [{"key": "1", "id": "", "name": "", "text": "{}"}]}),
    ({"type": "response.completed",
      "response": {"status": "completed", "usage": {"input_tokens": 1, "output_tokens": 2}}},
     {"finish": "completed", "prompt": 1, "generated": 2}),
    ({"object": "response", "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"},
      "output": [{"type": "reasoning", "summary": [{"text": "so"}]}, {"type": "message", "content": [{"text": "Hi"}]}]},
     {"texts": [[0, "Hi"]], "reasoning": [[0, "so"]], "finish": "max_output_tokens"}),
    ({"type": "transcript.text.delta", "delta": "Hi", "choices": [{"delta": {"content": "Hi"}, "index": 0}]},
     {"texts": [[0, "Hi"]]}),
    ({"text": "Hi", "usage": {"type": "duration", "seconds": 2}}, {"texts": [[0, "Hi"]]}),
    ({"text": "Hi", "segments": []}, {"shown": {"text": "Hi", "segments": []}}),
    ({"error": {"message": "no"}}, {"error": "no"}),
    ({"error": "no", "code": 424}, {"error": "no"}),
    ({"error": "Unprocessable Content", "message": "no", "status": 422}, {"error": "no"}),
    ({"message": "no", "type": "t", "code": "c"}, {"error": "no"}),
    ({"type": "error", "error": {"type": "overloaded_error", "message": "no"}}, {"error": "no"}),
    ({"data": [1, 2]}, {"shown": {"data": [1, 2]}}),
    ([], {"shown": []}),
]  # fmt: skip


@each_row(("record", "found"), SEEN, ids=lambda one: json.dumps(one)[:60])
def test_what_a_record_says(page: Browser, record: object, found: dict[str, Any]) -> None:
    told = call(page, "reading.js", f"m.read({json.dumps(record)})")
    assert {name: value for name, value in told.items() if value not in (None, [])} == {
        name: value for name, value in found.items() if value != []
    }


AWKWARD = ["it's", 'a "b"', "$HOME `x` \\", "Grüße 😀\n", {"a": None, "b": [True, 1.5]}, ["x" * 90, "y"]]


def test_literals_are_read_back(page: Browser) -> None:
    for value in AWKWARD:
        assert eval(call(page, "literals.js", f"m.python({json.dumps(value)})")) == value
