"""Find out what became of a call in doubt, and record it: by other sessions that share it, or by `verify`."""

from __future__ import annotations

import logging
import math
from functools import cached_property
from types import CoroutineType
from typing import Any, TypeAlias

import anyio

from ..content.encode import Given
from ..core.effects import Effect
from ..ids import HolderId
from ..limits import ERROR_CHARS, TOOL_TIMEOUT_S, VERIFY_S
from ..reprs import describe_error, name_of
from ..session.effect_claims import Behind
from ..session.session import Session
from ..system.clock import boot_s
from .claims import Acquired, Busy, Known, OperationClaims, Settlements
from .declaration import ANSWERS, AnyTool, Hook
from .executor import call, is_running, working
from .gates import Ready
from .ledger import Issue, Ledger
from .outcome import (
    Landed,
    NotLanded,
    Ran,
    Result,
    Unsure,
    Verification,
    as_given,
    as_json,
    as_text,
    completed,
    result_of,
)

log = logging.getLogger("holdfast")
Finding: TypeAlias = Verification | Known | Busy
"""What was found out about a row in doubt: by `verify`, by another session, or nothing, because another
session works on it. Only after the first of these may this session run it again."""


class Reconciler:
    """Settles calls in doubt of one session. `tells`: the model is told of a call that stays in doubt; else
    it waits for a person."""

    def __init__(self, session: Session, ledger: Ledger, *, tells: bool, deps: Any) -> None:
        self._session, self._ledger = session, ledger
        self.tells, self._deps = tells, deps

    @cached_property
    def claims(self) -> OperationClaims:
        """The session's claims on global operations."""
        return OperationClaims(self._session)

    @cached_property
    def settlements(self) -> Settlements:
        """The session's claims on settling calls that it shares with its forks, or with its origin."""
        return Settlements.of(self._session)

    # -- finding out ---------------------------------------------------------------------------------

    async def find_out(self, tool: AnyTool, row: Effect, values: dict[str, Any]) -> Finding:
        """What became of the row: what another session that shares it knows, or its verify hook."""
        taken = await self.settlements.take(row)
        if isinstance(taken, Acquired):
            return await self._verify(tool, row, values, taken)
        return taken

    async def _verify(
        self, tool: AnyTool, row: Effect, values: dict[str, Any], acquired: Acquired
    ) -> Verification:
        """What the tool's verify hook says. One that raises or hangs is unsure, never "not landed".

        `Landed` is believed at once. `NotLanded` is believed once the old body can no longer be running, so
        this may wait that long and ask again; `NotLanded(final=True)` says that the key was made void: no
        wait.
        """
        if tool.verify is None:
            return Unsure()
        await anyio.sleep(max(0.0, tool.verify_after_s - self._ledger.find_age_s(row)))
        while True:
            # Taken before asking: what holds now still holds for the answer.
            over_in_s = await find_end_s(self._session, row, acquired)
            answer = await self._ask(tool.verify, tool, row, values)
            if not isinstance(answer, NotLanded) or answer.final or over_in_s <= 0:
                return answer
            if math.isinf(over_in_s):
                return Unsure(
                    "verify says that it did not land, but its body may still run: its process has not ended"
                )
            await anyio.sleep(over_in_s)

    async def _ask(self, hook: Hook, tool: AnyTool, row: Effect, values: dict[str, Any]) -> Verification:
        """What the hook answers. One that is wrong is unsure, with what is wrong with it, also in the log."""
        ctx = self._ledger.context(row, self._deps, running=False)
        what = f"the verify hook of {tool.name}"
        answer: Any = None
        why = f"verify did not answer within {VERIFY_S:g} s"
        try:
            with anyio.move_on_after(VERIFY_S) as scope, working(self._session, what, key=row.key):
                answer = await call(hook, ctx, values)
            if not scope.cancelled_caught:
                if issubclass(type(answer), Landed | NotLanded):
                    found: Verification = answer
                    return found
                if issubclass(type(answer), Unsure):
                    return Unsure(_describe_unsure(answer.why))
                why = f"verify returned {_describe_answer(answer)}, {ANSWERS}"
        except Exception as error:
            why = f"verify raised {describe_error(error)}"
        log.warning("session %s: call %r of %s: %s", self._session.id, row.call.id, tool.name, why)
        return Unsure(why)

    # -- recording it --------------------------------------------------------------------------------

    async def settle_now(self, ready: Ready, row: Effect, ran: Ran, *, more: bool) -> Result | Issue | None:
        """Settle a call whose body has just ended in doubt, where the tool says how.

        `more`: its retry policy allows another attempt. None if another caller settled it meanwhile.
        """
        tool = ready.tool
        if tool.verify is None and not (more and self._ledger.is_recognised(tool, row)):
            return await self._leave_in_doubt(row)
        found = await self.find_out(tool, row, ready.values)
        text = f"{ran.describe_failure(tool.name)}. It was checked: nothing was done."
        if row.status == "not_landed":
            # A person was quicker, or the body itself: it ended after all.
            if more:
                return Issue.again(row)
            self._ledger.fail(row, text, row.why, final=True)
            await self._session.flush()
            return result_of(row.call, row.tool, text, "failed")
        if row.status != "in_doubt":
            return None
        match found:
            case Known():
                await self.record_known(row, found)
                return None
            case Landed():
                return completed(row.call, row.tool, await self.record_landed(row, found))
            case NotLanded():
                await self.record_not_landed(row, found, text=None if more else text)
                if more:
                    # A row that is tried again keeps the claim.
                    following = Issue(generation=row.generation + 1, attempt=row.attempt + 1)
                    return following if found.final else Issue.again(row)
                await self.settlements.release(row)
                return result_of(row.call, row.tool, text, "failed")
            case Unsure() if more and self._ledger.is_recognised(tool, row):
                return Issue.again(row)
            case Unsure():
                return await self._leave_in_doubt(row, found.why)
            case _:
                return await self._leave_in_doubt(row)

    async def _leave_in_doubt(self, row: Effect, unsure: str = "") -> Result:
        await self.leave(row, unsure)
        return result_of(row.call, row.tool, await self.tell(row), "in_doubt")

    async def record_known(self, row: Effect, known: Known) -> Given | None:
        """Record what another session found out; what the model is shown, if it happened."""
        shown = None
        if known.verdict == "landed":
            shown = await self._ledger.land(row, known.by, known.given)
        elif row.status == "in_doubt" or known.void:
            text = describe_given_up(row, known.by) if known.verdict == "gave_up" else None
            self._ledger.settle(row, known.verdict, known.by, text=text, void=known.void)
        await self._session.flush()
        return shown

    async def record_landed(self, row: Effect, answer: Landed) -> Given:
        """Record that it happened: what the model is shown, and the same as data."""
        given = as_given(answer.result, row.tool, changes_the_world=True)
        shown = await self._ledger.land(row, "verify", given)
        await self._session.flush()
        await self.share_landed(row, given)
        return shown

    async def record_not_landed(self, row: Effect, answer: NotLanded, text: str | None = None) -> None:
        """Record that it did not happen. With `text` that is the call's result; else it may be run again."""
        self._ledger.settle(row, "not_landed", "verify", text=text, void=answer.final)
        await self._session.flush()
        if row.scope == "global" and text is not None:
            await self.claims.free(row)

    async def leave(self, row: Effect, unsure: str) -> bool:
        """Leave a row in doubt, for a person or for other sessions that share it. False if another caller
        has settled it meanwhile.

        `unsure`: why verify could not say what became of it, if it was asked. The same reason is recorded
        once, however often verify is asked.
        """
        if unsure and row.status == "in_doubt" and row.unsure != unsure:
            self._ledger.doubt(row, row.why, unsure=unsure)
            await self._session.flush()
        await self.settlements.release(row)
        return row.status == "in_doubt"

    async def tell(self, row: Effect) -> str:
        """What is known of a row in doubt; recorded as the call's result, where the policy says so."""
        text = describe_doubt(row)
        if self.tells:
            self._ledger.doubt(row, row.why, text, unsure=row.unsure)
            await self._session.flush()
        return text

    # -- other sessions ------------------------------------------------------------------------------

    async def share_landed(self, row: Effect, given: Given) -> None:
        """Let other sessions know what it gave, where they could want it."""
        if row.scope == "global":
            await self.claims.finish(row, given)
        if self.settlements.holds(row):
            await self.settlements.finish(row, given)

    async def share_failed(self, row: Effect) -> None:
        """Let other sessions do it: surely nothing happened here."""
        if row.scope == "global":
            await self.claims.free(row)
        await self.settlements.release(row)


