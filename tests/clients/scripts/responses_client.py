"""OpenAI's own client, unchanged, on /v1/responses: checks.py has how it is run.

told: question, answer        a text and what the model says to it
      reasoning               {"prompt", "thought", "answer"}, where a reasoning parser is set
      calls                   {"prompt", "tools", "calls", "results", "follow_up"}: tools in the chat's form
      endless                 a question whose answer has no end
      short_call              a question that the model answers by a call whose arguments come to an end
      json                    {"prompt", "schema", "answer"}
      bodies                  whether errors have the dialect's own body
      store                   whether responses are kept
      without                 checks that do not apply
"""

from __future__ import annotations

import json
from typing import Any

import openai
import pydantic
from checks import check, main


def make(url: str, http: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, http_client=http)


def ask(client: openai.OpenAI, given: Any, **fields: Any) -> Any:
    return client.responses.create(model="any", input=given, temperature=0, **fields)


def events(client: openai.OpenAI, given: Any, **fields: Any) -> list[Any]:
    with ask(client, given, stream=True, **fields) as stream:
        return list(stream)


def refused(call: Any, kind: type[openai.APIStatusError] = openai.BadRequestError) -> Any:
    try:
        call()
    except kind as error:
        return error
    raise AssertionError("it was not refused")


def names(error: Any, field: str, told: Any) -> bool:
    """Whether an error names a field. DJL Serving writes the body of errors itself: the message alone comes then."""
    return error.param == field if told["bodies"] else f"{field}: " in str(error)


def tools(told: Any) -> list[dict[str, Any]]:
    return [{"type": "function", "strict": False, **tool["function"]} for tool in told["calls"]["tools"]]


def calls_of(response: Any) -> list[Any]:
    return [item for item in response.output if item.type == "function_call"]


@check
def whole_text(client: Any, told: Any) -> None:
    response = ask(client, told["question"])
    assert response.output_text == told["answer"]
    assert (response.object, response.status, response.error) == ("response", "completed", None)
    (message,) = response.output
    assert (message.type, message.role, message.status) == ("message", "assistant", "completed")
    assert response.id.startswith("resp_")
    assert message.id.startswith("msg_")


@check
def input_as_items(client: Any, told: Any) -> None:
    parts = [{"type": "input_text", "text": told["question"]}]
    for item in ({"role": "user", "content": parts}, {"type": "message", "role": "user", "content": told["question"]}):
        assert ask(client, [item]).output_text == told["answer"]


@check
def instructions(client: Any, told: Any) -> None:
    plain = ask(client, told["question"])
    response = ask(client, told["question"], instructions="You are a helpful assistant.")
    assert response.output_text == told["answer"]
    assert response.instructions == "You are a helpful assistant."
    assert response.usage.input_tokens > plain.usage.input_tokens
    roles = [{"role": "developer", "content": "You are a helpful assistant."}, {"role": "user", "content": "a"}]
    assert ask(client, roles).status == "completed"


@check
def multi_turn_by_items(client: Any, told: Any) -> None:
    first = ask(client, told["question"])
    history = [{"role": "user", "content": told["question"]}, *(item.model_dump() for item in first.output)]
    second = ask(client, [*history, {"role": "user", "content": told["question"]}])
    assert second.output_text == told["answer"]
    assert second.usage.input_tokens > first.usage.input_tokens


@check
def streamed_equals_whole(client: Any, told: Any) -> None:
    seen = events(client, told["question"])
    pieces = [event.delta for event in seen if event.type == "response.output_text.delta"]
    assert "".join(pieces) == told["answer"]
    assert len(pieces) > 3
    (done,) = [event.text for event in seen if event.type == "response.output_text.done"]
    assert done == seen[-1].response.output_text == told["answer"]
    assert seen[-1].response.usage == ask(client, told["question"]).usage or seen[-1].response.usage.total_tokens > 0


@check
def event_order_and_numbers(client: Any, told: Any) -> None:
    seen = events(client, told["question"])
    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    kinds = [event.type.removeprefix("response.") for event in seen if not event.type.endswith("text.delta")]
    assert kinds == [
        "created", "in_progress", "output_item.added", "content_part.added", "output_text.done", "content_part.done",
        "output_item.done", "completed",
    ]  # fmt: skip
    assert {event.response.id for event in seen if hasattr(event, "response")} == {seen[0].response.id}
    assert len({event.item_id for event in seen if hasattr(event, "item_id")}) == 1


