"""The driver: each call of the contract, made of the parts beside this file."""

from __future__ import annotations

import functools
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from ...blobs.directory import BlobFiles, DigestPaths
from ...blobs.home import BlobContext, StoreHome
from ...blobs.metadata import decode_context, encode_context
from ...core.codec import Page
from ...core.head import Head
from ...errors import Corrupt, NewerFormat, NotFound, StoreBusy, StoreFailed
from ...ids import HolderId, SessionId
from ...system import files, threads
from ...system.file_locks import FileLock
from ...system.files import (
    child_path,
    clear_leftovers,
    find_bytes,
    list_names,
    put,
    sync_data,
    sync_directory,
    translated,
)
from ..contract import (
    Append,
    Beat,
    ClaimChange,
    Conflict,
    Done,
    DueFilter,
    Erasure,
    HeadFilter,
    InboxRow,
    OriginGone,
    Outcome,
    RunChunks,
    RunCursor,
    Tip,
)
from .claims import ClaimFiles, Proof
from .folder import Identity, SessionFolder
from .forks import Forks
from .journal import Extent
from .layout import Layout, open_root, read_id

_log = logging.getLogger("holdfast")
_P = ParamSpec("_P")
_R = TypeVar("_R")

# Of so many sessions the end of the journal is remembered; it is found again in one read.
_FOLDERS_MAX = 10_000


_MOVED = (
    "{path} is gone: it was removed or renamed while the store was open. Nothing is written before it is "
    "back; then it is safe to try again."
)


def _sign(path: Path) -> tuple[int, int, int]:
    """What tells a file from another one in its place."""
    state = files.stat(path)
    return state.st_dev, state.st_ino, state.st_mtime_ns


def _first_seq(item: Append, after: Extent | None) -> int:
    """The first entry of the commit."""
    if after is not None:
        return after.seq + 1
    return item.pin.seq + 1 if item.pin else 1


