"""Azure's own Python client against a server: `python azure_client.py BASE_URL`.

It needs the package azure-ai-inference alone and imports nothing of this project, so that it can run in an environment
of its own. The server serves the demo model, with the tool parser `hermes`. What the client makes of the answers is
asserted; prints `{}` at the end.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from azure.ai.inference import ChatCompletionsClient, EmbeddingsClient
from azure.ai.inference.models import (
    AssistantMessage,
    ChatCompletionsToolDefinition,
    CompletionsFinishReason,
    FunctionDefinition,
    JsonSchemaFormat,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from azure.core.credentials import AzureKeyCredential
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError

PROMPT = "What is Deep Learning?"
ANSWER = "Deep Learning is machine learning with neural networks of many layers."
WEATHER_PROMPT = "What is the weather in Paris?"
WEATHER_RESULT = '{"sky": "clear", "celsius": 21}'
WEATHER_ANSWER = "It is clear in Paris, with 21 degrees."
WEATHER = ChatCompletionsToolDefinition(
    function=FunctionDefinition(
        name="get_weather",
        description="The weather in a city",
        parameters={
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    )
)


def whole(client: ChatCompletionsClient) -> None:
    """A whole answer."""
    answer = client.complete(messages=[UserMessage(PROMPT)], temperature=0, max_tokens=100, seed=1)
    (choice,) = answer.choices
    assert choice.message.role == "assistant"
    assert choice.message.content == ANSWER, choice.message.content
    assert choice.finish_reason == CompletionsFinishReason.STOPPED
    assert choice.message.tool_calls is None
    assert answer.id.startswith("chatcmpl-")
    assert answer.created.year >= 2024
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0
    cut = client.complete(messages=[SystemMessage("Be brief."), UserMessage(PROMPT)], temperature=0, max_tokens=2)
    assert cut.choices[0].finish_reason == CompletionsFinishReason.TOKEN_LIMIT_REACHED
    assert cut.usage.completion_tokens == 2


def streamed(client: ChatCompletionsClient) -> None:
    """The same as a stream."""
    text = ""
    finishes: list[Any] = []
    ids: set[str] = set()
    updates = 0
    for update in client.complete(messages=[UserMessage(PROMPT)], temperature=0, stream=True):
        updates += 1
        ids.add(update.id)
        for choice in update.choices:
            text += choice.delta.content or ""
            if choice.finish_reason is not None:
                finishes.append(choice.finish_reason)
    assert text == ANSWER, text
    assert finishes == [CompletionsFinishReason.STOPPED], finishes
    assert len(ids) == 1
    assert updates > 10


def tool(client: ChatCompletionsClient) -> None:
    """A call, whole and streamed, and the conversation going on after it."""
    asked: dict[str, Any] = {"messages": [UserMessage(WEATHER_PROMPT)], "tools": [WEATHER], "temperature": 0}
    answer = client.complete(**asked)
    (choice,) = answer.choices
    assert choice.finish_reason == CompletionsFinishReason.TOOL_CALLS, choice
    (call,) = choice.message.tool_calls or []
    arguments = json.loads(call.function.arguments)
    assert (call.function.name, arguments) == ("get_weather", {"city": "Paris"})
    name = pieces = ""
    finish = None
    for update in client.complete(**asked, stream=True):
        for one in update.choices:
            finish = one.finish_reason or finish
            for piece in one.delta.tool_calls or []:
                name += piece.function.name or ""
                pieces += piece.function.arguments or ""
    assert (name, json.loads(pieces)) == ("get_weather", arguments)
    assert finish == CompletionsFinishReason.TOOL_CALLS
    history = [
        UserMessage(WEATHER_PROMPT),
        AssistantMessage(tool_calls=[call]),
        ToolMessage(WEATHER_RESULT, tool_call_id=call.id),
    ]
    after = client.complete(messages=history, tools=[WEATHER], temperature=0)
    assert after.choices[0].message.content == WEATHER_ANSWER, after.choices[0].message.content


def response_format(client: ChatCompletionsClient) -> None:
    """JSON by a schema."""
    schema = {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    }
    wanted = JsonSchemaFormat(name="city", schema=schema, strict=True)
    asked: dict[str, Any] = {"messages": [UserMessage(PROMPT)], "temperature": 0, "max_tokens": 60}
    # The model would rather think than name a city, and a guide lets it.
    extras = {"chat_template_kwargs": {"enable_thinking": False}}
    answer = client.complete(**asked, response_format=wanted, model_extras=extras)
    assert json.loads(answer.choices[0].message.content)["city"] in {"Paris", "Rome"}


def error_of(ask: Callable[[], Any]) -> HttpResponseError:
    """What the client raises."""
    try:
        answer = ask()
    except HttpResponseError as error:
        return error
    raise AssertionError(f"not refused: {answer}")


def told(error: HttpResponseError, expected: int) -> dict[str, Any]:
    """An error's status, and its code, which the client has in the response."""
    assert error.status_code == expected, error
    assert error.response is not None
    code = error.response.headers["x-ms-error-code"]
    body = json.loads(error.response.text())
    assert body["status"] == expected
    assert body.get("code", code) == code
    return {"status": error.status_code, "code": code, "detail": body.get("detail"), "message": body["message"]}


def refused(client: ChatCompletionsClient, expected: int, **given: Any) -> dict[str, Any]:
    """A chat that is an error."""
    request: dict[str, Any] = {"messages": [UserMessage(PROMPT)], **given}
    return told(error_of(lambda: client.complete(**request)), expected)


def extras(client: ChatCompletionsClient) -> None:
    """model_extras: with them the client itself says pass-through; a header in the call goes first."""
    asked: dict[str, Any] = {"messages": [UserMessage(PROMPT)], "temperature": 0}
    passed = client.complete(**asked, model_extras={"min_tokens": 1, "stop_token_ids": [], "n": 2})
    assert [choice.message.content for choice in passed.choices] == [ANSWER, ANSWER]
    unsupported = refused(client, 422, model_extras={"top_k": -7})
    assert unsupported["detail"] == {"loc": ["top_k"], "value": "-7"}

    def ask(mode: str | None) -> Any:
        """Without model_extras the client sends no header of its own."""
        body = {"messages": [{"role": "user", "content": PROMPT}], "temperature": 0, "n": 2}
        return client.complete(body=body, headers={} if mode is None else {"extra-parameters": mode})

    counts = {mode: len(ask(mode).choices) for mode in ("ignore", "drop", "pass-through")}
    assert counts == {"ignore": 1, "drop": 1, "pass-through": 2}, counts
    told(error_of(partial(ask, None)), 400)


def info(client: ChatCompletionsClient) -> None:
    """/info."""
    model = client.get_model_info()
    assert model.model_type == "chat_completion"
    assert model.model_name == client.complete(messages=[UserMessage(PROMPT)], max_tokens=1).model


def other_routes(url: str, credential: AzureKeyCredential) -> None:
    """Embeddings are another model's."""
    with EmbeddingsClient(url, credential) as client:
        error = error_of(lambda: client.embed(input=["a"]))
    assert isinstance(error, ResourceNotFoundError)
    told(error, 404)


def main(url: str) -> None:
    """Everything in turn."""
    credential = AzureKeyCredential("none")
    with ChatCompletionsClient(url, credential) as client:
        for check in (whole, streamed, tool, response_format, extras, info):
            check(client)
        wrong = refused(client, 422, temperature=-1)
        assert wrong["detail"]["loc"] == ["temperature"]
    other_routes(url, credential)
    print("{}")


if __name__ == "__main__":
    main(sys.argv[1])
