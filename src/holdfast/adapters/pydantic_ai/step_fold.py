"""The fold over the entries of step persistence: runs, events, snapshots and tool effects.

A snapshot is stored as what it adds to an earlier one: where that is, how many of its messages to keep, and
the new ones, word for word.

A keyframe holds what is needed to go on: the runs that have not ended, without their past events and
snapshots, and the last snapshots of the conversation, without their messages. Messages are read when they are
looked at. For what a keyframe leaves out, the journal is read from its beginning (`FoldIncomplete`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw, Struct, field

from ...core.entries import AdapterBody, Entry, RunStarted
from ...errors import Corrupt
from ...ids import fit_session_id
from ..leaseless_journal import FoldIncomplete

EVENTS: Final = "adapter.steps.events"
SNAPSHOT: Final = "adapter.steps.snapshot"
EFFECT: Final = "adapter.steps.effect"
CONFIG: Final = "pydantic_ai"
"""Where `run.started` has the record of the run, as their store was given it."""

_split = msgspec.json.Decoder(list[Raw]).decode


Record: TypeAlias = dict[str, Any]
"""One of their records as JSON: whatever fields their version has."""

_SHARED: Final = ("conversation_id", "parent_run_id", "agent_name", "metadata")
"""What events and snapshots repeat from the record of their run."""

_KEY: Final = "idempotency_key"

BASES: Final = 8
"""How many runs of a conversation the first snapshot of another one is compared with."""

_ENTRY_BYTES: Final = 300
_MESSAGE_BYTES: Final = 500
"""What an entry, and a message in it, take in the store: about, as not every message is read."""


def differ(record: Mapping[str, Any], known: Mapping[str, Any]) -> Record:
    """The fields that differ from the known ones; an unknown field counts as null."""
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


class Snapshot(Struct, kw_only=True, gc=False):
    """A history: the first `keep` messages of `base`, then `new` of its own. `seq` is its entry."""

    seq: int
    fields: Record
    base: Snapshot | None
    keep: int
    new: int
    own: tuple[bytes, ...] | None
    """None: they were not read."""
    erased: bool = False
    """Its messages, or those of its base, were erased: it cannot be continued from."""

    @property
    def length(self) -> int:
        """How many messages it has."""
        return self.keep + self.new

    @property
    def is_complete(self) -> bool:
        """Whether its tool calls were settled."""
        return bool(self.fields.get("state") == "complete")

    def list_parts(self) -> list[tuple[Snapshot, int]]:
        """The snapshots that its messages are in, oldest first, and how many of the own ones of each."""
        found: list[tuple[Snapshot, int]] = []
        wanted, one = self.length, self
        while True:
            if wanted > one.keep:
                found.append((one, wanted - one.keep))
                wanted = one.keep
            if one.base is None or not wanted:
                return found[::-1]
            one = one.base

    def list_messages(self) -> list[bytes]:
        """Its messages, each as JSON. They were read."""
        return [message for one, count in self.list_parts() for message in (one.own or ())[:count]]


class RunSteps(Struct, kw_only=True):
    """The records of one run."""

    run_id: str
    record: Record | None = None
    events: list[Record] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    effects: dict[str, Record] = field(default_factory=dict)
    event_keys: set[str] = field(default_factory=set)
    snapshot_keys: set[str] = field(default_factory=set)
    last_key: int = -1
    last_event: Record | None = None
    """The last one in the journal, with a short key; what is held comes after it."""
    last_snapshot: Record | None = None
    """The fields of the last one in the journal, with a short key."""
    is_partial: bool = False
    """Of the events and snapshots before a keyframe, only snapshots are here that may be gone on from."""

    def get_past(self) -> RunSteps:
        """This, with all events and snapshots. `FoldIncomplete` if they are not here."""
        if self.is_partial:
            raise FoldIncomplete
        return self

    def knows_event(self, key: str | None) -> bool:
        """Whether an append is a repetition."""
        return key is not None and key in self.event_keys

    def knows_snapshot(self, key: str | None) -> bool:
        """Whether a save is a repetition: a known key, or one with a lower number than the last one had."""
        if key is None:
            return False
        number = _number_of(key)
        return key in self.snapshot_keys or (number is not None and number < self.last_key)

    def find_latest(self, *, include_interrupted: bool) -> Snapshot | None:
        """The newest snapshot to continue from."""
        found = self.list_snapshots(include_interrupted=include_interrupted)
        return found[-1] if found else None

    def list_snapshots(self, *, include_interrupted: bool) -> list[Snapshot]:
        """The snapshots to continue from, oldest first: as far as they are here."""
        return [one for one in self.snapshots if not one.erased and (include_interrupted or one.is_complete)]

    def list_needed(self) -> list[Snapshot]:
        """The snapshots that the run, or another one, may be continued from: the last of each sort."""
        found = {one.seq: one for one in self.snapshots[-1:]}
        for include_interrupted in (True, False):
            latest = self.find_latest(include_interrupted=include_interrupted)
            if latest is not None:
                found[latest.seq] = latest
        return [found[seq] for seq in sorted(found)]

    # -- as they are written -------------------------------------------------------------------------

    def write_events(self, records: Iterable[Record]) -> list[Record]:
        """What is to be written of events, in one line."""
        said: list[Record] = []
        last = self.last_event
        for record in records:
            short = shorten(record, tail_of_event(record))
            said.append(differ(short, self._expect_event(record.get("tool_call_id"), last)))
            last = short
        return said

    def write_snapshot(self, record: Record) -> Record:
        """What is to be written of a snapshot, its messages aside."""
        return differ(shorten(record, tail_of_snapshot(record)), self._expect_snapshot())

    def write_effect(self, record: Record) -> Record:
        """What is to be written of a tool call's effect: what is new since it was last recorded."""
        call = record["tool_call_id"]
        known = {**self.effects.get(call, {}), "run_id": self.run_id}
        return {"tool_call_id": call, **differ(record, known)}

    # -- as they are read ----------------------------------------------------------------------------

    def note_event(self, record: Record) -> None:
        """An event, as it was given."""
        self.events.append(record)
        if record.get("idempotency_key") is not None:
            self.event_keys.add(record["idempotency_key"])

    def read_event(self, data: Record, *, known: bool = False) -> None:
        """An event, as it was written. Of several with one key, the first counts. `known`: it was noted when
        it happened."""
        short = {**self._expect_event(data.get("tool_call_id"), self.last_event), **data}
        self.last_event = short
        record = lengthen(short, tail_of_event(short))
        if not known and not self.knows_event(record.get("idempotency_key")):
            self.note_event(record)

    def read_snapshot(self, data: Record) -> Record:
        """The fields of a snapshot, as they were given."""
        short = self.last_snapshot = {**self._expect_snapshot(), **data}
        record = lengthen(short, tail_of_snapshot(short))
        key = record.get("idempotency_key")
        if key is not None:
            self.snapshot_keys.add(key)
            self.last_key = max(self.last_key, _number_of(key) or 0)
        return record

    def read_effect(self, data: Record) -> None:
        """How a tool call stands."""
        call = data["tool_call_id"]
        self.effects[call] = {**self.effects.get(call, {}), "run_id": self.run_id, **data}

    # -- as they are expected ------------------------------------------------------------------------

    def _expect_event(self, call: str | None, last: Record | None) -> Record:
        effect = self.effects.get(call) if call is not None else None
        known = {} if effect is None else {"tool_name": effect.get("tool_name")}
        return {**self._shared(), **after_event(last), **known}

    def _expect_snapshot(self) -> Record:
        return {**self._shared(), **after_snapshot(self.last_snapshot)}

    def _shared(self) -> Record:
        return {**shared_of(self.record), "run_id": self.run_id}


