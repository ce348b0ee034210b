"""The options of `holdfast mcp` that say where a server is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from .exit_codes import Exit, Stop

if TYPE_CHECKING:
    from ..mcp_proxy.server_address import ServerAddress

URL_HELP: Final = "The address of a server with streamable HTTP, in the place of a command."
HEADER_HELP: Final = (
    "NAME=VARIABLE: a header of each request to the address, and the environment variable that holds what it "
    "says. Can be repeated."
)


def find_address(
    command: Sequence[str], url: str | None, header: Sequence[str] | None, example: str
) -> ServerAddress | None:
    """The address of the server; None if a command starts it."""
    from ..mcp_proxy.server_address import read_address

    if url is None and not command:
        raise Stop(
            Exit.USAGE,
            f"which server? Write the command that starts it, or its address: {example} -- COMMAND …, or "
            f"{example} --url URL",
        )
    if url is None:
        if header:
            raise Stop(Exit.USAGE, "--header is for a server with an address: it goes with --url")
        return None
    if command:
        raise Stop(Exit.USAGE, "either --url or a command: a server that has an address is not started")
    return read_address(url, header or (), os.environ)
