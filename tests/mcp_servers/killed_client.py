"""A client made with the `mcp` package: it makes the calls that it has no result of yet, one after the other.

It knows nothing of safety: after a crash, it makes the call again whose answer it has not seen.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters

from tests.crash.fork_server import Line


def work(line: Line, folder: str, command: Sequence[str], calls: Sequence[Any], who: str = "") -> str:
    """Make the calls; `lost` if the connection was."""
    return anyio.run(_work, Path(folder), command, calls, who)


async def _work(place: Path, command: Sequence[str], calls: Sequence[Any], who: str) -> str:
    server = StdioServerParameters(command=command[0], args=list(command[1:]), env=dict(os.environ))
    try:
        async with Client(server) as client:
            for tool, arguments in calls[len(results(place, who)) :]:
                found = await client.call_tool(tool, arguments)
                _note(place, who, found.model_dump(mode="json", by_alias=True, exclude_none=True))
    except MCPError:
        return "lost"
    except BaseExceptionGroup as group:
        if group.split(MCPError)[1] is not None:
            raise
        return "lost"
    return "done"


def results(place: Path, who: str = "") -> list[Any]:
    """What the client has seen and kept."""
    book = place / f"results{who}"
    return [json.loads(one) for one in book.read_text().splitlines()] if book.exists() else []


def _note(place: Path, who: str, result: Any) -> None:
    with open(place / f"results{who}", "a") as book:
        book.write(f"{json.dumps(result)}\n")
        book.flush()
        os.fsync(book.fileno())
