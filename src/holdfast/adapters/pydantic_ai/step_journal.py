"""The journals under a step store: read as far as they go, and written to without a lease.

Their protocol has no end of a run, so nobody would ever give a lease back. A line names the `sum` that it
follows, as everywhere: it is refused if somebody else has written since, and whoever is refused reads on and
decides anew.

Events that only inform are not waited for: they join the next line that is, or leave after a short linger.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import anyio
from msgspec import Struct
from msgspec.structs import replace

from ...content.extract import Piece
from ...core.codec import GENESIS, Chain, Sealed, check, encode_body, open_line
from ...core.entries import AdapterBody, Body, RunStarted, SessionOpened
from ...core.session_state import SessionState
from ...drivers.contract import Append, ClaimChange, Done
from ...engine.committer import Channel
from ...engine.engine import Engine
from ...engine.journal import NONSENSE, Journal
from ...errors import Closed, Corrupt, Fenced, HoldfastError, LeaseHeld, NotFound, ReadOnly
from ...ids import SessionId, fresh_uid, label_of_original
from ...limits import LINGER_S, STEP_JOURNALS_MAX
from ...session.lease import append_to
from ...system import aio
from .step_fold import CONFIG, EVENTS, Steps, name_run
from .step_history import Histories
from .step_records import Record

log = logging.getLogger("holdfast")
_LABELS = {"adapter": "pydantic-ai"}


class Draft(Struct, frozen=True, kw_only=True):
    """An entry to be: one of ours (`body`), or of the adapter's own (`kind` and `data`)."""

    run_id: str
    body: Body | None = None
    kind: str = ""
    data: Record = {}
    content: bytes | None = None
    pieces: tuple[Piece, ...] = ()
    """The blobs that must be there before it is written."""


class _Line(NamedTuple):
    """What stands in a line to be, and the events of the run that it takes along."""

    run_id: str
    name: str
    body: Body
    kind: str | None = None
    content: bytes | None = None
    events: Sequence[Record] = ()


Decide: TypeAlias = "Callable[[Desk], Sequence[Draft]]"
"""What to write after what the journal says, if anything. Asked again when somebody else was quicker."""