@check
def stream_helper(client: Any, told: Any) -> None:
    with client.responses.stream(model="any", input=told["question"], temperature=0) as stream:
        snapshots = [event.snapshot for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert snapshots[-1] == final.output_text == told["answer"]


@check
def tools_whole(client: Any, told: Any) -> None:
    response = ask(client, told["calls"]["prompt"], tools=tools(told))
    calls = calls_of(response)
    assert [{"name": call.name, "arguments": json.loads(call.arguments)} for call in calls] == told["calls"]["calls"]
    assert len({call.call_id for call in calls} | {call.id for call in calls}) == 2 * len(calls)
    assert [tool.name for tool in response.tools] == [tool["name"] for tool in tools(told)]


@check
def tools_streamed(client: Any, told: Any) -> None:
    seen = events(client, told["calls"]["prompt"], tools=tools(told))
    joined: dict[str, str] = {}
    for event in seen:
        if event.type == "response.function_call_arguments.delta":
            joined[event.item_id] = joined.get(event.item_id, "") + event.delta
    expected = told["calls"]["calls"]
    assert [json.loads(text) for text in joined.values()] == [call["arguments"] for call in expected]
    done = [event for event in seen if event.type == "response.function_call_arguments.done"]
    assert [event.arguments for event in done] == list(joined.values())
    added = [event.item for event in seen if event.type == "response.output_item.added"]
    assert [item.name for item in added if item.type == "function_call"] == [call["name"] for call in expected]
    assert [call.arguments for call in calls_of(seen[-1].response)] == list(joined.values())


@check
def tool_loop(client: Any, told: Any) -> None:
    history: list[Any] = [{"role": "user", "content": told["calls"]["prompt"]}]
    response = ask(client, history, tools=tools(told))
    history += [item.model_dump() for item in response.output]
    history += [
        {"type": "function_call_output", "call_id": call.call_id, "output": result}
        for call, result in zip(calls_of(response), told["calls"]["results"], strict=True)
    ]
    assert ask(client, history, tools=tools(told)).output_text == told["calls"]["follow_up"]


@check
def tool_choice_required_and_named(client: Any, told: Any) -> None:
    (first, *_) = tools(told)
    limit = {"max_output_tokens": 300}
    assert calls_of(ask(client, told["calls"]["prompt"], tools=[first], tool_choice="required", **limit))
    named = {"type": "function", "name": first["name"]}
    response = ask(client, told["calls"]["prompt"], tools=tools(told), tool_choice=named, **limit)
    assert {call.name for call in calls_of(response)} == {first["name"]}
    assert response.tool_choice.name == first["name"]
    response = ask(client, told["question"], tools=tools(told), tool_choice="none")
    assert response.output_text == told["answer"]


@check
def tools_of_a_namespace(client: Any, told: Any) -> None:
    expected = [(call["name"], call["arguments"]) for call in told["calls"]["calls"]]
    (first, *_), others = tools(told), [{"type": "web_search"}]
    space = {"type": "namespace", "name": "places", "description": "Of places.", "tools": [first]}
    forced = {"tool_choice": "required", "max_output_tokens": 300}
    response = ask(client, told["calls"]["prompt"], tools=[space, *others], **forced)
    calls = calls_of(response)
    assert {(call.name, call.namespace) for call in calls} == {(expected[0][0], "places")}
    assert [tool.type for tool in response.tools] == ["namespace"]
    seen = events(client, told["calls"]["prompt"], tools=[space, *others], **forced)
    added = [event.item for event in seen if event.type == "response.output_item.added"]
    assert {(item.name, item.namespace) for item in added if item.type == "function_call"} == {
        (calls[0].name, "places")
    }
    history = [{"role": "user", "content": told["calls"]["prompt"]}, *(item.model_dump() for item in response.output)]
    history += [{"type": "function_call_output", "call_id": call.call_id, "output": "5"} for call in calls]
    assert ask(client, history, tools=[space, *others]).status == "completed"


@check
def a_custom_tool(client: Any, told: Any) -> None:
    note = {"type": "custom", "name": "note", "description": "Notes a text", "format": {"type": "text"}}
    asked = {"tools": [note], "tool_choice": {"type": "custom", "name": "note"}, "max_output_tokens": 300}
    response = ask(client, told["short_call"], **asked)
    call, *_ = response.output
    assert (call.type, call.name, response.tool_choice.name) == ("custom_tool_call", "note", "note")
    assert isinstance(call.input, str)
    seen = events(client, told["short_call"], **asked)
    items = [event.item for event in seen if event.type == "response.output_item.done"]
    for item in items:
        of_it = [event for event in seen if getattr(event, "item_id", None) == item.id]
        pieces = [event.delta for event in of_it if event.type == "response.custom_tool_call_input.delta"]
        (done,) = [event.input for event in of_it if event.type == "response.custom_tool_call_input.done"]
        assert "".join(pieces) == done == item.input
    assert [item.type for item in seen[-1].response.output] == [item.type for item in items]
    output = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "done"}
    history = [{"role": "user", "content": told["short_call"]}, call.model_dump(), output]
    assert ask(client, history, tools=[note]).status == "completed"


