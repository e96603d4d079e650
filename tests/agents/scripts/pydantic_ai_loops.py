"""Pydantic AI: an agent whose events are streamed but for one loop, and whose histories are kept as JSON."""

from __future__ import annotations

from typing import Any

import world
from configured import model
from fastmcp.client.transports import StdioTransport
from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, ModelMessagesTypeAdapter, ModelRetry, NativeOutput, Tool
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelRequest, PartDeltaEvent, TextPartDelta
from pydantic_ai.run import AgentRunResult, AgentRunResultEvent


class Number(BaseModel):
    """A number of a file."""

    number: int


def read_file(path: str) -> str:
    """Reads a file."""
    try:
        return world.read_file(path)
    except FileNotFoundError as error:
        raise ModelRetry(str(error)) from error


def look() -> BinaryContent:
    """What the camera sees."""
    return BinaryContent(world.PICTURE, media_type="image/png")


def agent(**more: Any) -> Agent[None, Any]:
    return Agent(model, instructions=world.SYSTEM, tools=[read_file, look, world.flood], **more)


def told(ran: AgentRunResult[Any]) -> dict[str, Any]:
    thoughts, results = [], []
    for message in ran.new_messages():
        for part in message.parts:
            if part.part_kind == "thinking":
                # Of responses it is the reasoning itself, not a summary.
                thoughts.append(part.content or "".join((part.provider_details or {}).get("raw_content", ())))
            elif part.part_kind in ("tool-return", "retry-prompt") and isinstance(message, ModelRequest):
                results += [part.content] if isinstance(part.content, str) else []
    return {"answer": str(ran.output), "thoughts": thoughts, "results": results}


async def streamed(question: Any, history: Any = None) -> dict[str, Any]:
    ran, text = None, ""
    async with agent().run_stream_events(question, message_history=history) as events:
        async for event in events:
            if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                text += event.delta.content_delta
            if isinstance(event, AgentRunResultEvent):
                ran = event.result
    assert ran is not None
    assert ran.output.endswith(text), text
    return {**told(ran), "history": ran.all_messages_json().decode()}


async def whole(question: str) -> dict[str, Any]:
    return told(await agent().run(question))


async def picture(question: str) -> dict[str, Any]:
    return await streamed([question, BinaryContent(world.PICTURE, media_type="image/png")])


async def mcp(question: str) -> dict[str, Any]:
    command, *arguments = world.WEATHER
    server = MCPToolset(StdioTransport(command, arguments))
    return told(await agent(toolsets=[server]).run(question))


async def again(first: str, second: str) -> dict[str, Any]:
    history = (await streamed(first))["history"]
    return await streamed(second, ModelMessagesTypeAdapter.validate_json(history))


async def search(question: str) -> dict[str, Any]:
    hidden = Tool(read_file, defer_loading=True)
    return told(await Agent(model, instructions=world.SYSTEM, tools=[look, hidden]).run(question))


async def by_tool(question: str) -> dict[str, Any]:
    return told(await agent(output_type=Number).run(question))


async def native(question: str) -> dict[str, Any]:
    return told(await agent(output_type=NativeOutput(Number)).run(question))


world.play(
    {"tool": streamed, "several": streamed, "error": streamed, "look": streamed, "full": streamed}
    | {"whole": whole, "picture": picture, "mcp": mcp, "again": again}
    | {"by-tool": by_tool, "retried": by_tool, "native": native, "search": search}
)
