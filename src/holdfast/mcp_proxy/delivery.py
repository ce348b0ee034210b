"""What became of a request over HTTP that was answered in the server's place, because it failed."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

from ..messages import Json
from ..system import randomness

_MARK: Final = f"holdfast-{randomness.token_hex(8)}"
"""Tells our own errors from those of a server."""

Delivery: TypeAlias = Literal["unsent", "refused", "lost"]
"""It did not reach the server; the server has not taken it up; nothing is known."""


def mark_delivery(delivery: Delivery, status: int) -> dict[str, Json]:
    """The `data` of a JSON-RPC error that says what became of a request."""
    return {"mark": _MARK, "delivery": delivery, "status": status}


def find_delivery(data: object) -> Delivery | None:
    """What became of a request, by the `data` of its error; None if the error is the server's own."""
    found: Any = data
    return found.get("delivery") if isinstance(found, dict) and found.get("mark") == _MARK else None