async def find_end_s(session: Session, row: Effect, acquired: Acquired | None = None) -> float:
    """In how many seconds the body of this row can no longer be running, nor those that other sessions which
    share it began (`acquired`); 0 if they surely are not."""
    if is_running(row):
        return math.inf
    # Our lease began after the old one had ended.
    since_s, behind = session._writer.taken_s, Behind.list_of(row)
    if acquired is not None and acquired.behind is not None:
        since_s = max(since_s, acquired.since_s)
        is_inherited = row.issued < session.state.facts.forked_at
        # The session that issued it knows more than a fork has inherited.
        behind = acquired.behind if is_inherited else (*behind, *acquired.behind)
    return max([await _find_end_s(session, one, since_s) for one in behind], default=0.0)


async def _find_end_s(session: Session, body: Behind, since_s: float) -> float:
    heartbeat = session._writer.engine.heartbeat
    if body.holder == heartbeat.holder:
        return 0.0
    life = await session._writer.engine.call(heartbeat.judge, HolderId(body.holder))
    if life.ended:
        return 0.0
    if body.left_behind:
        return math.inf  # No timeout stops it: only the end of its process does.
    limit_s = TOOL_TIMEOUT_S if body.timeout_s is None else body.timeout_s
    return max(0.0, since_s + limit_s - boot_s())


