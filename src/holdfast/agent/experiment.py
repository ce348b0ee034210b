"""The experiment log: one object a line for every reply that was recorded, also for those left behind."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import msgspec

from ..content.lazy import peek
from ..entries import Entry, ModelReplied
from ..errors import StoreFailed
from ..ids import SessionId
from ..messages import OWN, Json, Message, Text
from ..session.session import Session
from ..session.store import Store
from ..store.journal import Journal
from .seats import find_final, mark_of


async def experiment_log(store: Store, session: str) -> AsyncIterator[dict[str, Json]]:
    """The records of a session, oldest first."""
    async for entry in store.tail(session, follow=False):
        record = as_record(SessionId(session), entry)
        if record is not None:
            yield record


def as_record(session: SessionId, entry: Entry) -> dict[str, Json] | None:
    """What the log says of an entry; None if it is not a reply."""
    body = entry.body
    if not isinstance(body, ModelReplied):
        return None
    message = _read(entry, body)
    mark, given = mark_of(message), find_final(message)
    role = mark.get("role", "agent")
    return {
        "t": entry.at.timestamp(),
        "iter": mark.get("iter", max(entry.step - 1, 0)),
        "agent_id": message.agent or "",
        "role": role,
        "content": message.text if given is None else given,
        "metadata": {
            "session": session,
            "seq": entry.seq,
            "run": entry.run,
            "calls": [call.name for call in message.tool_calls],
            "input_tokens": body.usage.input_tokens,
            "output_tokens": body.usage.output_tokens,
            "cost_usd": body.cost_usd,
        },
        "actions": _actions_of(given) if role == "moderator" and given is not None else None,
        "latency_ms": body.latency_ms,
    }


def _read(entry: Entry, body: ModelReplied) -> Message:
    if entry.content is None:
        return Message(role="assistant", blocks=(Text("[erased]"),))
    if body.format == OWN:
        return peek(entry.content)
    return Message(role="assistant", blocks=(Text(bytes(entry.content).decode()),))


def _actions_of(given: dict[str, Json]) -> dict[str, Json]:
    back = given.get("type") == "STEP_BACK"
    return {
        "type": given.get("type"),
        "rollback": max(given.get("rollback", 1), 1) if back else 0,
        "clear_summaries": bool(given.get("clear_summaries", False)) if back else False,
    }


class LogFile:
    """A file that follows a session: whatever is missing at its end is written, a torn last line is cut."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: dict[SessionId, int] = {}
        """Up to which entry each session is in the file."""

    async def catch_up(self, session: Session) -> None:
        """Write what the journal has and the file has not. Durable on return."""
        await session.flush()
        await session.engine.call(self._append, Journal(session.engine.driver, session.id), session.id)

    def _append(self, journal: Journal, session: SessionId) -> None:
        try:
            if session not in self._written:
                self._written[session] = _repair(self._path, session)
            after, records = self._written[session], []
            for entry in journal.entries(after):
                after = entry.seq
                record = as_record(session, entry)
                if record is not None:
                    records.append(record)
            if records:
                _write(self._path, records)
            self._written[session] = after
        except OSError as error:
            raise StoreFailed(
                f"the experiment log {self._path} cannot be written: {error.strerror}"
            ) from error


def _repair(path: Path, session: SessionId) -> int:
    """Cut what was not written to its end; the last entry of the session that is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        return 0
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(path, whole)
    found = 0
    for line in data[:whole].splitlines():
        known = msgspec.json.decode(line).get("metadata", {})
        if known.get("session") == session:
            found = max(found, known.get("seq", 0))
    return found


def _write(path: Path, records: Iterable[dict[str, Json]]) -> None:
    lines = b"".join(msgspec.json.encode(record) + b"\n" for record in records)
    with path.open("ab") as file:
        file.write(lines)
        file.flush()
        os.fsync(file.fileno())
