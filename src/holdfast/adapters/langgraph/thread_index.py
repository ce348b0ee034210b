"""Where the checkpoints, writes and elements of a thread are in its journal: the fold without contents.

| kind, after `adapter.langgraph.` | body | content |
| --- | --- | --- |
| named  | `thread`, `ns` | |
| put    | `id`, `parent`, `n`, `m`, `blobs`, `size` | a checkpoint: `doc`, `meta`, `channels`; `elements` |
| writes | `id`, `failed`, `n`, `m`, `blobs`, `size` | `task`, `path`, `writes`: [index, channel, value]; … |
| kept   | `left`, `ahead`, `n`, `blobs`, `size` | checkpoints and writes that are left, and their elements |

`by` in every body is the saver that wrote it, `at` its process, `n` the number of the first of the entry's
elements, `m` how many there are, `blobs` whether one of them refers to a blob, `size` the bytes of the
content. `failed`: it only says that a task has failed. What came before a `kept` is void: `left` are the
checkpoints that are left, each with its parent; `ahead` are those that have writes and were not put yet.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Any, Final, NamedTuple

from msgspec import Struct

from ...core.entries import ADAPTER_PREFIX, AdapterBody, Entry

PREFIX: Final = f"{ADAPTER_PREFIX}langgraph."
NAMED, PUT, WRITES, KEPT = (PREFIX + one for one in ("named", "put", "writes", "kept"))

_ENTRY_BYTES: Final = 300
"""What an entry takes, in memory and (without its content) in the store."""


class Wrote(NamedTuple):
    """An entry, the saver that wrote it, and the process of that."""

    seq: int
    by: str
    process: str


class StoredIndex(Struct, kw_only=True):
    """An index in a keyframe."""

    ids: list[str]
    puts: list[int]
    """The entry of each checkpoint."""
    parents: dict[int, str | None] = {}
    """By the place of the checkpoint, where its parent is not the one before it in `ids`."""
    written: list[int | str] = []
    """The checkpoint of each entry of writes, by its place or (if it is not there) its id."""
    writes: list[int] = []
    """The entry."""
    elements: list[int] = []
    """Entries with elements."""
    counts: list[int] = []
    """How many elements each of them has."""
    kept: int = 0
    removed: list[str] = []
    last_wrote: list[Wrote] = []
    has_blobs: bool = False


class ThreadIndex:
    """Which entries of the journal hold what."""

    def __init__(self) -> None:
        self.checkpoints: dict[str, int] = {}
        """The entry of each checkpoint, by its id, in the order in which they were put."""
        self.parents: dict[str, str | None] = {}
        self.writes: dict[str, list[int]] = {}
        """The entries with writes of a checkpoint, which may not be put yet."""
        self.owners: dict[int, str] = {}
        """The checkpoint that an entry puts, or has writes of."""
        self.entries: list[int] = []
        """All entries with contents that are not void."""
        self.next = 0
        """The number of the next element."""
        self.has_blobs = False
        """Whether an element may refer to a blob."""
        self.folded_bytes = 0
        """About how many bytes the entries are in the store that were folded here."""
        self._kept = 0
        """The last `kept` entry: it may have many checkpoints."""
        self._removed: set[str] = set()
        """Checkpoints that were put and are no longer there."""
        self._firsts: list[int] = []
        """The number of the first element of each entry that has elements …"""
        self._elements: list[int] = []
        """… and the entry."""
        self._last_wrote: list[Wrote] = []
        """The last entry, and the last one of another saver than that: of any saver, one of the two is
        another's last."""

    @property
    def memory_bytes(self) -> int:
        """About what it takes in memory."""
        return _ENTRY_BYTES * len(self.entries)

    def has_entry(self, seq: int) -> bool:
        """Whether an entry is one of these, and has a content that is not void."""
        place = bisect_left(self.entries, seq)
        return place < len(self.entries) and self.entries[place] == seq

    # -- folding -------------------------------------------------------------------------------------

    def apply(self, entry: Entry) -> bool:
        """Fold the next entry; False if it is not one of these."""
        body = entry.body
        if not entry.kind.startswith(PREFIX) or not isinstance(body, AdapterBody):
            return False
        data: Any = body.data
        kind, seq = entry.kind, entry.seq
        if kind == NAMED:
            return True
        if kind == KEPT:
            self._forget(seq, data)
        elif kind in (PUT, WRITES):
            self._add(kind, seq, data)
        else:
            return False
        self._note_writer(seq, data)
        self.folded_bytes += _ENTRY_BYTES + data.get("size", 0)
        return True

    def _add(self, kind: str, seq: int, data: Mapping[str, Any]) -> None:
        id = data["id"]
        if kind == PUT:
            self._removed.discard(id)
            self.checkpoints[id], self.parents[id] = seq, data.get("parent")
        else:
            self.writes.setdefault(id, []).append(seq)
        self.owners[seq] = id
        self.entries.append(seq)
        self._add_elements(seq, data["n"], data.get("m", 0))
        self.has_blobs = self.has_blobs or data.get("blobs", False)

    def _add_elements(self, seq: int, first: int, count: int) -> None:
        if first != self.next or count < 0:
            raise ValueError(f"elements {first} to {first + count - 1} do not follow {self.next - 1}")
        if count:
            self._firsts.append(first)
            self._elements.append(seq)
            self.next += count

    def _forget(self, seq: int, data: Mapping[str, Any]) -> None:
        left = dict(data["left"])
        self._kept = seq
        self._removed |= self.checkpoints.keys() - left.keys()
        self.checkpoints, self.parents = dict.fromkeys(left, seq), left
        self.writes = {id: [seq] for id in (*left, *data["ahead"])}
        self.owners, self.entries = {}, [seq]
        self.next = max(self.next, data["n"])
        self._firsts, self._elements = [0], [seq]
        self.has_blobs = data.get("blobs", False)

    def _note_writer(self, seq: int, data: Mapping[str, Any]) -> None:
        if data.get("failed", False):
            return  # Another process may still be doing what failed here.
        wrote = Wrote(seq, data.get("by", "?"), data.get("at", "?"))
        others = [one for one in self._last_wrote if one.by != wrote.by]
        self._last_wrote = [wrote, *others[:1]]

    # -- looking -------------------------------------------------------------------------------------

    def find_element(self, number: int) -> int | None:
        """The entry that has an element, if it is still there."""
        place = bisect_right(self._firsts, number) - 1
        return self._elements[place] if place >= 0 and number < self.next else None

    def find_elements(self, seq: int) -> range:
        """The numbers of the elements of an entry that puts a checkpoint, or has writes."""
        place = bisect_left(self._elements, seq)
        if place == len(self._elements) or self._elements[place] != seq:
            return range(0)
        stop = self._firsts[place + 1] if place + 1 < len(self._firsts) else self.next
        return range(self._firsts[place], stop)

    def find_other_writer(self, writer: str) -> Wrote | None:
        """The last entry that another saver wrote."""
        return next((one for one in self._last_wrote if one.by != writer), None)

    def list_ahead(self) -> list[str]:
        """Checkpoints that were not put yet and have writes: LangGraph may store these first.

        Writes that come after their checkpoint was removed are not among them, and go with the next removal.
        """
        return [id for id in self.writes if id not in self.checkpoints and id not in self._removed]

    # -- keyframes -----------------------------------------------------------------------------------

    def store(self) -> StoredIndex:
        """The index as it is stored."""
        ids = list(self.checkpoints)
        places = {id: place for place, id in enumerate(ids)}
        written = [(places.get(id, id), seq) for id, entries in self.writes.items() for seq in entries]
        before = [None, *ids]
        parents = {
            place: self.parents[id] for place, id in enumerate(ids) if self.parents[id] != before[place]
        }
        stops = [*self._firsts, self.next][1:]
        return StoredIndex(
            ids=ids,
            puts=list(self.checkpoints.values()),
            parents=parents,
            written=[id for id, _ in written],
            writes=[seq for _, seq in written],
            elements=self._elements,
            counts=[stop - first for first, stop in zip(self._firsts, stops, strict=True)],
            kept=self._kept,
            removed=sorted(self._removed),
            last_wrote=self._last_wrote,
            has_blobs=self.has_blobs,
        )

    @classmethod
    def restore(cls, stored: StoredIndex) -> ThreadIndex:
        """The index that was stored; an exception if it makes no sense."""
        ids = stored.ids
        index = cls()
        index.checkpoints = dict(zip(ids, stored.puts, strict=True))
        index.parents = dict(zip(ids, (None, *ids), strict=False))
        index.parents.update((ids[place], parent) for place, parent in stored.parents.items())
        index.owners = dict(zip(stored.puts, ids, strict=True))
        for place, seq in zip(stored.written, stored.writes, strict=True):
            id = ids[place] if isinstance(place, int) else place
            index.writes.setdefault(id, []).append(seq)
            index.owners[seq] = id
        index._kept = stored.kept
        index.owners.pop(stored.kept, None)
        index.next = sum(stored.counts)
        index._firsts = list(accumulate(stored.counts, initial=0))[:-1]
        index._elements = stored.elements
        index.entries = _sorted_union(stored.puts, stored.writes, stored.elements)
        index._removed = set(stored.removed)
        index._last_wrote, index.has_blobs = stored.last_wrote, stored.has_blobs
        if len(index._firsts) != len(index._elements):
            raise ValueError("the elements of an index do not match their entries")
        return index


def _sorted_union(*entries: Iterable[int]) -> list[int]:
    return sorted(set().union(*entries))