def _translated(
    method: Callable[Concatenate[DirectoryDriver, _P], _R],
) -> Callable[Concatenate[DirectoryDriver, _P], _R]:
    @functools.wraps(method)
    def call(self: DirectoryDriver, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        with translated(self.root):
            self._check_root()
            return method(self, *args, **kwargs)

    return call


class DirectoryDriver:
    """A store in a directory, for the processes of one machine.

    A caller that needs several locks takes the store's first, then a session's.
    """

    def __init__(self, root: Path, *, create: bool = True, read_only: bool = False) -> None:
        # However the process changes its own directory.
        self.root = root = root.absolute()
        files.require_locks("a dir: store")
        with translated(root):
            self._layout, self._id = open_root(root, create=create, read_only=read_only)
            self._root_seen = _sign(self._layout.store_file)
        self._claims = ClaimFiles(self._layout.claims, self._layout.scratch)
        self.blobs = DirectoryBlobs(self._layout, self._id, self._check_root)
        self._forks = Forks(self._layout, self._lives)
        self._folders: OrderedDict[SessionId, SessionFolder] = OrderedDict()
        self._folders_lock = threads.Lock()
        self._read_only = read_only
        if not read_only:
            self._tidy()

    def store_id(self) -> str:
        return self._id

    def server_s(self) -> float | None:
        return None

    @_translated
    def commit(self, batch: Sequence[Append], *, wait: bool = True) -> Sequence[Outcome]:
        if not wait and (len(batch) > 1 or any(item.claims or item.pin for item in batch)):
            raise StoreBusy(f"{self.root}: this takes more than one session's lock")
        return [self._commit(item, wait) for item in batch]

    def _commit(self, item: Append, wait: bool) -> Outcome:
        folder = self._folder(item.session)
        wait_s = None if wait else 0.0
        alone = self._alone() if item.claims or item.pin else nullcontext()
        with alone, folder.made(wait_s=wait_s) if item.after is None else folder.held(wait_s=wait_s) as there:
            extent = self._find_end(folder, item) if there else None
            fitted = not there and folder.journal.last_sum == item.after
            if fitted and not self._forks.was_deleted(item.head.uid):
                raise StoreFailed(_MOVED.format(path=folder.path))
            if (extent.sum if extent else None) != item.after:
                return Conflict(extent.sum if extent else None)
            refusal = self._claims.find_refusal(item.claims)
            if refusal:
                return refusal
            if item.after is None:
                if item.pin and not self._forks.has_origin(item.pin):
                    return OriginGone()
                self._begin(folder, item)
            self._append(folder, item, extent)
            return Done(folder.inbox.posted())

    def _find_end(self, folder: SessionFolder, item: Append) -> Extent | None:
        try:
            return folder.journal.find_extent(locked=True)
        except Corrupt as error:
            if item.after is not None and not files.exists(folder.journal.path):
                raise StoreFailed(_MOVED.format(path=folder.journal.path)) from error
            raise

    def _begin(self, folder: SessionFolder, item: Append) -> None:
        if item.pin:
            self._forks.pin(item.pin, item.session, item.head.uid)
        folder.begin(Identity(item.head.uid, _first_seq(item, None), item.pin))

    def _append(self, folder: SessionFolder, item: Append, after: Extent | None) -> None:
        head = item.head
        if item.claims:
            self._claims.announce(item.claims, Proof(item.session, head.seq, head.sum))
        with translated(folder.journal.path):
            first_seq = _first_seq(item, after)
            folder.journal.append(item.chunks, first_seq=first_seq, after=after, runs=item.runs)
        if item.claims:
            self._claims.carry_out(item.claims)
        folder.write_head(head)
        if item.keyframe is not None:
            folder.write_keyframe(item.keyframe)
        if item.takes_inbox:
            folder.drop_taken(head.taken)

    @_translated
    def read(self, session: SessionId, after: int, limit: int, *, said: bool) -> Page:
        return self._folder(session).journal.read(after, limit, said=said)

    @_translated
    def find_tip(self, session: SessionId) -> Tip | None:
        folder = self._folder(session)
        tip = self._find_tip(session, folder, locked=False)
        if tip and tip.head is None:
            # Perhaps a commit is just writing its head, which it does before it lets go of the lock.
            with FileLock(folder.lock, shared=True):
                tip = self._find_tip(session, folder, locked=True)
        return tip

    def _find_tip(self, session: SessionId, folder: SessionFolder, *, locked: bool) -> Tip | None:
        extent = folder.journal.find_extent(locked=locked)
        if extent is None:
            return None
        head = folder.find_head()
        return Tip(
            session=session,
            seq=extent.seq,
            sum=extent.sum,
            posted=folder.inbox.posted(),
            head=head if head and head.sum == extent.sum else None,
        )

    @_translated
    def list_tips(self, wanted: HeadFilter, after: SessionId | None, limit: int) -> Sequence[Tip]:
        tips: list[Tip] = []
        for session in self._sessions():
            if len(tips) >= limit:
                break
            if after is not None and session <= after:
                continue
            tip = self._find_listed(session)
            if tip and (tip.damage is not None or tip.head is None or wanted.matches(tip.head)):
                tips.append(tip)
        return tips

    @_translated
    def list_due(self, wanted: DueFilter, limit: int) -> Sequence[Tip]:
        found: list[tuple[float, Tip]] = []
        for tip in filter(None, map(self._find_listed, self._sessions())):
            if tip.damage is not None:
                _log.warning("session %s is left out: %s", tip.session, tip.damage)
            elif tip.head is None:
                found.append((0.0, tip))
            elif (since := wanted.since(tip.head, self._folder(tip.session).find_waiting(tip))) is not None:
                found.append((since.timestamp(), tip))
        # Sorting keeps the order of the ids.
        return [tip for _, tip in sorted(found, key=lambda one: one[0])[:limit]]

    def _find_listed(self, session: SessionId) -> Tip | None:
        """The tip for a list. A damaged session belongs into it too, with what is wrong."""
        try:
            return self.find_tip(session)
        except Corrupt as error:
            return Tip(session=session, seq=0, sum="", posted=0, head=None, damage=error)

    @_translated
    def list_runs(
        self, session: SessionId | None, after: RunCursor | None, limit: int
    ) -> Sequence[RunChunks]:
        found: list[RunCursor] = []
        for name in self._sessions() if session is None else [session]:
            try:
                found += self._list_starts(name)
            except (Corrupt, NewerFormat) as error:
                if session is not None:
                    raise
                _log.error("runs left out of the list: %s", error)
        page = sorted(cursor for cursor in found if after is None or cursor > after)[:limit]
        return [run for cursor in page if (run := self._find_run(cursor))]

    def _list_starts(self, session: SessionId) -> list[RunCursor]:
        journal = self._folder(session).journal
        with journal.view() as view:
            starts = journal.list_runs(view) if view and not session.startswith("~") else []
            return [RunCursor(at, session, seq) for at, seq in starts]

    def _find_run(self, cursor: RunCursor) -> RunChunks | None:
        journal = self._folder(cursor.session).journal
        with journal.view() as view:
            found = journal.find_run(view, cursor.seq) if view else None
            return RunChunks(found[0], cursor, found[1], found[2]) if found else None

    @_translated
    def find_keyframe(self, session: SessionId) -> bytes | None:
        return self._folder(session).find_keyframe()

    @_translated
    def erase(self, session: SessionId, after: str, chunks: Mapping[int, Erasure], head: Head) -> Outcome:
        folder = self._folder(session)
        with self._alone(), folder.held() as there:
            extent = folder.journal.find_extent(locked=True) if there else None
            if extent is None or extent.sum != after:
                return Conflict(extent.sum if extent else None)
            pinned = self._forks.find_last_pinned(folder.get_identity().uid) or 0
            # First the copies: a keyframe that still has what was erased would be believed.
            folder.drop_copies()
            folder.inbox.drop(head.taken, durable=True)
            erased = {seq: erasure for seq, erasure in chunks.items() if seq > pinned}
            folder.journal.rewrite(erased, self._layout.scratch)
            folder.write_head(head)
            return Done(folder.inbox.posted())

    @_translated
    def delete(self, session: SessionId, after: str) -> Outcome:
        folder = self._folder(session)
        with self._alone(), folder.held() as there:
            extent = folder.journal.find_extent(locked=True) if there else None
            if extent is None or extent.sum != after:
                return Conflict(extent.sum if extent else None)
            posted = folder.inbox.posted()
            self._forks.remove(folder, folder.get_identity())
            folder.journal.forget()
            return Done(posted)

    @_translated
    def post(self, session: SessionId, item: bytes) -> int:
        folder = self._folder(session)
        with folder.held() as there:
            if not there or folder.journal.find_extent(locked=True) is None:
                raise NotFound(f"no session {session!r}")
            return folder.inbox.post(item, self._layout.scratch)

    @_translated
    def read_inbox(self, session: SessionId, after: int, limit: int) -> Sequence[InboxRow]:
        return self._folder(session).inbox.read(after, limit)

    @_translated
    def beat(
        self, holder: HolderId, record: bytes, sessions: Collection[SessionId]
    ) -> Mapping[SessionId, int]:
        put(self._holder(holder), [record], self._layout.scratch)
        folders = {session: self._folder(session) for session in sessions}
        return {
            session: folder.inbox.posted()
            for session, folder in folders.items()
            if folder.journal.find_extent(locked=False)
        }

    @_translated
    def find_beat(self, holder: HolderId) -> Beat | None:
        record = find_bytes(self._holder(holder))
        return Beat(record, None) if record is not None else None

    @_translated
    def list_holders(self) -> Sequence[tuple[HolderId, Beat | None]]:
        tips = [tip for tip in map(self._find_listed, self._sessions()) if tip and tip.head]
        names = {
            tip.head.lease.holder
            for tip in tips
            if tip.head and tip.head.lease and (tip.head.due or tip.posted > tip.head.taken)
        }
        names |= {HolderId(name.removesuffix(".json")) for name in list_names(self._layout.holders)}
        return [(holder, self.find_beat(holder)) for holder in sorted(names)]

    @_translated
    def retire(self, holder: HolderId) -> None:
        files.remove(self._holder(holder), missing_ok=True)
        sync_directory(self._layout.holders)

    def wait_for_work(self, timeout_s: float) -> None:
        threads.sleep(timeout_s)

    @_translated
    def claim(self, change: ClaimChange) -> Outcome:
        with self._alone():
            refusal = self._claims.find_refusal([change])
            if refusal:
                return refusal
            self._claims.carry_out([change])
            return Done(0)

    @_translated
    def find_claim(self, key: str) -> str | None:
        if not self._read_only and not self._claims.is_settled():
            with self._alone():
                return self._claims.find(key)
        return self._claims.find(key)

    def close(self) -> None:
        """Nothing stays open between two calls; what was remembered is let go of."""
        with self._folders_lock:
            self._folders.clear()

    def _check_root(self) -> None:
        """Refuse a directory that is no longer this store: what is written there would not be found."""
        path = self._layout.store_file
        try:
            seen = _sign(path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise StoreFailed(_MOVED.format(path=self.root)) from error
        if seen != self._root_seen:
            if (id := read_id(path)) != self._id:
                raise StoreFailed(
                    f"{self.root}: another store (with the id {id}) has taken the place of the one that was "
                    f"opened there ({self._id}). Put that back, or open the store anew."
                )
            self._root_seen = seen

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the store's lock, with every claim settled."""
        with FileLock(self._layout.lock):
            self._claims.settle(self._landed)
            yield

    def _landed(self, proof: Proof) -> bool:
        journal = self._folder(proof.session).journal
        with journal.view() as view:
            line = next(journal.walk(view, proof.seq), None) if view else None
            if view is None or line is None or (line.last, line.sum) != (proof.seq, proof.sum):
                return False
            # Its writer may have died before the sync: the claims must not outlive the chunks.
            sync_data(view.file.fileno())
            return True

    def _lives(self, session: SessionId, uid: str) -> bool:
        folder = self._folder(session)
        try:
            identity = folder.find_identity()
            return bool(identity and identity.uid == uid and folder.journal.find_extent(locked=False))
        except Corrupt:
            # Damaged is not gone: what it needs must be there when it is repaired.
            return True

    def _tidy(self) -> None:
        """Finish what a crash interrupted, unless another process does so, or the store cannot be written."""
        with suppress(OSError, StoreFailed, Corrupt):
            clear_leftovers(self._layout.scratch)
            if self._forks.needs_tidying():
                with FileLock(self._layout.lock, wait_s=0):
                    self._claims.settle(self._landed)
                    self._forks.tidy()

    def _sessions(self) -> list[SessionId]:
        return sorted(SessionId(name) for name in list_names(self._layout.sessions))

    def _holder(self, holder: HolderId) -> Path:
        return child_path(self._layout.holders, holder, ".json")

    def _folder(self, session: SessionId) -> SessionFolder:
        with self._folders_lock:
            folder = self._folders.pop(session, None)
            if folder is None:
                path = self._layout.folder(session)
                folder = SessionFolder(path, self._layout.scratch, whole=not session.startswith("~"))
            self._folders[session] = folder
            if len(self._folders) > _FOLDERS_MAX:
                self._folders.popitem(last=False)
            return folder


class DirectoryBlobs(BlobFiles, StoreHome):
    """The blobs below the store's root."""

    def __init__(self, layout: Layout, store_id: str, check_root: Callable[[], None]) -> None:
        StoreHome.__init__(self, store_id)
        paths = DigestPaths(layout.blobs)
        BlobFiles.__init__(self, layout.root, layout.blobs, layout.scratch, layout.lock, paths)
        self._check_store = check_root

    def _encode_info(self, digest: str, context: BlobContext) -> bytes:
        return encode_context(context)

    def _decode_info(self, info: bytes, digest: str) -> BlobContext:
        return decode_context(info, digest, self.name)

    def _check_root(self) -> None:
        self._check_store()

    def _record_owner(self, owner: str) -> None:
        pass  # It is the store that the directory belongs to.
