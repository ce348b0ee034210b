"""The experiment log: every reply, also those that a rewind left behind."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ...agents.experiment import LogReader
from ...core.entries import Entry
from ...core.session_state import SessionState


def write(state: SessionState, entries: Iterator[Entry]) -> Iterator[str]:
    """One object a line, as `holdfast.agents.experiment_log` gives them."""
    reader = LogReader(state.facts.head.session)
    for entry in entries:
        for record in reader.read(entry):
            yield msgspec.json.encode(record).decode() + "\n"
