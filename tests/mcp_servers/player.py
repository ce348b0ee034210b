"""A client that plays a script over stdio, message by message, and keeps everything that the server says.

It knows nothing of the protocol but its envelope: so what it keeps is what really came.
"""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeAlias

from tests.crash.fork_server import DEADLINE_S

Json: TypeAlias = Any
Era: TypeAlias = Literal["legacy", "modern"]
LEGACY, MODERN = "2025-11-25", "2026-07-28"
CAPABILITIES = {"roots": {"listChanged": True}, "sampling": {}, "elicitation": {"form": {}}}
_INFO = {"name": "player", "version": "1"}
_RESERVED = "io.modelcontextprotocol"


class Player:
    """A connection to a server. `answers` has what the server is told when it asks."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        era: Era = "legacy",
        answers: Mapping[str, Json] | None = None,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> None:
        self.era, self._answers = era, dict(answers or {})
        self.asked: list[tuple[str, Json]] = []
        """Requests of the server."""
        self.told: list[tuple[str, Json]] = []
        """Its notifications."""
        self._next = 0
        self._lines: queue.Queue[bytes] = queue.Queue()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=directory,
        )
        self.stderr = b""
        self._threads = [threading.Thread(target=one) for one in (self._read, self._read_stderr)]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Player:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> int:
        """End the connection as a client does; the exit code."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            return self.process.wait(DEADLINE_S)
        finally:
            self.process.kill()
            self.process.wait()
            for thread in self._threads:
                thread.join()
            for pipe in (self.process.stdout, self.process.stderr):
                assert pipe is not None
                pipe.close()

    # -- what a client does ------------------------------------------------------------------------

    def begin(self) -> Json:
        """What the server says about itself."""
        if self.era == "modern":
            return self.request("server/discover", {})
        hello = {"protocolVersion": LEGACY, "capabilities": CAPABILITIES, "clientInfo": _INFO}
        answer = self.request("initialize", hello)
        self.notify("notifications/initialized")
        return answer

    def call(self, tool: str, arguments: Json = None, **meta: Json) -> Json:
        """Call a tool; the whole answer, without its id."""
        params: dict[str, Json] = {"name": tool, "arguments": arguments or {}}
        return self.request("tools/call", {**params, "_meta": meta} if meta else params)

    def request(self, method: str, params: Json = None) -> Json:
        """The answer to a request, without its id."""
        return self.wait_answer(self.send(method, params))

    def send(self, method: str, params: Json = None) -> int:
        """Send a request; its id."""
        self._next += 1
        self._say(
            {
                "id": self._next,
                "method": method,
                **({} if params is None else {"params": self._reserve(params)}),
            }
        )
        return self._next

    def notify(self, method: str, params: Json = None) -> None:
        """Send a notification."""
        self._say({"method": method, **({} if params is None else {"params": params})})

    def wait_answer(self, to: int) -> Json:
        """The answer to a request that was sent."""
        found: list[Json] = []

        def is_there(message: Json) -> bool:
            if message.get("id") == to and "method" not in message:
                found.append(message)
            return bool(found)

        self._wait(is_there, f"the answer to request {to}")
        return {key: value for key, value in found[0].items() if key not in ("id", "jsonrpc")}

    def wait_for(self, what: str, count: int = 1) -> None:
        """Wait until the server has asked for, or told of, something so often."""
        heard = [*self.asked, *self.told]
        if sum(method == what for method, _ in heard) < count:
            self._wait(
                lambda _: sum(method == what for method, _ in [*self.asked, *self.told]) >= count,
                f"{what} from the server",
            )

    # -- messages ----------------------------------------------------------------------------------

    def _reserve(self, params: Json) -> Json:
        if self.era == "legacy":
            return params
        about = {
            f"{_RESERVED}/protocolVersion": MODERN,
            f"{_RESERVED}/clientInfo": _INFO,
            f"{_RESERVED}/clientCapabilities": CAPABILITIES,
        }
        return {**params, "_meta": {**params.get("_meta", {}), **about}}

    def _say(self, message: Json) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def _wait(self, is_there: Callable[[Json], bool], what: str) -> None:
        while True:
            try:
                line = self._lines.get(timeout=DEADLINE_S)
            except queue.Empty:
                raise AssertionError(f"waited {DEADLINE_S} s for {what}: {self.stderr.decode()}") from None
            assert line, f"the server ended before {what}: {self.stderr.decode(errors='replace')}"
            message = json.loads(line)
            self._take_in(message)
            if is_there(message):
                return

    def _take_in(self, message: Json) -> None:
        method = message.get("method")
        if method is None:
            return
        if "id" not in message:
            self.told.append((method, message.get("params")))
            return
        self.asked.append((method, message.get("params")))
        if method in self._answers:
            self._say({"id": message["id"], "result": self._answers[method]})
        else:
            self._say({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def _read_stderr(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.stderr += line