@check
def json_schema(client: Any, told: Any) -> None:
    form = {"type": "json_schema", "name": "person", "schema": told["json"]["schema"], "strict": True}
    response = ask(client, told["json"]["prompt"], text={"format": form})
    assert json.loads(response.output_text) == told["json"]["answer"]
    assert response.text.format.name == "person"


class Person(pydantic.BaseModel):
    name: str
    born: int
    fields: list[str]


@check
def parse_with_pydantic(client: Any, told: Any) -> None:
    response = client.responses.parse(model="any", input=told["json"]["prompt"], temperature=0, text_format=Person)
    assert response.output_parsed.model_dump() == told["json"]["answer"]


@check
def max_output_tokens_is_incomplete(client: Any, told: Any) -> None:
    response = ask(client, told["endless"], max_output_tokens=5)
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert (response.output[0].status, response.usage.output_tokens) == ("incomplete", 5)
    seen = events(client, told["endless"], max_output_tokens=5)
    assert seen[-1].type == "response.incomplete"
    assert seen[-1].response.output_text == response.output_text


@check
def logprobs(client: Any, told: Any) -> None:
    asked = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    (part,) = ask(client, told["question"], **asked).output[0].content
    assert b"".join(bytes(entry.bytes) for entry in part.logprobs).decode() == told["answer"]
    assert {len(entry.top_logprobs) for entry in part.logprobs} == {2}
    seen = events(client, told["question"], **asked)
    streamed = [entry.token for event in seen if event.type.endswith("text.delta") for entry in event.logprobs]
    assert streamed == [entry.token for entry in part.logprobs]


@check
def reasoning_item(client: Any, told: Any) -> None:
    asked = told["reasoning"]
    response = ask(client, asked["prompt"])
    thought, message = response.output
    assert (thought.type, message.type) == ("reasoning", "message")
    assert thought.content[0].text.strip() == asked["thought"]
    assert response.output_text.strip() == asked["answer"]
    assert response.usage.output_tokens_details.reasoning_tokens > 0
    seen = events(client, asked["prompt"])
    pieces = [event.delta for event in seen if event.type == "response.reasoning_text.delta"]
    assert "".join(pieces) == thought.content[0].text
    assert seen[-1].response.output_text == response.output_text
    history = [{"role": "user", "content": asked["prompt"]}, *(item.model_dump() for item in response.output)]
    assert ask(client, [*history, {"role": "user", "content": told["question"]}]).status == "completed"


@check
def errors_name_the_field(client: Any, told: Any) -> None:
    error = refused(lambda: ask(client, told["question"], top_p=3))
    assert names(error, "top_p", told)
    assert error.type == ("invalid_request_error" if told["bodies"] else None)


@check
def without_a_store(client: Any, told: Any) -> None:
    if told["store"]:
        return
    for wanted in (False, True):
        assert ask(client, told["question"], store=wanted).store is False
    error = refused(lambda: ask(client, told["question"], previous_response_id="resp_1"))
    assert names(error, "previous_response_id", told)
    refused(lambda: client.responses.retrieve("resp_1"), openai.NotFoundError)


@check
def with_a_store(client: Any, told: Any) -> None:
    if not told["store"]:
        return
    first = ask(client, told["question"])
    assert first.store is True
    second = ask(client, told["question"], previous_response_id=first.id)
    assert second.output_text == told["answer"]
    assert second.previous_response_id == first.id
    assert second.usage.input_tokens > first.usage.input_tokens
    assert client.responses.retrieve(first.id) == first
    items = client.responses.input_items.list(second.id, order="asc").data
    assert [item.content[0].text for item in items] == [told["question"], told["answer"], told["question"]]
    client.responses.delete(first.id)
    refused(lambda: client.responses.retrieve(first.id), openai.NotFoundError)
    refused(lambda: client.responses.delete(first.id), openai.NotFoundError)
    error = refused(lambda: ask(client, "a", previous_response_id=first.id))
    assert error.code == ("previous_response_not_found" if told["bodies"] else None)
    assert names(error, "previous_response_id", told)
    third = ask(client, told["question"], previous_response_id=second.id, stream=True)
    assert list(third)[-1].response.output_text == told["answer"]


if __name__ == "__main__":
    main(make)
