"""One namespace of a thread: the fold over the adapter's entries in its journal.

| kind, after `adapter.langgraph.` | body | content |
| --- | --- | --- |
| `named`  | `thread`, `ns` | |
| `put`    | `id`, `parent`, `n` | a checkpoint: `doc`, `meta`, `channels`, and new elements |
| `writes` | `id`, `task`, `path`, `n` | `writes`: [index, channel, value], and new elements |
| `kept`   | | checkpoints and writes that are left, and their elements: what came before is void |

`by` in every body is the saver that wrote it, `at` its process, `n` the number of the first of the line's
elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from ...core.entries import ADAPTER_PREFIX, AdapterBody, Entry
from ..leaseless_journal import NewEntry
from .change_tracking import LastWritten
from .delta_encode import Elements, is_snapshot
from .serde import CheckedSerializer

PREFIX: Final = f"{ADAPTER_PREFIX}langgraph."
NAMED, PUT, WRITES, KEPT = (PREFIX + one for one in ("named", "put", "writes", "kept"))


def new_entry(
    kind: str, data: dict[str, Any], content: bytes | None = None, pieces: tuple[Piece, ...] = ()
) -> NewEntry:
    """An entry of one of these kinds."""
    return NewEntry(kind=kind, body=AdapterBody(data=data), content=content, pieces=pieces)


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
    parent: str | None = None
    doc: Raw
    meta: Raw
    channels: Raw
    writes: tuple[StoredWrite, ...] = ()


class _Put(Struct, kw_only=True):
    elements: list[Raw] = []
    doc: Raw
    meta: Raw
    channels: Raw


class _Writes(Struct, kw_only=True):
    elements: list[Raw] = []
    writes: list[tuple[int, str, Raw]]


class _Left(Struct, kw_only=True, omit_defaults=True):
    elements: dict[int, Raw] = {}
    records: list[StoredCheckpoint]
    ahead: dict[str, tuple[StoredWrite, ...]] = {}
    """Writes that were stored before their checkpoint, by its id."""


_encode = msgspec.json.Encoder().encode
_read_put = msgspec.json.Decoder(_Put).decode
_read_writes = msgspec.json.Decoder(_Writes).decode
_read_left = msgspec.json.Decoder(_Left).decode


class _Last(NamedTuple):
    """The checkpoint that was read or written last, in the form that the next one is compared with."""

    id: str
    versions: ChannelVersions
    nodes: dict[str, bytes]


def notes_failure(entry: Entry) -> bool:
    """Whether the entry only says that a task has failed: another process may still be doing it."""
    if entry.kind != WRITES or entry.content is None:
        return False
    return all(channel == ERROR for _, channel, _ in _read_writes(entry.content).writes)


class ThreadState:
    """The checkpoints and writes of one namespace of a thread."""

    def __init__(self, serde: SerializerProtocol, *, trust_objects: bool, inline_bytes: int | None) -> None:
        self.checkpoints: dict[str, StoredCheckpoint] = {}
        self.writes: dict[str, dict[tuple[str, int], StoredWrite]] = {}
        self._put: set[str] = set()
        """The ids of all checkpoints that were ever put, removed ones included."""
        self.values = Elements(serde, trust_objects=trust_objects, inline_bytes=inline_bytes)
        self._kept: dict[str, LastWritten | None] = {}
        self._doc: LastWritten | None = None
        self._meta: LastWritten | None = None
        self._map: LastWritten | None = None
        self._last: _Last | None = None
        # What LangGraph itself says is not the application's: it is never encrypted, and needs no list.
        self.own = LangGraphValues(self.values)

    # -- folding -------------------------------------------------------------------------------------

    def apply(self, entry: Entry) -> None:
        """Fold the next entry. A later entry makes an erased one void."""
        body = entry.body
        if not entry.kind.startswith(PREFIX) or not isinstance(body, AdapterBody):
            return
        said: Any = body.data
        if entry.kind == PUT:
            self._put.add(said["id"])
        if entry.content is None:
            return
        if entry.kind == PUT:
            put = _read_put(entry.content)
            self.values.add(enumerate(put.elements, said["n"]))
            self.checkpoints[said["id"]] = StoredCheckpoint(
                id=said["id"], parent=said.get("parent"), doc=put.doc, meta=put.meta, channels=put.channels
            )
        elif entry.kind == WRITES:
            found = _read_writes(entry.content)
            self.values.add(enumerate(found.elements, said["n"]))
            self._note(said["id"], [StoredWrite(said["task"], said["path"], *one) for one in found.writes])
        elif entry.kind == KEPT:
            self._forget(_read_left(entry.content))

    def _note(self, id: str, writes: Sequence[StoredWrite]) -> None:
        known = self.writes.setdefault(id, {})
        replace = _is_special(one.place for one in writes)
        for one in writes:
            if replace or (one.task, one.place) not in known:
                known[one.task, one.place] = one

    def _forget(self, left: _Left) -> None:
        self.values.clear()
        self.values.add(left.elements.items())
        self.checkpoints = {one.id: msgspec.structs.replace(one, writes=()) for one in left.records}
        writes = {**left.ahead, **{one.id: one.writes for one in left.records}}
        self.writes = {id: {(one.task, one.place): one for one in found} for id, found in writes.items()}
        # What they name may be gone.
        self._kept.clear()
        self._doc = self._meta = self._map = self._last = None

    # -- writing -------------------------------------------------------------------------------------

    def put(
        self,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        versions: ChannelVersions,
        parent: str | None,
    ) -> NewEntry:
        """The entry of a checkpoint, folded already. `versions` are those of the channels that changed."""
        doc = {key: value for key, value in checkpoint.items() if key not in ("id", "channel_values")}
        nodes = self._write_channels(checkpoint, versions, parent)
        channels, self._map = self.values.write_map(nodes, self._map)
        written, self._doc = self.own.write(doc, self._doc)
        meta, self._meta = self.own.write(_as_lists(dict(metadata)), self._meta)
        id = checkpoint["id"]
        self._put.add(id)
        self._last = _Last(id, dict(checkpoint["channel_versions"]), nodes)
        self.checkpoints[id] = StoredCheckpoint(
            id=id, parent=parent, doc=Raw(written), meta=Raw(meta), channels=Raw(channels)
        )
        first, fresh = self.values.take_fresh()
        content = b'{"elements":[%b],"doc":%b,"meta":%b,"channels":%b}' % (
            b",".join(fresh), written, meta, channels,
        )  # fmt: skip
        return new_entry(PUT, _body(first, id=id, parent=parent), content, self.values.take_pieces())

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
        record = self.checkpoints.get(id)
        if record is None:
            return None
        doc = self.own.read(record.doc)
        return _Last(id, doc.get("channel_versions", {}), self.values.read_map(record.channels))

    def put_writes(self, id: str, writes: Sequence[tuple[str, Any]], task: str, path: str) -> NewEntry | None:
        """The entry of a task's writes, folded already; None if all of them are stored."""
        indexes = [WRITES_IDX_MAP.get(channel, place) for place, (channel, _) in enumerate(writes)]
        replace = _is_special(indexes)
        known = self.writes.get(id, {})
        found: list[StoredWrite] = []
        for index, (channel, value) in zip(indexes, writes, strict=True):
            if replace or (task, index) not in known:
                node, _ = self.values.write(value)
                found.append(StoredWrite(task, path, index, channel, Raw(node)))
        if not found:
            return None
        self._note(id, found)
        first, fresh = self.values.take_fresh()
        listed = _encode([(one.place, one.channel, one.value) for one in found])
        content = b'{"elements":[%b],"writes":%b}' % (b",".join(fresh), listed)
        body = _body(first, id=id, task=task, path=path)
        return new_entry(WRITES, body, content, self.values.take_pieces())

    def keep(self, ids: Iterable[str]) -> NewEntry:
        """The entry that keeps these checkpoints, and writes whose checkpoint was not put yet; not folded."""
        wanted = set(ids)
        records = [
            msgspec.structs.replace(record, writes=tuple(self._sorted(id)))
            for id, record in self.checkpoints.items()
            if id in wanted
        ]
        ahead = {id: tuple(self._sorted(id)) for id in self.ahead()}
        nodes = [node for one in records for node in (one.doc, one.meta, one.channels)]
        nodes += [write.value for one in records for write in one.writes]
        nodes += [write.value for writes in ahead.values() for write in writes]
        left = _Left(elements=self.values.reach(nodes), records=records, ahead=ahead)
        return new_entry(KEPT, {}, _encode(left))

    def ahead(self) -> list[str]:
        """Checkpoints that were not put yet and have writes: LangGraph may store these first.

        Writes that come after their checkpoint was removed are not among them, and go with the next removal.
        """
        return [id for id in self.writes if id not in self._put]

    # -- reading -------------------------------------------------------------------------------------

    def latest(self) -> str | None:
        """The checkpoint with the greatest id."""
        return max(self.checkpoints, default=None)

    def metadata(self, id: str) -> CheckpointMetadata:
        """A checkpoint's metadata."""
        return cast(CheckpointMetadata, self.own.read(self.checkpoints[id].meta))

    def checkpoint(self, id: str, *, keep: bool) -> Checkpoint:
        """A checkpoint with its values. With `keep`, the next `put` goes on from these objects."""
        record = self.checkpoints[id]
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
        writes = self.writes.get(id, {}).values()
        return sorted(writes, key=lambda one: writes_sort_key(one.path, one.task, one.place))

    def ancestors(self, id: str) -> Iterator[str]:
        """The checkpoints that one was built on, the nearest first, each once.

        `put` may name any parent, so the chain can lead back to where it began.
        """
        seen = {id}
        record = self.checkpoints.get(id)
        while record is not None and record.parent is not None and record.parent not in seen:
            parent = record.parent
            seen.add(parent)
            record = self.checkpoints.get(parent)
            if record is not None:
                yield parent

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
            nodes = self.values.read_map(self.checkpoints[ancestor].channels)
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
            record = self.checkpoints.get(id)
            if record is not None:
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
            written |= any(one.channel == channel for one in self.writes.get(ancestor, {}).values())
            value = self.values.read_map(self.checkpoints[ancestor].channels).get(channel)
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


def _body(first: int, **more: str | None) -> dict[str, Any]:
    return {"n": first, **{key: value for key, value in more.items() if value is not None}}
