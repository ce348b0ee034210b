"""A thread's journal: read as far as it goes, and written to after its last line, without a lease.

LangGraph has no notion of a run being over, so nobody would ever give a lease back. A line names the `sum`
that it follows, as everywhere; so it is refused if somebody else has written since. Whoever is refused reads
on, and sees by whom.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ...content.extract import Piece
from ...content.lazy import Place as BlobPlace
from ...content.lazy import Shared
from ...core.codec import GENESIS, Chain, Sealed, open_line, parse
from ...core.codec import erase as erase_line
from ...core.entries import AdapterBody, Entry, SessionOpened
from ...core.head import Head
from ...core.session_state import SessionState
from ...drivers.contract import Done, HeadFilter
from ...engine.committer import Channel
from ...engine.engine import Engine
from ...engine.journal import NONSENSE, Journal
from ...errors import Corrupt, Fenced, LeaseHeld, NotFound, Overtaken, ReadOnly
from ...ids import SessionId, fresh_uid
from ...limits import ADAPTER_CACHE_BYTES, ADAPTER_SEEN_MAX, PAGE_ROWS
from ...session.fork import fork_end
from ...session.lease import append_to
from ...system import threads
from .thread_ids import Place, fit_labels, thread_prefix
from .thread_state import KEPT, NAMED, PREFIX, Draft, Thread, notes_failure

LABELS: Mapping[str, str] = {"adapter": "langgraph"}


class Stranger(NamedTuple):
    """Who else wrote to a thread, and the last line of theirs."""

    seq: int
    by: str
    name: str


class Parcel(Struct, frozen=True, eq=False):
    """Lines of one commit that wait for the blobs that they refer to."""

    sealed: Sequence[Sealed]
    head: Head
    pieces: tuple[Piece, ...]


class Desk:
    """An open journal: the fold over it, and where to hand over lines. Guarded by its lock."""

    def __init__(self, place: Place, thread: Thread) -> None:
        self.place, self.thread = place, thread
        self.lock = threads.Lock()
        self.state = SessionState(place.session)
        self.channel = Channel(place.session, None)
        self.stranger: Stranger | None = None
        self.unsent: list[Parcel] = []
        """Folded in already, and not handed over yet: the first of them waits for blobs."""
        self.ended = False

    @property
    def seq(self) -> int:
        """The last line that was read or written."""
        return self.state.seq

    @property
    def is_new(self) -> bool:
        """Whether there is no such session yet."""
        return self.state.seq == 0

    def read(self, lines: Iterator[bytes], me: str) -> None:
        """Fold lines that others wrote, or that were there before."""
        where = f"session {self.place.session!r}"
        chain = Chain(where, self.seq, self.state.facts.head.sum or GENESIS)
        for data in lines:
            line = chain.check(data)
            entry = open_line(line, where)
            try:
                self.state.apply(entry, line.sum)
                self.thread.apply(entry)
                self._note_stranger(entry, me)
            except NONSENSE as error:
                why = f"it makes no sense after what came before it ({error!r})"
                raise Corrupt(where, why, seq=line.seq) from error
        head = self.state.facts.head
        self.channel = Channel(self.place.session, head.sum or None)
        self.channel.head, self.channel.durable_seq = (replace(head) if head.seq else None), head.seq

    def _note_stranger(self, entry: Entry, me: str) -> None:
        if entry.kind.startswith(PREFIX) and entry.kind != NAMED and isinstance(entry.body, AdapterBody):
            said: Any = entry.body.data
            if said.get("by") != me and not notes_failure(entry):
                self.stranger = Stranger(entry.seq, said.get("by", "?"), said.get("at", "?"))


class Desks:
    """The journals of all threads that one saver works with."""

    def __init__(self, engine: Engine, make_thread: Callable[[], Thread]) -> None:
        self.engine, self._make_thread = engine, make_thread
        self.me = fresh_uid()[:12]
        self._open: OrderedDict[SessionId, Desk] = OrderedDict()
        self._seen: dict[SessionId, tuple[str, int]] = {}
        """Up to where each journal was read by whoever uses the saver: its uid and an entry."""
        self._lock = threads.Lock()

    # -- reading -------------------------------------------------------------------------------------

    async def look(self, place: Place) -> Desk:
        """The journal as it is now: everything that was committed by anybody."""
        while True:
            desk = await self._get(place)
            if await self._is_current(desk):
                with self._lock:
                    self._seen[place.session] = desk.state.facts.head.uid, desk.seq
                return desk

    async def _get(self, place: Place) -> Desk:
        with self._lock:
            desk = self._open.get(place.session)
            if desk is not None and not desk.ended:
                self._open.move_to_end(place.session)
                return desk
        made = await self.engine.call(self._load, place)
        with self._lock:
            desk = self._open.get(place.session)
            if desk is None or desk.ended:
                desk = self._open[place.session] = made
                self._make_room()
            if not desk.is_new:
                self._seen.setdefault(place.session, (desk.state.facts.head.uid, desk.seq))
            return desk

    def _load(self, place: Place) -> Desk:
        desk = Desk(place, self._make_thread())
        try:
            desk.read(Journal(self.engine.driver, place.session).acknowledged(), self.me)
        except NotFound:
            return desk
        if desk.state.facts.unknown is not None:
            raise ReadOnly(place.session, *desk.state.facts.unknown)
        return desk

    async def _is_current(self, desk: Desk) -> bool:
        """Whether nothing is behind the desk's last line; else it is read on, or given up."""
        if not await self._send(desk):
            return False
        try:
            await self.engine.committer.barrier(desk.channel)
        except Fenced:
            desk.ended = True
            return False
        return await self.engine.call(self._read_on, desk)

    def _read_on(self, desk: Desk) -> bool:
        tip = self.engine.driver.find_tip(desk.place.session)
        seq, head = desk.seq, desk.state.facts.head
        if tip is None:
            # Somebody deleted it, unless it was never there.
            desk.ended = desk.ended or not desk.is_new
            return desk.is_new
        if tip.sum == head.sum:
            return True
        if tip.seq <= seq or desk.is_new:
            # Either our own line came in between, or this is another session by the same name.
            desk.ended = desk.ended or desk.channel.durable_seq == desk.seq
            return False
        try:
            lines = list(Journal(self.engine.driver, desk.place.session).acknowledged(seq))
        except NotFound:
            return False  # Deleted just now.
        with desk.lock:
            if desk.ended or desk.seq != seq or desk.channel.durable_seq != seq:
                return False
            try:
                desk.read(iter(lines), self.me)
            except Corrupt:
                desk.ended = True  # Read from its beginning, it is another one, or really damaged.
        return False

    def _make_room(self) -> None:
        """Close those that were used longest ago; what is under way ends all the same."""
        size = sum(desk.thread.values.bytes for desk in self._open.values())
        while size > ADAPTER_CACHE_BYTES and len(self._open) > 1:
            _, desk = self._open.popitem(last=False)
            size -= desk.thread.values.bytes
        while len(self._seen) > ADAPTER_SEEN_MAX:
            del self._seen[next(iter(self._seen))]

    async def places(self, thread: str | None = None) -> list[Place]:
        """The namespaces of a thread, or of all threads."""
        return await self.engine.call(self._places, thread)

    def _places(self, thread: str | None) -> list[Place]:
        prefix = "" if thread is None else thread_prefix(thread)
        wanted = HeadFilter(labels=LABELS)
        after: SessionId | None = SessionId(prefix[:-1]) if prefix else None
        found: list[Place] = []
        while True:
            tips = self.engine.driver.list_tips(wanted, after, PAGE_ROWS)
            here = [self._find_place(tip.session) for tip in tips if tip.session.startswith(prefix)]
            found += [place for place in here if place is not None]
            if len(tips) < PAGE_ROWS or not (tips[-1].session[: len(prefix)] <= prefix):
                return found
            after = tips[-1].session

    def _find_place(self, session: SessionId) -> Place | None:
        with self._lock:
            desk = self._open.get(session)
            if desk is not None:
                return desk.place
        named: Any = None
        journal = Journal(self.engine.driver, session)
        # It stands where this session's own part of the journal begins: a copy has a name of its own.
        for entry in journal.entries(journal.own_from - 1):
            if entry.kind == NAMED and isinstance(entry.body, AdapterBody):
                named = entry.body.data
                return Place(named["thread"], named["ns"])
        return None

    # -- writing -------------------------------------------------------------------------------------

    async def write(self, place: Place, make: Callable[[Thread], Draft | None]) -> None:
        """Append the line that `make` gives for the thread as it is; durable on return.

        `Overtaken` if another saver wrote to it after this one last looked.
        """
        while True:
            desk = await self._get(place)
            with desk.lock:
                if desk.ended:
                    continue
                self._refuse(desk)
                try:
                    draft = make(desk.thread)
                    if draft is not None:
                        self._offer(desk, draft)
                except Fenced:
                    desk.ended = True  # Somebody was quicker, and nobody who waits for it knows yet.
                    continue
                except BaseException:
                    # Half of it may be in the thread, and none of it will be in the journal.
                    desk.ended = True
                    raise
                channel = desk.channel
            if desk.unsent and not await self._send_mine(desk):
                continue
            try:
                await self.engine.committer.barrier(channel)
            except Fenced:
                desk.ended = True  # Somebody was quicker. Whether that matters is seen from what they wrote.
            else:
                return

    def _refuse(self, desk: Desk) -> None:
        facts = desk.state.facts
        with self._lock:
            uid, seq = self._seen.get(desk.place.session, (facts.head.uid, desk.seq))
        stranger = desk.stranger
        if stranger is not None and (stranger.seq > seq or uid != facts.head.uid):
            raise Overtaken(str(desk.place), stranger.name, stranger.by)
        lease = facts.head.lease
        if lease is not None:
            life = self.engine.heartbeat.judge(lease.holder)
            if life.alive:
                desk.ended = True  # It may be given back by the next time: then that is read first.
                raise LeaseHeld(desk.place.session, lease.name, left_s=life.left_s)

    def _offer(self, desk: Desk, draft: Draft) -> None:
        engine, place = self.engine, desk.place
        sealed: list[Sealed] = []
        if desk.is_new:
            body = SessionOpened(uid=fresh_uid(), labels=labels_of(place))
            sealed = [append_to(desk.state, body, engine), self._seal(desk, _named(place))]
            with self._lock:
                self._seen[place.session] = desk.state.facts.head.uid, 0
        sealed.append(self._seal(desk, draft))
        parcel = Parcel(sealed, replace(desk.state.facts.head), draft.pieces)
        if draft.pieces or desk.unsent:
            desk.unsent.append(parcel)  # Lines are handed over in their order.
        else:
            engine.committer.offer(desk.channel, parcel.sealed, parcel.head)

    async def _send_mine(self, desk: Desk) -> bool:
        """Send what was written here; False if it must be written anew."""
        try:
            return await self._send(desk)
        except BaseException:
            desk.ended = True  # What was folded in will not be in the journal.
            raise

    async def _send(self, desk: Desk) -> bool:
        """Hand over what waits for blobs, once they are durable; False if the desk has ended before.

        Everybody sees to the blobs of all who were there before them: those are kept once, and whoever comes
        second waits until they are.
        """
        with desk.lock:
            waiting = tuple(desk.unsent)
        if not waiting:
            return True
        pieces = [piece for parcel in waiting for piece in parcel.pieces]
        await self.engine.call_home(self.engine.blobs.keep, pieces)
        with desk.lock:
            try:
                while not desk.ended and desk.unsent and desk.unsent[0] in waiting:
                    parcel = desk.unsent[0]
                    self.engine.committer.offer(desk.channel, parcel.sealed, parcel.head)
                    del desk.unsent[0]
            except Fenced:
                desk.ended = True  # Somebody else was quicker.
            return not any(parcel in desk.unsent for parcel in waiting)

    async def fetch(self, desk: Desk, digests: Iterable[str]) -> dict[str, Shared]:
        """The bytes of these blobs; `LostBlob` if one of them cannot be had."""
        place = desk.place
        await self._send(desk)  # Somebody may just be putting them.
        source = BlobPlace(place.session, self.engine.blobs, where=str(place))
        return await self.engine.call_home(lambda: {digest: source.share(digest) for digest in digests})

    def _seal(self, desk: Desk, draft: Draft) -> Sealed:
        said = {"by": self.me, "at": self.engine.heartbeat.name, **draft.body}
        sealed = append_to(
            desk.state, AdapterBody(data=said), self.engine, content=draft.content or None, kind=draft.kind
        )
        if draft.kind == KEPT:
            desk.thread.apply(sealed.entry)
        return sealed

    async def shrink(self, place: Place, keep: Callable[[Thread], set[str]]) -> None:
        """Keep some of the checkpoints, and give back the space of the others."""
        desk = await self.look(place)
        with desk.lock:
            ids = keep(desk.thread)
            if desk.is_new or ids >= desk.thread.records.keys():
                return
            empties = not ids and not desk.thread.ahead()
        if empties:
            await self.delete(place)
            return
        await self.write(place, lambda thread: thread.keep(keep(thread)))
        while not await self.engine.call(self._erase, place):
            pass

    def _erase(self, place: Place) -> bool:
        """Erase what the last `kept` line has made void; whether nobody wrote meanwhile."""
        journal = Journal(self.engine.driver, place.session)
        lines: dict[int, bytes] = {}
        void: dict[int, bytes] = {}
        for data in journal.lines(journal.own_from - 1):
            entry = open_line(parse(data, place.session), place.session)
            if entry.kind.startswith(PREFIX) and entry.content is not None:
                if entry.kind == KEPT:
                    void.update(lines)
                lines[entry.seq] = data
        desk = self._load(place)
        head = desk.state.facts.head
        erased = {seq: erase_line(data, place.session) for seq, data in void.items()}
        return isinstance(self.engine.driver.erase(place.session, head.sum, erased, head), Done)

    async def delete(self, place: Place) -> None:
        """Remove all of it."""
        while True:
            desk = await self.look(place)
            if desk.is_new:
                return
            sum = desk.state.facts.head.sum
            outcome = await self.engine.call(self.engine.driver.delete, place.session, sum)
            if isinstance(outcome, Done):
                desk.ended = True
                with self._lock:
                    self._open.pop(place.session, None)
                    self._seen.pop(place.session, None)
                return

    async def fork(self, source: Place, target: Place) -> None:
        """A copy that shares the source's lines; the target must not be there yet."""
        await self.share(source.session, target.session, labels_of(target))
        await self.write(target, lambda thread: _named(target))

    async def share(self, source: SessionId, target: SessionId, labels: dict[str, str]) -> None:
        """Make a session that begins with all lines of another."""
        await self.engine.call(fork_end, self.engine, source, target, labels)


def labels_of(place: Place) -> dict[str, str]:
    """What people find the session by."""
    return {**LABELS, **fit_labels({"langgraph.thread": place.thread, "langgraph.namespace": place.ns})}


def _named(place: Place) -> Draft:
    return Draft(NAMED, {"thread": place.thread, "ns": place.ns}, b"")
