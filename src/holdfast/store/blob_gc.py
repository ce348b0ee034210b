"""Garbage collection of blobs: find and remove those that no journal and no inbox refers to.

Why no blob is removed that is needed. The collection begins at a time T. A blob is removed if no line of the
store refers to it, and if it was last put before T minus the grace. A writer puts a blob first, and commits
the line that refers to it within the grace: so a line that relies on such an old put was committed before T,
and was read. The home checks the time and removes in one step: a put in between either keeps the blob or
stores it again.

Lines move while they are read, but only in two ways. An item moves from its inbox to the journal, so inboxes
are read first. A deleted session leaves its lines to its forks, under another name; so sessions are listed
again, until a listing shows none that was not read.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from ..blobs.blob import Blob, Collected, describe, iter_blobs
from ..content.references import find_digests
from ..core.codec import Page
from ..core.pages import Chain, last_span
from ..drivers.contract import HeadFilter
from ..engine.engine import Engine
from ..engine.journal import Journal, Segment
from ..errors import BadInput, NotFound
from ..ids import SessionId
from ..limits import BLOB_GRACE_MIN_S, PAGE_ROWS, READ_CHUNKS
from .copy_source import list_sessions


class References:
    """Which sessions refer to which blobs."""

    def __init__(self, engine: Engine) -> None:
        self._driver = engine.driver
        self.of: dict[str, set[SessionId]] = {}
        self.sessions = 0
        self._read: dict[SessionId, str] = {}
        """The journals that were read, hidden ones included, with the uid of each."""

    def find(self) -> References:
        """Read every line and every inbox of the store; raises at a line that cannot be read. Blocks."""
        while True:
            fresh = [name for name in list_sessions(self._driver, HeadFilter()) if not self._is_read(name)]
            if not fresh:
                return self
            for name in fresh:
                self._read_session(name)

    def _is_read(self, name: SessionId) -> bool:
        try:
            return self._read.get(name) == Journal(self._driver, name).segments[-1].uid
        except NotFound:
            return name in self._read  # Deleted since. Unless it was read, a fork may have its lines.

    def _read_session(self, name: SessionId) -> None:
        self._read_inbox(name)
        while True:
            try:
                segments = Journal(self._driver, name).segments
            except NotFound:
                return  # Deleted since. What a fork needs of it is read with the fork.
            if all(self._read_segment(segment) for segment in segments):
                self.sessions += 1
                return

    def _read_segment(self, segment: Segment) -> bool:
        """Read a journal once; False if it was deleted meanwhile, so that its lines are elsewhere."""
        if self._read.get(segment.name) == segment.uid:
            return True
        reached = self._read_chunks(segment.name, segment.id)
        if segment.last is not None and reached < segment.last:
            return False
        self._read[segment.name] = segment.uid
        return True

    def _read_inbox(self, name: SessionId) -> None:
        after = 0
        while rows := self._driver.read_inbox(name, after, PAGE_ROWS):
            for row in rows:
                after = row.number
                self._note_part(row.item, name)

    def _read_chunks(self, name: SessionId, owner: SessionId) -> int:
        """Read all chunks of a journal; the number of the last entry."""
        where = f"session {owner!r}"
        chain: Chain | None = None
        while (page := self._driver.read(name, chain.seq if chain else 0, READ_CHUNKS, said=True)).count:
            if chain is None:
                # What comes before the first chunk of a fork is in its origin.
                first = page.part(0, 1)
                chain = Chain(where, last_span(first, where).last, first.sums.decode())
                self._note(first, owner)
                page = page.part(1)
            for _ in chain.open(page) if page.count else ():
                pass
            self._note(page, owner)
        return chain.seq if chain else 0

    def _note(self, page: Page, owner: SessionId) -> None:
        # Facts, too: an adapter's body may refer to a blob.
        for part in (page.facts, page.details, page.said or b""):
            self._note_part(part, owner)

    def _note_part(self, stored: bytes, owner: SessionId) -> None:
        for digest in find_digests(stored):
            self.of.setdefault(digest, set()).add(owner)


def collect(engine: Engine, *, grace_s: float, dry_run: bool, alone: bool) -> Collected:
    """Find the blobs without a reference, and remove them unless it is a dry run. Blocks."""
    _check(engine, grace_s, alone)
    before = engine.now() - timedelta(seconds=grace_s)
    references = References(engine).find()
    orphans: list[Blob] = []
    referred = recent = 0
    for blob in iter_blobs(engine):
        if blob.digest in references.of:
            referred += 1
        elif blob.put_at >= before or not _remove(engine, blob.digest, before, dry_run=dry_run):
            recent += 1
        else:
            orphans.append(describe(blob.digest, blob.size, blob.context))
    return Collected(
        orphans=tuple(orphans),
        removed=not dry_run,
        referred=referred,
        recent=recent,
        sessions=references.sessions,
        uploads=0 if dry_run else engine.home.sweep(begun_before=before),
    )


def _check(engine: Engine, grace_s: float, alone: bool) -> None:
    owner, ours = engine.home.find_owner(), engine.driver.store_id()
    if owner not in (None, ours):
        raise BadInput(
            f"{engine.home.name} is the home of another store's blobs (store {owner}, not {ours}), and only "
            "that one knows which of them are needed. Nothing was removed."
        )
    if grace_s < 0:
        raise BadInput(f"grace_s={grace_s} must not be negative")
    if grace_s < BLOB_GRACE_MIN_S and not alone:
        raise BadInput(
            f"a grace of {grace_s:g} s is too short while others may be writing: at least "
            f"{BLOB_GRACE_MIN_S:g} s, or alone=True if no other process has the store open"
        )
    if alone and engine.channels:
        raise BadInput(f"not alone: {', '.join(sorted(engine.channels))} is open in this process")


def _remove(engine: Engine, digest: str, before: datetime, *, dry_run: bool) -> bool:
    """Remove a blob, unless it was put meanwhile; False if it stays."""
    if dry_run:
        return True
    engine.blobs.forget(digest)
    return engine.home.remove(digest, put_before=before)