class Desk:
    """An open journal: the folds over it, and where to hand over lines.

    Whoever decides and records has the lock.
    """

    def __init__(self, engine: Engine, session: SessionId) -> None:
        self._engine, self.session = engine, session
        self.lock = anyio.Lock(fast_acquire=True)
        self.state = SessionState(session)
        self.steps = Steps(f"session {session!r}")
        self.histories = Histories(self.steps, engine.blobs.sizes.inline_bytes)
        self.channel = Channel(session, None)
        self._held: dict[str, list[Record]] = {}
        """Events that stand in no line yet, by run."""
        self._sent: list[tuple[int, str, Sequence[Record]]] = []
        """Events that stand in a line which may not be durable yet, with its `seq`."""
        self.forgotten = False
        """Who waited for the lock meanwhile begins anew."""

    @property
    def is_settled(self) -> bool:
        """Whether all lines that were written here are durable."""
        return self.channel.durable_seq >= self.state.seq

    @property
    def is_idle(self) -> bool:
        """Whether nobody would miss it."""
        return self.is_settled and not self._held and not self.lock.locked()

    def read_on(self) -> bool:
        """Read what others have written; False if this is no longer the same journal. Blocks."""
        if not self.is_settled:
            return True  # What is being written here will tell.
        tip = self._engine.driver.find_tip(self.session)
        head = self.state.facts.head
        began, sum = head.seq, head.sum
        if tip is None or tip.sum == sum:
            return tip is not None or not began
        if tip.seq <= began:
            return False
        try:
            self._read(Journal(self._engine.driver, self.session))
        except (Corrupt, NotFound):
            if began:
                return False  # It may be another session by now: who begins anew finds out.
            raise
        return True

    def _read(self, journal: Journal) -> None:
        facts = self.state.facts
        chain = Chain(journal.where, facts.head.seq, facts.head.sum or GENESIS)
        for data in journal.acknowledged(facts.head.seq):
            line = chain.check(data)
            entry = open_line(line, journal.where)
            try:
                self.state.apply(entry, line.sum)
                self.steps.apply(entry)
            except NONSENSE as error:
                why = f"it makes no sense after what came before it ({error!r})"
                raise Corrupt(journal.where, why, seq=line.seq) from error
        facts = self.state.facts
        if facts.unknown is not None:
            raise ReadOnly(self.session, *facts.unknown)
        lease = facts.head.lease
        if lease is not None:
            life = self._engine.heartbeat.judge(lease.holder)
            if life.alive:
                raise LeaseHeld(self.session, life.name, left_s=life.left_s)
        self._note_durable()

    def _note_durable(self) -> None:
        head = replace(self.state.facts.head)
        channel = self.channel
        channel.head, channel.after, channel.durable_seq = head, head.sum, head.seq

    # -- events that nobody waits for -----------------------------------------------------------------

    def hold_all(self, events: Iterable[tuple[str, Record]]) -> None:
        """Note events, but for repetitions; a line takes them along soon."""
        for run_id, event in events:
            run = self.steps.get(run_id)
            if not run.knows_event(event.get("idempotency_key")):
                run.note_event(event)
                self._held.setdefault(run_id, []).append(event)

    def held_runs(self) -> list[str]:
        """The runs with events that stand in no line yet."""
        return list(self._held)

    def holds(self, run_id: str | None = None) -> bool:
        """Whether events, those of the run or any, stand in no line yet."""
        return bool(self._held) if run_id is None else run_id in self._held

    def list_unsettled(self) -> list[tuple[str, Record]]:
        """The events that are not durable yet."""
        sent = [(run, events) for seq, run, events in self._sent if seq > self.channel.durable_seq]
        return [(run, event) for run, events in (*sent, *self._held.items()) for event in events]

    # -- writing ---------------------------------------------------------------------------------------

    def record(self, drafts: Sequence[Draft]) -> None:
        """Hand lines over, for one commit."""
        sealed = self._seal(drafts)
        self._engine.committer.offer(self.channel, sealed, replace(self.state.facts.head))

    def _seal(self, drafts: Sequence[Draft]) -> list[Sealed]:
        """Make the lines, and fold them in."""
        own = {one.run_id for one in drafts[:1] if one.body is None}
        first = [Draft(run_id=run, kind=EVENTS) for run in self._held if run not in own]
        lines, held = self._plan((*first, *drafts))
        # All or none: what was folded cannot be taken back.
        for line in lines:
            check(line.body, line.content, kind=line.kind)
        self._held = held
        sealed: list[Sealed] = []
        if not self.state.seq:
            opened = SessionOpened(uid=fresh_uid(), labels={**_LABELS, **self._name_original(drafts)})
            sealed.append(append_to(self.state, opened, self._engine))
        return [*sealed, *map(self._seal_one, lines)]

    def _name_original(self, drafts: Sequence[Draft]) -> dict[str, str]:
        """A label with the conversation, or the run, where the session's id is not made of it as it is."""
        found: dict[str, str] = {"run": drafts[0].run_id} if drafts else {}
        for draft in drafts:
            config = draft.body.config if isinstance(draft.body, RunStarted) else None
            if isinstance(config, dict) and (config.get(CONFIG) or {}).get("conversation_id"):
                found = {"conversation": config[CONFIG]["conversation_id"]}
        return {
            key: label_of_original(one) for key, one in found.items() if not self.session.endswith(f"-{one}")
        }

    def _plan(self, drafts: Iterable[Draft]) -> tuple[list[_Line], dict[str, list[Record]]]:
        """The lines to be, and the events that none of them takes along."""
        lines: list[_Line] = []
        held = dict(self._held)
        for draft in drafts:
            name, data = name_run(draft.run_id, draft.data)
            if draft.body is not None:
                lines.append(_Line(draft.run_id, name, draft.body))
                continue
            events = held.pop(draft.run_id, [])
            if events:
                data = {**data, "events": self.steps.get(draft.run_id).write_events(events)}
            lines.append(_Line(draft.run_id, name, AdapterBody(data=data), draft.kind, draft.content, events))
        return lines, held

    def _seal_one(self, line: _Line) -> Sealed:
        made = append_to(self.state, line.body, self._engine, line.name, line.content, kind=line.kind)
        if line.events:
            settled = self.channel.durable_seq
            self._sent = [one for one in self._sent if one[0] > settled]
            self._sent.append((made.entry.seq, line.run_id, line.events))
        self.steps.apply(made.entry, events_known=True)
        return made

    def commit(self, drafts: Sequence[Draft], claims: tuple[ClaimChange, ...] = ()) -> bool:
        """Commit lines at once, together with claims, or neither: False if somebody else has those, or was
        quicker. Blocks."""
        after = self.state.facts.head.sum or None
        sealed = self._seal(drafts)
        item = Append(
            session=self.session,
            after=after,
            first_seq=sealed[0].entry.seq,
            lines=tuple(one.line for one in sealed),
            kinds=tuple(one.entry.kind for one in sealed),
            head=replace(self.state.facts.head),
            claims=claims,
        )
        if isinstance(self._engine.committer.commit_now(item), Done):
            self._note_durable()
            return True
        return False


