"""What a copy reads: journals, inboxes, claims, heartbeats and blobs, of a store or of a file."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..blobs.home import StoredBlob
from ..core.codec import Chunk
from ..core.head import Head
from ..core.pages import open_page, span_of, split_page
from ..core.session_state import read_keyframe
from ..drivers.contract import Driver, HeadFilter, InboxRow, Pin, hidden_name
from ..engine.engine import Engine
from ..engine.heartbeat import HeartbeatRecord, read_heartbeat
from ..engine.journal import Journal, Segment
from ..errors import Corrupt, NotFound
from ..ids import HolderId, SessionId
from ..limits import BATCH_BYTES_MAX, PAGE_ROWS, READ_CHUNKS
from ..session.effect_claims import effect_key, settle_key
from ..session.replica import find_replica, replica_key

T = TypeVar("T")
_REPLICA = replica_key(SessionId(""))


class SourceSession(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A journal to copy, up to entry `seq`, with its inbox.

    `name` is where it is kept: the session's `id`, or the hidden name of one that was deleted and has forks.
    A fork's `pin` names its origin in the same way. `store` is the id of the store where it is driven.
    """

    name: SessionId
    id: SessionId
    uid: str
    store: str
    seq: int
    sum: str
    head: Head
    pin: Pin | None = None
    moved: bool = False
    """It was moved to that store, and what is here is left over."""
    posted: int = 0
    inbox: tuple[InboxRow, ...] = ()

    @property
    def is_hidden(self) -> bool:
        """True if the session was deleted: forks need a part of its history."""
        return self.name.startswith("~")

    @property
    def entries(self) -> int:
        """The number of entries of its own."""
        return self.seq - (self.pin.seq if self.pin else 0)


class CopySource(Protocol):
    """Where sessions are copied from. Methods block, and are called in threads by `call` and `call_home`."""

    @property
    def store_id(self) -> str:
        """The id of the store."""

    @property
    def sessions(self) -> Sequence[SourceSession]:
        """What is copied, origins before their forks."""

    async def call(self, function: Callable[[], T]) -> T:
        """Run a function that reads it in a thread."""

    def find_sum(self, session: SourceSession, seq: int) -> str | None:
        """The sum of the session's own chunk that ends with an entry; None if no chunk does."""

    def iter_chunks(self, session: SourceSession, after: int) -> Iterator[Sequence[Chunk]]:
        """The session's own chunks after an entry, in parts of moderate size."""

    def find_keyframe(self, session: SourceSession) -> bytes | None:
        """The last keyframe, if it is one of what is copied."""

    def list_claims(self) -> Sequence[tuple[str, str]]:
        """The keys and records of the claims that belong to what is copied."""

    def find_beat(self, holder: HolderId) -> bytes | None:
        """The heartbeat of a holder, unless there is proof that it has ended."""

    def find_blob(self, digest: str) -> StoredBlob | None:
        """A blob, or None."""