def _describe_unsure(why: object) -> str:
    said = "" if why is None else as_text(as_json(why))[:ERROR_CHARS]
    return f"verify is unsure: {said}" if said else "verify is unsure"


def _describe_answer(answer: object) -> str:
    """What a wrong hook returned: the value only where it says nothing of the world."""
    if answer is None or answer is True or answer is False:
        return str(answer)
    for one in (Landed, NotLanded, Unsure):
        if answer is one:
            return f"the class {one.__name__} without calling it"
    if type(answer) is CoroutineType:
        answer.close()
        return "a coroutine that was not awaited (an async hook is declared with async def)"
    return f"a value of type {name_of(type(answer))}"


def describe_given_up(row: Effect, by: str) -> str:
    """What the model is told of a call that another session was told to give up."""
    return f"{row.tool}: given up by {by}. Whether it happened is not known. It is not run again."


def describe_doubt(row: Effect) -> str:
    """What the model is told of a call in doubt."""
    what = "was given up as unknown" if row.status == "gave_up" else "is in doubt"
    why = f": {row.reason}" if row.reason else ""
    if row.undoes is not None:
        return (
            f"{row.tool}: it was done, and {row.call.id!r} of {row.at:%Y-%m-%d %H:%M:%S} UTC, which takes it "
            f"back, {what}{why}. It is not run again before a person says what became of that."
        )
    return (
        f"{row.tool}: call {row.call.id!r} of {row.at:%Y-%m-%d %H:%M:%S} UTC {what}{why}. Whether it "
        "happened is not known, and it is not run again before a person says that it did not."
    )
