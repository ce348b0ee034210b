"""A client that speaks JSON-RPC over pipes to a proxy, line by line, in both eras of the protocol."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from holdfast.cli import main
from tests.crash.fork_server import Failure, Warm
from tests.mcp_proxy import warm_proxy
from tests.stores import open_driver, schema_of, server_url

SERVER = Path(__file__).with_name("notes_server.py")
DEADLINE_S = 100.0
"""Beyond this, something hangs, also on a busy machine."""
VERSION, CAPABILITIES = (
    "io.modelcontextprotocol/protocolVersion",
    "io.modelcontextprotocol/clientCapabilities",
)
LEGACY, MODERN = "2025-11-25", "2026-07-28"


class Notes:
    """A folder of the notes server, with the store of its calls beside it."""

    def __init__(self, place: Path, warm: Warm | None = None, scheme: str = "sqlite") -> None:
        self.place, self.warm = place, warm
        self.store = f"{scheme}:{place / 'calls.db'}"
        if scheme == "postgresql":
            open_driver(self.store).close()
            self.store = server_url(schema_of(place / "calls.db"))

    @property
    def notes(self) -> list[str]:
        """What the server has done."""
        return self._lines("notes")

    @property
    def seen(self) -> list[dict[str, Any]]:
        """What the server has read."""
        return [json.loads(line) for line in self._lines("seen")]

    @property
    def calls_seen(self) -> list[str]:
        """The tools that the server was asked to run."""
        return [one["params"]["name"] for one in self.seen if one.get("method") == "tools/call"]

    def _lines(self, name: str) -> list[str]:
        path = self.place / name
        return path.read_text().splitlines() if path.exists() else []

    def allow(self, name: str) -> None:
        """Let a call go on that waits for it."""
        (self.place / name).touch()

    def wait_until_waiting(self, name: str, times: int = 1) -> None:
        """Wait until calls have come to where they wait for it."""
        wait_until(lambda: self._lines("waiting").count(name) >= times)

    def server(self) -> list[str]:
        """The command of the server."""
        return [os.path.realpath(sys.executable), "-I", "-S", str(SERVER), str(self.place)]


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for something that another process does."""
    end = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.005)


