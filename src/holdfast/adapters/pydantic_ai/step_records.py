"""Their records as JSON, without what is known already: there are several for every step.

Only what differs from an earlier record is written. What is left out is null, stands in the record of the
run, or can be told from the rest, so every record is given back as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

Record: TypeAlias = dict[str, Any]
"""One of their records as JSON: whatever fields their version has."""

_SHARED: Final = ("conversation_id", "parent_run_id", "agent_name", "metadata")
"""What events and snapshots repeat from the record of their run."""

_KEY: Final = "idempotency_key"


def differ(record: Mapping[str, Any], known: Mapping[str, Any]) -> Record:
    """The fields that are not as known; what nobody knows is null."""
    return {name: value for name, value in record.items() if value != known.get(name)}


def shared_of(run: Mapping[str, Any] | None) -> Record:
    """What the record of a run says for all that happens in it."""
    return {name: run[name] for name in _SHARED if name in run} if run is not None else {}


def shorten(record: Record, tail: str) -> Record:
    """With the number alone, where that and the rest of the record make its key."""
    number, _, rest = str(record.get(_KEY)).partition(":")
    if rest == tail and number.isdecimal() and str(int(number)) == number:
        return {**record, _KEY: int(number)}
    return record


def lengthen(record: Record, tail: str) -> Record:
    """The record with its whole key."""
    number = record.get(_KEY)
    return {**record, _KEY: f"{number}:{tail}"} if isinstance(number, int) else record


def tail_of_event(record: Mapping[str, Any]) -> str:
    """What the key of an event ends with, if `StepPersistence` made it."""
    return f"{record['step_index']}:{record['kind']}:{record.get('tool_call_id') or ''}"


def tail_of_snapshot(record: Mapping[str, Any]) -> str:
    """What the key of a snapshot ends with, if `StepPersistence` made it."""
    return f"{record['step_index']}:{record['state']}"
