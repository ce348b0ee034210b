"""The server behind the proxy: a process of its own, with all that it starts, that ends with the proxy."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
from anyio.abc import Process

from ..errors import NotFound
from ..limits import MCP_END_S, MCP_KILL_S
from ..system import processes
from .pipes import ChildPipes


class ServerProcess:
    """A running server."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self.pipes = ChildPipes(process.stdin, process.stdout)

    async def let_end(self) -> None:
        """Close its stdin, and give it time to end by itself."""
        await self.pipes.close()
        await self._has_ended(MCP_END_S)

    async def end(self) -> int:
        """Tell it to end, if it has not, and kill it if it does not. Its exit code."""
        if self._process.returncode is None:
            processes.end_group(self._process.pid)
            if not await self._has_ended(MCP_KILL_S):
                processes.end_group(self._process.pid, kill=True)
        code = await self._process.wait()
        # What it has started may outlive it, and still act.
        processes.end_group(self._process.pid, kill=True)
        return code if code >= 0 else 128 - code

    async def _has_ended(self, limit_s: float) -> bool:
        with anyio.move_on_after(limit_s):
            await self._process.wait()
        return self._process.returncode is not None


@asynccontextmanager
async def started(command: Sequence[str]) -> AsyncIterator[ServerProcess]:
    """Start a server in a process group of its own; kill what is left of it at the end of the block.

    Its stderr is that of this process.
    """
    try:
        process = await anyio.open_process(command, stderr=None, start_new_session=True)
    except (FileNotFoundError, PermissionError, NotADirectoryError) as error:
        raise NotFound(
            f"the command {command[0]!r} of the MCP server cannot be started ({error.strerror}). Clients "
            f"start servers with little of the environment: PATH is {os.environ.get('PATH', '')!r} here. "
            "Give the full path of the command"
        ) from error
    try:
        yield ServerProcess(process)
    finally:
        processes.end_group(process.pid, kill=True)
        with anyio.CancelScope(shield=True):
            await process.aclose()
