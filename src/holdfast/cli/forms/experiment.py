"""The experiment log: every reply, also those that a rewind left behind."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ...agent.experiment import as_record
from ...entries import Entry
from ...fold import SessionState


def write(state: SessionState, entries: Iterator[Entry]) -> Iterator[str]:
    """One object a line, as `holdfast.experiment_log` gives them."""
    for entry in entries:
        record = as_record(state.facts.head.session, entry)
        if record is not None:
            yield msgspec.json.encode(record).decode() + "\n"
