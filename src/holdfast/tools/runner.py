"""The runner: take a call from its durable intent to an outcome. It retries, and settles calls in doubt."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import Any, Literal, TypeAlias

import anyio

from ..content.encode import Given
from ..core.effects import Effect, count_crashes
from ..errors import Closed, Fenced
from ..reprs import describe_error
from ..session.session import Session
from ..system import randomness
from ..telemetry import note_failure
from .claims import Known, Settlements
from .context import AnyContext
from .declaration import AnyTool, Hook
from .executor import asks_to_exit, execute
from .gates import Gates, Ready
from .ledger import Issue, Ledger
from .lineage import belongs_to_delegate
from .outcome import (
    Declined,
    Landed,
    NotLanded,
    Ran,
    Result,
    RetryWanted,
    Unsure,
    Waits,
    as_given,
    completed,
    result_of,
)
from .reconcile import Reconciler
from .tracing import trace

InDoubtPolicy: TypeAlias = Literal["wait", "tell"]


class Runner:
    """Runs the bodies of one session's calls."""

    def __init__(self, session: Session, *, in_doubt: InDoubtPolicy, grace_s: float, deps: Any) -> None:
        self._session, self.ledger = session, Ledger.of(session)
        self._in_doubt, self._grace_s, self.deps = in_doubt, grace_s, deps

    @cached_property
    def reconciler(self) -> Reconciler:
        """Finds out what became of calls in doubt. Few calls need it."""
        return Reconciler(self._session, self.ledger, tells=self._in_doubt == "tell", deps=self.deps)

    async def run(self, ready: Ready, row: Effect, begun: Ran | Hook | None = None) -> Result | None:
        """Run the body, as often as its retry policy and its outcome allow; it may have begun already.

        None if another caller settled the call meanwhile: look again.
        """
        tool, rows = ready.tool, [row]
        try:
            while True:
                if isinstance(begun, Ran):
                    ran = begun
                else:
                    body = begun or tool.body
                    ctx = self.ledger.context(row, self.deps) if body.takes_context else None
                    ran = await self.run_once(ready, row, body, ctx)
                begun = None
                if not ran.done:
                    note_failure(ran.error or ran.exit, ran.stopped)
                outcome = await self._conclude(ready, row, ran)
                if not isinstance(outcome, Issue):
                    return outcome
                status = row.status
                await anyio.sleep(tool.retry.pause_s(row.attempt, randomness.random()))
                if row.status != status:
                    return None  # A person has said meanwhile what became of it.
                row = self.ledger.issue_again(ready, row, outcome)
                rows.append(row)
                await self.commit(row)
        except BaseException as error:
            if row.status == "running" and not row.changes_the_world:
                self.ledger.discard(row)
            elif row.status == "running" and not self._session.is_lost:
                self.ledger.doubt(row, f"it was interrupted by {describe_error(error)}")
            raise
        finally:
            for one in rows:
                self.ledger.leave(one)

    async def commit(self, row: Effect) -> None:
        """Make the intent durable, if it changes the world. If that fails, the body is not entered."""
        if row.changes_the_world:
            try:
                await self._session.flush()
            except BaseException:
                self.ledger.discard(row)
                raise

    async def run_once(self, ready: Ready, row: Effect, hook: Hook, ctx: AnyContext | None) -> Ran:
        """Run the body, or a hook, of a row whose intent is durable."""
        ledger = self.ledger
        return await execute(
            self._session,
            ready,
            row,
            hook,
            ctx,
            lease_sure_s=ledger.lease_sure_s,
            grace_s=self._grace_s,
            on_not_entered=ledger.discard,
            on_late=ledger.record_late,
        )

    # -- how it ended --------------------------------------------------------------------------------

    async def _conclude(self, ready: Ready, row: Effect, ran: Ran) -> Result | Issue | None:
        """The result, or how to try again; None if another caller settled it meanwhile."""
        try:
            ends = ran.exit or ran.interrupt
            if ends is not None:
                with anyio.CancelScope(shield=True):
                    await self._record(ready.tool, row, ran, final=False)
                raise ends
            return await self._record_and_go_on(ready, row, ran)
        except (Fenced, Closed):
            if row.changes_the_world and (ran.done or self.ledger.is_definite(ready.tool, row, ran)):
                with anyio.CancelScope(shield=True), suppress(Closed):
                    await self._session._writer.engine.call(self.ledger.tell_successor, row, ran)
            raise

    async def _record_and_go_on(self, ready: Ready, row: Effect, ran: Ran) -> Result | Issue | None:
        tool = ready.tool
        if ran.done:
            return completed(row.call, row.tool, await self._record_value(row, ran))
        if isinstance(ran.error, Waits) and not row.changes_the_world:
            self.ledger.discard(row)
            return result_of(row.call, row.tool, str(ran.error), "waiting")
        more = row.attempt < tool.retry.attempts and not isinstance(ran.error, Declined)
        definite = self.ledger.is_definite(tool, row, ran)
        retry = definite and more and (tool.changes_the_world or not ran.stopped)
        await self._record(tool, row, ran, final=definite and not retry)
        if retry:
            return Issue.again(row)
        if definite:
            return result_of(row.call, row.tool, ran.describe_failure(tool.name), "failed")
        return await self.reconciler.settle_now(ready, row, ran, more=more)

    async def _record_value(self, row: Effect, ran: Ran) -> Given:
        """Record what the body gave, durably if it changes the world."""
        given = as_given(ran.value, row.tool, changes_the_world=row.changes_the_world)
        shown = await self.ledger.complete(row, given, ran.latency_ms)
        if row.changes_the_world or self._session._writer.waits_for_calls:
            await self._session.flush()
        if row.scope == "global" or Settlements in self._session._writer.extensions:
            await self.reconciler.share_landed(row, given)
        return shown

    async def _record(self, tool: AnyTool, row: Effect, ran: Ran, *, final: bool) -> None:
        """Record how the body ended, durably if it changes the world."""
        if ran.done:
            await self._record_value(row, ran)
            return
        if ran.exit is not None and not row.changes_the_world:
            self.ledger.discard(row, exited=True)
            # Durable, because it is counted: a call that ends the process is not run again without end.
            await self._session.flush()
            return
        if self.ledger.is_definite(tool, row, ran):
            wanted = isinstance(ran.error, RetryWanted)
            self.ledger.fail(row, ran.describe_failure(tool.name), ran.why, final=final, retry=wanted)
        else:
            exited = ran.exit is not None
            self.ledger.doubt(row, ran.why, left_behind=ran.left_behind, exited=exited)
        if row.changes_the_world or self._session._writer.waits_for_calls:
            await self._session.flush()
        if final:
            await self.reconciler.share_failed(row)

    # -- in doubt ------------------------------------------------------------------------------------

    async def settle(
        self,
        tools: Mapping[str, AnyTool],
        gates: Gates,
        *,
        prefix: str = "",
        on_result: Callable[[Result], None] | None = None,
    ) -> list[Effect]:
        """Settle every call in doubt of the session; those that stay in doubt.

        Side by side, but calls of a tool that writes one after another, in their order. A delegate settles
        its own calls: those whose ids begin with `prefix`.
        """

        async def settle_one(row: Effect) -> None:
            result = await self.settle_call(tools.get(row.tool), gates, row)
            if result is not None and on_result is not None:
                on_result(result)

        session, chains = self._session, dict[object, list[Callable[[], Awaitable[None]]]]()
        attempts = session.state.facts.effects.attempts
        known = [row for row in session.in_doubt if _is_settled_here(session, row, prefix)]
        for row in sorted(known, key=lambda row: attempts(row)[0].issued):
            place = row.tool if "write" in row.side_effects else row.issued
            chains.setdefault(place, []).append(partial(settle_one, row))
        await run_chains(list(chains.values()))
        return session.in_doubt

    async def settle_call(self, tool: AnyTool | None, gates: Gates, row: Effect) -> Result | None:
        """Settle one call in doubt: verify, then run again if it is idempotent, then wait for a person or
        tell the model. The call's result, if it has one now. `tool` is None if it is no longer there."""
        reconciler = self.reconciler
        ready = None if tool is None else gates.fit(tool, row.args)
        if ready is not None and row.undoes is None:
            tool = ready.tool
            found = await reconciler.find_out(tool, row, ready.values)
            if row.status != "in_doubt":
                await reconciler.settlements.release(row)
                return None  # A person was quicker.
            if isinstance(found, Known):
                shown = await reconciler.record_known(row, found)
                return None if shown is None else completed(row.call, row.tool, shown)
            if isinstance(found, Landed):
                return completed(row.call, row.tool, await reconciler.record_landed(row, found))
            if isinstance(found, NotLanded):
                await reconciler.record_not_landed(row, found)
                await reconciler.settlements.release(row)
                return None
            unsure = found.why if isinstance(found, Unsure) else ""
            tried = self._session.state.facts.effects.find_call(row.call)
            may = isinstance(found, Unsure) and self.ledger.may_repeat(tool, row)
            if may and count_crashes(tried) < gates.max_crashes:
                again = self.ledger.issue_again(ready, row, Issue.again(row))
                await self.commit(again)
                return await trace(self._session, row, self.run(ready, again))
            if not await reconciler.leave(row, unsure):
                return None
        text = await reconciler.tell(row)
        return result_of(row.call, row.tool, text, "in_doubt") if reconciler.tells else None


def _is_settled_here(session: Session, row: Effect, prefix: str) -> bool:
    """Whether a call is the session's own: a tool of a delegate may have the name of another one here."""
    return row.call.id.startswith(prefix) if prefix else not belongs_to_delegate(session, row.call)


async def run_chains(chains: Iterable[Sequence[Callable[[], Awaitable[None]]]]) -> None:
    """Run the chains side by side, the parts of a chain one after another.

    An error in one part stops none of the others; the first one is raised when all have ended. One that asks
    the process to end cancels the others, and is raised once they have had their grace.
    """
    errors: list[Exception] = []
    exits: list[BaseException] = []

    async def follow(chain: Sequence[Callable[[], Awaitable[None]]]) -> None:
        for part in chain:
            try:
                await part()
            except Exception as error:
                errors.append(error)
            except BaseException as error:
                if not asks_to_exit(error):
                    raise
                # Not out of this task: asyncio would stop its loop at once, with the others under way.
                exits.append(error)
                tasks.cancel_scope.cancel()
                return

    async with anyio.create_task_group() as tasks:
        for chain in chains:
            tasks.start_soon(follow, chain)
    if exits:
        raise exits[0]
    if errors:
        raise errors[0]
