"""Every entry, one JSON object a line."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ...core.entries import Entry
from ...core.session_state import SessionState
from ..json_views import shape_entry


def write(state: SessionState, entries: Iterator[Entry]) -> Iterator[str]:
    """As `holdfast tail --json` prints them."""
    for entry in entries:
        yield msgspec.json.encode(shape_entry(entry)).decode() + "\n"
