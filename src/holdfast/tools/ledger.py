"""The ledger at work: decide what a call means, record the intent, run the body, record the outcome."""

from __future__ import annotations

import logging
import math
from typing import Any

import anyio
import anyio.from_thread
import msgspec
from msgspec.structs import replace

from ..content.packing import Given, encode_content
from ..content.references import escape
from ..core.effects import Effect
from ..core.entries import (
    CallRef,
    InboxVerdict,
    LeaseRenewed,
    ToolAnnotated,
    ToolCompleted,
    ToolDiscarded,
    ToolFailed,
    ToolInDoubt,
    ToolIssued,
    ToolRan,
    ToolRefused,
    ToolReported,
    ToolSettled,
    Verdict,
)
from ..engine.engine import Engine
from ..engine.journal import Journal
from ..ids import HolderId
from ..limits import TOOL_TIMEOUT_S
from ..messages import Json
from ..reprs import attempt
from ..session.effect_claims import Behind, close_settlement
from ..session.inbox import encode_item
from ..session.session import Session
from ..system.clock import boot_s
from .canonical import digest
from .claims import Held
from .context import AnyContext, ToolContext
from .decision import Blocked, Decision, Issue, Join, Replay
from .declaration import AnyTool, Hook
from .executor import Ran, run_guarded, run_plain
from .gates import Ready
from .outcome import NotDone, as_given, as_json, as_text
from .reentry import refuse_waiting, working
from .result_store import Recalled, keep

log = logging.getLogger("holdfast")
_under_way: dict[str, Engine] = {}
"""Keys of the effects whose bodies run in this process, also those that nobody waits for any more."""


