"""The ledger: decide what a call means, and record its intent and its outcome.

A pure fold over the journal (`core.effects`) says what is known of an operation; the ledger decides by it.
"""

from __future__ import annotations

import logging
import math
from typing import Any, TypeAlias

import anyio
import anyio.from_thread
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..content.encode import (
    Given,
    PackedResult,
    encode_content,
    pack_light_result,
    pack_result,
    read_given,
)
from ..content.lazy import BlobReader, read_content
from ..content.references import escape
from ..core.effects import Effect, call_name
from ..core.entries import (
    ApprovalAsked,
    Body,
    CallRef,
    InboxVerdict,
    ResultContent,
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
from ..engine.journal import Journal
from ..errors import Corrupt, LostBlob
from ..ids import RunId
from ..messages import Json
from ..reprs import attempt
from ..session.effect_claims import close_settlement
from ..session.inbox import encode_item
from ..session.run import current_run
from ..session.session import Session
from ..system.clock import boot_s
from .canonical import digest
from .context import AnyContext, ToolContext
from .declaration import AnyTool
from .executor import has_bodies, is_running, refuse_waiting
from .gates import Asks, Ready
from .outcome import NotDone, Ran, as_given, as_json, as_text
from .schema import keep_schema

log = logging.getLogger("holdfast")


class Replay(Struct, frozen=True):
    """It was done: give the outcome of that row again."""

    row: Effect


class Join(Struct, frozen=True):
    """It is being done right now: wait for that row."""

    row: Effect


class Blocked(Struct, frozen=True):
    """It is not known whether it was done: it must not be run."""

    row: Effect


class Issue(Struct, frozen=True, kw_only=True):
    """Run it. A row that is tried again keeps its generation and key."""

    generation: int = 0
    attempt: int = 1
    key: str | None = None
    row: Effect | None = None
    """The row that it tries again."""

    @classmethod
    def again(cls, row: Effect) -> Issue:
        """One more attempt at the same effect."""
        return cls(generation=row.generation, attempt=row.attempt + 1, key=row.key, row=row)


LedgerDecision: TypeAlias = Replay | Join | Blocked | Issue


class Ledger:
    """The effects of one open session, shared by all registries that dispatch in it."""

    @classmethod
    def of(cls, session: Session) -> Ledger:
        """The one ledger of a session."""
        found = session._writer.extensions.get(cls)
        if not isinstance(found, cls):
            found = session._writer.extensions[cls] = cls(session)
        return found

    def __init__(self, session: Session) -> None:
        engine = session._writer.engine
        self._session, self._engine = session, engine
        self._in_progress: dict[str, anyio.Event | None] = {}
        """The keys that a dispatch works on, from the intent to the last line about it. Each has an event if
        another dispatch waits for that."""
        self._lease_sure_s: dict[int, float] = {}
        """For each intent: until when no other process can have taken the lease, if it was written."""
        engine.is_busy = lambda: has_bodies(engine)

    # -- deciding ------------------------------------------------------------------------------------

    def operation_of(self, ready: Ready, call: CallRef) -> tuple[str, str]:
        """The operation that a call means, as (scope, digest)."""
        tool, scope = ready.tool, ready.tool.scope
        if callable(scope):
            return "custom", digest("custom", tool.name, str(scope(**ready.values)))
        parts = [scope, tool.name, ready.fingerprint]
        if scope == "run":
            parts.append(_first_run(self._session))
        elif scope == "call":
            parts += (self._session.state.facts.head.uid, call_name(call))
        return scope, digest(*parts)

    def decide(
        self,
        tool: AnyTool,
        scope: str,
        operation: str,
        first: Issue,
        call: CallRef,
        mine: Effect | None = None,
    ) -> LedgerDecision:
        """What to do about this operation, by what the journal says of it; `first` if it says nothing.

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
        if last.key in self._in_progress:
            # A later call of the same reply, of a tool whose calls run in order, waits for this one.
            mutual = "write" in tool.side_effects and last.call.comes_after(call)
            return following if anew or mutual else Join(last)
        undo = effects.find_open_undo(last)
        if undo is not None and not (anew and self._may_follow(tool, undo)):
            return Join(undo) if undo.key in self._in_progress else Blocked(undo)
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
                return Blocked(last) if is_running(last) else Issue.again(last)
            case _:
                return following

    def is_definite(self, tool: AnyTool, row: Effect, ran: Ran) -> bool:
        """Whether a body that gave no value surely did nothing, and no earlier attempt at it either."""
        if not tool.changes_the_world:
            return True
        harmless: tuple[type[Exception], ...] = (NotDone, *tool.harmless)
        nothing = ran.unsent or not ran.begun
        nothing = nothing or attempt(lambda: isinstance(ran.error, harmless), lambda: False)
        return nothing and not self._session.state.facts.effects.may_have_landed_before(row)

    def may_repeat(self, tool: AnyTool, row: Effect) -> bool:
        """Whether the body of a row in doubt may be run again with its key."""
        return self.is_recognised(tool, row) and not self._is_overwritten(row)

    def is_recognised(self, tool: AnyTool, row: Effect) -> bool:
        """Whether the service still remembers the key, and no body with it runs here."""
        if tool.idempotent_s is None or is_running(row):
            return False
        if math.isinf(tool.idempotent_s):
            return True
        # The service has seen the key with the first attempt. Without a clock in common, it may be long ago.
        first = self._session.state.facts.effects.attempts(row)[0]
        return max(self._list_ages_s(first), default=math.inf) < tool.idempotent_s

    def find_age_s(self, row: Effect) -> float:
        """The least time since the row was issued: by the clock that says least, and without a clock in
        common since this process has the lease."""
        ages_s = self._list_ages_s(row) or [boot_s() - self._session._writer.taken_s]
        return max(0.0, min(ages_s))

    def _list_ages_s(self, row: Effect) -> list[float]:
        return [] if row.clock is None else self._engine.instant().list_elapsed_s(row.clock)

    def _may_follow(self, tool: AnyTool, row: Effect) -> bool:
        """Whether something can be set anew although this row is in doubt: the last value set counts."""
        return row.status == "in_doubt" and tool.idempotent_s is not None and not is_running(row)

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

    # -- the intent ----------------------------------------------------------------------------------

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
        tool, session, engine = ready.tool, self._session, self._engine
        facts = session.state.facts
        realm = engine.driver.store_id() if scope == "global" else facts.head.uid
        session._writer.record(
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
                clock=engine.instant() if tool.changes_the_world else None,
            )
        )
        row = facts.effects.rows[facts.head.seq]
        if tool.changes_the_world:
            self._lease_sure_s[row.issued] = boot_s() + engine.heartbeat.left_s
        self._in_progress.setdefault(row.key, None)
        return row

    def issue_again(self, ready: Ready, row: Effect, how: Issue) -> Effect:
        """Record one more attempt at the operation of the row."""
        return self.issue(ready, row.call, row.scope, row.operation, how, undoes=row.undoes)

    def lease_sure_s(self, row: Effect) -> float:
        """Until when, by the boot clock, no other process can have taken the lease since the intent."""
        return self._lease_sure_s[row.issued]

    def leave(self, row: Effect) -> None:
        """End the work on this row, and wake the dispatches that wait for it."""
        self._lease_sure_s.pop(row.issued, None)
        ended = self._in_progress.pop(row.key, None)
        if ended is not None:
            ended.set()

    def is_in_progress(self, row: Effect) -> bool:
        """Whether a dispatch in this process works on this row, or will in a moment."""
        return row.key in self._in_progress

    async def wait_for(self, row: Effect) -> None:
        """Wait until the dispatch that works on this row has left it."""
        refuse_waiting(self._session, row.key)
        if row.key in self._in_progress:
            ended = self._in_progress[row.key] or anyio.Event()
            self._in_progress[row.key] = ended
            await ended.wait()

    def discard(self, row: Effect, *, exited: bool = False) -> None:
        """Record that the body was not entered, or was harmless: it is simply run again."""
        if row.status == "running" and not self._session.is_lost:
            if row.changes_the_world and self._session.state.facts.effects.may_have_landed_before(row):
                self.doubt(row, "an earlier attempt may have landed")
            else:
                self._session._writer.record(ToolDiscarded(call=row.call, issued=row.issued, exited=exited))
        self.leave(row)

    def context(self, row: Effect, deps: Any, *, running: bool = True) -> AnyContext:
        """What the body, or a hook, can know of the row."""

        async def annotate(notes: dict[str, Json]) -> None:
            self._session._writer.record(ToolAnnotated(issued=row.issued, notes=as_json(notes)))
            await self._session.flush()

        def report(text: str) -> None:
            content = msgspec.json.encode(as_json(str(text)))
            self._session._writer.record(ToolReported(issued=row.issued), content=content)

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

    # -- calls without a body ------------------------------------------------------------------------

    def refuse(self, call: CallRef, tool: str, gate: str, text: str, fingerprint: str) -> None:
        """Record that a gate was closed."""
        body = ToolRefused(call=call, tool=tool, gate=gate, fingerprint=fingerprint)
        self._session._writer.record(body, content=encode_content(text))

    def ask(self, call: CallRef, asks: Asks) -> None:
        """Record that a person must agree first."""
        ready = asks.ready
        self._session._writer.record(
            ApprovalAsked(
                call=call,
                tool=ready.tool.name,
                args=ready.args,
                fingerprint=ready.fingerprint,
                why=asks.why,
                schema=keep_schema(ready.tool.schema),
            )
        )

    async def recall(self, row: Effect) -> Given:
        """The recorded outcome of a row."""
        given, _ = await self._recall(row)
        return given

    async def give_again(self, call: CallRef, row: Effect) -> Given:
        """The outcome of this very call, which was completed before."""
        given, stored = await self._recall(row)
        if self._lacks_result(call):
            # The session was rewound to a point between the call and its result.
            self._record_replay(call, row, given.text, stored, None)
        return given

    async def replay(self, call: CallRef, row: Effect) -> Given:
        """Record that a call got the outcome of an earlier one, and give it."""
        given, stored = await self._recall(row)
        given = _as_replay(given, row.call.id)
        self._record_replay(call, row, given.text, stored, row.call.id)
        return given

    async def replay_elsewhere(
        self, call: CallRef, fingerprint: str, given: Given, *, of: str, session: str | None
    ) -> Given:
        """Record that a call got the outcome of a call in another session, and give it."""
        body = ToolCompleted(call=call, replay_of=of, fingerprint=fingerprint)
        return await self.record_result(body, _as_replay(given, f"{of} in session {session}"))

    async def record_result(self, body: Body, given: Given) -> Given:
        """Record the result of a call whose body ran elsewhere, its blobs first; what the model is shown."""
        packed = await self._engine.pack_result(given)
        self._session._writer.record(body, content=packed.content)
        return replace(given, text=packed.shown)

    def _lacks_result(self, call: CallRef) -> bool:
        return self._session.state.transcript_fold.lacks_result(call)

    def _record_replay(
        self, call: CallRef, row: Effect, shown: str, stored: ResultContent, replay_of: str | None
    ) -> None:
        self._session._writer.record(
            ToolCompleted(call=call, original=row.issued, replay_of=replay_of, fingerprint=row.fingerprint),
            content=msgspec.json.encode(replace(stored, text=escape(shown))),
        )

    async def _recall(self, row: Effect) -> tuple[Given, ResultContent]:
        """What a row gave, and how that is stored."""
        if row.outcome is None:
            return Given(text=row.why), ResultContent(text=row.why)
        await self._session.flush()
        return await self._engine.call_home(_read_outcome, self._session, row.outcome)

    # -- the outcome ---------------------------------------------------------------------------------

    async def record_ran(self, ready: Ready, call: CallRef, ran: Ran) -> Given:
        """Record a harmless call that has ended already: what the model is shown, and the same as data."""
        tool = ready.tool
        body = ToolRan(
            call=call,
            tool=tool.name,
            args=ready.args,
            fingerprint=ready.fingerprint,
            side_effects=tool.sorted_effects,
            latency_ms=ran.latency_ms,
        )
        given = as_given(ran.value, tool.name, changes_the_world=tool.changes_the_world)
        return await self._record_given(body, given)

    async def complete(self, row: Effect, given: Given, latency_ms: float) -> Given:
        """Record the outcome, its blobs first; what the model is shown of it, and the same as data."""
        body = ToolCompleted(call=row.call, issued=row.issued, latency_ms=latency_ms)
        return await self._record_given(body, given)

    async def land(self, row: Effect, by: str, given: Given) -> Given:
        """Record that a call in doubt has happened, its blobs first; what the model is shown of it."""
        body = ToolSettled(call=row.call, issued=row.issued, verdict="landed", by=by, told=True)
        return await self._record_given(body, given, unless_settled=row)

    async def _record_given(self, body: Body, given: Given, *, unless_settled: Effect | None = None) -> Given:
        """Record what a call gave, its blobs durable first. `unless_settled`: a row that another verdict may
        reach before."""
        packed = pack_light_result(given, self._engine.blobs.sizes)
        interrupt = None
        if packed is None:
            packed, interrupt = await self._pack_result(given)
        if unless_settled is None or unless_settled.status in ("in_doubt", "not_landed", "discarded"):
            self._session._writer.record(body, content=packed.content)
        if interrupt is not None:
            raise interrupt
        return replace(given, text=packed.shown)

    async def _pack_result(self, given: Given) -> tuple[PackedResult, BaseException | None]:
        """The result as it is stored, its blobs durable, and the cancellation that interrupted that.

        The outcome must be recorded: a caller that is cancelled meanwhile records it without blobs.
        """
        packed = interrupt = None
        try:
            with anyio.CancelScope(shield=True):
                packed = await self._engine.pack_result(given)
        except anyio.get_cancelled_exc_class() as error:
            interrupt = error
        return packed or pack_result(given, self._engine.blobs.sizes, homeless=True), interrupt

    def fail(self, row: Effect, text: str, error: str, *, final: bool, retry: bool = False) -> None:
        """Record that surely nothing happened. `retry`: the tool asked for another call."""
        self._session._writer.record(
            ToolFailed(call=row.call, issued=row.issued, error=error, final=final, retry=retry),
            content=encode_content(text),
        )

    def doubt(
        self,
        row: Effect,
        why: str,
        text: str | None = None,
        *,
        unsure: str = "",
        left_behind: bool = False,
        exited: bool = False,
    ) -> None:
        """Record that it is not known whether it happened; with `text`, the model is told so. `unsure`: why
        verify could not say."""
        body = ToolInDoubt(
            call=row.call,
            issued=row.issued,
            why=why,
            unsure=unsure,
            told=text is not None,
            left_behind=left_behind,
            exited=exited,
        )
        self._session._writer.record(body, content=None if text is None else encode_content(text))

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
        self._session._writer.record(body, content=None if text is None else encode_content(text))

    # -- bodies that end late ------------------------------------------------------------------------

    def record_late(self, tool: AnyTool, row: Effect, ran: Ran) -> None:
        """Record the end of a body that was left behind. Called in its thread."""
        if not ran.done and not self.is_definite(tool, row, ran):
            return
        try:
            if anyio.from_thread.run(self._settle_late, row, ran):
                return
        except RuntimeError:  # The event loop ended before the body.
            pass
        self.tell_successor(row, ran)

    async def _settle_late(self, row: Effect, ran: Ran) -> bool:
        """Settle it, if this process still has the session."""
        if self._session.is_lost:
            return False
        if row.status == "in_doubt":
            by = "the tool itself, late"
            if ran.done:
                given = as_given(ran.value, row.tool, changes_the_world=True)
                await self.land(row, by, given)
                facts, fence = self._session.state.facts, self._session.fence
                await self._engine.call(close_settlement, self._engine, facts, fence, row, given)
            else:
                self.settle(row, "not_landed", by)
        return True

    def tell_successor(self, row: Effect, ran: Ran) -> None:
        """Post how a body ended to the process that has the session now. Blocks."""
        given = as_given(ran.value, row.tool, changes_the_world=True) if ran.done else Given()
        engine, session = self._engine, self._session
        text = given.text if given.unkept else as_text(given.value)
        item = InboxVerdict(
            issued=row.issued,
            verdict="landed" if ran.done else "not_landed",
            by=f"{engine.heartbeat.name}, which was out",
            content=text if ran.done else None,
            value=given.value,
            unkept=given.unkept,
        )
        try:
            head = Journal(engine.driver, session.id).fold().facts.head
            if head.uid == session.state.facts.head.uid:  # Not another one that was made under its id.
                engine.driver.post(session.id, encode_item(item))
        except Exception as error:
            log.warning("session %s: what became of entry %d is lost: %s", session.id, row.issued, error)


def _first_run(session: Session) -> str:
    """The current run, or the first one of those that it continues after crashes."""
    runs, run = session.state.facts.runs, current_run(session.id) or ""
    seen = {run}
    while run in runs and (before := runs[run].continues) is not None:
        if before in seen:
            raise Corrupt(f"session {session.id!r}", f"run {run!r} continues one that continues it")
        seen.add(before)
        run = RunId(before)
    return run


def _as_replay(given: Given, call: str) -> Given:
    return replace(given, text=f"[idempotent replay of {call}]: {given.text}")


def _read_outcome(session: Session, seq: int) -> tuple[Given, ResultContent]:
    """What an outcome gave, and how that is stored. Blocks."""
    engine = session._writer.engine
    journal = Journal(engine.driver, session.id)
    for entry in journal.entries(seq - 1, seq):
        stored = read_content(entry.content)
        if entry.content is None:
            return Given(text=stored.text), stored
        try:
            return read_given(entry.content, BlobReader(session.id, engine.blobs, entry=seq)), stored
        except LostBlob as error:
            # The effect is known all the same, and is not done again.
            log.warning("%s", error)
            return Given(text=stored.text), stored
    raise Corrupt(journal.where, "the outcome is not there", seq=seq)
