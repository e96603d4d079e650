"""Responses that are kept: what is kept, how one is continued, read and deleted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from lmi.formatters.responses import parse

from ...kit.answers.events import end, feed
from ...kit.answers.openai import SETTINGS
from ...kit.answers.responses import SPLIT, TOOL, asked, conversation
from ...kit.api.dialects import route_of
from ...kit.api.errors import (
    GenerationError,
    NotFoundError,
    ParameterError,
    PreviousResponseError,
    RequestError,
    UnsupportedError,
)
from ...kit.api.handler import keep
from ...kit.api.types import CallDelta, Delta, EngineInfo, Event, Failed, Request, Started, said
from ...kit.rows import each_row


class Store:
    """Keeps everything."""

    max_bytes = 10_000

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.items: dict[str, str] = {}

    def put(self, response_id: str, kept: bytes, items: Sequence[str] = ()) -> None:
        self.kept[response_id] = kept
        self.items.update(dict.fromkeys(items, response_id))

    def having(self, item_id: str) -> str | None:
        return self.items.get(item_id)

    def get(self, response_id: str) -> bytes | None:
        return self.kept.get(response_id)

    def remove(self, response_id: str) -> bool:
        return self.kept.pop(response_id, None) is not None


@pytest.fixture
def store() -> Store:
    return Store()


def answered(store: Store, given: Any, event: Event, /, **fields: Any) -> Any:
    """A response to an input; streamed where the fields say so, of the last event."""
    call = asked(given, store_=store, **fields)
    record = feed(call.reply, event)[-1]
    # As hosts do (handler/exchange.py).
    assert call.responses is store
    keep(call.reply, store)
    found = json.loads(record.decode().partition("data: ")[2] or record)
    return found.get("response", found)


def page(store: Store | None, method: str, path: str, query: Mapping[str, str] = {}) -> Any:
    request = Request(b"", path=f"/v1/responses/{path}", method=method, query=query, responses=store)
    found = route_of(request)
    assert found is not None
    assert found[1].page is not None
    answer = found[1].page(request, SETTINGS, EngineInfo(engine="hand", version="1", context=100))
    assert answer.status == 200
    return json.loads(answer.body)


@pytest.mark.parametrize("stream", [False, True])
def test_one_is_kept_as_it_was_sent(store: Store, stream: bool) -> None:
    body = answered(store, "Hello", Delta(0, "Hi", finish=end()), stream=stream)
    assert body["store"] is True
    assert page(store, "GET", body["id"]) == body


def test_a_response_goes_on_from_another(store: Store) -> None:
    call = CallDelta(0, "call_1", "f", "{}")
    first = answered(store, "Hello", Delta(0, "", finish=end(), reasoning="hm", calls=(call,)), instructions="Brief.")
    output = [{"type": "function_call_output", "call_id": "call_1", "output": "5"}]
    second = answered(store, output, Delta(0, "Hi", finish=end()), previous_response_id=first["id"])
    assert second["previous_response_id"] == first["id"]
    # Instructions are not carried over; the first one is not needed any more.
    assert page(store, "DELETE", first["id"]) == {"id": first["id"], "object": "response", "deleted": True}
    messages = said(conversation("Thanks", store_=store, previous_response_id=second["id"]))
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant", "user"]
    assert messages[1]["reasoning"] == "hm"
    assert messages[1]["tool_calls"][0]["id"] == "call_1"
    assert messages[3]["content"] == "Hi"


def test_calls_of_all_kinds_are_kept(store: Store) -> None:
    member = {"type": "function", "name": "close"}
    more = [
        {"type": "additional_tools", "role": "developer", "tools": [{"type": "custom", "name": "patch"}]},
        {"role": "user", "content": "hi"},
    ]
    tools = [{"type": "namespace", "name": "agents", "tools": [member]}]
    calls = (CallDelta(0, "call_1", "agents__close", "{}"), CallDelta(1, "call_2", "patch", '{"input": "a"}'))
    first = answered(store, more, Delta(0, "", finish=end(), calls=calls), tools=tools)
    outputs = [
        {"type": "function_call_output", "call_id": "call_1", "output": "5"},
        {"type": "custom_tool_call_output", "call_id": "call_2", "output": "6"},
    ]
    second = answered(store, outputs, Delta(0, "ok", finish=end()), previous_response_id=first["id"])
    read = conversation("go on", store_=store, previous_response_id=second["id"], tools=tools)
    assert [message["role"] for message in said(read)] == ["user", "assistant", "tool", "tool", "assistant", "user"]
    named = [call["function"]["name"] for call in said(read)[1]["tool_calls"]]
    # The additional tools are items, and so go on; those of the request do not.
    assert named == [tool["function"]["name"] for tool in read.tools] == ["agents__close", "patch"]
    items = page(store, "GET", f"{second['id']}/input_items", {"order": "asc"})["data"]
    assert [item["id"].partition("_")[0] for item in items] == ["at", "msg", "fc", "ctc", "fco", "ctco"]


def test_what_is_empty_is_listed(store: Store) -> None:
    given = [
        {"role": "assistant"},
        {"type": "function_call", "call_id": "call_1", "name": "f"},
        {"type": "function_call_output", "call_id": "call_1", "output": None},
        {"role": "user", "content": []},
    ]
    body = answered(store, given, Delta(0, "d", finish=end()))
    items = page(store, "GET", f"{body['id']}/input_items", {"order": "asc"})["data"]
    assert [item.get("content", item.get("arguments", item.get("output"))) for item in items] == [
        [{"type": "output_text", "text": "", "annotations": []}], "", "", [],
    ]  # fmt: skip
    read = said(conversation("go on", store_=store, previous_response_id=body["id"]))
    assert [message["role"] for message in read] == ["assistant", "tool", "user", "assistant", "user"]


def test_a_response_that_was_cut_off_goes_on(store: Store) -> None:
    """The client cannot repair what is kept."""
    call = CallDelta(0, "call_1", "f", '{"city": "Par')
    first = answered(store, "Hello", Delta(0, "", finish=end("length"), calls=(call,)))
    read = said(conversation("go on", store_=store, previous_response_id=first["id"]))
    assert json.loads(read[1]["tool_calls"][0]["function"]["arguments"]) == {"raw_arguments": '{"city": "Par'}


def test_what_one_answered(store: Store) -> None:
    given = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    body = answered(store, given, Delta(0, "d", finish=end()))
    items = page(store, "GET", f"{body['id']}/input_items", {"order": "asc"})
    assert [item["content"][0]["text"] for item in items["data"]] == ["a", "b", "c"]
    assert [item["content"][0]["type"] for item in items["data"]] == ["input_text", "output_text", "input_text"]
    assert (items["first_id"], items["last_id"]) == (items["data"][0]["id"], items["data"][2]["id"])
    latest = page(store, "GET", f"{body['id']}/input_items")
    assert latest["data"] == items["data"][::-1]


@pytest.mark.parametrize("event", [Failed.of(GenerationError("no")), Delta(0, "a")])
@pytest.mark.parametrize("stream", [False, True])
def test_one_that_has_not_ended_well_is_not_kept(store: Store, event: Event, stream: bool) -> None:
    answer = asked(store_=store, stream=stream).reply
    feed(answer, Delta(0, "x"), event)
    keep(answer, store)
    assert not store.kept


@each_row("wanted", [True, False, None])
def test_nothing_is_kept_without_a_store(wanted: bool | None) -> None:
    """Clients that ask for it are told so, and served."""
    fields = {} if wanted is None else {"store": wanted}
    for stream in (False, True):
        record = feed(asked("a", stream=stream, **fields).reply, Delta(0, "b", finish=end()))[-1]
        body = json.loads(record.decode().partition("data: ")[2] or record)
        assert body.get("response", body)["store"] is False


@pytest.mark.parametrize("kept", [True, False])
def test_a_reference_to_an_item_says_what_to_send(store: Store, kept: bool) -> None:
    """Vercel's AI SDK sends one for each item of an earlier answer, unless its request says `store: false`."""
    given = [{"role": "user", "content": "a"}, {"type": "item_reference", "id": "msg_1"}]
    kind, place = (NotFoundError, "input[1].id") if kept else (UnsupportedError, "input[1].type")
    with pytest.raises(kind, match=r"^input\[1\].*send the item itself.*store: false") as caught:
        asked(given, store_=store if kept else None)
    assert caught.value.param == place


