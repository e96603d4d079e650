"""Clients that were not written for us, each in a process of its own (tests/clients), against the local server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ..demo.model import Question, question
from ..kit.clients.bridge import Bridge, serving
from ..kit.clients.scripts import OURS, run_client, theirs
from ..kit.hosts.host import Host

pytestmark = pytest.mark.engine

CALLING = question("parallel_tool_calls")
PLAIN = question("plain")
UNICODE = question("unicode")


def calls_of(asked: Question) -> list[dict[str, Any]]:
    """The tool calls in an answer of the demo model, which writes them as Hermes does."""
    pieces = [piece.partition("</tool_call>")[0] for piece in asked.answer.split("<tool_call>")[1:]]
    return [json.loads(piece) for piece in pieces]


def check_calling(seen: dict[str, Any]) -> None:
    """What a client saw of CALLING is what the model said."""
    expected = calls_of(CALLING)
    assert len(expected) == 2
    assert [{"name": call["name"], "arguments": call["arguments"]} for call in seen["calls"]] == expected
    assert len({call["id"] for call in seen["calls"]}) == 2
    assert seen["finish"] == "tool_calls"
    assert (seen["answer"], seen["answer_finish"]) == (CALLING.follow_up, "stop")


CALLED = {
    "prompt": CALLING.prompt,
    "tools": CALLING.tools,
    "results": CALLING.tool_results,
    "long": "again and " * 3000,
}


def test_langchain_openai(chat_server: Host) -> None:
    seen = run_client("langchain_chat.py", chat_server.url, CALLED)
    check_calling(seen)
    assert seen["invalid"] == 0
    assert seen["too_long"] == [True, True]
    usage = seen["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"] > usage["output_tokens"] > 0


def test_litellm(chat_server: Host) -> None:
    seen = run_client("litellm_chat.py", chat_server.url, CALLED)
    check_calling(seen)
    assert seen["too_long"] == ["ContextWindowExceededError"] * 4
    usage = seen["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] > usage["prompt_tokens"] > 0


def test_litellm_for_sagemaker(chat_server: Host) -> None:
    """Its readers lose records that arrive together, and do not put together those that are cut."""
    with serving(Bridge(chat_server.url).app) as url:
        seen = run_client("litellm_sagemaker.py", url, {"chat": UNICODE.prompt, "text": UNICODE.prompt})
    assert seen["chat"] == seen["chat_stream"] == UNICODE.answer
    assert seen["chat_finish"] == ["stop"]
    assert seen["text"] == seen["text_stream"] == UNICODE.answer
    assert min(seen["chat_chunks"], seen["text_chunks"]) > 10


@pytest.mark.parametrize("ours", [True, False], ids=["newest", "before 1.0"])
def test_huggingface_hub(chat_server: Host, ours: bool) -> None:
    python: Path = OURS if ours else theirs()
    asked = {"chat": UNICODE.prompt, "call": CALLING.prompt, "tools": CALLING.tools}
    seen = run_client("huggingface_chat.py", chat_server.url, asked, python=python)
    assert seen["text"] == seen["stream"] == UNICODE.answer
    assert seen["finish"] == "stop"
    assert seen["stream_finish"] == ["stop"]
    assert seen["total_tokens"] > 0
    assert seen["calls"] == calls_of(CALLING)
    assert seen["error_status"] == 400
    assert "temperature" in seen["error"]


def test_text_generation(chat_server: Host) -> None:
    """TGI's own client; what it makes of the answers is asserted in the script."""
    seen = run_client("tgi_client.py", chat_server.url)
    assert seen["generate_stream"]["lines"] == seen["generate"]["tokens"] == seen["asynchronous"]["lines"] > 10
    assert "max_new_tokens" in seen["errors"]["message"]


def test_azure_ai_inference(chat_server: Host) -> None:
    """Azure's own client; what it makes of the answers is asserted in the script."""
    run_client("azure_client.py", chat_server.url)


def test_httpx_sse(chat_server: Host) -> None:
    """The minimal chat document, Actual SSE Streaming Response Format."""
    request = {"model": "any", "messages": [{"role": "user", "content": UNICODE.prompt}], "temperature": 0}
    seen = run_client("sse_reader.py", chat_server.url, request)
    for method in ("POST", "GET"):
        assert seen[method]["status"] == 200
        *events, last = seen[method]["events"]
        assert last == ["message", "[END]"]
        assert {event for event, _ in events} == {"message"}
        chunks = [json.loads(data) for _, data in events]
        assert [chunk["index"] for chunk in chunks] == list(range(len(chunks)))
        assert not any(chunk["done"] for chunk in chunks)
        assert "".join(chunk["message"]["content"] for chunk in chunks) == UNICODE.answer


def test_httpx_sse_reads_an_error(chat_server: Host) -> None:
    """The minimal chat document, SSE Streaming Error Responses."""
    request = {"model": "any", "messages": [{"role": "user", "content": PLAIN.prompt}], "temperature": -1}
    seen = run_client("sse_reader.py", chat_server.url, request)
    for method in ("POST", "GET"):
        assert seen[method]["status"] == 200
        (kind, data), end = seen[method]["events"]
        assert kind == "error"
        assert end == ["message", "[END]"]
        error = json.loads(data)
        assert set(error) == {"message", "type", "code"}
        assert "temperature" in error["message"]
