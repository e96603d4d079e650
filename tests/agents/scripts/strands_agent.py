"""A Strands agent in a folder of its own: `python strands_agent.py '{"model": "...", "asked": [...], ...}'`.

It is told
    model      Python that assigns `model`, as docs/agents.md has it
    stream     whether answers are to be streamed
    asked      what it is asked, one after the other: texts, or lists of content blocks, where an image is {"png": path}
    manager    "sliding", "summarizing" or nothing
    session    the name of a conversation that is kept, or nothing
    mcp        the command of an MCP server, or nothing
and prints, as JSON
    answers    what the agent said to each; where it raised an error, the error's type and text
    thought    the words of the reasoning that it showed
    results    of each result of a tool: its status and its text
    usage      how many tokens went in and out, as it counted them
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from mcp import StdioServerParameters, stdio_client
from strands import Agent, tool
from strands.agent.conversation_manager import SlidingWindowConversationManager, SummarizingConversationManager
from strands.session import FileSessionManager
from strands.tools.mcp import MCPClient

MANAGERS = {
    "sliding": SlidingWindowConversationManager,
    "summarizing": lambda: SummarizingConversationManager(summary_ratio=0.8, preserve_recent_messages=1),
}


@tool
def read(path: str) -> str:
    """Reads a file.

    Args:
        path: Its path.
    """
    return Path(path).read_text()


@tool
def look(path: str) -> dict[str, Any]:
    """Looks at a picture.

    Args:
        path: Its path.
    """
    return {"status": "success", "content": [{"text": f"This is {path}."}, picture(path)]}


def picture(path: str) -> dict[str, Any]:
    return {"image": {"format": "png", "source": {"bytes": Path(path).read_bytes()}}}


def prompt(asked: str | list[dict[str, str]]) -> Any:
    """What one is asked, as the agent takes it."""
    if isinstance(asked, str):
        return asked
    return [picture(block["png"]) if "png" in block else block for block in asked]


def results(messages: list[Any]) -> list[list[str]]:
    blocks = [block["toolResult"] for message in messages for block in message["content"] if "toolResult" in block]
    return [[block["status"], " ".join(part.get("text", "") for part in block["content"])] for block in blocks]


async def main() -> None:
    told = json.loads(sys.argv[1])
    named: dict[str, Any] = {}
    exec(told["model"], named)
    model = named["model"]
    if not told.get("stream", True):
        (model.payload_config if hasattr(model, "payload_config") else model.config)["stream"] = False
    thought: list[str] = []
    tools: list[Any] = [read, look]
    if told.get("mcp"):
        command, *arguments = told["mcp"]
        tools.append(MCPClient(lambda: stdio_client(StdioServerParameters(command=command, args=arguments))))
    agent = Agent(
        model=model,
        tools=tools,
        system_prompt="You read files.",
        agent_id="reader",
        callback_handler=lambda **event: thought.append(event.get("reasoningText", "")),
        conversation_manager=MANAGERS.get(told.get("manager", ""), lambda: None)(),
        session_manager=FileSessionManager(told["session"], storage_dir="sessions") if told.get("session") else None,
    )

    async def answer(asked: str | list[dict[str, str]]) -> str:
        try:
            return str(await agent.invoke_async(prompt(asked))).strip()
        except Exception as error:  # noqa: BLE001 - whatever the user would see
            return f"{type(error).__name__}: {error}"

    answers = [await answer(asked) for asked in told["asked"]]
    usage = agent.event_loop_metrics.accumulated_usage
    summary = {"answers": answers, "thought": "".join(thought).split(), "results": results(agent.messages)}
    print(json.dumps({**summary, "usage": [usage["inputTokens"], usage["outputTokens"]]}))


asyncio.run(main())
