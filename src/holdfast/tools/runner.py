"""From a durable intent to an outcome: run the body, record how it ended, settle what is in doubt, retry."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, Literal, TypeAlias

import anyio
from msgspec import Struct

from ..content.packing import Given
from ..core.effects import Effect
from ..errors import Closed, Fenced
from ..reprs import describe_error
from ..session.session import Session
from ..system import randomness
from ..telemetry import note_failure
from .claims import Busy, Claims, Known, Settlements
from .decision import Issue
from .declaration import AnyTool, Hook
from .executor import Ran, asks_to_exit
from .gates import Ready
from .ledger import Ledger
from .outcome import (
    Declined,
    Landed,
    NotLanded,
    Result,
    ResultStatus,
    RetryWanted,
    Unsure,
    Verification,
    Waits,
    as_given,
)
from .verifying import ask_verify

InDoubtPolicy: TypeAlias = Literal["wait", "tell"]


class Finding(Struct, frozen=True):
    """What was found out about a row in doubt. `held`: this session may run it again."""

    answer: Verification
    held: bool = True
    known: Known | None = None
    """Another session's verdict, which is recorded instead of asking."""


class Runner:
    """Runs the bodies of one session's calls."""

    def __init__(self, session: Session, *, in_doubt: InDoubtPolicy, grace_s: float, deps: Any) -> None:
        self._session, self.ledger = session, Ledger.of(session)
        self.grace_s, self.deps = grace_s, deps
        self.tells = in_doubt == "tell"
        """Whether the model is told of what is in doubt; else it waits for a person."""

    @cached_property
    def claims(self) -> Claims:
        """The session's claims on global operations."""
        return Claims(self._session)

    @cached_property
    def settlements(self) -> Settlements:
        """The session's claims on settling what it shares with its forks, or with its origin."""
        found = self._session._writer.extensions.setdefault(Settlements, Settlements(self._session))
        assert isinstance(found, Settlements)
        return found

    async def run(self, ready: Ready, row: Effect, begun: Ran | Hook | None = None) -> Result | None:
        """Run the body, as often as its retry policy and its outcome allow; it may have begun already.

        None if somebody else settled the call meanwhile: look again.
        """
        tool, rows = ready.tool, [row]
        try:
            while True:
                if isinstance(begun, Ran):
                    ran = begun
                else:
                    body = begun or tool.body
                    ctx = self.ledger.context(row, self.deps) if body.takes_context else None
                    ran = await self.ledger.run(tool, row, body, ctx, ready.values, grace_s=self.grace_s)
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

    # -- how it ended --------------------------------------------------------------------------------

    async def _conclude(self, ready: Ready, row: Effect, ran: Ran) -> Result | Issue | None:
        """The result, or how to try again; None if somebody else settled it meanwhile."""
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
            return completed(row, await self._record_value(row, ran))
        if isinstance(ran.error, Waits) and not row.changes_the_world:
            self.ledger.discard(row)
            return result_of(row, str(ran.error), "waiting")
        more = row.attempt < tool.retry.attempts and not isinstance(ran.error, Declined)
        definite = self.ledger.is_definite(tool, row, ran)
        retry = definite and more and (tool.changes_the_world or not ran.stopped)
        await self._record(tool, row, ran, final=definite and not retry)
        if retry:
            return Issue.again(row)
        if definite:
            return result_of(row, describe_failure(tool, ran), "failed")
        return await self._settle_now(ready, row, ran, more=more)

    async def _record_value(self, row: Effect, ran: Ran) -> Given:
        """Record what the body gave, durably if it changes the world."""
        given = as_given(ran.value)
        shown = await self.ledger.complete(row, given, ran.latency_ms)
        if row.changes_the_world or self._session._writer.waits_for_calls:
            await self._session.flush()
        await self._share_landed(row, given)
        return shown

    async def _share_landed(self, row: Effect, given: Given) -> None:
        """Let other sessions know what it gave, where they could want it."""
        if row.scope == "global":
            await self.claims.finish(row, given)
        if self.settlements.holds(row):
            await self.settlements.finish(row, given)

    async def _record(self, tool: AnyTool, row: Effect, ran: Ran, *, final: bool) -> None:
        """Record how the body ended, durably if it changes the world."""
        if ran.done:
            await self._record_value(row, ran)
            return
        if ran.exit is not None and not row.changes_the_world:
            self.ledger.discard(row, exited=True)
            await self._session.flush()  # Whoever counts how often must know, wherever it is run again.
            return
        if self.ledger.is_definite(tool, row, ran):
            wanted = isinstance(ran.error, RetryWanted)
            self.ledger.fail(row, describe_failure(tool, ran), why_of(ran), final=final, retry=wanted)
        else:
            exited = ran.exit is not None
            self.ledger.doubt(row, why_of(ran), left_behind=ran.left_behind, exited=exited)
        if row.changes_the_world or self._session._writer.waits_for_calls:
            await self._session.flush()
        if row.scope == "global" and final:
            await self.claims.free(row)
        if final:
            await self.settlements.release(row)

    # -- in doubt ------------------------------------------------------------------------------------

    async def _settle_now(self, ready: Ready, row: Effect, ran: Ran, *, more: bool) -> Result | Issue | None:
        """In doubt, and we are still here: settle it where the tool says how."""
        tool = ready.tool
        if tool.verify is None and not (more and self.ledger.is_recognised(tool, row)):
            await self.settlements.release(row)
            return result_of(row, await self.tell(row), "in_doubt")
        found = await self.find_out(tool, row, ready.values)
        answer = found.answer
        told = f"{describe_failure(tool, ran)}. It was checked: nothing was done."
        if row.status == "not_landed":
            # A person was quicker, or the body itself: it ended after all.
            if more:
                return Issue.again(row)
            self.ledger.fail(row, told, row.why, final=True)
            await self._session.flush()
            return result_of(row, told, "failed")
        if row.status != "in_doubt":
            return None
        if found.known is not None:
            await self.record_known(row, found.known)
            return None
        if isinstance(answer, Landed):
            return completed(row, await self.record_landed(row, answer))
        if isinstance(answer, NotLanded):
            await self.record_not_landed(row, answer, text=None if more else told)
            if more:
                # What is tried again keeps the claim.
                following = Issue(generation=row.generation + 1, attempt=row.attempt + 1)
                return following if answer.final else Issue.again(row)
            await self.settlements.release(row)
            return result_of(row, told, "failed")
        if found.held and more and self.ledger.is_recognised(tool, row):
            return Issue.again(row)
        await self.settlements.release(row)
        return result_of(row, await self.tell(row), "in_doubt")

    async def find_out(self, tool: AnyTool, row: Effect, values: dict[str, Any]) -> Finding:
        """What became of the row: what another session that shares it knows, or its verify hook."""
        taken = await self.settlements.take(row)
        if isinstance(taken, Busy):
            return Finding(Unsure(taken.why), held=False)
        if isinstance(taken, Known):
            return Finding(Unsure(), held=False, known=taken)
        return Finding(await ask_verify(self.ledger, tool, row, values, self.deps, taken))

    async def record_known(self, row: Effect, known: Known) -> Given | None:
        """Record what another session found out; what the model is shown, if it happened."""
        shown = None
        if known.verdict == "landed":
            shown = await self.ledger.land(row, known.by, known.given)
        elif row.status == "in_doubt" or known.void:
            text = describe_given_up(row, known.by) if known.verdict == "gave_up" else None
            self.ledger.settle(row, known.verdict, known.by, text=text, void=known.void)
        await self._session.flush()
        return shown

    async def record_landed(self, row: Effect, answer: Landed) -> Given:
        """It happened: what the model is shown, and the same as data."""
        given = as_given(answer.result)
        shown = await self.ledger.land(row, "verify", given)
        await self._session.flush()
        await self._share_landed(row, given)
        return shown

    async def record_not_landed(self, row: Effect, answer: NotLanded, text: str | None = None) -> None:
        """It did not happen. With `text` that is the call's result; else it may be run again."""
        self.ledger.settle(row, "not_landed", "verify", text=text, void=answer.final)
        await self._session.flush()
        if row.scope == "global" and text is not None:
            await self.claims.free(row)

    async def tell(self, row: Effect) -> str:
        """What is known of a row in doubt; the model is told, where the policy says so."""
        text = describe_doubt(row)
        if self.tells:
            self.ledger.doubt(row, row.why, text)
            await self._session.flush()
        return text


