"""An MCP server over stdio, of one tool and nothing but the standard library; what it does not know it refuses."""

from __future__ import annotations

import json
import sys
from typing import Any

TOOL = {
    "name": "weather",
    "description": "The weather of a city.",
    "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def answer(method: str, given: dict[str, Any]) -> dict[str, Any] | None:
    """The result of a request, None for what is not known here."""
    if method == "initialize":
        return {
            "protocolVersion": given["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "weather", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": f"Snow in {given['arguments']['city']}."}], "isError": False}
    return {} if method == "ping" else None


for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    result = answer(asked["method"], asked.get("params") or {})
    found = {"error": {"code": -32601, "message": "Method not found"}} if result is None else {"result": result}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **found}), flush=True)
