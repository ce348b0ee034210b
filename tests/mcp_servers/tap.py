"""Stands between a server and whatever started it, and kills at a point of a call.

    python tap.py PLACE COMMAND …

Each call of a tool that reaches the server is a line in PLACE/calls. PLACE/do says what happens at the next
call of a tool, and is gone then: `TOOL before|after WHO …`. Before: the server has not seen the call. After:
it has answered, and the answer is still here. WHO is killed: `client`, `proxy`, `server`; `hold` waits for
PLACE/go.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any


class Tap:
    """The two directions, a thread each."""

    def __init__(self, place: Path, command: list[str]) -> None:
        self._place = place
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._tools: dict[Any, str] = {}
        """The tools of the calls under way, by their ids."""
        self._above = os.getppid()
        started = Path(f"/proc/{self._above}")
        self._is_proxied = b"\0mcp\0proxy\0" in (started / "cmdline").read_bytes()
        parent = int((started / "stat").read_text().rpartition(")")[2].split()[1])
        self._client = parent if self._is_proxied else self._above

    def run(self) -> int:
        """Pass on what is said until the server has ended."""
        threading.Thread(target=self._pass_to_server, daemon=True).start()
        assert self._server.stdout is not None
        for line in self._server.stdout:
            message = json.loads(line)
            tool = self._tools.pop(message.get("id"), None) if "method" not in message else None
            if tool is not None:
                self._happen(tool, "after")
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
        return self._server.wait()

    def _pass_to_server(self) -> None:
        assert self._server.stdin is not None
        for line in sys.stdin.buffer:
            message = json.loads(line)
            if message.get("method") == "tools/call":
                tool = message["params"]["name"]
                self._happen(tool, "before")
                self._tools[message["id"]] = tool
                with open(self._place / "calls", "a") as calls:
                    calls.write(f"{tool}\n")
            self._server.stdin.write(line)
            self._server.stdin.flush()
        self._server.stdin.close()

    def _happen(self, tool: str, when: str) -> None:
        order = self._place / "do"
        words = order.read_text().split() if order.exists() else []
        if words[:2] != [tool, when]:
            return
        order.unlink()
        for who in words[2:]:
            if who == "hold":
                (self._place / "held").touch()
                while not (self._place / "go").exists():
                    time.sleep(0.01)
            else:
                self._kill(who)

    def _kill(self, who: str) -> None:
        if who == "server":
            self._server.kill()
            self._server.wait()
            os.kill(os.getpid(), signal.SIGKILL)
        assert who != "proxy" or self._is_proxied
        _kill_and_wait(self._above if who == "proxy" else self._client)


def _kill_and_wait(process: int) -> None:
    """Until its pipes are closed: what is written into one before counts as delivered."""
    handle = os.pidfd_open(process)
    os.kill(process, signal.SIGKILL)
    select.select([handle], [], [])
    os.close(handle)


if __name__ == "__main__":
    sys.exit(Tap(Path(sys.argv[1]), sys.argv[2:]).run())