def result_of(row: Effect, text: str, status: ResultStatus) -> Result:
    """What came of a row that gave nothing."""
    return Result(call_id=row.call.id, name=row.tool, content=text, status=status)


def completed(row: Effect, given: Given) -> Result:
    """What came of a row that gave this."""
    return Result(
        call_id=row.call.id, name=row.tool, content=given.text, value=given.value, parts=given.parts
    )


def why_of(ran: Ran) -> str:
    """Why a body gave no value, for the record."""
    if ran.stopped:
        still = "; its body cannot be stopped and still runs" if ran.left_behind else ""
        return f"it {ran.stopped}{still}"
    if ran.exit is not None:
        return f"it asked the process to end: {describe_error(ran.exit)}"
    return f"it raised {describe_error(ran.error)}"


def describe_failure(tool: AnyTool, ran: Ran) -> str:
    """What the model is told of a body that gave no value."""
    return f"{tool.name} {ran.stopped}" if ran.stopped else f"{tool.name} raised {describe_error(ran.error)}"


def describe_given_up(row: Effect, by: str) -> str:
    """What the model is told of a call that another session was told to give up."""
    return f"{row.tool}: given up by {by}. Nobody can tell whether it happened. It is not run again."


def describe_doubt(row: Effect) -> str:
    """What the model is told of a call of which nobody knows whether it happened."""
    what = "was given up as unknown" if row.status == "gave_up" else "is in doubt"
    why = f": {row.why}" if row.why else ""
    if row.undoes is not None:
        return (
            f"{row.tool}: it was done, and {row.call.id!r} of {row.at:%Y-%m-%d %H:%M:%S} UTC, which takes it "
            f"back, {what}{why}. It is not run again before somebody says what became of that."
        )
    return (
        f"{row.tool}: call {row.call.id!r} of {row.at:%Y-%m-%d %H:%M:%S} UTC {what}{why}. Whether it "
        "happened is not known, and it is not run again before somebody says that it did not."
    )


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
