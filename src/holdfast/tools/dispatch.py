"""From a call to its result, through the gates and the ledger of a session."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import anyio
from msgspec import Struct

from ..effects import Effect, Repeats, call_name
from ..entries import ApprovalAsked, CallRef, InboxVerdict, ToolCompleted
from ..errors import BadInput, Fenced
from ..limits import CLAIM_WAIT_S
from ..messages import Json
from ..session.inbox import encode_item
from ..session.session import Session
from .body import Ran
from .claims import Busy, Claims, Theirs
from .gates import Asks, Gates, Ready, Refused
from .ledger import Blocked, Issue, Join, Ledger, Replay, encode_content
from .outcome import Landed, NotDone, NotLanded, Result, as_json, as_text
from .settling import ask_verify
from .tool import AnyTool

InDoubtPolicy: TypeAlias = Literal["wait", "tell"]
_NO_REPEATS = Repeats()
"""A call that was tried before is not made a second time: it goes on."""


class Call(Struct, frozen=True):
    """A call to dispatch."""

    ref: CallRef
    name: str
    args: Json


class Pending(Struct, frozen=True):
    """A call that is not finished yet: what is left to do, once its intent is durable."""

    name: str
    in_order: bool
    needs_barrier: bool
    finish: Callable[[], Awaitable[Result]]


class Dispatch:
    """Dispatches calls of one session."""

    def __init__(
        self,
        session: Session,
        tools: Mapping[str, AnyTool],
        gates: Gates,
        *,
        in_doubt: InDoubtPolicy,
        grace_s: float,
        deps: Any,
    ) -> None:
        self._session, self._tools, self._gates = session, tools, gates
        self._in_doubt, self._grace_s, self._deps = in_doubt, grace_s, deps
        self._ledger = Ledger.of(session)
        self._claims = Claims(session)

    # -- calls ---------------------------------------------------------------------------------------

    async def all(self, calls: Sequence[Call]) -> list[Result]:
        """Begin the calls in order, make their intents durable together, and run them side by side.

        Calls of one tool that writes run one after another, in order.
        """
        begun = [await self._begin(call) for call in calls]
        if any(isinstance(one, Pending) and one.needs_barrier for one in begun):
            await self._session.flush()
        if len(begun) == 1:
            only = begun[0]
            return [only if isinstance(only, Result) else await only.finish()]
        results: list[Result | None] = [one if isinstance(one, Result) else None for one in begun]
        chains: dict[object, list[tuple[int, Pending]]] = {}
        for place, one in enumerate(begun):
            if isinstance(one, Pending):
                chains.setdefault(one.name if one.in_order else place, []).append((place, one))
        errors: list[Exception] = []

        async def follow(chain: list[tuple[int, Pending]]) -> None:
            for place, pending in chain:
                try:
                    results[place] = await pending.finish()
                except Exception as error:  # The others are under way: they end first.
                    errors.append(error)

        async with anyio.create_task_group() as tasks:
            for chain in chains.values():
                tasks.start_soon(follow, chain)
        if errors:
            raise errors[0]
        return [result for result in results if result is not None]

    async def _begin(self, call: Call) -> Result | Pending:
        """Everything up to the intent."""
        effects = self._session.state.facts.effects
        tried = effects.find_call(call.ref)
        last = tried[-1] if tried else None
        if any(call_name(one.call) == call_name(call.ref) for one in effects.questions.values()):
            return self._result(call, f"{call.name}: waits for a person's approval", "waiting")
        gated = self._gates.check(
            call.name,
            call.args,
            repeats=effects.repeats if last is None else _NO_REPEATS,
            tried=tried,
            answer=effects.answers.get(call_name(call.ref)),
            budget=self._session.budget,
        )
        if last is not None and last.status == "completed":
            return await self._give_again(call, last, gated)
        if isinstance(gated, Refused):
            return self._refuse(call, gated, last)
        if isinstance(gated, Asks):
            return await self._ask(call, gated)
        if last is not None and last.fingerprint != gated.fingerprint and call.ref.reply is None:
            raise BadInput(f"call id {call.ref.id!r} was used before with other arguments")
        return await self._enter(call, gated, last)

    async def _give_again(self, call: Call, row: Effect, gated: object) -> Result:
        """This very call was completed before a crash: its outcome, as it was recorded."""
        other = isinstance(gated, Ready) and gated.fingerprint != row.fingerprint
        if call.ref.reply is None and (row.tool != call.name or other):
            raise BadInput(f"call id {call.ref.id!r} was used before, for another call of {row.tool}")
        said = await self._ledger.recall(row)
        return Result(call_id=call.ref.id, name=call.name, content=said.text, value=said.value)

    def _refuse(self, call: Call, gated: Refused, last: Effect | None) -> Result:
        if last is not None and last.status == "in_doubt":
            # The code has changed under a call that was issued: nobody can look after it any more.
            text = f"{gated.content} It was issued before, and is in doubt: {last.why}."
            self._ledger.doubt(last, last.why, text)
            return self._result(call, text, "in_doubt")
        self._ledger.refuse(call.ref, call.name, gated.gate, gated.content, gated.fingerprint)
        return self._result(call, gated.content, "refused")

    async def _ask(self, call: Call, gated: Asks) -> Result:
        self._session.record(
            ApprovalAsked(call=call.ref, tool=call.name, args=gated.ready.args, why=gated.why)
        )
        await self._session.flush()
        return self._result(call, f"{call.name}: waits for a person's approval. {gated.why}", "waiting")

    async def _enter(self, call: Call, ready: Ready, last: Effect | None) -> Result | Pending:
        scope, operation = self._ledger.operation_of(ready, call.ref)
        if scope == "global":
            # Taking the claim may take a while: the other calls of the step need not wait for it.
            return self._pend(call, ready, lambda: self._run_global(call, ready, last, operation), False)
        return await self._decide(call, ready, last, scope, operation, Issue())

    async def _run_global(self, call: Call, ready: Ready, last: Effect | None, operation: str) -> Result:
        taken = await self._claims.take(operation, call.ref.id, CLAIM_WAIT_S)
        if isinstance(taken, Busy):
            return self._block(call, ready, f"{call.name}: not run. {taken.why}.")
        if isinstance(taken, Theirs):
            return self._repeat_theirs(call, ready, taken)
        first = Issue(generation=taken.generation)
        return await self._go_on(await self._decide(call, ready, last, "global", operation, first))

    async def _go_on(self, begun: Result | Pending) -> Result:
        if isinstance(begun, Result):
            return begun
        if begun.needs_barrier:
            await self._session.flush()
        return await begun.finish()

    async def _decide(
        self, call: Call, ready: Ready, last: Effect | None, scope: str, operation: str, first: Issue
    ) -> Result | Pending:
        """What the ledger says about the operation. `first` is how to issue it if it is new."""
        decision = self._ledger.decide(ready.tool, scope, operation, first)
        match decision:
            case Replay(row):
                said = await self._ledger.recall(row)
                shown = self._ledger.replay(call.ref, row, said.text, said.value)
                return self._result(call, shown, "completed", said.value, row.call.id)
            case Blocked(row):
                text = _describe_doubt(row)
                if last is None or last.issued != row.issued:
                    return self._block(call, ready, text)
                if self._in_doubt == "tell":
                    self._ledger.doubt(row, row.why, text)
                return self._result(call, text, "in_doubt")
            case Join(row):
                return self._pend(call, ready, lambda: self._join(call, row), needs_barrier=False)
            case Issue():
                issued = self._ledger.issue(ready, call.ref, scope, operation, decision)
                return self._pend(
                    call, ready, lambda: self._run(call, ready, issued), issued.changes_the_world
                )

    def _pend(
        self, call: Call, ready: Ready, finish: Callable[[], Awaitable[Result]], needs_barrier: bool
    ) -> Pending:
        return Pending(call.name, "write" in ready.tool.side_effects, needs_barrier, finish)

    def _block(self, call: Call, ready: Ready, text: str) -> Result:
        self._ledger.refuse(call.ref, call.name, "in_doubt", text, ready.fingerprint)
        return self._result(call, text, "in_doubt")

    def _repeat_theirs(self, call: Call, ready: Ready, taken: Theirs) -> Result:
        claim = taken.claim
        shown = f"[idempotent replay of {claim.call} in session {claim.session}]: {claim.text}"
        self._session.record(
            ToolCompleted(call=call.ref, replay_of=claim.call, fingerprint=ready.fingerprint),
            content=encode_content(shown, claim.value),
        )
        return self._result(call, shown, "completed", claim.value, claim.call)

    async def _join(self, call: Call, row: Effect) -> Result:
        """Somebody here does the same: wait for it, then look again."""
        ended = self._ledger.ended.get(row.issued)
        if ended is not None:
            await ended.wait()
        return await self._go_on(await self._begin(call))

    def _result(
        self, call: Call, text: str, status: Any, value: Json = None, replay_of: str | None = None
    ) -> Result:
        return Result(
            call_id=call.ref.id,
            name=call.name,
            content=text,
            value=value,
            status=status,
            replay_of=replay_of,
        )

    # -- bodies --------------------------------------------------------------------------------------

    async def _run(self, call: Call, ready: Ready, row: Effect) -> Result:
        """Run the body, as often as its retry policy and its outcome allow."""
        tool = ready.tool
        while True:
            ctx = self._ledger.context(row, self._deps)
            ran = await self._ledger.run(row, tool.function, ctx, ready.values, grace_s=self._grace_s)
            try:
                if ran.interrupt is not None:
                    with anyio.CancelScope(shield=True):
                        await self._record(ready, row, ran, final=False)
                    raise ran.interrupt
                outcome = await self._conclude(call, ready, row, ran)
            except Fenced:
                await self._tell_successor(ready.tool, row, ran)
                raise
            if isinstance(outcome, Result):
                return outcome
            await anyio.sleep(tool.retry.pause_s(row.attempt, random.random()))
            row = self._ledger.retry(ready, row)
            if row.changes_the_world:
                await self._session.flush()

    async def _tell_successor(self, tool: AnyTool, row: Effect, ran: Ran) -> None:
        """We are out, but we know how it ended: whoever holds the session now should know, too."""
        if not row.changes_the_world:
            return
        done = ran.error is None and not ran.stopped
        if not done and not self._is_definite(tool, ran):
            return
        value = as_json(ran.value) if done else None
        item = InboxVerdict(
            issued=row.issued,
            verdict="landed" if done else "not_landed",
            by=f"{self._session.engine.presence.name}, which was out",
            content=as_text(value) if done else None,
            value=value,
        )
        with anyio.CancelScope(shield=True):
            engine = self._session.engine
            await engine.call(engine.driver.post, self._session.id, encode_item(item))

    async def _record(self, ready: Ready, row: Effect, ran: Ran, *, final: bool) -> tuple[str, Json] | None:
        """Record how the body ended, durably if it changes the world; the result if it gave one."""
        given: tuple[str, Json] | None = None
        if ran.error is None and not ran.stopped:
            given = self._ledger.complete(row, ran.value, ran.latency_ms)
        elif self._is_definite(ready.tool, ran):
            self._ledger.fail(row, _describe_error(ready.tool, ran), _why(ran), final=final)
        else:
            self._ledger.doubt(row, _why(ran))
        if row.changes_the_world or self._session.waits_for_calls:
            await self._session.flush()
        if row.scope == "global":
            if given is not None:
                await self._claims.finish(row.operation, *given)
            elif final and self._is_definite(ready.tool, ran):
                await self._claims.free(row.operation)
        return given

    def _is_definite(self, tool: AnyTool, ran: Ran) -> bool:
        """Whether surely nothing happened."""
        if not tool.changes_the_world:
            return True
        return isinstance(ran.error, (NotDone, *tool.harmless))

    async def _conclude(self, call: Call, ready: Ready, row: Effect, ran: Ran) -> Result | None:
        """The result, or None to try again."""
        tool = ready.tool
        more = row.attempt < tool.retry.attempts
        definite = self._is_definite(tool, ran)
        retry = definite and more and not (ran.stopped and not tool.changes_the_world)
        given = await self._record(ready, row, ran, final=definite and not retry)
        if given is not None:
            return self._result(call, given[0], "completed", given[1])
        if definite:
            return None if retry else self._result(call, _describe_error(tool, ran), "failed")
        return await self._settle_now(call, ready, row, ran, more=more)

    async def _settle_now(
        self, call: Call, ready: Ready, row: Effect, ran: Ran, *, more: bool
    ) -> Result | None:
        """In doubt, and we are still here: settle it where the tool says how."""
        tool = ready.tool
        answer = await self._verify(tool, row, ready.values)
        if isinstance(answer, Landed):
            text, value = await self._landed(row, answer)
            return self._result(call, text, "completed", value)
        if isinstance(answer, NotLanded):
            told = f"{_describe_error(tool, ran)}. It was checked: nothing was done."
            self._ledger.settle(row, "not_landed", "verify", text=None if more else told)
            await self._session.flush()
            if more:
                return None
            if row.scope == "global":
                await self._claims.free(row.operation)
            return self._result(call, told, "failed")
        if more and not ran.left_behind and self._ledger.may_repeat(tool, row):
            return None
        text = _describe_doubt(row)
        if self._in_doubt == "tell":
            self._ledger.doubt(row, row.why, text)
            await self._session.flush()
        return self._result(call, text, "in_doubt")

    async def _verify(self, tool: AnyTool, row: Effect, values: dict[str, Any]) -> Any:
        age_s = (self._session.engine.now() - row.at).total_seconds()
        return await ask_verify(self._ledger, tool, row, values, self._deps, age_s)

    async def _landed(self, row: Effect, answer: Landed) -> tuple[str, Json]:
        value = as_json(answer.result)
        text = as_text(value)
        self._ledger.settle(row, "landed", "verify", text=text, value=value)
        await self._session.flush()
        if row.scope == "global":
            await self._claims.finish(row.operation, text, value)
        return text, value

    # -- settling ------------------------------------------------------------------------------------

    async def settle(self) -> list[Effect]:
        """Settle every call in doubt of the session, side by side; those that stay in doubt."""
        async with anyio.create_task_group() as tasks:
            for row in self._session.in_doubt:
                tasks.start_soon(self._settle_one, row)
        return self._session.in_doubt

    async def _settle_one(self, row: Effect) -> None:
        tool = self._tools.get(row.tool)
        ready = None if tool is None else self._gates.fit(tool, row.args)
        call = Call(row.call, row.tool, row.args)
        if tool is not None and ready is not None and row.undoes is None:
            answer = await self._verify(tool, row, ready.values)
            if row.status != "in_doubt":
                return  # A person was quicker.
            if isinstance(answer, Landed):
                await self._landed(row, answer)
                return
            if isinstance(answer, NotLanded):
                self._ledger.settle(row, "not_landed", "verify")
                await self._session.flush()
                return
            crashes = sum(one.crashed for one in self._session.state.facts.effects.find_call(row.call))
            if self._ledger.may_repeat(tool, row) and crashes < self._gates.max_crashes:
                again = self._ledger.retry(ready, row)
                await self._session.flush()
                await self._run(call, ready, again)
                return
        if self._in_doubt == "tell":
            self._ledger.doubt(row, row.why, _describe_doubt(row))
            await self._session.flush()


def _why(ran: Ran) -> str:
    if ran.stopped:
        still = "; its body cannot be stopped and still runs" if ran.left_behind else ""
        return f"it {ran.stopped if ran.stopped != 'cancelled' else 'was cancelled'}{still}"
    return f"it raised {type(ran.error).__name__}: {ran.error}"[:2000].encode("utf-8", "replace").decode()


def _describe_error(tool: AnyTool, ran: Ran) -> str:
    if ran.stopped:
        return f"{tool.name} {ran.stopped}"
    return f"{tool.name} raised {type(ran.error).__name__}: {ran.error}".encode("utf-8", "replace").decode()


def _describe_doubt(row: Effect) -> str:
    what = "was given up as unknown" if row.status == "gave_up" else "is in doubt"
    return (
        f"{row.tool}: call {row.call.id!r} of {row.at:%Y-%m-%d %H:%M:%S} UTC {what}: {row.why}. Whether it "
        "happened is not known, and it is not run again before somebody says that it did not."
    )
