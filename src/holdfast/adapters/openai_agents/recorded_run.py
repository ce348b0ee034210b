"""What the journal has of a run: where it began, its replies, and the items that it added."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from contextlib import aclosing
from hashlib import sha256
from typing import Any, Final

import msgspec
from agents.items import ItemHelpers, TResponseInputItem
from msgspec import Struct

from ...content.extract import put_back
from ...content.lazy import BlobReader, has_marks
from ...core.entries import Entry, MessageAdded, ModelReplied, Span
from ...core.fold import RunInfo
from ...core.session_state import SessionState
from ...engine.journal import Journal
from ...errors import BadInput, NotFound
from ...messages import OPENAI_AGENTS, CallPart, Json, role_of_item
from ...session.session import Session
from ..message_overlap import overlap
from .items import InputItem, StoredMessage, unanswered_input
from .replies import ReplyOnRecord

log = logging.getLogger("holdfast")
_encode = msgspec.json.Encoder(order="sorted").encode
_CONFIG: Final = "openai_agents"
OVER: Final = "over"
"""How the reason begins for which a run failed that would fail in the same way if it were made again."""


class Asked(Struct, frozen=True):
    """What a caller asks for: its input, and the key that it gives the run."""

    items: list[InputItem] | None
    """None: the run goes on from a `RunState`."""
    key: str | None
    once: bool
    """Whether a run that was completed is given again."""

    @property
    def opening(self) -> str:
        """Identifies the input: two runs that begin with the same are one, the second of which goes on."""
        return sha256(_encode([key_of(item) for item in self.items or ()])).hexdigest()


class RunStart(Struct, frozen=True):
    """Where a run begins: after the entry `since`. `said`: how many items of its input were there before."""

    since: int
    said: int
    opening: str
    key: str | None
    root_run: str | None
    """The first of the runs that this one continues."""
    is_over: bool = False
    """It was completed: nothing is added, and no model is asked."""

    @property
    def config(self) -> Json:
        """What the journal keeps of it."""
        return {
            "since": self.since,
            "said": self.said,
            "opening": self.opening,
            "key": self.key,
            "drive": self.root_run,
        }


class RecordedRun(Struct):
    """What was recorded of a run so far."""

    replies: list[ReplyOnRecord]
    items: list[InputItem]
    """The items of the run, those of its replies included."""

    def find_output(self, call: str) -> Json:
        """The recorded output of a call, by the SDK's id of it; None if there is none."""
        found = (item for item in self.items if item.get("type") == "function_call_output")
        return next((item.get("output") for item in found if item.get("call_id") == call), None)


def list_items(given: str | Sequence[TResponseInputItem]) -> list[InputItem]:
    """The input of a run as items."""
    found: Any = ItemHelpers.input_to_new_input_list(given)  # type: ignore[arg-type]
    return list(found)


def key_of(item: InputItem) -> str:
    """What an item says: the same for one that was given an id, or lost it."""
    call = item.get("call_id")
    if isinstance(call, str):
        return f"{item.get('type')} {call}"
    said = {name: value for name, value in item.items() if name not in ("id", "status", "type")}
    return f"{role_of_item(item)} {sha256(_encode(said)).hexdigest()}"


async def begin(session: Session, asked: Asked, *, has_history: bool) -> tuple[RunStart, list[InputItem]]:
    """Find out whether this continues a run of the session, or repeats one that has ended; and the history
    that the run begins with. It is the same list for the run and for each that continues it."""
    last, before = _find_last(session), _find_before(session, asked)
    if before is not None and _goes_on(before, last, asked):
        kept = _kept_of(before)
        found = RunStart(
            since=kept["since"],
            said=kept["said"],
            opening=kept["opening"],
            key=kept["key"],
            root_run=kept["drive"] or before.run,
            is_over=before.status == "completed",
        )
        return found, await read_history_at(session, found.since) if has_history else []
    if asked.items is None:
        raise BadInput(
            f"session {session.id!r} has no run that this RunState is of: pass the session, or the run_key, "
            "of the run that was interrupted"
        )
    if not session.continuable:
        await _leave_behind(session, last)
    # The history is read again as it was after this entry, which ends a commit. A flush may take in messages.
    await session.flush()
    since = session.state.seq
    history = await read_history(session, session.state) if has_history else []
    said = overlap([key_of(item) for item in unanswered_input(history)], [key_of(one) for one in asked.items])
    return RunStart(since, said, asked.opening, asked.key, None), history


def _find_last(session: Session) -> RunInfo | None:
    """The last run of the session, runs inside others aside."""
    runs = session.state.facts.runs
    outer = (one for one in reversed(runs.values()) if one.parent is None or one.parent.run not in runs)
    return next(outer, None)