def test_references_to_items_that_are_kept(store: Store) -> None:
    call = CallDelta(0, "call_1", "f", "{}")
    first = answered(store, "Hello", Delta(0, "", finish=end(), reasoning="hm", calls=(call,)))
    items = [{"type": "item_reference", "id": item["id"]} for item in first["output"]]
    result = {"type": "function_call_output", "call_id": "call_1", "output": "5"}
    given = [{"role": "user", "content": "Hello"}, *items, result]
    sent = [{"role": "user", "content": "Hello"}, *first["output"], result]
    assert said(conversation(given, store_=store)) == said(conversation(sent))
    with pytest.raises(ParameterError, match=r"^input\[4\].id: .*is there already"):
        asked([*given, items[0]], store_=store)
    untyped = [{"role": "user", "content": "Hello"}, *({"id": item["id"]} for item in items), result]
    assert said(conversation(untyped, store_=store)) == said(conversation(sent))
    # What goes on from it has the items themselves.
    second = answered(store, given, Delta(0, "so", finish=end()))
    assert page(store, "DELETE", first["id"])["deleted"]
    after = said(conversation("go on", store_=store, previous_response_id=second["id"]))
    assert [message["role"] for message in after] == ["user", "assistant", "tool", "assistant", "user"]


def test_reasoning_that_a_client_carries() -> None:
    """Clients that keep nothing here send it back by this alone (the AI SDK, with store: false)."""
    asks = {"include": ["reasoning.encrypted_content"], "store": False}
    told = feed(asked("Hello", **asks).reply, Delta(0, "so", finish=end(), reasoning="hm"))[-1]
    thought, text = json.loads(told)["output"]
    back = {"type": "reasoning", "summary": [], "encrypted_content": thought["encrypted_content"]}
    assert said(conversation([back, text]))[0] == {
        "role": "assistant", "content": "so", "reasoning": "hm", "reasoning_content": "hm",
    }  # fmt: skip
    plain = json.loads(feed(asked("Hello").reply, Delta(0, "so", finish=end(), reasoning="hm"))[-1])
    assert plain["output"][0]["encrypted_content"] is None


