"""Anthropic's tool runner for Python, through loops; prints as JSON, of each, the replies that it shows and its error.

usage: anthropic_runner.py EXAMPLE LOOPS PICTURE MCP...

EXAMPLE   a file that makes `runner` of `tools`, `messages` and `stream`
LOOPS     JSON, by their names: questions (each goes on with the conversation), stream, mcp (whether there are the tools
          of a server), late (whether a tool is added after the first reply)
PICTURE   base64; MCP: the server's command
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from anthropic import APIStatusError, beta_tool
from anthropic.lib.tools import ToolError
from anthropic.lib.tools.mcp import mcp_tool
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

example, loops, picture = Path(sys.argv[1]).read_text(), json.loads(sys.argv[2]), sys.argv[3]
FILES = {"a": "42", "b": "43", "long": "word " * 70_000}


@beta_tool
def read(file: str) -> str:
    """Reads a file."""
    return FILES[file]


@beta_tool
def fail() -> str:
    """Fails."""
    raise ToolError("It is broken.")


@beta_tool
def look() -> Any:
    """Looks at the picture."""
    source = {"type": "base64", "media_type": "image/png", "data": picture}
    return [{"type": "text", "text": "Here it is."}, {"type": "image", "source": source}]


@beta_tool
def late(word: str) -> str:
    """Comes late."""
    return f"{word} at last"


def run(loop: dict[str, Any], further: list[Any]) -> dict[str, Any]:
    """What is shown."""
    replies: list[Any] = []
    messages: list[Any] = []
    for question in loop["questions"]:
        messages.append({"role": "user", "content": question})
        made: dict[str, Any] = {
            "tools": [read, fail, look, *further], "messages": messages, "stream": loop["stream"],
        }  # fmt: skip
        exec(example, made)
        runner = made["runner"]
        try:
            for item in runner:
                reply = item.get_final_message() if loop["stream"] else item
                replies.append([block.model_dump() for block in reply.content])
                if loop.get("late") and len(replies) == 1:
                    runner.add_tools(late)
        except APIStatusError as error:
            return {"replies": replies, "status": error.status_code, "error": str(error)}
        messages = [*runner._thread.messages]
    return {"replies": replies}


async def main() -> None:
    command, *arguments = sys.argv[4:]
    async with (
        stdio_client(StdioServerParameters(command=command, args=arguments)) as (reads, writes),
        ClientSession(reads, writes) as session,
    ):
        await session.initialize()
        served = [mcp_tool(tool, session) for tool in (await session.list_tools()).tools]
        shown = {
            name: await anyio.to_thread.run_sync(partial(run, loop, served if loop.get("mcp") else []))
            for name, loop in loops.items()
        }
    print(json.dumps(shown))


anyio.run(main)