class StoredSnapshot(Struct, kw_only=True, omit_defaults=True):
    """A snapshot in a keyframe, without its messages."""

    seq: int
    keep: int
    new: int
    base: int | None = None
    fields: Record = {}
    """Only of snapshots that may be gone on from."""
    erased: bool = False


class StoredRun(Struct, kw_only=True, omit_defaults=True):
    """A run in a keyframe."""

    run_id: str
    record: Record | None = None
    effects: list[Record] = []
    event_keys: list[str] = []
    snapshot_keys: list[str] = []
    last_key: int = -1
    last_event: Record | None = None
    last_snapshot: Record | None = None
    snapshots: list[int] = []


class StoredSteps(Struct, kw_only=True, omit_defaults=True):
    """The fold in a keyframe."""

    snapshots: list[StoredSnapshot] = []
    """Those that are named below, and those that they are made of: what one is based on stands before it."""
    runs: list[StoredRun] = []
    ended: list[str] = []
    """The runs that are left out."""
    recent: list[int] = []
    """Their snapshots that another run may go on from."""


_decode_stored = msgspec.json.Decoder(StoredSteps).decode


class Steps:
    """The fold over one journal."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._by_seq: dict[int, Snapshot] = {}
        self._ended: set[str] = set()
        """Runs that a keyframe has left out …"""
        self._recent: list[Snapshot] = []
        """… and their snapshots that another run may go on from."""
        self._is_partial = False
        self.runs: dict[str, RunSteps] = {}
        self.folded_bytes = 0
        """About how many bytes the entries are in the store that were folded here."""

    def apply(self, entry: Entry, *, events_known: bool = False) -> None:
        """Fold the next entry; those of others say nothing here. `events_known`: it is one of ours, and its
        events were noted when they happened."""
        body = entry.body
        if isinstance(body, RunStarted) and isinstance(body.config, dict) and CONFIG in body.config:
            record = body.config[CONFIG]
            self.get(record["run_id"]).record = record
            self.folded_bytes += _ENTRY_BYTES
        elif isinstance(body, AdapterBody) and entry.kind in (EVENTS, EFFECT, SNAPSHOT):
            try:
                self._read(entry, body.data, events_known)
            except (KeyError, TypeError, AttributeError) as error:
                why = f"not a record of step persistence ({error!r})"
                raise Corrupt(self._where, why, seq=entry.seq) from error

    def _read(self, entry: Entry, data: Record, events_known: bool) -> None:
        self.folded_bytes += _ENTRY_BYTES
        run = self.get(data.get("run") or entry.run or "")
        for one in data.get("events", ()):
            run.read_event(one, known=events_known)
        if entry.kind == EFFECT:
            run.read_effect(data["effect"])
        elif entry.kind == SNAPSHOT:
            self._read_snapshot(entry, run, data)

    def find(self, run_id: str) -> RunSteps | None:
        """The records of a run, if there are any. `FoldIncomplete` if they are not here."""
        if run_id in self._ended:
            raise FoldIncomplete
        return self.runs.get(run_id)

    def get(self, run_id: str) -> RunSteps:
        """The records of a run, perhaps none. `FoldIncomplete` if they are not here."""
        return self.find(run_id) or self.runs.setdefault(run_id, RunSteps(run_id=run_id))

    def list_recent(self) -> list[Snapshot]:
        """The last snapshot of each run, the latest first: what another run may go on from."""
        last = [run.snapshots[-1] for run in self.runs.values() if run.snapshots]
        last = [one for one in (*self._recent, *last) if not one.erased]
        return sorted(last, key=lambda one: one.seq, reverse=True)[:BASES]

    # -- in keyframes --------------------------------------------------------------------------------

    def store(self, has_ended: Callable[[str], bool]) -> bytes:
        """What is needed to go on."""
        ended = {run_id for run_id in self.runs if has_ended(run_id)}
        runs = [run for run in self.runs.values() if run.run_id not in ended]
        needed = {run.run_id: run.list_needed() for run in runs}
        kept = {one.seq: one for snapshots in needed.values() for one in snapshots}
        recent = [one for one in self.list_recent() if one.seq not in kept]
        kept.update((one.seq, one) for one in recent)
        parts = {part.seq: part for one in kept.values() if not one.erased for part, _ in one.list_parts()}
        stored = StoredSteps(
            snapshots=[_store_snapshot(one, kept) for _, one in sorted((parts | kept).items())],
            runs=[_store_run(run, needed[run.run_id]) for run in runs],
            ended=sorted(self._ended | ended),
            recent=[one.seq for one in recent],
        )
        return msgspec.json.encode(stored)

    def restore(self, data: Raw) -> None:
        """Go on from what a keyframe holds."""
        stored = _decode_stored(data)
        for one in stored.snapshots:
            self._by_seq[one.seq] = Snapshot(
                seq=one.seq,
                fields=one.fields,
                base=None if one.base is None else self._by_seq[one.base],
                keep=one.keep,
                new=one.new,
                own=None if one.new else (),
                erased=one.erased,
            )
        for run in stored.runs:
            self.runs[run.run_id] = RunSteps(
                run_id=run.run_id,
                record=run.record,
                snapshots=[self._by_seq[seq] for seq in run.snapshots],
                effects={effect["tool_call_id"]: effect for effect in run.effects},
                event_keys=set(run.event_keys),
                snapshot_keys=set(run.snapshot_keys),
                last_key=run.last_key,
                last_event=run.last_event,
                last_snapshot=run.last_snapshot,
                is_partial=True,
            )
        self._recent = [self._by_seq[seq] for seq in stored.recent]
        self._ended, self._is_partial = set(stored.ended), True

    # -- snapshots -----------------------------------------------------------------------------------

    def _read_snapshot(self, entry: Entry, run: RunSteps, data: Record) -> None:
        base = None
        if data.get("base") is not None:
            base = self._by_seq.get(data["base"])
            if base is None and self._is_partial:
                raise FoldIncomplete
            if base is None or base.length < data["keep"]:
                why = f"the history it goes on from ({data['base']}) is not there"
                raise Corrupt(self._where, why, seq=entry.seq)
        own = None if entry.unread and data["new"] else split(entry.content)
        is_erased = own is not None and len(own) != data["new"]
        snapshot = Snapshot(
            seq=entry.seq,
            fields=run.read_snapshot(data["snapshot"]),
            base=base,
            keep=data["keep"],
            new=data["new"],
            own=own,
            erased=is_erased or (base is not None and base.erased),
        )
        self.folded_bytes += snapshot.new * _MESSAGE_BYTES
        self._by_seq[entry.seq] = snapshot
        run.snapshots.append(snapshot)


def _store_snapshot(one: Snapshot, kept: Mapping[int, Snapshot]) -> StoredSnapshot:
    # What was erased is not read any more, and nothing goes on from it. Otherwise, the base is the snapshot
    # that has the last message to keep: those in between may not be in the keyframe.
    before = () if one.erased or not one.keep else [part for part, _ in one.list_parts() if part is not one]
    base = before[-1].seq if before else None
    fields = one.fields if one.seq in kept else {}
    return StoredSnapshot(
        seq=one.seq, keep=one.keep, new=one.new, base=base, fields=fields, erased=one.erased
    )


def _store_run(run: RunSteps, snapshots: Iterable[Snapshot]) -> StoredRun:
    return StoredRun(
        run_id=run.run_id,
        record=run.record,
        effects=list(run.effects.values()),
        event_keys=sorted(run.event_keys),
        # A lower number than the last one says enough.
        snapshot_keys=sorted(
            key for key in run.snapshot_keys if (_number_of(key) or run.last_key) >= run.last_key
        ),
        last_key=run.last_key,
        last_event=run.last_event,
        last_snapshot=run.last_snapshot,
        snapshots=[one.seq for one in snapshots],
    )


def split(content: bytes | Raw | None) -> tuple[bytes, ...]:
    """The messages in an entry, each as JSON; none, if they were erased."""
    return () if content is None else tuple(map(bytes, _split(content)))


def name_run(run_id: str, data: Record) -> tuple[str, dict[str, Any]]:
    """How an entry names its run: on its envelope, and in full where that has no place for the id."""
    fitted = fit_session_id(run_id)
    return fitted, data if fitted == run_id else {"run": run_id, **data}


def join(messages: Iterable[bytes]) -> bytes:
    """A history as JSON."""
    return b"[" + b",".join(messages) + b"]"


def _number_of(key: str) -> int | None:
    """The number that the keys of `StepPersistence` begin with, and that grows with every save."""
    prefix, colon, _ = key.partition(":")
    return int(prefix) if colon and prefix.isdecimal() else None
