"""One namespace of a thread: its checkpoints and writes, read from the journal as they are needed.

`thread_index.py` describes the entries.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

import msgspec
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    DeltaChannelHistory,
    PendingWrite,
    writes_sort_key,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import ERROR
from msgspec import Raw, Struct

from ...content.extract import Piece
from ...core.entries import AdapterBody, Entry
from ...errors import Corrupt
from ..leaseless_journal import EntryToWrite, NotLoaded
from .change_tracking import LastWritten
from .delta_encode import Elements, is_snapshot
from .serde import CheckedSerializer
from .thread_index import KEPT, PUT, WRITES, StoredIndex, ThreadIndex

_WHERE: Final = "a LangGraph thread"


def new_entry(
    kind: str, data: dict[str, Any], content: bytes | None = None, pieces: tuple[Piece, ...] = ()
) -> EntryToWrite:
    """An entry of one of the kinds of `thread_index.py`."""
    return EntryToWrite(kind=kind, body=AdapterBody(data=data), content=content, pieces=pieces)


class StoredWrite(NamedTuple):
    """A task's write to a channel; `place` is its index, below zero for LangGraph's special channels."""

    task: str
    path: str
    place: int
    channel: str
    value: Raw


class StoredCheckpoint(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A checkpoint. `doc` is all of it but its id and its values, which `channels` has by channel."""

    id: str
    doc: Raw
    meta: Raw
    channels: Raw
    writes: tuple[StoredWrite, ...] = ()


_ABSENT: Final = Raw()


class _Content(Struct, kw_only=True):
    """The content of an entry: of `put`, `writes` or `kept`."""

    elements: list[Raw] | dict[int, Raw] = {}
    doc: Raw = _ABSENT
    meta: Raw = _ABSENT
    channels: Raw = _ABSENT
    task: str = ""
    path: str = ""
    writes: list[tuple[int, str, Raw]] = []
    records: list[StoredCheckpoint] = []
    ahead: dict[str, tuple[StoredWrite, ...]] = {}
    """Writes that were stored before their checkpoint, by its id."""


class _Left(Struct, kw_only=True, omit_defaults=True):
    """The content of `kept`."""

    elements: dict[int, Raw] = {}
    records: list[StoredCheckpoint]
    ahead: dict[str, tuple[StoredWrite, ...]] = {}


_encode = msgspec.json.Encoder().encode
_read_content = msgspec.json.Decoder(_Content).decode


class _Writes(Struct):
    """The writes of a checkpoint, by task and place, after as many of its entries."""

    count: int = 0
    found: dict[tuple[str, int], StoredWrite] = {}


class _Alive(Struct, kw_only=True):
    """What the latest checkpoint consists of, with the writes that were stored before their checkpoint."""

    numbers: list[int]
    elements: list[Any]
    records: list[StoredCheckpoint]
    ahead: dict[str, tuple[StoredWrite, ...]] = {}


class _StoredThread(Struct, kw_only=True):
    """A thread in a keyframe."""

    index: StoredIndex
    alive: _Alive | None


_read_thread = msgspec.json.Decoder(_StoredThread).decode


class _Last(NamedTuple):
    """The checkpoint that was read or written last, in the form that the next one is compared with."""

    id: str
    versions: ChannelVersions
    nodes: dict[str, bytes]


def _refuse_to_load(seq: int) -> None:
    raise NotLoaded


