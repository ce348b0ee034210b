"""Whether LangGraph is there, and is not too old."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from ...errors import MissingExtra

MINIMUM: Final = {"langgraph": (1, 2), "langgraph-checkpoint": (4, 3)}


def require() -> None:
    """`MissingExtra` if something is missing or too old."""
    for name, least in MINIMUM.items():
        wanted = f"{name} {'.'.join(map(str, least))} or newer"
        try:
            found = version(name)
        except PackageNotFoundError:
            raise MissingExtra(
                "holdfast.adapters.langgraph", "langgraph", f"{wanted} is not installed"
            ) from None
        if tuple(map(int, re.findall(r"\d+", found)[:2])) < least:
            raise MissingExtra(
                "holdfast.adapters.langgraph", "langgraph", f"{wanted}; {name} {found} is installed"
            )
