"""OpenAI Agents SDK: a runner with a session, streamed but for one loop."""

# `agents` is the SDK, not the folder of this one.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from pathlib import Path
from typing import Any

import world
from agents import Agent, Runner, SQLiteSession, ToolOutputImage, ToolSearchTool, function_tool, tool_namespace
from agents.mcp import MCPServerStdio
from agents.result import RunResultBase
from configured import model
from pydantic import BaseModel

TOOLS = [function_tool(world.read_file), function_tool(world.flood)]


class Number(BaseModel):
    """A number of a file."""

    number: int


@function_tool
def look() -> ToolOutputImage:
    """What the camera sees."""
    return ToolOutputImage(image_url=world.PICTURE_URL)


def agent(**more: Any) -> Agent:
    return Agent("Keeper", instructions=world.SYSTEM, model=model, tools=[*TOOLS, look], **more)


def told(ran: RunResultBase) -> dict[str, Any]:
    thoughts, results = [], []
    for item in ran.new_items:
        if item.type == "reasoning_item":
            texts = [*(item.raw_item.content or ()), *item.raw_item.summary]
            thoughts.append(texts[0].text)
        elif item.type == "tool_call_output_item" and not isinstance(item.output, ToolOutputImage):
            results.append(item.output["text"] if isinstance(item.output, dict) else item.output)
    return {"answer": ran.final_output, "thoughts": thoughts, "results": results}


async def streamed(question: Any, **more: Any) -> dict[str, Any]:
    run = Runner.run_streamed(agent(), question, **more)
    text = ""
    async for event in run.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            text += event.data.delta
    assert text.endswith(run.final_output), text
    return told(run)


async def whole(question: str) -> dict[str, Any]:
    return told(await Runner.run(agent(), question))


async def picture(question: str) -> dict[str, Any]:
    parts = [{"type": "input_text", "text": question}, {"type": "input_image", "image_url": world.PICTURE_URL}]
    return await streamed([{"role": "user", "content": parts}])


async def mcp(question: str) -> dict[str, Any]:
    command, *arguments = world.WEATHER
    async with MCPServerStdio({"command": command, "args": arguments}) as server:
        return told(await Runner.run(agent(mcp_servers=[server]), question))


async def search(question: str) -> dict[str, Any]:
    """A tool of a namespace, that OpenAI's own servers would find."""
    files = tool_namespace(
        name="files", description="Files.", tools=[function_tool(world.read_file, defer_loading=True)]
    )
    searching = Agent("Keeper", instructions=world.SYSTEM, model=model, tools=[*files, ToolSearchTool()])
    return told(await Runner.run(searching, question))


async def structured(question: str) -> dict[str, Any]:
    ran = await Runner.run(agent(output_type=Number), question)
    return {**told(ran), "answer": repr(ran.final_output)}


async def again(first: str, second: str) -> dict[str, Any]:
    file = Path("sessions.db")
    await streamed(first, session=SQLiteSession("a", file))
    return await streamed(second, session=SQLiteSession("a", file))


world.play(
    {"tool": streamed, "several": streamed, "error": streamed, "look": streamed, "full": streamed}
    | {"whole": whole, "picture": picture, "mcp": mcp, "again": again, "structured": structured, "search": search}
)
