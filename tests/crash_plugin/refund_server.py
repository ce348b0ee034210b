"""An MCP server on stdio whose payments are requests to an HTTP world.

    python refund_server.py PLACE HOST:PORT

It keeps one connection open all its life, and does not end by itself when its client is gone.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.mcp.plain_server import Server, text


class RefundServer(Server):
    """The tools `pay` and `find_payment`."""

    def __init__(self, place: Path, address: str) -> None:
        super().__init__(place, "both")
        self.client = os.getppid()
        self.service = http.client.HTTPConnection(address)

    def call(self, name: str, args: dict[str, Any]) -> dict[str, Any]:
        """Ask the service."""
        body = json.dumps(args, sort_keys=True)
        self.service.request("POST" if name == "pay" else "GET", "/payments", body)
        said = json.loads(self.service.getresponse().read())
        found = name == "pay" or any(one["body"] == args for one in said)
        return {"content": [text("yes" if found else "no")]}


if __name__ == "__main__":
    server = RefundServer(Path(sys.argv[1]), sys.argv[2])
    server.run()
    if os.getppid() != server.client:
        signal.pause()