class RealProxy:
    """A proxy that is started as a client starts it, in `/` and with little in its environment."""

    def __init__(self, arguments: list[str], env: Mapping[str, str], program: tuple[str, ...]) -> None:
        self._process = subprocess.Popen(
            [*program, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env=dict(env),
        )
        self.pid = self._process.pid
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.sink, self.source = self._process.stdin, self._process.stdout
        self._errors: list[bytes] = []
        self._thread = threading.Thread(target=self._read_errors, daemon=True)
        self._thread.start()

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as errors:
            for line in errors:
                self._errors.append(line)

    @property
    def stderr(self) -> str:
        """What the proxy and the server have written for people."""
        return b"".join(self._errors).decode(errors="replace")

    def signal(self, number: int) -> None:
        """Send it a signal, if it has not ended."""
        self._process.send_signal(number)

    def finish(self) -> int | None:
        """Wait for the end; the exit code."""
        code = self._process.wait(DEADLINE_S)
        self._thread.join(DEADLINE_S)
        return code


class ForkedProxy:
    """A proxy that is forked from a warm process, which takes no time."""

    def __init__(self, arguments: list[str], place: Path, warm: Warm, dies_at: int | None) -> None:
        self.place = Path(tempfile.mkdtemp(dir=place))
        for name in ("in", "out"):
            os.mkfifo(self.place / name)
        self._child = warm.start(warm_proxy.serve, str(self.place), arguments, dies_at)
        self.pid = self._child.pid
        self.sink = (self.place / "in").open("wb")
        self.source = (self.place / "out").open("rb")

    @property
    def stderr(self) -> str:
        """What the proxy and the server have written for people."""
        return (self.place / "errors").read_text(errors="replace")

    def signal(self, number: int) -> None:
        """Send it a signal, if it has not ended."""
        self._child.kill(number)

    def finish(self) -> int | None:
        """Wait for the end; the exit code, or None if it was killed."""
        found = self._child.outcome()
        self._child.end()
        assert not isinstance(found, Failure), found
        return found if found is None else int(found)


class RawClient:
    """A client of a proxy, which is a process of its own."""

    def __init__(
        self,
        notes: Notes,
        *options: str,
        era: str = LEGACY,
        server: list[str] | None = None,
        url: str | None = None,
        env: Mapping[str, str] | None = None,
        capabilities: Mapping[str, Any] | None = None,
        store: bool = True,
        name: str = "notes",
        dies_at: int | None = None,
    ) -> None:
        self.era, self.capabilities = era, dict(capabilities or {})
        self._ids = count(1)
        where = ("--store", notes.store) if store else ()
        behind = ("--", *(server or notes.server())) if url is None else ("--url", url)
        arguments = ["mcp", "proxy", "--name", name, *where, *options, *behind]
        self.proxy: RealProxy | ForkedProxy
        if notes.warm is None or env is not None:
            known = {"PATH": os.environ["PATH"], "HOME": str(notes.place)} if env is None else env
            self.proxy = RealProxy(arguments, known, (sys.executable, "-m", "holdfast"))
        else:
            self.proxy = ForkedProxy(arguments, notes.place, notes.warm, dies_at)
        self.lines: queue.Queue[bytes | None] = queue.Queue()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        self.others: list[dict[str, Any]] = []
        """Messages that came while an answer was waited for."""
        self._code: int | None = None
        self._has_finished = False

    def __enter__(self) -> RawClient:
        if self.era == LEGACY:
            params = {"protocolVersion": LEGACY, "capabilities": self.capabilities}
            self.ask("initialize", {**params, "clientInfo": {"name": "raw", "version": "1"}})
            self.send({"method": "notifications/initialized"})
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _read(self) -> None:
        with self.proxy.source as source:
            for line in source:
                self.lines.put(line)
        self.lines.put(None)

    @property
    def stderr(self) -> str:
        """What the proxy and the server have written for people."""
        return self.proxy.stderr

    # -- messages ------------------------------------------------------------------------------------------

    def send_line(self, line: str | bytes) -> None:
        """Write one line."""
        self.proxy.sink.write((line.encode() if isinstance(line, str) else line) + b"\n")
        self.proxy.sink.flush()

    def send(self, message: Mapping[str, Any]) -> None:
        """Write one message."""
        self.send_line(json.dumps({"jsonrpc": "2.0", **message}))

    def read(self) -> dict[str, Any]:
        """The next message; fails at the end."""
        line = self.lines.get(timeout=DEADLINE_S)
        assert line is not None, f"the proxy has ended: {self.stderr}"
        found: dict[str, Any] = json.loads(line)
        return found

    def begin(self, method: str, params: Mapping[str, Any] | None = None, **meta: Any) -> int:
        """Send a request; its id."""
        id = next(self._ids)
        said = dict(params or {})
        if self.era == MODERN:
            meta = {VERSION: MODERN, CAPABILITIES: self.capabilities, **meta}
        if meta:
            said["_meta"] = meta
        self.send({"id": id, "method": method, "params": said})
        return id

    def wait(self, id: int) -> dict[str, Any]:
        """The answer to a request."""
        while True:
            message = self.read()
            if message.get("id") == id and "method" not in message:
                return message
            self.others.append(message)

    def has_answer(self, id: int) -> bool:
        """Wait for the answer to a request, or for the end of the proxy, whichever comes first."""
        while True:
            line = self.lines.get(timeout=DEADLINE_S)
            if line is None or json.loads(line).get("id") == id:
                return line is not None

    def ask(self, method: str, params: Mapping[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
        """Send a request, and wait for the answer."""
        return self.wait(self.begin(method, params, **meta))

    def begin_call(self, tool: str, text: str = "", **how: Any) -> int:
        """Call a tool of the notes server; the id."""
        arguments: dict[str, Any] = {"text": text}
        if how:
            arguments["how"] = how
        return self.begin("tools/call", {"name": tool, "arguments": arguments})

    def call(self, tool: str, text: str = "", **how: Any) -> dict[str, Any]:
        """Call a tool of the notes server; its result."""
        answer = self.wait(self.begin_call(tool, text, **how))
        assert "result" in answer, answer
        found: dict[str, Any] = answer["result"]
        return found

    # -- ends ----------------------------------------------------------------------------------------------

    def list_passed(self) -> list[str]:
        """The boundaries that a forked proxy has passed."""
        assert isinstance(self.proxy, ForkedProxy)
        return (self.proxy.place / "passed").read_text().splitlines()

    def kill(self) -> None:
        """Kill the proxy, if it has not ended, and let go of the pipes."""
        if not self._has_finished:
            self.proxy.signal(signal.SIGKILL)
            self.finish()

    def close(self) -> int | None:
        """End as a client does: close stdin, and wait. The exit code."""
        self.end_input()
        return self.finish()

    def end_input(self) -> None:
        """Close the proxy's stdin."""
        with suppress(BrokenPipeError):
            self.proxy.sink.close()

    def finish(self) -> int | None:
        """Wait for the end; the exit code."""
        if not self._has_finished:
            self._has_finished = True
            self._code = self.proxy.finish()
            self._thread.join(DEADLINE_S)
            self.end_input()
        return self._code


def text_of(result: Mapping[str, Any]) -> str:
    """The text of a result."""
    return "\n".join(one["text"] for one in result["content"])


def status_of(result: Mapping[str, Any]) -> str | None:
    """What the proxy says about a result that it made or gave again."""
    found: str | None = result.get("_meta", {}).get("holdfast/status")
    return found


def holdfast(*arguments: str) -> int:
    """Run a command in this process."""
    return main(list(arguments))