class ThreadState:
    """The checkpoints and writes of one namespace of a thread.

    `load` reads the content of an entry and gives it to `add_contents`, or raises `NotLoaded`.
    """

    def __init__(self, serde: SerializerProtocol, *, trust_objects: bool, inline_bytes: int | None) -> None:
        self.load: Callable[[int], None] = _refuse_to_load
        self.index = ThreadIndex()
        self.values = Elements(serde, trust_objects=trust_objects, inline_bytes=inline_bytes)
        self.values.load = self._load_element
        # What LangGraph itself says is not the application's: it is never encrypted, and needs no list.
        self.own = LangGraphValues(self.values)
        self._begin()

    def _begin(self) -> None:
        self.values.clear()
        self._loaded: set[int] = set()
        """Entries whose contents are in memory, or were made here."""
        self._records: dict[str, StoredCheckpoint] = {}
        self._entry_writes: dict[int, Mapping[str, Sequence[StoredWrite]]] = {}
        """What each entry has written, by checkpoint."""
        self._writes: dict[str, _Writes] = {}
        self._made: Sequence[StoredWrite] = ()
        """The writes in the entry that was made last."""
        self._kept: dict[str, LastWritten | None] = {}
        self._doc: LastWritten | None = None
        self._meta: LastWritten | None = None
        self._map: LastWritten | None = None
        self._last: _Last | None = None

    @property
    def checkpoints(self) -> dict[str, int]:
        """The checkpoints, in the order in which they were put, and the entry of each."""
        return self.index.checkpoints

    @property
    def memory_bytes(self) -> int:
        """About what it takes in memory."""
        return self.index.memory_bytes + self.values.bytes

    # -- folding -------------------------------------------------------------------------------------

    def reset(self, index: ThreadIndex | None = None) -> None:
        """Begin with nothing, or with an index that was stored."""
        self.index = index or ThreadIndex()
        self._begin()
        self.values.next, self.values.has_blobs = self.index.next, self.index.has_blobs

    def apply(self, entry: Entry) -> None:
        """Fold an entry that was read."""
        if not self.index.apply(entry):
            return
        if entry.kind == KEPT:
            self._begin()  # What is in memory may be gone.
        elif entry.kind == PUT:
            id = self.index.owners[entry.seq]
            self._records.pop(id, None)
            if self._last is not None and self._last.id == id:
                self._last = None
        self.values.next, self.values.has_blobs = self.index.next, self.index.has_blobs

    def apply_own(self, entry: Entry, content: bytes | None) -> None:
        """Fold an entry that was made here."""
        if not self.index.apply(entry):
            return
        if entry.kind == KEPT:
            self._begin()
            assert content is not None
            self.add_contents({entry.seq: Raw(content)})
        else:
            self._loaded.add(entry.seq)
            if entry.kind == WRITES:
                self._entry_writes[entry.seq] = {self.index.owners[entry.seq]: self._made}
        self.values.next, self.values.has_blobs = self.index.next, self.index.has_blobs

    # -- contents ------------------------------------------------------------------------------------

    def find_unloaded(self, seq: int, count: int) -> int:
        """The first of up to `count` entries that end with `seq` and whose contents are not in memory."""
        entries = self.index.entries
        place = bisect_left(entries, seq)
        first = max(0, place - count + 1)
        while place > first and entries[place - 1] not in self._loaded:
            place -= 1
        return entries[place]

    def add_contents(self, contents: Mapping[int, Any]) -> None:
        """Take in the contents of entries, as they were read."""
        for seq, content in contents.items():
            if isinstance(content, Raw) and seq not in self._loaded and self.index.has_entry(seq):
                try:
                    self._add_content(seq, _read_content(content), len(memoryview(content)))
                except (msgspec.DecodeError, ValueError, LookupError) as error:
                    raise Corrupt(_WHERE, f"its content makes no sense ({error!r})", seq=seq) from error

    def _add_content(self, seq: int, found: _Content, size: int) -> None:
        index = self.index
        id = index.owners.get(seq)
        elements = found.elements
        if isinstance(elements, list):
            numbers = index.find_elements(seq)
            elements = dict(zip(numbers, elements, strict=True))
        self.values.add(elements, size)
        self._loaded.add(seq)
        if id is not None and index.checkpoints.get(id) == seq:
            if _ABSENT in (found.doc, found.meta, found.channels):
                raise ValueError("a part of the checkpoint is missing")
            self._records[id] = StoredCheckpoint(
                id=id, doc=found.doc, meta=found.meta, channels=found.channels
            )
        elif found.writes and id is not None:
            writes = [StoredWrite(found.task, found.path, *one) for one in found.writes]
            self._entry_writes[seq] = {id: writes}
        elif found.records or found.ahead:
            here = [one for one in found.records if index.checkpoints.get(one.id) == seq]
            self._records.update((one.id, one) for one in here)
            self._entry_writes[seq] = {**found.ahead, **{one.id: one.writes for one in found.records}}

    def _need(self, seq: int) -> None:
        if seq not in self._loaded:
            self.load(seq)

    def _load_element(self, number: int) -> None:
        seq = self.index.find_element(number)
        if seq is not None:
            self._need(seq)

    def _record(self, id: str) -> StoredCheckpoint:
        """A checkpoint that is there."""
        found = self._records.get(id)
        if found is None:
            self._need(self.index.checkpoints[id])
            found = self._records.get(id)
            if found is None:
                raise Corrupt(_WHERE, f"checkpoint {id} has no content", seq=self.index.checkpoints[id])
        return found

    def writes_of(self, id: str) -> dict[tuple[str, int], StoredWrite]:
        """The writes of a checkpoint, by task and place."""
        known = self._writes.setdefault(id, _Writes())
        entries = self.index.writes.get(id, ())
        if known.count < len(entries):
            for seq in reversed(entries[known.count :]):
                self._need(seq)
            for seq in entries[known.count :]:
                _note(known.found, self._entry_writes.get(seq, {}).get(id, ()))
            known.count = len(entries)
        return known.found

    # -- writing -------------------------------------------------------------------------------------

    def put(
        self,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        versions: ChannelVersions,
        parent: str | None,
    ) -> EntryToWrite:
        """The entry of a checkpoint, folded already. `versions` are those of the channels that changed."""
        doc = {key: value for key, value in checkpoint.items() if key not in ("id", "channel_values")}
        nodes = self._write_channels(checkpoint, versions, parent)
        channels, self._map = self.values.write_map(nodes, self._map)
        written, self._doc = self.own.write(doc, self._doc)
        meta, self._meta = self.own.write(_as_lists(dict(metadata)), self._meta)
        id = checkpoint["id"]
        self._last = _Last(id, dict(checkpoint["channel_versions"]), nodes)
        self._records[id] = StoredCheckpoint(id=id, doc=Raw(written), meta=Raw(meta), channels=Raw(channels))
        first, fresh = self.values.take_fresh()
        content = b'{"elements":[%b],"doc":%b,"meta":%b,"channels":%b}' % (
            b",".join(fresh), written, meta, channels,
        )  # fmt: skip
        pieces = self.values.take_pieces()
        body = _body(first, len(fresh), content, id=id, parent=parent, blobs=bool(pieces))
        return new_entry(PUT, body, content, pieces)

    def load_for_put(
        self, checkpoint: Checkpoint, versions: ChannelVersions | None, parent: str | None
    ) -> None:
        """Look at all that `put` needs: what is not in memory would be written again."""
        if versions is None:
            versions = self.changed(checkpoint, parent)
        before = self._recall(parent)
        if before is not None and before is not self._last and len(self._loaded) < len(self.index.entries):
            for node in before.nodes.values():
                self.values.look_at(node)
        for channel, version in checkpoint["channel_versions"].items():
            if channel not in versions:
                self._inherit(channel, version, before, given=channel in checkpoint["channel_values"])

    def changed(self, checkpoint: Checkpoint, parent: str | None) -> ChannelVersions:
        """The versions that a checkpoint from elsewhere has, and its parent here has not."""
        before = self._recall(parent)
        known = {} if before is None else before.versions
        versions = checkpoint["channel_versions"]
        return {channel: one for channel, one in versions.items() if known.get(channel) != one}

    def _write_channels(
        self, checkpoint: Checkpoint, changed: ChannelVersions, parent: str | None
    ) -> dict[str, bytes]:
        """A channel that has no new version is as it was in the parent, or wherever it had this version."""
        values = checkpoint["channel_values"]
        before = self._recall(parent)
        nodes: dict[str, bytes] = {}
        for channel, version in checkpoint["channel_versions"].items():
            if channel not in changed:
                node = self._inherit(channel, version, before, given=channel in values)
                if node is not None:
                    nodes[channel] = node
                    continue
            if channel in values:
                node, self._kept[channel] = self.values.write(values[channel], self._kept.get(channel))
                nodes[channel] = node
        # Some savers keep values of channels that have no version; so do graphs of old.
        for channel in values.keys() - checkpoint["channel_versions"].keys():
            nodes[channel], self._kept[channel] = self.values.write(values[channel], self._kept.get(channel))
        return nodes

    def _inherit(self, channel: str, version: Any, before: _Last | None, *, given: bool) -> bytes | None:
        if before is not None and before.versions.get(channel) == version:
            return before.nodes.get(channel)
        if given:
            return None
        for id in reversed(self.checkpoints):
            found = self._recall(id)
            if found is not None and found.versions.get(channel) == version and channel in found.nodes:
                return found.nodes[channel]
        return None

    def _recall(self, id: str | None) -> _Last | None:
        if id is None:
            return None
        if self._last is not None and self._last.id == id:
            return self._last
        if id not in self.checkpoints:
            return None
        record = self._record(id)
        doc = self.own.read(record.doc)
        return _Last(id, doc.get("channel_versions", {}), self.values.read_map(record.channels))

    def put_writes(
        self, id: str, writes: Sequence[tuple[str, Any]], task: str, path: str
    ) -> EntryToWrite | None:
        """The entry of a task's writes; None if all of them are stored."""
        indexes = [WRITES_IDX_MAP.get(channel, place) for place, (channel, _) in enumerate(writes)]
        replace = _is_special(indexes)
        known = self.writes_of(id)
        found: list[StoredWrite] = []
        for index, (channel, value) in zip(indexes, writes, strict=True):
            if replace or (task, index) not in known:
                node, _ = self.values.write(value)
                found.append(StoredWrite(task, path, index, channel, Raw(node)))
        if not found:
            return None
        self._made = found
        first, fresh = self.values.take_fresh()
        listed = _encode([(one.place, one.channel, one.value) for one in found])
        content = b'{"task":%b,"path":%b,"elements":[%b],"writes":%b}' % (
            _encode(task), _encode(path), b",".join(fresh), listed,
        )  # fmt: skip
        pieces = self.values.take_pieces()
        failed = all(channel == ERROR for channel, _ in writes)
        body = _body(first, len(fresh), content, id=id, blobs=bool(pieces), failed=failed)
        return new_entry(WRITES, body, content, pieces)

    def keep(self, ids: Iterable[str]) -> EntryToWrite:
        """The entry that keeps these checkpoints, and writes whose checkpoint was not put yet; not folded."""
        elements, records, ahead = self._gather(ids)
        content = _encode(_Left(elements=elements, records=records, ahead=ahead))
        body: dict[str, Any] = {
            "n": self.values.next,
            "size": len(content),
            "left": [(one.id, self.index.parents[one.id]) for one in records],
            "ahead": list(ahead),
        }
        if self.index.has_blobs:
            body["blobs"] = True
        return new_entry(KEPT, body, content)

    def _gather(
        self, ids: Iterable[str]
    ) -> tuple[dict[int, Raw], list[StoredCheckpoint], dict[str, tuple[StoredWrite, ...]]]:
        """These checkpoints with their writes, writes whose checkpoint was not put yet, and what elements
        all of them need."""
        wanted = set(ids)
        records = [
            msgspec.structs.replace(self._record(id), writes=tuple(self._sorted(id)))
            for id in self.checkpoints
            if id in wanted
        ]
        ahead = {id: tuple(self._sorted(id)) for id in self.index.list_ahead()}
        nodes = [node for one in records for node in (one.doc, one.meta, one.channels)]
        nodes += [write.value for one in records for write in one.writes]
        nodes += [write.value for writes in ahead.values() for write in writes]
        return self.values.reach(nodes), records, ahead

    # -- keyframes -----------------------------------------------------------------------------------

    def store(self) -> bytes:
        """The index, and what the latest checkpoint consists of, as JSON."""
        return _encode(_StoredThread(index=self.index.store(), alive=self._find_alive()))

    def _find_alive(self) -> _Alive | None:
        """None if not all of it is in memory: it is then not worth reading it."""
        latest = self.latest()
        for find in (self.needed, set):
            try:
                elements, records, ahead = self._gather(() if latest is None else find([latest]))
            except (NotLoaded, Corrupt):
                continue
            return _Alive(
                numbers=list(elements), elements=list(elements.values()), records=records, ahead=ahead
            )
        return None

    def restore(self, data: Raw) -> None:
        """Begin with what was stored; an exception if it makes no sense."""
        stored = _read_thread(data)
        self.reset(ThreadIndex.restore(stored.index))
        alive, writes = stored.alive, self.index.writes
        if alive is None:
            return
        parts = dict(zip(alive.numbers, alive.elements, strict=True))
        self.values.add_parts(parts, len(memoryview(data)))
        self._records = {one.id: one for one in alive.records}
        given = {**alive.ahead, **{one.id: one.writes for one in alive.records}}
        for id, found in given.items():
            known = {(one.task, one.place): one for one in found}
            self._writes[id] = _Writes(len(writes.get(id, ())), known)

    # -- reading -------------------------------------------------------------------------------------

    def latest(self) -> str | None:
        """The checkpoint with the greatest id."""
        return max(self.checkpoints, default=None)

    def metadata(self, id: str) -> CheckpointMetadata:
        """A checkpoint's metadata."""
        return cast(CheckpointMetadata, self.own.read(self._record(id).meta))

    def checkpoint(self, id: str, *, keep: bool) -> Checkpoint:
        """A checkpoint with its values. With `keep`, the next `put` goes on from these objects."""
        record = self._record(id)
        doc = self.own.read(record.doc)
        nodes = self.values.read_map(record.channels)
        values: dict[str, Any] = {}
        for channel, node in nodes.items():
            value, kept = self.values.read(node, keep=keep, last=self._kept.get(channel))
            values[channel] = value
            if keep:
                self._kept[channel] = kept
        if keep:
            self._last = _Last(id, dict(doc.get("channel_versions", {})), nodes)
        return cast(Checkpoint, {**doc, "id": id, "channel_values": values})

    def pending(self, id: str) -> list[PendingWrite]:
        """What tasks have written after a checkpoint, in the order in which they are applied."""
        return [(one.task, one.channel, self.values.read(one.value)[0]) for one in self._sorted(id)]

    def _sorted(self, id: str) -> list[StoredWrite]:
        return sorted(
            self.writes_of(id).values(), key=lambda one: writes_sort_key(one.path, one.task, one.place)
        )

    def ancestors(self, id: str) -> Iterator[str]:
        """The checkpoints that one was built on, the nearest first, each once.

        `put` may name any parent, so the chain can lead back to where it began.
        """
        seen = {id}
        parent = self.index.parents.get(id)
        while parent is not None and parent not in seen and parent in self.checkpoints:
            yield parent
            seen.add(parent)
            parent = self.index.parents.get(parent)

    def delta_history(self, id: str, channels: Sequence[str]) -> Mapping[str, DeltaChannelHistory]:
        """For each channel, the nearest value that an ancestor has, and what was written since."""
        writes: dict[str, list[PendingWrite]] = {one: [] for one in channels}
        seeds: dict[str, Any] = {}
        open_ones = set(channels)
        for ancestor in self.ancestors(id):
            if not open_ones:
                break
            for one in reversed(self._sorted(ancestor)):
                if one.channel in open_ones:
                    writes[one.channel].append((one.task, one.channel, self.values.read(one.value)[0]))
            nodes = self.values.read_map(self._record(ancestor).channels)
            for channel in open_ones & nodes.keys():
                seeds[channel] = self.values.read(nodes[channel])[0]
            open_ones -= nodes.keys()
        found: dict[str, DeltaChannelHistory] = {}
        for channel in channels:
            found[channel] = {"writes": writes[channel][::-1]}
            if channel in seeds:
                found[channel]["seed"] = seeds[channel]
        return found

    def needed(self, ids: Iterable[str]) -> set[str]:
        """These checkpoints, and the ancestors that their delta channels are rebuilt from."""
        found: set[str] = set()
        for id in ids:
            if id in self.checkpoints:
                record = self._record(id)
                found.add(id)
                have = self.values.read_map(record.channels)
                for channel in self.own.read(record.doc).get("channel_versions", {}).keys() - have.keys():
                    found |= self._rebuilt_from(id, channel)
        return found

    def _rebuilt_from(self, id: str, channel: str) -> set[str]:
        """The ancestors that a delta channel is rebuilt from: those since its last snapshot.

        A plain value counts as one if the channel was written to since: it was no delta channel then. If it
        was not, the channel is empty now, and is rebuilt from nothing.
        """
        found: set[str] = set()
        written = False
        for ancestor in self.ancestors(id):
            found.add(ancestor)
            written |= any(one.channel == channel for one in self.writes_of(ancestor).values())
            value = self.values.read_map(self._record(ancestor).channels).get(channel)
            if value is not None:
                return found if is_snapshot(value) or written else set()
        return found if written else set()


