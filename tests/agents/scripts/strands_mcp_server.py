"""A server of MCP on standard input and output, with one tool."""

from __future__ import annotations

from mcp.server.fastmcp import FastMCP  # type: ignore[attr-defined]  # .venv has a newer one

server = FastMCP("numbers")


@server.tool()
def double(number: int) -> int:
    """Twice the number."""
    return 2 * number


server.run()
