"""A small MCP server on stdio, in the era with a handshake. Without a library, it adds little to a call."""

from __future__ import annotations

import json
import sys
from typing import Any

_ANY = {"type": "object", "properties": {"text": {"type": "string"}}}
TOOLS = [
    {"name": "look", "inputSchema": _ANY, "annotations": {"readOnlyHint": True}},
    {"name": "act", "inputSchema": _ANY, "annotations": {"readOnlyHint": False}},
]


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The result of a request."""
    match method:
        case "initialize":
            about = {"name": "bench", "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": about}
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call":
            return {"content": [{"type": "text", "text": params["arguments"]["text"]}]}
    return {}


def main() -> None:
    """Answer until there is no more to read."""
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            result = answer(message["method"], message.get("params", {}))
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)


if __name__ == "__main__":
    main()
