"""What a driver must do: keep bytes, in order, durably, for many processes at once.

A driver is blocking and knows no meaning: chunks, keyframes, inbox items, heartbeats and claims are bytes
to it. All decisions are made above. Its methods are called from several threads at once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from ..core.codec import Chunk, Page
from ..core.entries import SessionStatus
from ..core.head import Head
from ..errors import Corrupt
from ..ids import HolderId, SessionId

if TYPE_CHECKING:
    from ..blobs.home import BlobHome


class Tip(Struct, frozen=True, kw_only=True):
    """Where a journal ends. `head` is None where the driver only caches heads and its cache is not the
    journal's: fold the journal to know it. `posted` is the number of the newest inbox item, or 0. In a list,
    `damage` says why nothing more can be told of a session."""

    session: SessionId
    seq: int
    sum: str
    posted: int
    head: Head | None
    damage: Corrupt | None = None


class Pin(Struct, frozen=True, kw_only=True):
    """A fork needs the entries of `origin` up to `seq`, as long as it lives."""

    origin: SessionId
    uid: str
    seq: int


class ClaimChange(Struct, frozen=True, kw_only=True):
    """Replace the record under `key`, if it is `expect` (None: if there is none). A `record` of None
    removes it."""

    key: str
    expect: str | None
    record: str | None


class RunMark(Struct, frozen=True, kw_only=True):
    """A run begins or ends with entry `seq`, in the chunk whose last entry is `chunk`. `at` is the time of
    that entry, as text that sorts by time."""

    run: str
    ended: bool
    at: str
    seq: int
    chunk: int


class Append(Struct, frozen=True, kw_only=True):
    """What one session commits: chunks that follow the one with the sum `after`, or begin a session (None).

    `head` describes the session after the last of them. A `pin` makes a fork. `keyframe` replaces the
    one that is there. `runs` are for `list_runs`. If it `takes_inbox`, items up to `head.taken` are no longer
    needed; else it has taken none.
    """

    session: SessionId
    after: str | None
    chunks: tuple[Chunk, ...]
    head: Head
    keyframe: bytes | None = None
    claims: tuple[ClaimChange, ...] = ()
    pin: Pin | None = None
    runs: tuple[RunMark, ...] = ()
    takes_inbox: bool = False


class Erasure(Struct, frozen=True):
    """What is left of the details and of what was said in a chunk."""

    details: bytes | None
    said: bytes | None


class Done(Struct, frozen=True):
    """Durable. `posted` is the number of the newest inbox item."""

    posted: int


class Conflict(Struct, frozen=True):
    """Nothing was written: the journal ends with `sum`, not with `after` (None: there is no session)."""

    sum: str | None


class Claimed(Struct, frozen=True):
    """Nothing was written: `key` has this record (None: none), which was not expected."""

    key: str
    record: str | None


class OriginGone(Struct, frozen=True):
    """Nothing was written: the session to fork from was deleted."""


Outcome: TypeAlias = Done | Conflict | Claimed | OriginGone


class HeadFilter(Struct, frozen=True, kw_only=True):
    """Which sessions to list; None does not restrict. `labels` must all be there."""

    status: SessionStatus | None = None
    parent: SessionId | None = None
    labels: Mapping[str, str] = {}
    open_run: bool | None = None
    in_doubt: bool | None = None

    def matches(self, head: Head) -> bool:
        """Whether the session belongs into the list."""
        return (
            (self.status is None or head.status == self.status)
            and (self.parent is None or head.parent == self.parent)
            and (self.open_run is None or (head.open_run is not None) == self.open_run)
            and (self.in_doubt is None or (head.in_doubt > 0) == self.in_doubt)
            and self.labels.items() <= head.labels.items()
        )


class DueFilter(Struct, frozen=True, kw_only=True):
    """Which sessions with something to do to list: those whose lease `holder` has (None: no lease), for
    one of the `agents`, due at once or, if they were postponed, at `until` at the latest. All `labels` must
    be there."""

    until: datetime
    holder: HolderId | None = None
    agents: Collection[str] | None = None
    labels: Mapping[str, str] = {}

    def since(self, head: Head, posted_at: datetime | None) -> datetime | None:
        """Since when the session is due, or None if it does not belong into the list. `posted_at`: when the
        oldest inbox item came that was not taken in. It is due at once, whatever the clocks say. A replica
        never is."""
        if head.replica:
            return None
        if posted_at is None and (head.due is None or (head.postponed and head.due > self.until)):
            return None
        wanted = (
            (head.lease.holder if head.lease else None) == self.holder
            and (self.agents is None or head.agent in self.agents)
            and self.labels.items() <= head.labels.items()
        )
        return min(time for time in (head.due, posted_at) if time is not None) if wanted else None


class RunCursor(NamedTuple):
    """A place in the list of runs: when it started, and with which entry."""

    at: str
    session: SessionId
    seq: int


class RunChunks(NamedTuple):
    """The chunks in which a run begins and ends, each as a page without what was said; `ended` is None while
    there is no end."""

    run: str
    cursor: RunCursor
    started: Page
    ended: Page | None


class Beat(NamedTuple):
    """A holder's last heartbeat, and its age where the driver's server has a clock of its own."""

    record: bytes
    age_s: float | None


class InboxRow(NamedTuple):
    """An item and its number."""

    number: int
    item: bytes


_decode_head = msgspec.json.Decoder(Head).decode


def read_tip(row: Sequence[Any], where: str) -> Tip:
    """The tip that a row of session, seq, sum, posted and head (as JSON) stands for, or `Corrupt`."""
    session, seq, sum, posted, data = row
    place = f"{where}, session {session!r}"
    if not (type(seq) is int and isinstance(sum, str) and type(posted) is int and isinstance(session, str)):
        raise Corrupt(place, "its seq, sum or posted is not of the right type")
    try:
        head = _decode_head(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError, TypeError) as error:
        raise Corrupt(place, f"its head cannot be read ({error})") from error
    if (head.session, head.seq, head.sum) != (session if session[:1] != "~" else head.session, seq, sum):
        raise Corrupt(place, f"its head is that of session {head.session!r} after entry {head.seq}")
    return Tip(session=SessionId(session), seq=seq, sum=sum, posted=posted, head=head)


def read_listed_tip(row: Sequence[Any], where: str) -> Tip:
    """The same for a list, in which a damaged session hides no other."""
    try:
        return read_tip(row, where)
    except Corrupt as error:
        return Tip(session=SessionId(str(row[0])), seq=0, sum="", posted=0, head=None, damage=error)


def hidden_name(uid: str) -> SessionId:
    """Where the pinned chunks of a deleted session are: a name that no session can have."""
    return SessionId(f"~{uid}")


class Driver(Protocol):
    """One store.

    Atomicity: each item of a commit, and each other change, is there whole or not at all; readers never see a
    part of one. Looking and changing are one step in each method.
    Durability: what a method has written when it returns survives `kill -9` and a power cut.
    Errors: foreign exceptions are translated. `StoreFailed` when the disk or server fails (what was being
    written may or may not be there), `StoreBusy` when another process or thread blocks the store for too
    long, `Corrupt` when stored bytes are damaged.
    """

    @property
    def blobs(self) -> BlobHome:
        """The store's own home of blobs: always the same object, closed with the driver. See `StoreHome`."""

    def store_id(self) -> str:
        """A random id that the store got when it was made."""

    def server_s(self) -> float | None:
        """What the clock of the store's server says, in seconds; None if there is no server.

        Called before every effect, so it makes no request: the last heartbeat brought the time.
        """

    def commit(self, batch: Sequence[Append], *, wait: bool = True) -> Sequence[Outcome]:
        """Append each item's chunks after its `after`, all of an item or none.

        Durable on return, with head, keyframe, pin and claims. An item that does not fit gets
        `Conflict`, `Claimed` or `OriginGone` and has written nothing; the others are not affected. No
        session is twice in a batch. Where the backend has transactions the batch is one of them; where it
        has none, a claim is taken before the chunks and changed or freed after them.

        A copy commits what it brings of a deleted session under its `hidden_name`: that is in no list, and
        goes with the last fork that pins it.

        On `StoreFailed` each item may or may not be there; committing the same item again settles it:
        it answers `Done`, or `Conflict` with the item's own last sum, if it had landed.

        Without `wait` it is called on an event loop's thread, which may wait for a sync of the disk and for
        nothing else: if that is not enough (another process or thread is writing, there is a server to talk
        to, something longer is due), raise `StoreBusy` at once, having written nothing.
        """

    def read(self, session: SessionId, after: int, limit: int, *, said: bool) -> Page:
        """Up to `limit` chunks whose last entry comes after `after`, in order; none if there is no session.

        Without `said`, facts and details only, at the cost of those where the backend can. Fewer than `limit`
        chunks mean that there are no more. `Corrupt` where they are damaged.
        """

    def find_tip(self, session: SessionId) -> Tip | None:
        """Where the journal ends, or None if there is no such session."""

    def list_tips(self, wanted: HeadFilter, after: SessionId | None, limit: int) -> Sequence[Tip]:
        """Sessions in the order of their ids, beginning after `after`; hidden ones are left out.

        A tip without a head may or may not be wanted: the caller folds it and decides. A session that is
        damaged is in the list, with its `damage`.
        """

    def list_due(self, wanted: DueFilter, limit: int) -> Sequence[Tip]:
        """Sessions with something to do, the longest due first, then by id; hidden ones are left out.

        Asked for several times a second by every worker: it costs what it finds, not what is stored, where
        the backend has indexes. A tip without a head may or may not be wanted, and comes first.
        """

    def list_runs(
        self, session: SessionId | None, after: RunCursor | None, limit: int
    ) -> Sequence[RunChunks]:
        """Runs of one session or of all, oldest first, beginning after `after`; hidden ones are left out.

        The end of a run is the last `RunMark` that says so. An end without a beginning in the same session is
        not listed: a fork ended a run of its origin.
        """

    def find_keyframe(self, session: SessionId) -> bytes | None:
        """The last keyframe that was committed, if it is still there."""

    def erase(self, session: SessionId, after: str, chunks: Mapping[int, Erasure], head: Head) -> Outcome:
        """Replace details and what was said of the chunks with these `seq`s, drop the keyframe, replace the
        head.

        Chunks that a fork has pinned stay as they are. All or nothing, durable on return. `Conflict` if the
        journal does not end with `after`.
        """

    def delete(self, session: SessionId, after: str) -> Outcome:
        """Remove the session and everything of it, if its journal ends with `after`.

        Chunks that a fork has pinned stay readable under `hidden_name(uid)` until the last fork goes.
        Claims stay. The id is free for a new session at once.
        """

    def post(self, session: SessionId, item: bytes) -> int:
        """Put an item into the session's inbox; its number. `NotFound` if there is no session.

        Numbers grow and are never used again.
        """

    def read_inbox(self, session: SessionId, after: int, limit: int) -> Sequence[InboxRow]:
        """Items with a number greater than `after`, in order."""

    def restore_inbox(self, session: SessionId, rows: Sequence[InboxRow], posted: int) -> bool:
        """Replace the inbox of a replica by these items, under their numbers; the next post gets a number
        after `posted`. The items count as posted now.

        False if the session's head says that it is no replica: nothing was written. `NotFound` if there is no
        session. Where the backend has no transactions, a crash may leave a part of the items: the copy is
        then made again.
        """

    def beat(
        self, holder: HolderId, record: bytes, sessions: Collection[SessionId]
    ) -> Mapping[SessionId, int]:
        """Replace the holder's heartbeat. Answers the newest inbox number of each of the sessions."""

    def find_beat(self, holder: HolderId) -> Beat | None:
        """The holder's last heartbeat, or None if it never had one or has retired."""

    def list_holders(self) -> Sequence[tuple[HolderId, Beat | None]]:
        """Holders with a heartbeat, or the lease of a session with something to do, in the order of ids."""

    def retire(self, holder: HolderId) -> None:
        """Forget the holder: it has ended, and counts as gone from now on."""

    def wait_for_work(self, timeout_s: float) -> None:
        """Return when an item may have been posted, and after `timeout_s` in any case.

        Only a hint. Coming back too early costs a look; a post that goes unnoticed is found when the time is
        over. A driver that cannot be told sleeps.
        """

    def claim(self, change: ClaimChange) -> Outcome:
        """Change one claim by itself: `Done`, or `Claimed` with the record that is there."""

    def find_claim(self, key: str) -> str | None:
        """The record under `key`."""

    def list_claims(self, after: str | None, limit: int) -> Sequence[tuple[str, str]]:
        """Keys and records, in an order of the driver's own, beginning after the key `after`.

        Fewer than `limit` means that these were the last.
        """

    def close(self) -> None:
        """Let go of files and connections. Safe to call twice."""
