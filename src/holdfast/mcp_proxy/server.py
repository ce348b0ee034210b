"""The server behind the proxy: a process that a command starts, or one that has an address."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from ..adapters.compat import check_versions
from .server_address import ServerAddress
from .server_process import started


class Pipe(Protocol):
    """One of the two sides of the proxy."""

    async def read(self) -> bytes:
        """What is there; nothing at the end."""

    async def write(self, data: bytes) -> None:
        """Write all of it, or raise `PipeClosed`."""


class Server(Protocol):
    """A server that messages can be sent to."""

    @property
    def pipes(self) -> Pipe:
        """What is written to it and read from it."""

    async def let_end(self) -> None:
        """Tell it that there is no more to come."""

    async def end(self) -> int:
        """End it, or what connects the proxy with it. The exit code of the proxy."""


def check_addresses() -> None:
    """Raise `MissingExtra` if what speaks to addresses is not installed."""
    check_versions("holdfast mcp proxy --url", "mcp", {"mcp": ((2, 3), 3)})


def find_server(command: Sequence[str], address: ServerAddress | None) -> AbstractAsyncContextManager[Server]:
    """The server that the command starts, or the one at the address, until the end of the block."""
    if address is None:
        return started(command)
    check_addresses()
    from .http_server import connected

    return connected(address)
