"""Copying sessions into another store: journals byte for byte, inboxes, claims, pins and blobs.

A copy is a replica: it can be read, and only its original is driven. It may be made while the original is
driven, and made again later: what is there is compared and completed. Whatever a copy that died has left is
the beginning of a replica, which is marked as one in its first commit.

Nothing is written before everything in the target was looked at. Blobs are durable before the chunks that
refer to them, origins before their forks. At the end everything is read from the target and compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..content.references import find_digests
from ..core.codec import GENESIS, Chunk, Page
from ..core.entries import SessionForked, SessionOpened
from ..core.head import Head
from ..core.pages import Chain, open_page, split_page
from ..drivers.contract import (
    Append,
    ClaimChange,
    Claimed,
    Done,
    Erasure,
    Pin,
    Tip,
    hidden_name,
)
from ..engine.committer import mark_runs
from ..engine.engine import Engine
from ..engine.journal import Journal
from ..errors import BadInput, Corrupt, StoreBusy
from ..ids import HolderId, SessionId
from ..limits import BATCH_BYTES_MAX, COPY_TRIES, READ_CHUNKS
from ..session.fork import fork, fork_end
from ..session.replica import ReplicaRecord, find_replica, replica_key
from .copy_source import CopySource, SourceSession, list_named_holders, read_claim

_HOLD: Final = "hold:"
_DOUBTS: Final = "doubts"


class CopyProgress(Struct, frozen=True, kw_only=True):
    """How far a copy is. `phase`: chunks are written, or read again and compared."""

    phase: Literal["copy", "verify"]
    session: SessionId
    entries: int
    """The entries that are done, of all sessions."""
    total: int


class CopiedSession(Struct, frozen=True, kw_only=True):
    """A session of a copy. `entries` were copied now; `before` were there from an earlier copy."""

    session: SessionId
    entries: int
    before: int
    deleted: bool = False
    """The session was deleted, and forks need this part of its history."""


class Copied(Struct, frozen=True, kw_only=True):
    """What was copied; what would be, if it is a dry run."""

    source: str
    target: str
    """The ids of both stores."""
    sessions: tuple[CopiedSession, ...]
    claims: int = 0
    """The claims that are new or changed."""
    blobs: int = 0
    lost_blobs: tuple[str, ...] = ()
    """The digests of blobs that the source lacks, or that are damaged there."""
    not_erased: tuple[SessionId, ...] = ()
    """Sessions of which something was erased since an earlier copy, that a fork in the target still has."""
    moved: tuple[SessionId, ...] = ()
    """The sessions that are driven in the target from now on."""
    made: SessionId | None = None
    """The session that can be driven, if one was asked for."""
    dry_run: bool = False

    @property
    def entries(self) -> int:
        """The entries that were copied."""
        return sum(one.entries for one in self.sessions)


TellProgress: TypeAlias = Callable[[CopyProgress], object]


class _Reached(NamedTuple):
    """Where a session is in the target, and how far."""

    name: SessionId
    seq: int = 0
    sum: str | None = None
    is_done: bool = False
    """There is nothing to copy: it is the whole history of a deleted session, or has been moved there."""


class Copier:
    """One copy."""

    def __init__(
        self,
        source: CopySource,
        target: Engine,
        *,
        tell: TellProgress | None = None,
        dry_run: bool = False,
        holders: Sequence[HolderId] = (),
    ) -> None:
        """`holders`: more of them that the target is to know, besides those that claims and leases name."""
        self._holders = holders
        self._arrived: set[str] = set()
        """The uids of sessions that an earlier move has brought: they are the target's own."""
        self._source, self._target, self._driver = source, target, target.driver
        self._tell, self._dry_run = tell, dry_run
        self._total = sum(session.entries for session in source.sessions)
        self._entries = 0
        self._blobs: dict[str, bool] = {}
        """The blobs that were looked for, and whether they were copied."""
        self._not_erased: list[SessionId] = []
        self._names: dict[str, SessionId] = {}
        """Where journals are in the target, by their uids."""
        self._ends: dict[str, dict[int, str]] = {}
        """The sums of the chunks that forks follow, by uid and `seq`: filled when they are compared."""
        for session in source.sessions:
            if session.pin is not None:
                self._ends.setdefault(session.pin.uid, {})[session.pin.seq] = ""

    async def run(self, into: SessionId | None = None, of: SessionId | None = None) -> Copied:
        """Copy; then make the session `into`, which begins with the history of `of` and can be driven."""
        source, target = self._source, self._target
        await target.call(self._check_new, into, of)
        claims = await source.call(source.list_claims)
        places = [await self._look(session) for session in source.sessions]
        changes = await target.call(self._merge_claims, claims)
        if not self._dry_run:
            for session, place in zip(source.sessions, places, strict=True):
                await self._copy(session, place)
            await self._tell_holders(claims)
            await self._copy_blobs(*(record.encode() for _, record in claims))
            await target.call(self._write_claims, claims)
            self._entries = 0
            for session in source.sessions:
                await self._verify(session)
            if into is not None and of is not None:
                await target.call(self._make_new, into, of)
        return Copied(
            source=source.store_id,
            target=self._driver.store_id(),
            sessions=tuple(
                CopiedSession(
                    session=session.id,
                    entries=session.entries - self._count_before(session, place),
                    before=self._count_before(session, place),
                    deleted=session.is_hidden,
                )
                for session, place in zip(source.sessions, places, strict=True)
            ),
            claims=len(changes),
            blobs=sum(self._blobs.values()),
            lost_blobs=tuple(digest for digest, is_there in self._blobs.items() if not is_there),
            not_erased=tuple(self._not_erased),
            made=into,
            dry_run=self._dry_run,
        )

    def _count_before(self, session: SourceSession, place: _Reached) -> int:
        """How many of its entries were there before."""
        return max(0, min(place.seq, session.seq) - (session.seq - session.entries))

    def _say(self, phase: Literal["copy", "verify"], session: SourceSession, entries: int) -> None:
        self._entries += entries
        if self._tell is not None:
            self._tell(
                CopyProgress(phase=phase, session=session.id, entries=self._entries, total=self._total)
            )

    # -- where it goes -------------------------------------------------------------------------------

    async def _look(self, session: SourceSession) -> _Reached:
        """Where to go on. `BadInput` if something else is in its place."""
        place = await self._target.call(self._find_place, session)
        self._names[session.uid] = place.name
        if place.seq and not place.is_done and place.seq <= session.seq:
            sum = await self._source.call(partial(self._source.find_sum, session, place.seq))
            if sum != place.sum:
                raise BadInput(
                    f"session {session.id!r} in the target is a copy of another course: its entry "
                    f"{place.seq} is not that of the source. Delete it there, and copy again."
                )
        return place

    def _find_place(self, session: SourceSession) -> _Reached:
        name, hidden = session.id, hidden_name(session.uid)
        tip, kept = self._driver.find_tip(name), self._find_end(hidden)
        uid = None if tip is None else self._find_uid(name)
        if session.is_hidden:
            if tip is not None and uid == session.uid:
                if tip.seq < session.seq:
                    raise BadInput(f"session {name!r} was deleted in the source: delete it in the target")
                return _Reached(name, tip.seq, tip.sum, is_done=True)
            if kept is None or kept.seq >= session.seq:
                return kept or _Reached(hidden)
            hidden_tip = self._driver.find_tip(hidden)
            if hidden_tip is None or hidden_tip.sum != kept.sum:
                raise BadInput(
                    f"the target has only a part of the history of {name!r}, which was deleted, and cannot "
                    "be given the rest: delete its forks there, and copy them again"
                )
            return kept._replace(is_done=False)
        if kept is not None:
            raise BadInput(
                f"session {name!r} was deleted in the target, and forks need its history there: delete them, "
                "and copy again"
            )
        if tip is None:
            return _Reached(name)
        if uid == session.uid and self._is_moved_here(session) and not self._is_replica(session):
            self._arrived.add(uid)
            return _Reached(name, session.seq, session.sum, is_done=True)
        if uid != session.uid or not self._is_replica(session):
            what = "which is the original" if uid == session.uid else "which is another one"
            raise BadInput(f"the target has a session {name!r} already, {what}; nothing was copied")
        return _Reached(name, tip.seq, tip.sum)

    def _is_moved_here(self, session: SourceSession) -> bool:
        return session.moved and session.store == self._driver.store_id()

    def _is_replica(self, session: SourceSession) -> bool:
        return find_replica(self._driver, session.id, session.uid) is not None

    def _find_uid(self, name: SessionId) -> str | None:
        page = self._driver.read(name, 0, 1, said=False)
        first = next(open_page(page, f"session {name!r}"), None) if page.count else None
        body = None if first is None else first.body
        return body.uid if isinstance(body, SessionOpened | SessionForked) else None

    def _find_end(self, name: SessionId) -> _Reached | None:
        """What is kept of a deleted session; None if nothing is."""
        found: _Reached | None = None
        while page := _split(
            self._driver.read(name, found.seq if found else 0, READ_CHUNKS, said=True), name
        ):
            found = _Reached(name, page[-1].seq, page[-1].sum, is_done=True)
        return found

    # -- journals --------------------------------------------------------------------------------------

    async def _copy(self, session: SourceSession, place: _Reached) -> None:
        self._say("copy", session, self._count_before(session, place))
        for _ in range(COPY_TRIES):
            try:
                if not place.is_done and place.seq <= session.seq:
                    await self._append_rest(session, place)
                return
            except _Overtaken:
                # Another copy of the same: what it has written are the same chunks.
                for one in self._source.sessions:
                    if one.uid == session.uid or (session.pin and one.uid == session.pin.uid):
                        place = await self._look(one)
        raise StoreBusy(f"session {session.id!r} is being copied by other processes at the same time")

    async def _append_rest(self, session: SourceSession, place: _Reached) -> None:
        after = max(place.seq, session.seq - session.entries)
        batches = _batches(self._source.iter_chunks(session, after))
        while (chunks := await self._source.call(partial(next, batches, None))) is not None:
            for chunk in chunks:
                await self._copy_blobs(chunk.facts, chunk.details, chunk.said)
            place = await self._target.call(self._append, session, place, chunks)
            self._say("copy", session, chunks[-1].seq - after)
            after = chunks[-1].seq
        for row in session.inbox:
            await self._copy_blobs(row.item)
        if not session.is_hidden:
            await self._target.call(self._restore_inbox, session)

    def _append(self, session: SourceSession, place: _Reached, chunks: Sequence[Chunk]) -> _Reached:
        last, is_new = chunks[-1], place.sum is None
        entries = open_page(Page.of(chunks, said=False), f"session {session.id!r}")
        item = Append(
            session=place.name,
            after=place.sum,
            chunks=tuple(chunks),
            head=replace(session.head, session=place.name, seq=last.seq, sum=last.sum, replica=True),
            keyframe=self._source.find_keyframe(session) if last.seq == session.seq else None,
            claims=(self._mark(session),) if is_new and not session.is_hidden else (),
            pin=self._find_pin(session) if is_new else None,
            runs=mark_runs(entries, chunks),
        )
        match self._target.committer.commit_now(item):
            case Done():
                return place._replace(seq=last.seq, sum=last.sum)
            case _:
                raise _Overtaken

    def _mark(self, session: SourceSession) -> ClaimChange:
        """The claim that says that it is a replica. One of an earlier session of this id is replaced."""
        key = replica_key(session.id)
        # One that is being moved here is driven by no store.
        store = self._source.store_id if self._is_moved_here(session) else session.store
        record = msgspec.json.encode(ReplicaRecord(uid=session.uid, store=store)).decode()
        return ClaimChange(key=key, expect=self._driver.find_claim(key), record=record)

    def _find_pin(self, session: SourceSession) -> Pin | None:
        return None if session.pin is None else replace(session.pin, origin=self._names[session.pin.uid])

    def _restore_inbox(self, session: SourceSession) -> None:
        tip = self._driver.find_tip(session.id)
        if tip is not None and tip.head is None and tip.seq == session.seq:
            # The driver keeps heads apart from journals, and a copy died in between. Only the head says to
            # listings that it is a replica.
            self._driver.erase(session.id, tip.sum, {}, replace(session.head, replica=True))
        there = list(self._driver.read_inbox(session.id, 0, len(session.inbox) + 1))
        if tip is None or (tip.posted, there) != (session.posted, list(session.inbox)):
            self._driver.restore_inbox(session.id, session.inbox, session.posted)

    # -- blobs -----------------------------------------------------------------------------------------

    async def _copy_blobs(self, *stored: bytes | None) -> None:
        """Copy the blobs that stored bytes refer to. Durable on return."""
        for part in stored:
            for digest in find_digests(part or b""):
                if digest not in self._blobs:
                    self._blobs[digest] = await self._target.call_home(self._copy_blob, digest)

    def _copy_blob(self, digest: str) -> bool:
        found = self._source.find_blob(digest)
        if found is None:
            return False
        home, owner = self._target.home, self._driver.store_id()
        try:
            home.put(digest, found.parts, found.context, owner=owner)
        except Corrupt:
            return False  # It is damaged in the source, and can be read there no more than here.
        return True

    # -- claims and holders ------------------------------------------------------------------------------

    def _merge_claims(self, claims: Sequence[tuple[str, str]]) -> list[ClaimChange]:
        """What changes in the target. `BadInput` if two records contradict each other."""
        changes: list[ClaimChange] = []
        for key, record in claims:
            there = self._driver.find_claim(key)
            merged = self._merge(key, record, there)
            if merged != there:
                changes.append(ClaimChange(key=key, expect=there, record=merged))
        return changes

    def _merge(self, key: str, record: str, there: str | None) -> str:
        if there is not None and read_claim(record).get("uid") in self._arrived:
            return there  # Its owner is driven here, and knows more.
        if there is None or there == record:
            return record
        theirs, ours = read_claim(record), read_claim(there)
        if key == _DOUBTS:
            keys = dict.fromkeys([*_texts(ours.get("keys")), *_texts(theirs.get("keys"))])
            return msgspec.json.encode({"keys": list(keys)}).decode()
        if key.startswith(_HOLD):
            ahead = _number(theirs, "fence") - _number(ours, "fence")
            return record if ahead > 0 or (ahead == 0 and self._is_of_replica(ours)) else there
        if self._is_copied(ours) or (_owner(ours) == _owner(theirs) and not self._lives(ours)):
            return record  # Of an earlier copy.
        if ours.get("session") is None and _number(ours, "generation") <= _number(theirs, "generation"):
            return record
        if theirs.get("session") is None and _number(theirs, "generation") <= _number(ours, "generation"):
            return there
        raise BadInput(
            f"both stores have a record under {key!r}: the source of session {theirs.get('session')!r}, the "
            f"target of session {ours.get('session')!r}. Only one of them can be kept; nothing was copied."
        )

    def _is_copied(self, claim: Mapping[str, Any]) -> bool:
        """Whether the owner of a claim in the target is a replica of one in the same store."""
        session, uid = _owner(claim)
        if not (isinstance(session, str) and isinstance(uid, str)):
            return False
        replica = find_replica(self._driver, SessionId(session), uid)
        return replica is not None and replica.store in {one.store for one in self._source.sessions}

    def _is_of_replica(self, claim: Mapping[str, Any]) -> bool:
        """Whether a session that is a replica here holds a named lease: its release was not copied yet."""
        session = claim.get("session")
        return (
            isinstance(session, str) and self._driver.find_claim(replica_key(SessionId(session))) is not None
        )

    def _lives(self, claim: Mapping[str, Any]) -> bool:
        """Whether the owner of a claim is a session of the target."""
        session, uid = _owner(claim)
        return isinstance(session, str) and self._find_uid(SessionId(session)) == uid

    def _write_claims(self, claims: Sequence[tuple[str, str]]) -> None:
        for key, record in claims:
            while True:
                there = self._driver.find_claim(key)
                merged = self._merge(key, record, there)
                change = ClaimChange(key=key, expect=there, record=merged)
                if merged == there or not isinstance(self._driver.claim(change), Claimed):
                    break

    async def _tell_holders(self, claims: Sequence[tuple[str, str]]) -> None:
        """Let the target know the holders that what is copied names: it would take unknown ones for ended."""
        for holder in (*list_named_holders(self._source.sessions, claims), *self._holders):
            beat = await self._source.call(partial(self._source.find_beat, holder))
            if beat is not None:
                await self._target.call(self._driver.beat, holder, beat, ())

    # -- comparing -------------------------------------------------------------------------------------

    async def _verify(self, session: SourceSession) -> None:
        """Read it from the target, check its chain, and compare it with the source."""
        if session.uid in self._arrived:
            for seq in self._ends.get(session.uid, {}):
                sum = await self._source.call(partial(self._source.find_sum, session, seq))
                self._ends[session.uid][seq] = sum or ""
            return
        begin = session.seq - session.entries
        pin = session.pin
        sum = GENESIS if pin is None else self._ends[pin.uid][pin.seq]
        chain = Chain(f"the copy of session {session.id!r}", begin, sum)
        differing: dict[int, Erasure] = {}
        after, chunks = begin, self._source.iter_chunks(session, begin)
        while (part := await self._source.call(partial(next, chunks, None))) is not None:
            differing |= await self._target.call(self._compare, session, chain, part)
            self._say("verify", session, part[-1].seq - after)
            after = part[-1].seq
        if differing and not await self._target.call(self._erase, session, differing):
            self._not_erased.append(session.id)

    def _compare(
        self, session: SourceSession, chain: Chain, chunks: Sequence[Chunk]
    ) -> Mapping[int, Erasure]:
        """What is left in the source of chunks that were erased there since they were copied."""
        page = self._driver.read(self._names[session.uid], chain.seq, len(chunks), said=True)
        wanted = self._ends.get(session.uid, {})
        for chunk in chain.open(page):
            if chunk.last in wanted:
                wanted[chunk.last] = chunk.sum
        there = _split(page, session.id)
        if [(one.seq, one.sum, one.facts) for one in there] != [(c.seq, c.sum, c.facts) for c in chunks]:
            raise Corrupt(chain.where, "it is not what was copied", seq=chunks[0].seq)
        return {
            chunk.seq: Erasure(chunk.details, chunk.said)
            for chunk, one in zip(chunks, there, strict=True)
            if (chunk.details, chunk.said) != (one.details, one.said)
        }

    def _erase(self, session: SourceSession, erasures: Mapping[int, Erasure]) -> bool:
        """Erase in the target what was erased in the source; False if a fork there keeps some of it."""
        name = self._names[session.uid]
        while (tip := self._driver.find_tip(name)) is not None and not session.is_hidden:
            head = replace(self._head_of(session, tip), session=name, replica=True)
            if isinstance(self._driver.erase(name, tip.sum, erasures, head), Done):
                break
        return all(
            Erasure(chunk.details, chunk.said) == erasures[seq]
            for seq in erasures
            for chunk in _split(self._driver.read(name, seq - 1, 1, said=True), name)
        )

    def _head_of(self, session: SourceSession, tip: Tip) -> Head:
        return session.head if tip.seq == session.seq else tip.head or session.head

    # -- a session that can be driven --------------------------------------------------------------------

    def _check_new(self, into: SessionId | None, of: SessionId | None) -> None:
        if into is None:
            return
        if of is None or into == of:
            raise BadInput(f"one session is driven under a new id: name it, and another id than {into!r}")
        if self._driver.find_tip(into) is not None and not self._is_made(into, of):
            raise BadInput(f"the target has a session {into!r} already; choose another id")

    def _is_made(self, into: SessionId, of: SessionId) -> bool:
        """Whether an earlier copy made it."""
        uids = {one.uid for one in self._source.sessions if one.id == of and not one.is_hidden}
        segments = Journal(self._driver, into).segments
        return len(segments) > 1 and segments[-2].uid in uids

    def _make_new(self, into: SessionId, of: SessionId) -> None:
        if self._driver.find_tip(into) is not None:
            return
        has_versions = bool(Journal(self._driver, of).fold().path())
        if has_versions:
            fork(self._target, of, None, into, {})
        else:
            fork_end(self._target, of, into, {})


class _Overtaken(Exception):
    """The target has changed since it was looked at."""


def _owner(claim: Mapping[str, Any]) -> tuple[object, object]:
    return claim.get("session"), claim.get("uid")


def _number(claim: Mapping[str, Any], name: str) -> int:
    found = claim.get(name, 0)
    return found if isinstance(found, int) else 0


def _texts(found: object) -> list[str]:
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def _split(page: Page, name: str) -> list[Chunk]:
    return split_page(page, f"session {name!r}")


def _batches(parts: Iterator[Sequence[Chunk]]) -> Iterator[Sequence[Chunk]]:
    """The chunks in parts that a commit takes."""
    for part in parts:
        batch: list[Chunk] = []
        size = 0
        for chunk in part:
            if batch and size + chunk.size > BATCH_BYTES_MAX:
                yield batch
                batch, size = [], 0
            batch.append(chunk)
            size += chunk.size
        yield batch
