"""A small MCP server on stdio, in both eras of the protocol. Without a library it starts in no time.

    python plain_server.py PLACE [ERA]    ERA: both (default), legacy or modern

What its tools do is a line in a file of PLACE. A file `do` there says what happens in the next call of
`pay`, and is gone then: `kill client` or `kill server` after the effect, `die first` before it, `hang`,
`error`, `garbage`, `change`: says that the list of tools, which is in `tools.json`, has changed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

MODERN, LEGACY = "2026-07-28", "2025-11-25"
VERSION = "io.modelcontextprotocol/protocolVersion"

PAY = {
    "name": "pay",
    "description": "Pay.",
    "inputSchema": {
        "type": "object",
        "properties": {"to": {"type": "string"}, "cents": {"type": "integer", "minimum": 1}},
        "required": ["to", "cents"],
    },
}
FIND = {
    "name": "find_payment",
    "description": "Find a payment.",
    "inputSchema": PAY["inputSchema"],
    "annotations": {"readOnlyHint": True},
}
SET = {
    "name": "set_limit",
    "description": "Set the limit.",
    "inputSchema": {"type": "object", "properties": {"cents": {"type": "integer"}}, "required": ["cents"]},
    "annotations": {"idempotentHint": True},
}


class Server:
    """The server; what it did is in the files of a folder."""

    def __init__(self, place: Path, era: str) -> None:
        self.place, self.era = place, era

    def note(self, book: str, what: str) -> None:
        """Something happened; it survives this process."""
        with open(self.place / book, "a") as file:
            file.write(f"{what}\n")

    def send(self, **message: Any) -> None:
        """Send a message."""
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()

    def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The result of a request; `LookupError` if there is no such method."""
        modern = VERSION in params.get("_meta", {})
        done = {"resultType": "complete"} if modern else {}
        info = {"name": "plain", "version": "1"}
        if method == "initialize" and self.era != "modern":
            offered = {"tools": {"listChanged": True}}
            return {"protocolVersion": LEGACY, "capabilities": offered, "serverInfo": info}
        if method == "server/discover" and self.era != "legacy":
            kept = {"ttlMs": 0, "cacheScope": "public"}
            return {**done, **kept, "supportedVersions": [MODERN], "capabilities": {"tools": {}}}
        if method == "tools/list":
            self.note("listed", method)
            kept = {"ttlMs": 0, "cacheScope": "public"} if modern else {}
            return {**done, **kept, "tools": self.tools()}
        if method == "tools/call":
            self.note("eras", "modern" if modern else "legacy")
            self.note("meta", json.dumps(params.get("_meta", {})))
            return {**done, **self.call(params["name"], params.get("arguments", {}))}
        raise LookupError(method)

    def tools(self) -> list[dict[str, Any]]:
        """What is offered."""
        listed = self.place / "tools.json"
        return json.loads(listed.read_text()) if listed.exists() else [PAY, FIND, SET]

    def call(self, name: str, args: dict[str, Any]) -> dict[str, Any]:
        """Call a tool."""
        if name == "find_payment":
            paid = self.place / "paid"
            found = paid.exists() and f"{args['to']}:{args['cents']}" in paid.read_text().splitlines()
            return {"content": [text("yes" if found else "no")]}
        if name == "set_limit":
            self.note("limits", str(args["cents"]))
            return {"content": [text("set")]}
        order = self.place / "do"
        do = order.read_text() if order.exists() else ""
        order.unlink(missing_ok=True)
        if do == "die first":
            os.kill(os.getpid(), signal.SIGKILL)
        if do == "hang":
            self.note("hangs", str(os.getpid()))
            return {}
        self.note("paid", f"{args.get('to')}:{args.get('cents')}")
        if do == "kill client":
            os.kill(os.getppid(), signal.SIGKILL)
        if do == "kill server":
            os.kill(os.getpid(), signal.SIGKILL)
        if do == "change":
            self.send(method="notifications/tools/list_changed")
        if do == "garbage":
            return {"content": "nonsense"}
        return {"content": [text("no money" if do == "error" else "paid")], "isError": do == "error"}

    def run(self) -> None:
        """Answer until there is no more to read."""
        self.note("started", str(os.getpid()))
        for line in sys.stdin:
            message = json.loads(line)
            if "id" not in message:
                self.note("told", message["method"])
                continue
            try:
                result = self.answer(message["method"], message.get("params", {}))
            except LookupError:
                self.send(id=message["id"], error={"code": -32601, "message": "Method not found"})
            else:
                if result not in ({}, {"resultType": "complete"}):
                    self.send(id=message["id"], result=result)


def text(said: str) -> dict[str, str]:
    """A block of text."""
    return {"type": "text", "text": said}


if __name__ == "__main__":
    Server(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "both").run()
