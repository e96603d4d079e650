"""An MCP server over standard input and output, without dependencies: the weather of a city, and a photo of it.

usage: weather_stdio.py PNG
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [
    {"name": "weather", "description": "The weather of a city", "inputSchema": CITY},
    {"name": "photo", "description": "A photo of a city", "inputSchema": CITY},
]


def called(name: str, city: str) -> dict[str, Any]:
    """The result of a call; there is no weather but of Bern."""
    if name == "photo":
        data = base64.b64encode(Path(sys.argv[1]).read_bytes()).decode()
        return {"content": [{"type": "image", "data": data, "mimeType": "image/png"}]}
    known = city == "Bern"
    text = "It snows in Bern." if known else f"There is no city {city}."
    return {"content": [{"type": "text", "text": text}], "isError": not known}


def answer(method: str, parameters: dict[str, Any]) -> dict[str, Any] | None:
    """The result of a request; None for a method that is not there."""
    if method == "initialize":
        server = {"name": "weather", "version": "1"}
        version = parameters["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return called(parameters["name"], parameters["arguments"]["city"])
    return {} if method == "ping" else None


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:  # a notification
        continue
    result = answer(request["method"], request.get("params") or {})
    outcome = {"error": {"code": -32601, "message": "not served"}} if result is None else {"result": result}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **outcome}), flush=True)
