"""Their records as JSON, without what is known already: there are several for every step.

Only what differs from the record that was to be expected is written: that follows from the record of the
run, from the last one of its kind, and from the effect of its call. What nobody expects is null. So every
record is given back as it was.
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


def after_event(last: Mapping[str, Any] | None) -> Record:
    """What the next event of a run is expected to say: it belongs to the same step."""
    return {} if last is None else {"step_index": last["step_index"], **_next_key(last)}


def after_snapshot(last: Mapping[str, Any] | None) -> Record:
    """What the next snapshot of a run is expected to say: it is that of the next step."""
    if last is None:
        return {}
    return {"step_index": last["step_index"] + 1, "state": last["state"], **_next_key(last)}


def _next_key(last: Mapping[str, Any]) -> Record:
    number = last.get(_KEY)
    return {_KEY: number + 1} if isinstance(number, int) else {}


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
