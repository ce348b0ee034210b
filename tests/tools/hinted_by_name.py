"""A module whose hints are strings, with types of its own."""

from __future__ import annotations

import enum

from holdfast import ToolContext, tool


class Colour(enum.Enum):
    """A choice."""

    RED = "red"
    BLUE = "blue"


@tool(side_effects={"write"})
async def paint(context: ToolContext[dict[str, str]], colour: Colour, times: int = 1) -> str:
    """Paint it."""
    return f"{colour.name} {times} {context.call_id}"