class Desks:
    """The journals that are open, the last used ones."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._open: OrderedDict[SessionId, Desk] = OrderedDict()
        self._left: dict[SessionId, list[tuple[str, Record]]] = {}
        """Events that were handed over and refused, for whoever opens the journal again."""
        self._timer: Any = None
        """The event loop that will send what is held."""
        self._sending: set[tuple[Any, anyio.Event]] = set()
        """The end of each task that sends, with its event loop."""
        self._closing = False
        engine.on_close.append(self._write_rest)

    async def look(self, session: SessionId, *, settled: bool = False) -> Desk:
        """The journal as it stands now. While a line of ours is on its way, what others wrote is not seen,
        unless it is `settled` first."""
        while True:
            desk = self._find(session)
            async with desk.lock:
                if desk.forgotten:
                    continue
                try:
                    if settled:
                        await self.engine.committer.barrier(desk.channel)
                    # To its end: what is read by half is of no use to whoever comes next.
                    current = desk.channel.lost is None and await aio.run_to_end(partial(self._read_on, desk))
                except Fenced:
                    current = False
                if current:
                    self._refuse_closed()
                    desk.hold_all(self._left.pop(session, ()))
                    return desk
                self._forget(desk)

    async def _read_on(self, desk: Desk) -> bool:
        try:
            return await self.engine.call(desk.read_on)
        except BaseException:
            self._forget(desk)
            raise

    async def write(self, session: SessionId, decide: Decide) -> None:
        """Write what there is to write. Durable on return."""
        while True:
            desk = await self._find_read(session)
            try:
                async with desk.lock:
                    if desk.forgotten:
                        continue
                    drafts = decide(desk)
                    await self._keep_blobs(desk, drafts)
                    if drafts:
                        desk.record(drafts)
                await self.engine.committer.barrier(desk.channel)
                return
            except Fenced:
                async with desk.lock:
                    self._forget(desk)

    async def _keep_blobs(self, desk: Desk, drafts: Sequence[Draft]) -> None:
        """Make the blobs durable that the drafts refer to."""
        pieces = [piece for draft in drafts for piece in draft.pieces]
        if not pieces:
            return
        try:
            await self.engine.call_home(self.engine.blobs.keep, pieces)
        except BaseException:
            for draft in drafts:
                desk.histories.forget(draft.run_id)  # They count on what is not written now.
            raise

    async def write_claimed(self, session: SessionId, drafts: Sequence[Draft], claim: ClaimChange) -> bool:
        """Write together with a claim; False if somebody was quicker. Durable on return."""
        desk = await self.look(session)
        async with desk.lock:
            if desk.forgotten:
                return False
            try:
                await self.engine.committer.barrier(desk.channel)
            except Fenced:
                self._forget(desk)
                return False
            # To its end: whether it landed must be known before anybody else uses the desk.
            return await aio.run_to_end(partial(self._commit, desk, drafts, claim))

    async def _commit(self, desk: Desk, drafts: Sequence[Draft], claim: ClaimChange) -> bool:
        landed = False
        try:
            landed = await self.engine.call(desk.commit, drafts, (claim,))
        finally:
            if not landed:
                self._forget(desk)  # It has folded what is not there, or nobody knows: who comes next looks.
        return landed

    async def hold(self, session: SessionId, run_id: str, event: Record) -> None:
        """Note an event that nobody waits for, unless it is a repetition."""
        encode_body(AdapterBody(data=event))  # Refused now, and not when it would keep others back.
        while True:
            desk = await self._find_read(session)
            async with desk.lock:
                if desk.forgotten:
                    continue
                try:
                    self.engine.committer.check(desk.channel)
                except Fenced:
                    self._forget(desk)
                    continue
                desk.hold_all([(run_id, event)])
            self._send_soon()
            return

    def _send_soon(self) -> None:
        loop = aio.current_loop()
        if self._timer is not loop:
            self._timer = loop
            aio.call_later(LINGER_S, self._send)

    def _send(self) -> None:
        """Events that no other line has taken along leave by themselves."""
        self._timer = None
        for session in {*self._left, *(desk.session for desk in self._open.values() if desk.holds())}:
            ended = aio.current_loop(), anyio.Event()
            self._sending.add(ended)
            aio.spawn(partial(self._send_one, session), partial(self._note_sent, ended))

    def _note_sent(self, ended: tuple[Any, anyio.Event]) -> None:
        self._sending.discard(ended)
        ended[1].set()

    async def _send_one(self, session: SessionId) -> None:
        try:
            await self.write(
                session, lambda desk: [Draft(run_id=run, kind=EVENTS) for run in desk.held_runs()]
            )
        except Closed:
            pass  # Who closes the store takes them along.
        except HoldfastError as error:
            # They are still held: whoever writes next, or closes the store, takes them along.
            log.warning("session %s: events could not be written: %s", session, error)

    async def _write_rest(self) -> None:
        """Before the store closes: events that stand in no line, or in one that was refused."""
        self._closing = True
        loop = aio.current_loop()
        for ended in [ended for its_loop, ended in self._sending if its_loop is loop]:
            await ended.wait()
        for desk in list(self._open.values()):
            async with desk.lock:
                self._forget(desk)
        for session, left in self._left.items():
            try:
                await anyio.to_thread.run_sync(self._write_left, session, left)
            except HoldfastError as error:
                log.warning("session %s: %d events could not be written: %s", session, len(left), error)

    def _write_left(self, session: SessionId, left: Sequence[tuple[str, Record]]) -> None:
        while True:
            desk = Desk(self.engine, session)
            desk.read_on()
            desk.hold_all(left)
            if not desk.holds() or desk.commit([]):
                return

    def _forget(self, desk: Desk) -> None:
        """Begin anew with this journal. Events that are not durable yet are kept for it. Needs its lock."""
        if desk.forgotten:
            return
        desk.forgotten = True
        del self._open[desk.session]
        left = desk.list_unsettled()
        if left:
            self._left.setdefault(desk.session, []).extend(left)
            if not self._closing:
                self._send_soon()

    def _refuse_closed(self) -> None:
        if self._closing:
            raise Closed("the store was closed")

    async def _find_read(self, session: SessionId) -> Desk:
        desk = self._find(session)
        return desk if desk.state.seq else await self.look(session)

    def _find(self, session: SessionId) -> Desk:
        self._refuse_closed()
        desk = self._open.get(session)
        if desk is None:
            desk = self._open[session] = Desk(self.engine, session)
            idle = [one for one in self._open.values() if one.is_idle and one is not desk]
            for old in idle[: max(0, len(self._open) - STEP_JOURNALS_MAX)]:
                self._forget(old)
        self._open.move_to_end(session)
        return desk
