"""An MCP server over standard input and output, of no dependency: `read_note` by its number, `see_note` as an image."""

from __future__ import annotations

import json
import sys
from typing import Any

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAIAAAAlC+aJAAAAX0lEQVR4nO3PQQ0AIBDAMMC/50MEj4ZkVbDtWX87OuBVA1oDWgNaA1oDWgNaA1oD"
    "WgNaA1oDWgNaA1oDWgNaA1oDWgNaA1oDWgNaA1oDWgNaA1oDWgNaA9oFUoUBf3Xr7AgAAAAASUVORK5CYII="
)
"""A red square of 64 pixels."""
NUMBER = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
TOOLS = [
    {"name": "read_note", "description": "Reads a note.", "inputSchema": NUMBER},
    {"name": "see_note", "description": "Shows a note.", "inputSchema": {"type": "object", "properties": {}}},
]


def called(name: str, number: int) -> dict[str, Any]:
    """What a tool gives; there is one note."""
    if name == "see_note":
        return {"content": [{"type": "image", "data": PNG, "mimeType": "image/png"}]}
    if number != 1:
        return {"content": [{"type": "text", "text": f"There is no note {number}."}], "isError": True}
    return {"content": [{"type": "text", "text": "Buy 7 apples."}]}


def answer(method: str, given: dict[str, Any]) -> dict[str, Any]:
    """The result of a request."""
    if method == "initialize":
        about = {"name": "notes", "version": "1"}
        return {"protocolVersion": given["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return called(given["name"], given.get("arguments", {}).get("number", 0))
    return {}


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        result = answer(request["method"], request.get("params") or {})
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