@pytest.mark.parametrize("path", ["/v1/responses/resp_1/cancel", "/v1/responses/compact"])
def test_what_is_not_served_says_so(store: Store, path: str) -> None:
    with pytest.raises(UnsupportedError, match="not supported"):
        page(store, "POST", path.removeprefix("/v1/responses/"))


def test_how_many_tokens_a_prompt_has() -> None:
    request = Request(b"", path="/v1/responses/input_tokens", request_id="7")
    made = parse({"input": "hi", "stream": True, "instructions": "Be brief"}, request, SETTINGS)
    (generation,) = made.generations
    assert (generation.tokenize, [one["role"] for one in said(generation.prompt)]) == (True, ["system", "user"])
    (body,) = feed(made.reply, Started(7), Delta(0, "", finish=end("length")))
    assert json.loads(body) == {"object": "response.input_tokens", "input_tokens": 7}


def test_the_prompt_that_is_counted_is_that_of_a_response(store: Store) -> None:
    first = answered(store, "Hello", Delta(0, "Hi", finish=end()))
    body = {"input": "go on", "previous_response_id": first["id"], "tools": [TOOL], "reasoning": {"effort": "none"}}
    counting = Request(b"", path="/v1/responses/input_tokens", request_id="7", responses=store)
    (counted,) = parse(body, counting, SPLIT).generations
    (generated,) = parse(body, Request(b"", request_id="7", responses=store), SPLIT).generations
    assert counted.prompt == generated.prompt


def test_one_that_is_not_to_be_kept(store: Store) -> None:
    assert answered(store, "a", Delta(0, "b", finish=end()), store=False)["store"] is False
    assert answered(store, "a", Delta(0, "b", finish=end("length")))["status"] == "incomplete"
    assert len(store.kept) == 1


@pytest.mark.parametrize(
    ("kept", "fields", "kind", "param"),
    [
        (True, {"previous_response_id": "resp_1"}, PreviousResponseError, "previous_response_id"),
        (True, {"given": "a" * 10_001}, ParameterError, "store"),
        (False, {"previous_response_id": "resp_1"}, UnsupportedError, "previous_response_id"),
    ],
)
def test_what_is_refused(
    store: Store, kept: bool, fields: dict[str, Any], kind: type[RequestError], param: str
) -> None:
    with pytest.raises(kind) as caught:
        asked(store_=store if kept else None, **fields)
    assert caught.value.param == param
    assert "option.response_store" in caught.value.message or kind is PreviousResponseError


@pytest.mark.parametrize(
    ("method", "path", "query"),
    [
        ("GET", "resp_1", {}),
        ("DELETE", "resp_1", {}),
        ("GET", "resp_1/input_items", {}),
    ],
)
@pytest.mark.parametrize("kept", [True, False])
def test_none_of_that_id(store: Store, kept: bool, method: str, path: str, query: dict[str, str]) -> None:
    with pytest.raises(NotFoundError):
        page(store if kept else None, method, path, query)


def test_what_of_one_there_is_not(store: Store) -> None:
    body = answered(store, "a", Delta(0, "b", finish=end()))
    with pytest.raises(NotFoundError):
        page(store, "GET", f"{body['id']}/nothing")
    with pytest.raises(UnsupportedError):
        page(store, "GET", body["id"], {"stream": "true"})
