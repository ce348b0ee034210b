"""The ledger at work: decide what a call means, record the intent, run the body, record the outcome."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import anyio
import msgspec
from msgspec import Struct

from ..clock import boot_s
from ..effects import Effect, call_name
from ..entries import (
    CallRef,
    LeaseRenewed,
    ResultContent,
    ToolAnnotated,
    ToolCompleted,
    ToolFailed,
    ToolInDoubt,
    ToolIssued,
    ToolRefused,
    ToolReported,
    ToolSettled,
    Verdict,
)
from ..errors import Corrupt
from ..limits import TOOL_TIMEOUT_S
from ..messages import Json
from ..session.run import current_run
from ..session.session import Session
from ..store.journal import Journal
from .body import Ran, run_guarded, run_plain
from .canonical import digest
from .context import AnyContext, ToolContext
from .gates import Ready
from .outcome import as_json, as_text
from .tool import AnyTool

_under_way: set[str] = set()
"""Keys of the effects whose bodies run in this process, also those that nobody waits for any more."""


class Replay(Struct, frozen=True):
    """It was done: give the outcome of that row again."""

    row: Effect


class Join(Struct, frozen=True):
    """It is being done right now: wait for that row."""

    row: Effect


class Blocked(Struct, frozen=True):
    """Nobody knows whether it was done: it must not be run."""

    row: Effect


class Issue(Struct, frozen=True, kw_only=True):
    """Run it. A row that is tried again keeps its generation and key."""

    generation: int = 0
    attempt: int = 1
    key: str | None = None


Decision: TypeAlias = Replay | Join | Blocked | Issue


def encode_content(text: str, value: Json = None) -> bytes:
    """The content of a line that answers a call."""
    return msgspec.json.encode(ResultContent(text=text, value=value))


class Ledger:
    """What the tools of one open session do. One for each session, whichever registries are used."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.ended: dict[int, anyio.Event] = {}
        """For each effect that runs here: set when its outcome is recorded."""
        session.engine.is_busy = lambda: bool(_under_way)

    @classmethod
    def of(cls, session: Session) -> Ledger:
        """The ledger of this session."""
        found = session.extensions.get(cls)
        if not isinstance(found, cls):
            found = session.extensions[cls] = cls(session)
        return found

    # -- deciding ------------------------------------------------------------------------------------

    def operation_of(self, ready: Ready, call: CallRef) -> tuple[str, str]:
        """What counts as the same operation, as (scope, digest)."""
        tool, scope = ready.tool, ready.tool.scope
        if callable(scope):
            return "custom", digest("custom", tool.name, str(scope(**ready.values)))
        parts = {
            "run": [current_run(self._session.id) or ""],
            "call": [self._session.state.facts.head.uid, call_name(call)],
        }
        return scope, digest(scope, tool.name, ready.fingerprint, *parts.get(scope, ()))

    def decide(self, tool: AnyTool, scope: str, operation: str, first: Issue) -> Decision:
        """What to do about this operation, given what the journal says of it; `first` if it says nothing."""
        effects = self._session.state.facts.effects
        last = effects.find_last(operation)
        if last is None:
            return first
        following = Issue(generation=last.generation + 1)
        again = Issue(generation=last.generation, attempt=last.attempt + 1, key=last.key)
        match last.status:
            case "running" | "completed":
                if scope == "repeat" and effects.last_change != last.issued:
                    return following  # Something else changed the world since.
                return Join(last) if last.status == "running" else Replay(last)
            case "in_doubt":
                return again if self.may_repeat(tool, last) else Blocked(last)
            case "gave_up":
                return Blocked(last)
            case "not_landed" | "discarded":
                return again
            case _:
                return following

    def may_repeat(self, tool: AnyTool, row: Effect) -> bool:
        """Whether the service still recognises the key, and no body of this effect runs here."""
        if tool.idempotent_s is None or row.key in _under_way:
            return False
        first = next(
            self._session.state.facts.effects.rows[issued]
            for issued in self._session.state.facts.effects.by_operation[row.operation]
            if self._session.state.facts.effects.rows[issued].key == row.key
        )
        return (self._session.engine.now() - first.at).total_seconds() < tool.idempotent_s

    async def body_is_over(self, row: Effect) -> float:
        """In how many seconds the body of this row can no longer be running; 0 if it surely is not."""
        if row.key in _under_way:
            return math.inf
        presence = self._session.engine.presence
        if row.holder is None or row.holder == presence.holder:
            return 0.0
        life = await self._session.engine.call(presence.judge, row.holder)  # type: ignore[arg-type]
        if life.ended:
            return 0.0
        limit_s = TOOL_TIMEOUT_S if row.timeout_s is None else row.timeout_s
        # Our lease began after the old one had ended.
        return max(0.0, self._session.taken_s + limit_s - boot_s())

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
        realm = session.engine.driver.store_id() if scope == "global" else session.state.facts.head.uid
        session.record(
            ToolIssued(
                call=call,
                tool=tool.name,
                args=ready.args,
                fingerprint=ready.fingerprint,
                operation=operation,
                scope=scope,
                side_effects=tuple(sorted(tool.side_effects)),
                key=how.key or digest(realm, operation, str(how.generation)),
                generation=how.generation,
                attempt=how.attempt,
                timeout_s=tool.timeout_s,
                undoes=undoes,
            )
        )
        row = session.state.facts.effects.rows[session.state.seq]
        self.ended[row.issued] = anyio.Event()
        return row

    def retry(self, ready: Ready, row: Effect) -> Effect:
        """Record one more attempt at the same effect, with the same key."""
        how = Issue(generation=row.generation, attempt=row.attempt + 1, key=row.key)
        fresh = self.issue(ready, row.call, row.scope, row.operation, how, undoes=row.undoes)
        fresh.notes = dict(row.notes)
        self._end(row)
        return fresh

    def complete(self, row: Effect, value: object, latency_ms: float) -> tuple[str, Json]:
        """Record the outcome; what the model is shown, and the same as data."""
        data = as_json(value)
        text = as_text(data)
        self._session.record(
            ToolCompleted(call=row.call, issued=row.issued, latency_ms=latency_ms),
            content=encode_content(text, data),
        )
        self._end(row)
        return text, data

    def fail(self, row: Effect, text: str, error: str, *, final: bool) -> None:
        """Record that surely nothing happened."""
        self._session.record(
            ToolFailed(call=row.call, issued=row.issued, error=error, final=final),
            content=encode_content(text),
        )
        if final:
            self._end(row)

    def doubt(self, row: Effect, why: str, text: str | None = None) -> None:
        """Record that nobody knows; with `text`, the model is told so."""
        body = ToolInDoubt(call=row.call, issued=row.issued, why=why, told=text is not None)
        self._session.record(body, content=None if text is None else encode_content(text))
        self._end(row)

    def settle(
        self, row: Effect, verdict: Verdict, by: str, *, text: str | None = None, value: Json = None
    ) -> None:
        """Record what became of a call in doubt."""
        told = text is not None
        body = ToolSettled(call=row.call, issued=row.issued, verdict=verdict, by=by, told=told)
        self._session.record(body, content=None if text is None else encode_content(text, value))
        self._end(row)

    def refuse(self, call: CallRef, tool: str, gate: str, text: str, fingerprint: str) -> None:
        """Record that a gate was closed."""
        body = ToolRefused(call=call, tool=tool, gate=gate, fingerprint=fingerprint)
        self._session.record(body, content=encode_content(text))

    def replay(self, call: CallRef, row: Effect, text: str, value: Json) -> str:
        """Record that a call got the outcome of an earlier one; what the model is shown."""
        shown = f"[idempotent replay of {row.call.id}]: {text}"
        self._session.record(
            ToolCompleted(call=call, original=row.issued, replay_of=row.call.id, fingerprint=row.fingerprint),
            content=encode_content(shown, value),
        )
        return shown

    def _end(self, row: Effect) -> None:
        ended = self.ended.pop(row.issued, None)
        if ended is not None:
            ended.set()

    async def recall(self, row: Effect) -> ResultContent:
        """The recorded outcome of a row."""
        if row.outcome is None:
            return ResultContent(text=row.why)
        return await self._session.engine.call(self._read, row.outcome)

    def _read(self, seq: int) -> ResultContent:
        journal = Journal(self._session.engine.driver, self._session.id)
        for entry in journal.entries(seq - 1, seq):
            if entry.content is None:
                return ResultContent(text="[erased]")
            return msgspec.json.decode(entry.content, type=ResultContent)
        raise Corrupt(journal.where, "the outcome is not there", seq=seq)

    # -- running -------------------------------------------------------------------------------------

    async def check_lease(self) -> None:
        """Just before a body: if we were silent for a whole term, make sure that nobody took over."""
        presence = self._session.engine.presence
        if presence.left_s <= 0:
            await self._session.engine.call(presence.renew)
            self._session.record(LeaseRenewed())
            await self._session.flush()

    def context(self, row: Effect, deps: Any, *, running: bool = True) -> AnyContext:
        """What the body, or a hook, is told about the row."""

        async def annotate(notes: dict[str, Json]) -> None:
            self._session.record(ToolAnnotated(issued=row.issued, notes=as_json(notes)))
            await self._session.flush()

        def report(text: str) -> None:
            self._session.record(ToolReported(issued=row.issued), content=msgspec.json.encode(str(text)))

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
        row: Effect,
        function: Callable[..., Any],
        ctx: AnyContext,
        values: dict[str, Any],
        *,
        grace_s: float,
    ) -> Ran:
        """Run the body of a row whose intent is durable (if it changes the world)."""
        if not row.changes_the_world:
            return await run_plain(function, ctx, values, row.timeout_s)
        await self.check_lease()
        _under_way.add(row.key)

        def settle_late(ran: Ran) -> None:
            """A body that was left behind has ended after all, and we still hold the session."""
            current = self._session.state.facts.effects.rows.get(row.issued)
            if (
                self._session.is_lost
                or current is None
                or current.status != "in_doubt"
                or ran.error is not None
            ):
                return
            data = as_json(ran.value)
            self.settle(row, "landed", "the tool itself, late", text=as_text(data), value=data)

        return await run_guarded(
            function,
            ctx,
            values,
            timeout_s=row.timeout_s,
            grace_s=grace_s,
            on_late=settle_late,
            on_end=lambda: _under_way.discard(row.key),
        )
