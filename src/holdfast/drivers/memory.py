"""`memory:`: nothing outlives the process. The reference that the other drivers are compared with."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from ..blobs.chunking import checked_in, checked_out, even_parts
from ..blobs.home import BlobContext, ListedBlob, StoredBlob, StoreHome
from ..blobs.metadata import check_digest, decode_context, encode_context
from ..core.codec import EMPTY_PAGE, Chunk, Page
from ..core.head import Head
from ..errors import NotFound
from ..ids import HolderId, SessionId, fresh_uid
from ..limits import BLOB_PART_BYTES
from ..system import threads
from ..system.clock import utc_now
from .contract import (
    Append,
    Beat,
    ClaimChange,
    Claimed,
    Conflict,
    Done,
    DueFilter,
    Erasure,
    HeadFilter,
    InboxRow,
    OriginGone,
    Outcome,
    Pin,
    RunChunks,
    RunCursor,
    RunMark,
    Tip,
    hidden_name,
)


class _Journal:
    def __init__(self, head: Head) -> None:
        self.head = head
        self.chunks: list[Chunk] = []
        self.runs: list[RunMark] = []
        self.keyframe: bytes | None = None
        self.inbox: list[InboxRow] = []
        self.posted = 0
        self.arrived: dict[int, datetime] = {}
        self.pin: Pin | None = None
        self.pinned: dict[str, Pin] = {}
        """The forks that need these chunks, by their uid."""

    @property
    def pinned_seq(self) -> int:
        """The last entry that a fork needs, or 0."""
        return max((pin.seq for pin in self.pinned.values()), default=0)

    def place_after(self, seq: int) -> int:
        """The place of the first chunk whose last entry comes after `seq`."""
        return bisect_right(self.chunks, seq, key=_seq_of)

    def page_of(self, seq: int) -> Page:
        """The chunk whose last entry is `seq`, without what was said."""
        return Page.of([self.chunks[self.place_after(seq - 1)]], said=False)

    def list_runs(self, session: SessionId) -> Iterable[RunChunks]:
        started = {mark.run: mark for mark in self.runs if not mark.ended}
        # The last end of each run. A run that only ends here is one that a fork's origin began.
        ended = {mark.run: mark for mark in self.runs if mark.ended}
        for run, mark in started.items():
            end = ended.get(run)
            cursor = RunCursor(mark.at, session, mark.seq)
            yield RunChunks(run, cursor, self.page_of(mark.chunk), self.page_of(end.chunk) if end else None)

    def tip(self, session: SessionId) -> Tip:
        head = msgspec.structs.replace(self.head)
        return Tip(session=session, seq=head.seq, sum=head.sum, posted=self.posted, head=head)

    def since(self, wanted: DueFilter) -> datetime | None:
        return wanted.since(self.head, self.arrived[self.inbox[0].number] if self.inbox else None)


def _seq_of(chunk: Chunk) -> int:
    return chunk.seq


class MemoryDriver:
    """Keeps everything in dictionaries under one lock."""

    def __init__(self) -> None:
        self._lock = threads.Lock()
        self._posted = threads.Condition(self._lock)
        self._id = fresh_uid()
        self._journals: dict[SessionId, _Journal] = {}
        self._claims: dict[str, str] = {}
        self._beats: dict[HolderId, bytes] = {}
        self.blobs = MemoryBlobs(self._id)

    def store_id(self) -> str:
        return self._id

    def server_s(self) -> float | None:
        return None

    def commit(self, batch: Sequence[Append], *, wait: bool = True) -> Sequence[Outcome]:
        with self._lock:
            return [self._commit(item) for item in batch]

    def _commit(self, item: Append) -> Outcome:
        journal = self._journals.get(item.session)
        if (journal.head.sum if journal else None) != item.after:
            return Conflict(journal.head.sum if journal else None)
        for change in item.claims:
            if self._claims.get(change.key) != change.expect:
                return Claimed(change.key, self._claims.get(change.key))
        if journal is None:
            origin = self._journals.get(item.pin.origin) if item.pin else None
            if item.pin and (origin is None or origin.head.uid != item.pin.uid):
                return OriginGone()
            journal = self._journals[item.session] = _Journal(item.head)
            journal.pin = item.pin
            if origin and item.pin:
                origin.pinned[item.head.uid] = item.pin
        for change in item.claims:
            self._change_claim(change)
        journal.chunks += item.chunks
        journal.runs += item.runs
        journal.head = item.head
        journal.keyframe = item.keyframe or journal.keyframe
        if item.takes_inbox:
            journal.inbox = [row for row in journal.inbox if row.number > item.head.taken]
        return Done(journal.posted)

    def read(self, session: SessionId, after: int, limit: int, *, said: bool) -> Page:
        with self._lock:
            journal = self._journals.get(session)
            if journal is None:
                return EMPTY_PAGE
            start = journal.place_after(after)
            chunks = journal.chunks[start : start + limit]
        return Page.of(chunks, said=said)

    def find_tip(self, session: SessionId) -> Tip | None:
        with self._lock:
            journal = self._journals.get(session)
            return journal.tip(session) if journal else None

    def list_tips(self, wanted: HeadFilter, after: SessionId | None, limit: int) -> Sequence[Tip]:
        with self._lock:
            names = sorted(n for n in self._journals if not n.startswith("~") and n > (after or ""))
            found = (self._journals[name].tip(name) for name in names)
            return [tip for tip in found if tip.head and wanted.matches(tip.head)][:limit]

    def list_due(self, wanted: DueFilter, limit: int) -> Sequence[Tip]:
        with self._lock:
            found = [
                (since, name)
                for name, journal in self._journals.items()
                if not name.startswith("~") and (since := journal.since(wanted)) is not None
            ]
            return [self._journals[name].tip(name) for _, name in sorted(found)[:limit]]

    def list_runs(
        self, session: SessionId | None, after: RunCursor | None, limit: int
    ) -> Sequence[RunChunks]:
        with self._lock:
            found = [
                run
                for name, journal in self._journals.items()
                if not name.startswith("~") and session in (None, name)
                for run in journal.list_runs(name)
                if after is None or run.cursor > after
            ]
        return sorted(found, key=lambda run: run.cursor)[:limit]

    def find_keyframe(self, session: SessionId) -> bytes | None:
        with self._lock:
            journal = self._journals.get(session)
            return journal.keyframe if journal else None

    def erase(self, session: SessionId, after: str, chunks: Mapping[int, Erasure], head: Head) -> Outcome:
        with self._lock:
            journal = self._journals.get(session)
            if journal is None or journal.head.sum != after:
                return Conflict(journal.head.sum if journal else None)
            for place in range(journal.place_after(journal.pinned_seq), len(journal.chunks)):
                chunk = journal.chunks[place]
                if (left := chunks.get(chunk.seq)) is not None:
                    replaced = msgspec.structs.replace(chunk, details=left.details, said=left.said)
                    journal.chunks[place] = replaced
            journal.keyframe = None
            journal.head = head
            return Done(journal.posted)

    def delete(self, session: SessionId, after: str) -> Outcome:
        with self._lock:
            journal = self._journals.get(session)
            if journal is None or journal.head.sum != after:
                return Conflict(journal.head.sum if journal else None)
            del self._journals[session]
            if journal.pinned:
                del journal.chunks[journal.place_after(journal.pinned_seq) :]
                self._journals[hidden_name(journal.head.uid)] = journal
            else:
                self._let_go(journal)
            return Done(journal.posted)

    def _let_go(self, journal: _Journal) -> None:
        """The chunks are gone; a hidden origin that no other fork needs goes with them."""
        while journal.pin is not None:
            name = hidden_name(journal.pin.uid)
            origin = self._journals.get(name) or self._journals.get(journal.pin.origin)
            if origin is None or origin.head.uid != journal.pin.uid:
                return
            origin.pinned.pop(journal.head.uid, None)
            if origin.pinned or name not in self._journals:
                return
            del self._journals[name]
            journal = origin

    def post(self, session: SessionId, item: bytes) -> int:
        with self._lock:
            journal = self._journals.get(session)
            if journal is None:
                raise NotFound(f"no session {session!r}")
            journal.posted += 1
            journal.inbox.append(InboxRow(journal.posted, item))
            journal.arrived[journal.posted] = utc_now()
            self._posted.notify_all()
            return journal.posted

    def read_inbox(self, session: SessionId, after: int, limit: int) -> Sequence[InboxRow]:
        with self._lock:
            journal = self._journals.get(session)
            return [row for row in journal.inbox if row.number > after][:limit] if journal else []

    def restore_inbox(self, session: SessionId, rows: Sequence[InboxRow], posted: int) -> bool:
        with self._lock:
            journal = self._journals.get(session)
            if journal is None:
                raise NotFound(f"no session {session!r}")
            if not journal.head.replica:
                return False
            journal.inbox, journal.posted = list(rows), posted
            journal.arrived = dict.fromkeys((row.number for row in rows), utc_now())
            return True

    def beat(
        self, holder: HolderId, record: bytes, sessions: Collection[SessionId]
    ) -> Mapping[SessionId, int]:
        with self._lock:
            self._beats[holder] = record
            return {name: self._journals[name].posted for name in sessions if name in self._journals}

    def find_beat(self, holder: HolderId) -> Beat | None:
        with self._lock:
            record = self._beats.get(holder)
            return Beat(record, None) if record is not None else None

    def list_holders(self) -> Sequence[tuple[HolderId, Beat | None]]:
        with self._lock:
            found: dict[HolderId, Beat | None] = {
                journal.head.lease.holder: None
                for name, journal in self._journals.items()
                if journal.head.lease and (journal.head.due or journal.inbox)
                if not (journal.head.replica or name.startswith("~"))
            }
            found |= {holder: Beat(record, None) for holder, record in self._beats.items()}
            return sorted(found.items())

    def retire(self, holder: HolderId) -> None:
        with self._lock:
            self._beats.pop(holder, None)

    def wait_for_work(self, timeout_s: float) -> None:
        with self._lock:
            self._posted.wait(timeout_s)

    def claim(self, change: ClaimChange) -> Outcome:
        with self._lock:
            current = self._claims.get(change.key)
            if current != change.expect:
                return Claimed(change.key, current)
            self._change_claim(change)
            return Done(0)

    def _change_claim(self, change: ClaimChange) -> None:
        if change.record is None:
            self._claims.pop(change.key, None)
        else:
            self._claims[change.key] = change.record

    def find_claim(self, key: str) -> str | None:
        with self._lock:
            return self._claims.get(key)

    def list_claims(self, after: str | None, limit: int) -> Sequence[tuple[str, str]]:
        with self._lock:
            return sorted(one for one in self._claims.items() if after is None or one[0] > after)[:limit]

    def close(self) -> None:
        pass


class MemoryBlobs(StoreHome):
    """Blobs in a dictionary."""

    def __init__(self, store_id: str) -> None:
        super().__init__(store_id)
        self._lock = threads.Lock()
        self._blobs: dict[str, tuple[ListedBlob, tuple[bytes, ...]]] = {}

    def put(self, digest: str, parts: Iterable[bytes], context: BlobContext, *, owner: str) -> None:
        arriving = checked_in(check_digest(digest), even_parts(parts, BLOB_PART_BYTES))
        context = self._copy(context, digest)
        with self._lock:
            stored = self._blobs.get(digest)
        # Not under the lock: the parts may take long to arrive.
        whole = stored[1] if stored else tuple(arriving)
        with self._lock:
            first, whole = self._blobs.get(digest, (None, whole))
            size = sum(map(len, whole))
            blob = ListedBlob(digest, size, utc_now(), first.context if first else context)
            self._blobs[digest] = blob, whole

    def find(self, digest: str) -> StoredBlob | None:
        with self._lock:
            found = self._blobs.get(check_digest(digest))
        if found is None:
            return None
        context = self._copy(found[0].context, digest)
        return StoredBlob(context, found[0].size, checked_out(digest, found[1], self.name))

    def list_blobs(self, after: str | None, limit: int) -> Sequence[ListedBlob]:
        with self._lock:
            digests = sorted(digest for digest in self._blobs if digest > (after or ""))
            found = [self._blobs[digest][0] for digest in digests[:limit]]
        return [one._replace(context=self._copy(one.context, one.digest)) for one in found]

    def remove(self, digest: str, *, put_before: datetime) -> bool:
        with self._lock:
            found = self._blobs.get(check_digest(digest))
            if found is None or found[0].put_at >= put_before:
                return False
            del self._blobs[digest]
            return True

    def sweep(self, *, begun_before: datetime) -> int:
        return 0  # An upload that died was never kept.

    def _copy(self, context: BlobContext, digest: str) -> BlobContext:
        """A context of its own for each caller, as from a home that stores it."""
        return decode_context(encode_context(context), digest, self.name)
