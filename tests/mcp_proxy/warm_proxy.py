"""A proxy in a process that is forked from a warm one, and killed where a test says."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import holdfast.cli.commands.mcp
import holdfast.cli.load_agent
import holdfast.mcp_proxy.data_directory
import holdfast.mcp_proxy.stdio_proxy  # noqa: F401  # Loaded before the fork.
from holdfast.cli import main
from holdfast.drivers.directory import DirectoryDriver
from holdfast.drivers.postgres import PostgresDriver
from holdfast.drivers.sqlite import SqliteDriver
from holdfast.mcp_proxy.http_transport import TellingTransport
from holdfast.mcp_proxy.pipes import ChildPipes, OwnPipes
from tests.crash.fork_server import Line

_OF_A_CALL = (b'"add"', b"add: ", b'"pay"', b'"paid"', b"holdfast/status")


def serve(line: Line, pipes: str, arguments: list[str], dies_at: int | None = None) -> int:
    """Run a proxy whose client is at the other end of two named pipes; its exit code.

    `dies_at`: the boundary at which it kills itself. The name of each that it passes is in the file `passed`.
    """
    place = Path(pipes)
    source, sink = os.open(place / "in", os.O_RDONLY), os.open(place / "out", os.O_WRONLY)
    errors = os.open(place / "errors", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for fd, number in ((source, 0), (sink, 1), (errors, 2)):
        os.dup2(fd, number)
        os.close(fd)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    sys.stderr.reconfigure(line_buffering=True)
    for name in ("HOLDFAST_STORE", "XDG_DATA_HOME"):
        os.environ.pop(name, None)
    os.chdir("/")

    def die(number: int) -> None:
        if number == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    watch(place / "passed", _OF_A_CALL, die)
    return main(arguments)


def watch(passed: Path, of_a_call: Sequence[bytes], on_step: Callable[[int], None]) -> None:
    """Count what the process hands to the disk, to the server and to its client, before and after: of
    messages, those that have one of the words in them. `on_step` is told the number of each boundary."""
    count = 0

    def step(name: str) -> None:
        nonlocal count
        with open(passed, "a") as file:
            file.write(f"{name}\n")
        on_step(count)
        count += 1

    def around(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(self: Any, *args: Any, **options: Any) -> Any:
            step(f"before {name}")
            try:
                return function(self, *args, **options)
            finally:
                step(f"after {name}")

        return call

    def around_async(name: str, function: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        @wraps(function)
        async def call(self: Any, data: bytes) -> None:
            if not any(one in data for one in of_a_call):
                return await function(self, data)
            step(f"before {name}")
            await function(self, data)
            step(f"after {name}")

        return call

    def around_request(name: str, function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        @wraps(function)
        async def call(self: Any, request: Any) -> Any:
            if request.method != "POST" or b'"tools/call"' not in request.content:
                return await function(self, request)
            step(f"before {name}")
            response = await function(self, request)
            step(f"after {name}")
            return response

        return call

    drivers = (SqliteDriver, DirectoryDriver, PostgresDriver)
    patched: list[tuple[Any, str, Any]] = [
        *((one, "commit", around("commit", one.commit)) for one in drivers),
        *((one, "claim", around("claim", one.claim)) for one in drivers),
        (ChildPipes, "write", around_async("server", ChildPipes.write)),
        (OwnPipes, "write", around_async("client", OwnPipes.write)),
        (
            TellingTransport,
            "handle_async_request",
            around_request("server", TellingTransport.handle_async_request),
        ),
    ]
    for owner, name, function in patched:
        setattr(owner, name, function)
