"""LangGraph: LangChain's agent with a checkpointer, streamed but for one loop."""

from __future__ import annotations

from typing import Any

import world
from configured import model
from fastmcp.client.transports import StdioTransport
from langchain.agents import create_agent
from langchain.agents.middleware import ProviderToolSearchMiddleware, SummarizationMiddleware, ToolErrorMiddleware
from langchain.mcp import MCPAdapter
from langchain.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

SAVER = InMemorySaver()
COMPACTED = 40_000
"""Tokens from which on a conversation is compacted."""


@tool
def look() -> list[dict[str, Any]]:
    """What the camera sees."""
    return [{"type": "image", "base64": world.PICTURE_TEXT, "mime_type": "image/png"}]


def agent(*tools: Any, middleware: tuple[Any, ...] = ()) -> Any:
    errors = ToolErrorMiddleware(on_error=lambda error, _: str(error))
    own = [tool(world.read_file), tool(world.flood), look]
    return create_agent(
        model, [*own, *tools], system_prompt=world.SYSTEM, middleware=[errors, *middleware], checkpointer=SAVER
    )


def told(state: dict[str, Any]) -> dict[str, Any]:
    """What came after the last question."""
    messages = state["messages"]
    last = max(at for at, message in enumerate(messages) if isinstance(message, HumanMessage))
    thoughts, results = [], []
    for message in messages[last:]:
        if isinstance(message, AIMessage):
            blocks = [block for block in message.content_blocks if block["type"] == "reasoning"]
            thoughts += [block["reasoning"] for block in blocks if block.get("reasoning")]
        elif isinstance(message, ToolMessage) and message.text:
            results.append(message.text)
    return {"answer": messages[-1].text, "thoughts": thoughts, "results": results}


async def streamed(question: Any, thread: str = "", **more: Any) -> dict[str, Any]:
    made = agent(**more)
    config = {"configurable": {"thread_id": thread or str(question)}}
    given = question if isinstance(question, list) else [HumanMessage(question)]
    text = ""
    async for chunk, _ in made.astream({"messages": given}, config, stream_mode="messages"):
        text += chunk.text if isinstance(chunk, AIMessageChunk) else ""
    state = made.get_state(config).values
    assert text.endswith(state["messages"][-1].text), text
    return told(state)


async def whole(question: str) -> dict[str, Any]:
    config = {"configurable": {"thread_id": question}}
    return told(await agent().ainvoke({"messages": [HumanMessage(question)]}, config))


async def picture(question: str) -> dict[str, Any]:
    parts = [
        {"type": "text", "text": question},
        {"type": "image", "base64": world.PICTURE_TEXT, "mime_type": "image/png"},
    ]
    return await streamed([HumanMessage(content_blocks=parts)])


async def mcp(question: str) -> dict[str, Any]:
    command, *arguments = world.WEATHER
    async with MCPAdapter(StdioTransport(command, arguments)) as server:
        tools = await server.list_tools()
        config = {"configurable": {"thread_id": question}}
        return told(await agent(*tools).ainvoke({"messages": [HumanMessage(question)]}, config))


async def again(first: str, second: str) -> dict[str, Any]:
    await streamed(first, "again")
    return await streamed(second, "again")


async def search(question: str) -> dict[str, Any]:
    return await streamed(question, middleware=(ProviderToolSearchMiddleware(searchable_tools=["read_file"]),))


async def compacted(question: str) -> dict[str, Any]:
    """A history that is longer than the context: so is the first request for its summary."""
    half = "drop " * COMPACTED
    history = [HumanMessage(f"{question} {half}"), AIMessage("Noted."), HumanMessage(half), AIMessage("Noted, too.")]
    summaries = SummarizationMiddleware(
        model, trigger=("tokens", COMPACTED), keep=("messages", 1), trim_tokens_to_summarize=None
    )
    return await streamed([*history, HumanMessage(question)], middleware=(summaries,))


world.play(
    {"tool": streamed, "several": streamed, "error": streamed, "look": streamed, "full": streamed}
    | {"whole": whole, "picture": picture, "mcp": mcp, "again": again, "compacted": compacted, "search": search}
)