class StoreSource:
    """The sessions of a store: all, or families of some."""

    def __init__(self, engine: Engine, names: Iterable[SessionId] | None) -> None:
        """Find what is to be copied. Blocks. A family is a session with its delegates, and its parents with
        theirs; and the origins of all of them, if they are forks."""
        self._engine, self._driver = engine, engine.driver
        self._found: dict[str, SourceSession] = {}
        self._whole = names is None
        for name in list_sessions(self._driver, HeadFilter()) if names is None else names:
            try:
                for one in [name] if self._whole else self._list_family(name):
                    self._add(one)
            except NotFound:
                if not self._whole:
                    raise  # Of a whole store, it was deleted since it was listed.
        self._trim_hidden()

    @property
    def store_id(self) -> str:
        return self._driver.store_id()

    @property
    def sessions(self) -> Sequence[SourceSession]:
        return tuple(self._found.values())

    async def call(self, function: Callable[[], T]) -> T:
        return await self._engine.call(function)

    # -- what belongs together -----------------------------------------------------------------------

    def _list_family(self, name: SessionId) -> Iterator[SessionId]:
        root, seen = name, {name}
        while True:
            parent = Journal(self._driver, root).fold().facts.head.parent
            if parent is None or parent in seen or self._driver.find_tip(parent) is None:
                break
            root = parent
            seen.add(root)
        waiting, family = [root], {root: None}
        while waiting:
            for child in list_sessions(self._driver, HeadFilter(parent=waiting.pop())):
                if child not in family:
                    family[child] = None
                    waiting.append(child)
        yield from family

    def _add(self, name: SessionId) -> None:
        """Describe a session, after those that it shares history with."""
        segments = Journal(self._driver, name).segments
        origin: Pin | None = None
        for segment in segments:
            known = self._found.get(segment.uid)
            # An origin that is driven on meanwhile may have been forked later than it was looked at.
            if known is None or (segment.last is not None and known.seq < segment.last):
                self._found[segment.uid] = self._describe(segment, origin)
            if segment.last is not None:
                origin = Pin(origin=segment.name, uid=segment.uid, seq=segment.last)

    def _trim_hidden(self) -> None:
        """Of deleted sessions, only what the forks need that are copied."""
        pins = [session.pin for session in self._found.values() if session.pin is not None]
        for session in [one for one in self._found.values() if one.is_hidden]:
            seq = max(pin.seq for pin in pins if pin.uid == session.uid)
            sum = self.find_sum(session, seq) or session.sum
            head = replace(session.head, seq=seq, sum=sum)
            self._found[session.uid] = replace(session, seq=seq, sum=sum, head=head)

    def _describe(self, segment: Segment, pin: Pin | None) -> SourceSession:
        if segment.name != segment.id:
            return self._describe_hidden(segment, pin)
        inbox = tuple(self._read_inbox(segment.name))
        tip = self._driver.find_tip(segment.name)
        if tip is None:
            raise NotFound(f"session {segment.id!r} was deleted while it was copied")
        if tip.damage is not None:
            raise tip.damage
        # The tip first: a head that is folded may be that of a later entry.
        head = tip.head or Journal(self._driver, segment.name).fold(tip.seq).facts.head
        if head.uid != segment.uid:
            raise NotFound(f"session {segment.id!r} was deleted while it was copied, and made anew")
        replica = find_replica(self._driver, segment.name, segment.uid)
        return SourceSession(
            name=segment.name,
            id=segment.id,
            uid=segment.uid,
            store=self.store_id if replica is None else replica.store,
            moved=replica is not None and bool(replica.address),
            seq=tip.seq,
            sum=tip.sum,
            head=replace(head, seq=tip.seq, sum=tip.sum),
            pin=pin,
            posted=max(tip.posted, inbox[-1].number if inbox else 0),
            inbox=tuple(row for row in inbox if row.number > head.taken),
        )

    def _describe_hidden(self, segment: Segment, pin: Pin | None) -> SourceSession:
        after, sum, first = segment.first - 1, "", None
        while (page := self._driver.read(segment.name, after, READ_CHUNKS, said=False)).count:
            first = first or next(open_page(page, f"session {segment.id!r}"))
            lines = page.facts.split(b"\n")
            after, sum = (
                span_of(lines[-1], f"session {segment.id!r}").last,
                page.sums.decode().split("\n")[-1],
            )
        if first is None:
            raise NotFound(f"the history of {segment.id!r}, which was deleted, is gone with its last fork")
        head = Head(
            session=segment.id,
            uid=segment.uid,
            seq=after,
            sum=sum,
            status="active",
            created_at=first.at,
            updated_at=first.at,
        )
        return SourceSession(
            name=segment.name,
            id=segment.id,
            uid=segment.uid,
            store=self.store_id,
            seq=after,
            sum=sum,
            head=head,
            pin=pin,
        )

    def _read_inbox(self, name: SessionId) -> Iterator[InboxRow]:
        after = 0
        while rows := self._driver.read_inbox(name, after, PAGE_ROWS):
            yield from rows
            after = rows[-1].number

    # -- what it holds ---------------------------------------------------------------------------------

    def find_sum(self, session: SourceSession, seq: int) -> str | None:
        page = self._driver.read(session.name, seq - 1, 1, said=False)
        if not page.count or span_of(page.facts, f"session {session.id!r}").last != seq:
            return None
        return page.sums.decode("ascii", "replace")

    def iter_chunks(self, session: SourceSession, after: int) -> Iterator[Sequence[Chunk]]:
        where, limit = f"session {session.id!r}", 16
        while after < session.seq:
            # By the hidden name if it was deleted meanwhile.
            for name in (session.name, hidden_name(session.uid)):
                chunks = split_page(self._driver.read(name, after, limit, said=True), where)
                if chunks:
                    break
            else:
                raise NotFound(f"{where} was deleted while it was copied")
            chunks = [chunk for chunk in chunks if chunk.seq <= session.seq]
            if not chunks or chunks[-1].seq <= after:
                raise Corrupt(where, f"entry {after + 1} is missing")
            yield chunks
            after = chunks[-1].seq
            size = sum(chunk.size for chunk in chunks)
            limit = min(2 * limit, READ_CHUNKS) if size < BATCH_BYTES_MAX // 4 else max(1, limit // 2)

    def find_keyframe(self, session: SourceSession) -> bytes | None:
        data = None if session.is_hidden else self._driver.find_keyframe(session.name)
        frame = read_keyframe(data)
        return data if frame is not None and frame.seq <= session.seq else None

    def list_claims(self) -> Sequence[tuple[str, str]]:
        wanted: Container[str] = () if self._whole else self._list_claimed()
        uids = {session.uid for session in self.sessions}
        found: list[tuple[str, str]] = []
        after: str | None = None
        while True:
            page = self._driver.list_claims(after, PAGE_ROWS)
            for key, record in page:
                is_wanted = self._whole or key in wanted or read_claim(record).get("uid") in uids
                if is_wanted and not key.startswith(_REPLICA):
                    found.append((key, record))
            if len(page) < PAGE_ROWS:
                return found
            after = page[-1][0]

    def _list_claimed(self) -> set[str]:
        """The keys of what the sessions have claimed, or would."""
        keys: set[str] = set()
        for session in self.sessions:
            if session.is_hidden:
                continue
            with suppress(NotFound):  # Deleted since.
                for row in Journal(self._driver, session.name).fold().facts.effects.rows.values():
                    if row.scope == "global":
                        keys.add(effect_key(row.operation))
                    if row.doubted:
                        keys.add(settle_key(row.key))
        return keys

    def find_beat(self, holder: HolderId) -> bytes | None:
        beat = self._driver.find_beat(holder)
        if beat is None or self._engine.heartbeat.judge(holder).ended:
            return None
        return foreign_beat(read_heartbeat(holder, beat))

    def find_blob(self, digest: str) -> StoredBlob | None:
        return self._engine.home.find(digest)