def _find_before(session: Session, asked: Asked) -> RunInfo | None:
    """The run that may be the one that is asked for."""
    if asked.key is None:
        last = _find_last(session)
        return None if last is None or not _kept_of(last) else last
    runs = reversed(session.state.facts.runs.values())
    mine = [one for one in runs if _kept_of(one).get("key") == asked.key]
    # An outcome that was given again, and cut off meanwhile, is one all the same.
    return next((one for one in mine if one.status == "completed"), mine[0] if mine else None)


def _kept_of(run: RunInfo) -> Json:
    return (run.config.get(_CONFIG) if isinstance(run.config, dict) else None) or {}


def _goes_on(before: RunInfo, last: RunInfo | None, asked: Asked) -> bool:
    kept = _kept_of(before)
    if asked.items is not None and kept["opening"] != asked.opening:
        if asked.key is not None:
            raise BadInput(
                f"run_key {asked.key!r} was used before, for another input: give each run a key of its own"
            )
        return False
    if before.status == "completed":
        return asked.once or asked.items is None
    is_last = last is not None and before.run == last.run
    return is_last and not (before.status == "failed" and before.reason.startswith(OVER))


async def _leave_behind(session: Session, before: RunInfo | None) -> None:
    """Go back before an unfinished step, which stays in the journal: a new run cannot begin inside it."""
    run = "the last run" if before is None else f"run {before.run}"
    try:
        version = await session.continue_()
    except NotFound:
        return  # There is no version before it. The SDK drops calls without an output.
    log.warning(
        "session %s: %s was cut off, and began with another input: it is abandoned, and the session "
        "continues from version %d",
        session.id,
        run,
        version,
    )


def config_of(beginning: RunStart, group_id: str | None, workflow: str) -> Json:
    """What is recorded with the start of a run."""
    named = {} if group_id is None else {"group_id": group_id}
    return {_CONFIG: beginning.config, "workflow_name": workflow, **named}


# -- reading ---------------------------------------------------------------------------------------------


async def read_history(session: Session, state: SessionState) -> list[InputItem]:
    """The items of the transcript, in a thread."""
    return await session._writer.engine.call_home(_read_history, session, state)


def _read_history(session: Session, state: SessionState) -> list[InputItem]:
    blobs = BlobReader(session.id, session._writer.engine.blobs)
    messages = map(StoredMessage.of, state.transcript_fold.items)
    return [item for message in messages if message is not None for item in message.read(blobs)]


async def read_history_at(session: Session, seq: int) -> list[InputItem]:
    """The items of the transcript as it was after an entry."""
    engine = session._writer.engine

    def read() -> list[InputItem]:
        state = Journal(engine.driver, session.id, engine.blobs).fold(seq)
        return _read_history(session, state)

    return await engine.call_home(read)


async def load(session: Session, beginning: RunStart) -> RecordedRun:
    """What the runs recorded that this one continues."""
    found = RecordedRun([], [])
    if beginning.root_run is None:
        return found
    runs = session.state.facts.runs
    chain = {
        one.run
        for one in runs.values()
        if one.run == beginning.root_run or _kept_of(one).get("drive") == beginning.root_run
    }
    entries = await _list_entries(session, beginning.since, chain)
    contents = await session._writer.engine.call_home(_decode_all, session, entries)
    for entry, data in zip(entries, contents, strict=True):
        found.items += data["items"]
        if isinstance(entry.body, ModelReplied):
            calls = tuple(part.id for part in entry.body.parts if isinstance(part, CallPart))
            found.replies.append(ReplyOnRecord(entry.seq, calls, data))
    return found


async def _list_entries(session: Session, since: int, chain: Collection[str]) -> list[Entry]:
    async with aclosing(session.store.tail(session.id, after=since, follow=False)) as entries:
        return [
            entry
            async for entry in entries
            if entry.run in chain
            and isinstance(entry.body, ModelReplied | MessageAdded)
            and entry.body.format == OPENAI_AGENTS
        ]


def _decode_all(session: Session, entries: Sequence[Entry]) -> list[Json]:
    blobs = BlobReader(session.id, session._writer.engine.blobs)
    return [_decode(session, entry, blobs.at(entry.seq)) for entry in entries]


def _decode(session: Session, entry: Entry, blobs: BlobReader) -> Json:
    if entry.content is None:
        raise BadInput(
            f"session {session.id!r}: entry {entry.seq} was erased, so run {entry.run} cannot go on, or be "
            "given again. Begin another one"
        )
    data = msgspec.json.decode(entry.content)
    return put_back(data, blobs.read) if has_marks(bytes(entry.content)) else data


def spans_until(state: SessionState, seq: int) -> tuple[Span, ...]:
    """What of the journal the transcript consisted of after an entry, if nothing was left behind since."""
    spans = state.transcript_fold.spans
    return tuple(Span(one.first, min(one.last, seq)) for one in spans if one.first <= seq)