class LangGraphValues:
    """LangGraph's own fields of a checkpoint, as elements that are never encrypted."""

    def __init__(self, elements: Elements) -> None:
        self._elements, self._serde = elements, CheckedSerializer()

    def write(self, value: dict[str, Any], kept: LastWritten | None) -> tuple[bytes, LastWritten | None]:
        """The value as JSON, and how it was written."""
        with self._elements.by(self._serde):
            return self._elements.write_plain(value, kept)

    def read(self, node: Raw) -> dict[str, Any]:
        """The value."""
        with self._elements.by(self._serde):
            value: dict[str, Any] = self._elements.read(node)[0]
            return value


def _as_lists(value: Any) -> Any:
    """The value with lists in place of tuples: so does every saver of LangGraph's return metadata."""
    if value.__class__ is dict:
        return {key: _as_lists(one) for key, one in value.items()}
    return [*map(_as_lists, value)] if value.__class__ in (list, tuple) else value


def _is_special(indexes: Iterable[int]) -> bool:
    return all(index < 0 for index in indexes)


def _note(known: dict[tuple[str, int], StoredWrite], writes: Sequence[StoredWrite]) -> None:
    """Add writes to those that are there: only special ones replace any."""
    replace = _is_special(one.place for one in writes)
    for one in writes:
        if replace or (one.task, one.place) not in known:
            known[one.task, one.place] = one


def _body(first: int, count: int, content: bytes, *, id: str, **more: str | bool | None) -> dict[str, Any]:
    """What is said of an entry beside its content; what is empty is left out."""
    given = {key: value for key, value in more.items() if value}
    return {"n": first, "m": count, "size": len(content), "id": id, **given}