def foreign_beat(record: HeartbeatRecord) -> bytes:
    """The heartbeat of a holder of another store: silence counts, but nothing here proves that it ended."""
    return msgspec.json.encode(replace(record, lock=None, duty=None))


def list_sessions(driver: Driver, wanted: HeadFilter) -> Iterator[SessionId]:
    """The ids of sessions, in their order."""
    after: SessionId | None = None
    while True:
        tips = driver.list_tips(wanted, after, PAGE_ROWS)
        yield from (tip.session for tip in tips)
        if len(tips) < PAGE_ROWS:
            return
        after = tips[-1].session


def list_named_holders(
    sessions: Iterable[SourceSession], claims: Iterable[tuple[str, str]]
) -> Sequence[HolderId]:
    """The holders that sessions and claims name: a store would take those that it does not know for ended."""
    named = [session.head.lease.holder for session in sessions if session.head.lease is not None]
    for _, record in claims:
        claim = read_claim(record)
        behind = claim.get("behind")
        for one in (claim, *(behind if isinstance(behind, list) else ())):
            holder = one.get("holder") if isinstance(one, dict) else None
            if isinstance(holder, str):
                named.append(HolderId(holder))
    return tuple(dict.fromkeys(named))


def read_claim(record: str) -> dict[str, Any]:
    """The members of a claim's record; none if it is no JSON object."""
    with suppress(msgspec.DecodeError, RecursionError):
        found = msgspec.json.decode(record)
        if isinstance(found, dict):
            return found
    return {}