class Ledger:
    """What the tools of one open session do, whichever registries are used."""

    @classmethod
    def of(cls, session: Session) -> Ledger:
        """The one ledger of a session."""
        found = session.extensions.get(cls)
        if not isinstance(found, cls):
            found = session.extensions[cls] = cls(session)
        return found

    def __init__(self, session: Session) -> None:
        engine = session.engine
        self._session = session
        self._at_it: dict[str, anyio.Event | None] = {}
        """The keys that a dispatch is at, from the intent to the last word about it, each with an event if
        somebody waits for that."""
        self._sure_until_s: dict[int, float] = {}
        """For each intent: nobody can have taken the lease before this, if the intent got through."""
        engine.is_busy = lambda: any(one is engine for one in list(_under_way.values()))

    # -- deciding ------------------------------------------------------------------------------------

    def is_definite(self, tool: AnyTool, row: Effect, ran: Ran) -> bool:
        """Whether a body that gave no value surely did nothing, and no earlier attempt at it either."""
        if not tool.changes_the_world:
            return True
        harmless: tuple[type[Exception], ...] = (NotDone, *tool.harmless)
        nothing = not ran.begun or attempt(lambda: isinstance(ran.error, harmless), lambda: False)
        return nothing and not self._session.state.facts.effects.may_have_landed_before(row)

    def decide(
        self,
        tool: AnyTool,
        scope: str,
        operation: str,
        first: Issue,
        call: CallRef,
        mine: Effect | None = None,
    ) -> Decision:
        """What to do about this operation, given what the journal says of it; `first` if it says nothing.

        `mine` is the last row of the very call that asks.
        """
        effects = self._session.state.facts.effects
        last = effects.find_last(operation)
        if last is None or last.generation < first.generation:
            return first
        following = Issue(generation=last.generation + 1)
        anew = False
        if scope == "repeat" and mine is not None:
            # The same may have been asked for again since: this call stays what it was.
            last = effects.attempts(mine)[-1]
        elif scope == "repeat":
            # Another call that sets something means it anew, once anything else has changed the world.
            anew = effects.has_changed_since(last, call)
        if last.key in self._at_it:
            # A later call of the same reply, of a tool whose calls run in order, waits for this one.
            mutual = "write" in tool.side_effects and last.call.comes_after(call)
            return following if anew or mutual else Join(last)
        undo = effects.find_open_undo(last)
        if undo is not None and not (anew and self._may_follow(tool, undo)):
            return Join(undo) if undo.key in self._at_it else Blocked(undo)
        match last.status:
            case "completed":
                return following if anew else Replay(last)
            case "in_doubt" if anew and self._may_follow(tool, last):
                return following
            case "in_doubt" if not anew and self.may_repeat(tool, last):
                return Issue.again(last)
            case "in_doubt" | "gave_up" | "running":
                return Blocked(last)
            case "not_landed" | "discarded":
                return Blocked(last) if last.key in _under_way else Issue.again(last)
            case _:
                return following

    def _may_follow(self, tool: AnyTool, row: Effect) -> bool:
        """Whether something can be set anew although nobody knows what became of this row: what counts then
        is what is set last."""
        return row.status == "in_doubt" and tool.idempotent_s is not None and row.key not in _under_way

    def may_repeat(self, tool: AnyTool, row: Effect) -> bool:
        """Whether the body of a row in doubt may be run again with its key."""
        return self.is_recognised(tool, row) and not self._is_overwritten(row)

    def is_recognised(self, tool: AnyTool, row: Effect) -> bool:
        """Whether the service still remembers the key, and no body with it runs here."""
        if tool.idempotent_s is None or row.key in _under_way:
            return False
        if math.isinf(tool.idempotent_s):
            return True
        # The service has seen the key with the first attempt. Without a clock in common, it may be long ago.
        first = self._session.state.facts.effects.attempts(row)[0]
        return max(self._list_ages_s(first), default=math.inf) < tool.idempotent_s

    def find_age_s(self, row: Effect) -> float:
        """How long ago the row was issued at least: by the clock that says least, and without a clock in
        common since this process has the lease."""
        ages_s = self._list_ages_s(row) or [boot_s() - self._session.taken_s]
        return max(0.0, min(ages_s))

    def _list_ages_s(self, row: Effect) -> list[float]:
        return [] if row.clock is None else self._session.engine.instant().list_elapsed_s(row.clock)

    def _is_overwritten(self, row: Effect) -> bool:
        """Whether the same tool has set something since: doing the old again could undo the new."""
        if "write" not in row.side_effects:
            return False
        effects = self._session.state.facts.effects
        # By first attempts: of two that were cut short, the one that was meant first may be done last.
        began = effects.attempts(row)[0].issued
        for one in effects.iter_changes_since(began):
            other = one.tool == row.tool and one.key != row.key and one.status == "completed"
            if other and effects.attempts(one)[0].issued > began:
                return True
        return False

    async def body_is_over(self, row: Effect, held: Held | None = None) -> float:
        """In how many seconds the body of this row can no longer be running, nor what others who share it
        began (`held`); 0 if they surely are not."""
        if row.key in _under_way:
            return math.inf
        # Our lease began after the old one had ended.
        since_s, behind = self._session.taken_s, Behind.list_of(row)
        if held is not None and held.behind is not None:
            since_s = max(since_s, held.since_s)
            # Who issued it knows more than what a fork has inherited.
            behind = held.behind if self._is_inherited(row) else (*behind, *held.behind)
        return max([await self._is_over(one, since_s) for one in behind], default=0.0)

    def _is_inherited(self, row: Effect) -> bool:
        return row.issued < self._session.state.facts.forked_at

    async def _is_over(self, body: Behind, since_s: float) -> float:
        heartbeat = self._session.engine.heartbeat
        if body.holder == heartbeat.holder:
            return 0.0
        life = await self._session.engine.call(heartbeat.judge, HolderId(body.holder))
        if life.ended:
            return 0.0
        if body.left_behind:
            return math.inf  # No timeout stops it: only the end of its process does.
        limit_s = TOOL_TIMEOUT_S if body.timeout_s is None else body.timeout_s
        return max(0.0, since_s + limit_s - boot_s())

    # -- recording -----------------------------------------------------------------------------------

    def issue(
        self,
        ready: Ready,
        call: CallRef,
        scope: str,
        operation: str,
        how: Issue,
        *,
        undoes: int | None = None,
    ) -> Effect:
        """Record the intent. It is durable only after the next barrier."""
        tool, session = ready.tool, self._session
        facts = session.state.facts
        realm = session.engine.driver.store_id() if scope == "global" else facts.head.uid
        session.record(
            ToolIssued(
                call=call,
                tool=tool.name,
                args=ready.args,
                fingerprint=ready.fingerprint,
                operation=operation,
                scope=scope,
                side_effects=tool.sorted_effects,
                key=how.key or digest(realm, operation, str(how.generation)),
                generation=how.generation,
                attempt=how.attempt,
                timeout_s=tool.timeout_s,
                undoes=undoes,
                clock=session.engine.instant() if tool.changes_the_world else None,
            )
        )
        row = facts.effects.rows[facts.head.seq]
        if tool.changes_the_world:
            self._sure_until_s[row.issued] = boot_s() + session.engine.heartbeat.left_s
        self._at_it.setdefault(row.key, None)
        return row

    def issue_again(self, ready: Ready, row: Effect, how: Issue) -> Effect:
        """Record one more attempt at what the row was for."""
        return self.issue(ready, row.call, row.scope, row.operation, how, undoes=row.undoes)

    def leave(self, row: Effect) -> None:
        """Nobody is at this row any more: who waited for it may look."""
        self._sure_until_s.pop(row.issued, None)
        ended = self._at_it.pop(row.key, None)
        if ended is not None:
            ended.set()

    def is_at(self, row: Effect) -> bool:
        """Whether somebody here is at this row, or will be in a moment."""
        return row.key in self._at_it

    async def wait_for(self, row: Effect) -> None:
        """Wait until whoever is at this row has left it."""
        refuse_waiting(self._session, row.key)
        if row.key in self._at_it:
            ended = self._at_it[row.key] or anyio.Event()
            self._at_it[row.key] = ended
            await ended.wait()

    def discard(self, row: Effect, *, exited: bool = False) -> None:
        """Record that the body was not entered, or was harmless: it is simply run again."""
        if row.status == "running" and not self._session.is_lost:
            if row.changes_the_world and self._session.state.facts.effects.may_have_landed_before(row):
                self.doubt(row, "an earlier attempt may have landed")
            else:
                self._session.record(ToolDiscarded(call=row.call, issued=row.issued, exited=exited))
        self.leave(row)

    async def record_ran(self, ready: Ready, call: CallRef, ran: Ran) -> Given:
        """Record a harmless call that has ended already: what the model is shown, and the same as data."""
        given, tool = as_given(ran.value), ready.tool
        packed, interrupt = await keep(self._session, given)
        self._session.record(
            ToolRan(
                call=call,
                tool=tool.name,
                args=ready.args,
                fingerprint=ready.fingerprint,
                side_effects=tool.sorted_effects,
                latency_ms=ran.latency_ms,
            ),
            content=packed.content,
        )
        if interrupt is not None:
            raise interrupt
        return replace(given, text=packed.shown)

    async def complete(self, row: Effect, given: Given, latency_ms: float) -> Given:
        """Record the outcome, its blobs first; what the model is shown of it, and the same as data."""
        packed, interrupt = await keep(self._session, given)
        self._session.record(
            ToolCompleted(call=row.call, issued=row.issued, latency_ms=latency_ms), content=packed.content
        )
        if interrupt is not None:
            raise interrupt
        return replace(given, text=packed.shown)

    def fail(self, row: Effect, text: str, error: str, *, final: bool, retry: bool = False) -> None:
        """Record that surely nothing happened. `retry`: the tool asked for another call."""
        self._session.record(
            ToolFailed(call=row.call, issued=row.issued, error=error, final=final, retry=retry),
            content=encode_content(text),
        )

    def doubt(
        self,
        row: Effect,
        why: str,
        text: str | None = None,
        *,
        left_behind: bool = False,
        exited: bool = False,
    ) -> None:
        """Record that nobody knows; with `text`, the model is told so."""
        body = ToolInDoubt(
            call=row.call,
            issued=row.issued,
            why=why,
            told=text is not None,
            left_behind=left_behind,
            exited=exited,
        )
        self._session.record(body, content=None if text is None else encode_content(text))

    def settle(
        self,
        row: Effect,
        verdict: Verdict,
        by: str,
        *,
        text: str | None = None,
        void: bool = False,
    ) -> None:
        """Record what became of a call in doubt."""
        told = text is not None
        body = ToolSettled(call=row.call, issued=row.issued, verdict=verdict, by=by, told=told, void=void)
        self._session.record(body, content=None if text is None else encode_content(text))

    async def land(self, row: Effect, by: str, given: Given) -> Given:
        """Record that a call in doubt has happened, its blobs first; what the model is shown of it."""
        packed, interrupt = await keep(self._session, given)
        body = ToolSettled(call=row.call, issued=row.issued, verdict="landed", by=by, told=True)
        if row.status in ("in_doubt", "not_landed", "discarded"):  # Nobody was quicker.
            self._session.record(body, content=packed.content)
        if interrupt is not None:
            raise interrupt
        return replace(given, text=packed.shown)

    def refuse(self, call: CallRef, tool: str, gate: str, text: str, fingerprint: str) -> None:
        """Record that a gate was closed."""
        body = ToolRefused(call=call, tool=tool, gate=gate, fingerprint=fingerprint)
        self._session.record(body, content=encode_content(text))

    def replay(
        self, call: CallRef, row: Effect, shown: str, recalled: Recalled, replay_of: str | None
    ) -> None:
        """Record that a call got the outcome of an earlier one, or once more its own."""
        self._session.record(
            ToolCompleted(call=call, original=row.issued, replay_of=replay_of, fingerprint=row.fingerprint),
            content=msgspec.json.encode(replace(recalled.stored, text=escape(shown))),
        )

    # -- running -------------------------------------------------------------------------------------

    def context(self, row: Effect, deps: Any, *, running: bool = True) -> AnyContext:
        """What the body, or a hook, is told about the row."""

        async def annotate(notes: dict[str, Json]) -> None:
            self._session.record(ToolAnnotated(issued=row.issued, notes=as_json(notes)))
            await self._session.flush()

        def report(text: str) -> None:
            content = msgspec.json.encode(as_json(str(text)))
            self._session.record(ToolReported(issued=row.issued), content=content)

        return ToolContext(
            key=row.key,
            call_id=row.call.id,
            attempt=row.attempt,
            deps=deps,
            session=self._session,
            issued_at=row.at,
            notes=row.notes,
            annotate=annotate if running else None,
            report=report if running else None,
        )

    async def run(
        self,
        tool: AnyTool,
        row: Effect,
        hook: Hook,
        ctx: AnyContext | None,
        values: dict[str, Any],
        *,
        grace_s: float,
    ) -> Ran:
        """Run the body of a row whose intent is durable (if it changes the world)."""
        what = f"the undo hook of {tool.name}" if hook is tool.undo else f"tool {tool.name}"
        if not row.changes_the_world:
            with working(self._session, what, key=row.key, fingerprint=row.fingerprint):
                return await run_plain(hook, ctx, values, row.timeout_s)
        try:
            await self._check_lease(row)
        except BaseException:
            self.discard(row)
            raise
        _under_way[row.key] = self._session.engine

        def ended() -> None:
            _under_way.pop(row.key, None)

        with working(self._session, what, key=row.key, fingerprint=row.fingerprint):
            return await run_guarded(
                hook,
                ctx,
                values,
                timeout_s=row.timeout_s,
                grace_s=grace_s,
                on_late=lambda ran: self._learn_late(tool, row, ran),
                on_end=ended,
            )

    async def _check_lease(self, row: Effect) -> None:
        """Just before a body: if we may have been silent for a whole term, make sure that nobody took over.

        Who wakes up after a long sleep may beat before it comes here, so the last beat says nothing.
        """
        heartbeat = self._session.engine.heartbeat
        sure = boot_s() < self._sure_until_s.pop(row.issued)
        if sure and heartbeat.left_s > 0 and not self._session.is_lost:
            return
        if heartbeat.left_s <= 0:
            await self._session.engine.call(heartbeat.renew)
        self._session.record(LeaseRenewed())
        await self._session.flush()

    def _learn_late(self, tool: AnyTool, row: Effect, ran: Ran) -> None:
        """A body that was left behind has ended after all; called in its thread."""
        if not ran.done and not self.is_definite(tool, row, ran):
            return
        try:
            if anyio.from_thread.run(self._settle_late, row, ran):
                return
        except RuntimeError:  # The event loop ended before the body.
            pass
        self.tell_successor(row, ran)

    async def _settle_late(self, row: Effect, ran: Ran) -> bool:
        """Settle it, if the session is still ours."""
        if self._session.is_lost:
            return False
        if row.status == "in_doubt":
            by = "the tool itself, late"
            if ran.done:
                given = as_given(ran.value)
                await self.land(row, by, given)
                engine, facts, fence = self._session.engine, self._session.state.facts, self._session.fence
                await engine.call(close_settlement, engine, facts, fence, row, given)
            else:
                self.settle(row, "not_landed", by)
        return True

    def tell_successor(self, row: Effect, ran: Ran) -> None:
        """We are out, but know how it ended: post it for whoever holds the session now. Blocks."""
        value = as_json(ran.value) if ran.done else None
        engine, session = self._session.engine, self._session
        item = InboxVerdict(
            issued=row.issued,
            verdict="landed" if ran.done else "not_landed",
            by=f"{engine.heartbeat.name}, which was out",
            content=as_text(value) if ran.done else None,
            value=value,
        )
        try:
            head = Journal(engine.driver, session.id).fold().facts.head
            if head.uid == session.state.facts.head.uid:  # Not another one that was made under its id.
                engine.driver.post(session.id, encode_item(item))
        except Exception as error:
            log.warning("session %s: what became of entry %d is lost: %s", session.id, row.issued, error)
