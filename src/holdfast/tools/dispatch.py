"""Dispatch: take a call of a session through the gates and the ledger to its result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from ..content.encode import Given
from ..core.budget import Budget
from ..core.effects import Effect, Question, Repeats, call_name
from ..core.entries import Body, CallRef, ToolCompleted, ToolFailed, ToolRefused
from ..core.session_state import SessionState
from ..errors import BadInput
from ..limits import CLAIM_WAIT_S
from ..messages import Json
from ..reprs import describe_error
from ..session.session import Session
from ..telemetry import active, note_refusal
from .claims import Busy, Known, Theirs
from .declaration import AnyTool, Hook
from .executor import begin, refuse_itself
from .gates import Asks, Gates, Ready, Refused
from .ledger import Blocked, Issue, Join, LedgerDecision, Replay
from .lineage import ROOT_SCOPES, name_at_root
from .outcome import Ran, Result, ResultStatus, as_text, completed, result_of
from .reconcile import describe_doubt
from .runner import Runner, run_chains
from .tracing import TracedCall

T = TypeVar("T")
_NO_CAPS = Budget()
_NO_REPEATS = Repeats()
"""For a call that was tried before: it goes on, and is no repetition of itself."""


class CallRequest(Struct, frozen=True):
    """A call to dispatch. `tool` is the tool to call, if the call brings its own. `operation` is what it does
    in the whole store, if the caller says: one with that name is global, whatever the scope of its tool."""

    ref: CallRef
    name: str
    args: Json
    tool: AnyTool | None = None
    operation: str | None = None


class Pending(Struct):
    """A call that is not finished yet. `row` is its intent, if it has one that must be durable first."""

    name: str
    in_order: bool
    finish: Callable[[], Awaitable[Result]]
    row: Effect | None = None
    begun: bool = False
    traced: TracedCall | None = None

    async def go(self) -> Result:
        """Do the rest, once the intent is durable."""
        self.begun = True
        return await (self.finish() if self.traced is None else self.traced.run(self.finish()))


Begun: TypeAlias = Result | Pending
Again: TypeAlias = Callable[[], Awaitable[Result]]
OnResult: TypeAlias = Callable[[Result], None]
"""Called with each result as soon as it is there."""


class Dispatch:
    """Dispatches calls of one session."""

    def __init__(
        self,
        session: Session,
        tools: Mapping[str, AnyTool],
        gates: Gates,
        runner: Runner,
        *,
        root: Dispatch | None = None,
        on_result: OnResult | None = None,
    ) -> None:
        self._session, self._tools, self._gates = session, tools, gates
        self._runner, self._ledger = runner, runner.ledger
        self._root, self._on_result = root, on_result
        self._is_alone = True

    async def one(self, call: CallRequest) -> Result:
        """Dispatch a call that belongs to no reply."""
        return await self._go_on(await self._begin(call))

    async def all(self, calls: Sequence[CallRequest]) -> list[Result]:
        """Begin the calls in order, make their intents durable together, and run them side by side.

        Calls of one tool that writes run one after another, in order.
        """
        begun: list[Begun] = []
        self._is_alone = len(calls) == 1
        try:
            for call in calls:
                # One by one: those that were begun are let go if a later one cannot be.
                begun.append(self._note(await self._begin_traced(call)))  # noqa: PERF401
            rows = [one.row for one in begun if isinstance(one, Pending) and one.row is not None]
            if any(map(self._must_be_durable, rows)):
                await self._session.flush()
            return await self._finish(begun)
        finally:
            for one in begun:
                if isinstance(one, Pending) and not one.begun:
                    if one.row is not None:
                        self._ledger.discard(one.row)
                    if one.traced is not None:
                        one.traced.end()

    def _must_be_durable(self, row: Effect) -> bool:
        """Whether the body must not be entered before the disk has the intent.

        That of a harmless one must, if it goes on after a restart: it may be what killed the process.
        """
        return row.changes_the_world or (row.call.reply is not None and row.call.reply < self._session.fence)

    async def _finish(self, begun: Sequence[Begun]) -> list[Result]:
        if len(begun) == 1:
            only = begun[0]
            return [only if isinstance(only, Result) else self._note(await only.go())]
        results: dict[int, Result] = {}
        chains: dict[object, list[Callable[[], Awaitable[None]]]] = {}

        def add(place: int, one: Pending) -> None:
            async def go() -> None:
                results[place] = self._note(await one.go())

            chains.setdefault(one.name if one.in_order else place, []).append(go)

        for place, one in enumerate(begun):
            if isinstance(one, Result):
                results[place] = one
            else:
                add(place, one)
        await run_chains(chains.values())
        return [results[place] for place in range(len(begun))]

    def _note(self, one: T) -> T:
        if self._on_result is not None and isinstance(one, Result):
            self._on_result(one)
        return one

    # -- up to the intent ----------------------------------------------------------------------------

    async def _begin_traced(self, call: CallRequest) -> Begun:
        telemetry = active()
        if telemetry is None:
            return await self._begin(call)
        known = self._find_tool(call) is not None
        traced = TracedCall(telemetry, self._session, call.name, call.ref, known=known)
        begun = await traced.run(self._begin(call))
        if isinstance(begun, Pending):
            begun.traced = traced
        return begun

    def _find_tool(self, call: CallRequest) -> AnyTool | None:
        return self._tools.get(call.name) if call.tool is None else call.tool

    async def _begin(self, call: CallRequest) -> Begun:
        """Do everything up to the intent."""
        state = self._session.state
        effects = state.facts.effects
        if not effects.knows(call.ref):
            return await self._pass(state, call, None, None, effects.repeats, [])
        tried = effects.find_call(call.ref)
        last = tried[-1] if tried else None
        question = effects.find_question(call.ref)
        if call.ref.reply is None:
            self._refuse_reuse(call, last, question)
        if last is not None and last.status == "completed":
            return await self._give_again(call, last)
        if question is not None and last is not None and _is_spent(question, last):
            question = None
        if question is not None and question.approved is None:
            return _result(call, f"{call.name}: waits for a person's approval", "waiting")
        if question is not None and question.approved is False:
            # The answer is empty if it was erased.
            content = question.answer or f"{call.name}: a person refused it"
            refused = Refused(gate="approval", content=content, fingerprint=question.fingerprint)
            return self._refuse(call, refused, last)
        been_here = last is not None or effects.is_answered(call.ref)
        repeats = _NO_REPEATS if been_here else effects.repeats
        return await self._pass(state, call, last, question, repeats, tried)

    async def _pass(
        self,
        state: SessionState,
        call: CallRequest,
        last: Effect | None,
        answer: Question | None,
        repeats: Repeats,
        tried: list[Effect],
    ) -> Begun:
        """Take the call through the gates."""
        capped = state.facts.budget != _NO_CAPS
        gated = self._gates.check(
            call.name,
            call.args,
            tool=call.tool,
            repeats=repeats,
            tried=tried,
            answer=answer,
            # What is held for a delegate must keep neither it nor its neighbours from going on after a crash.
            budget=state.settled_budget if capped else None,
        )
        if isinstance(gated, Refused):
            return self._refuse(call, gated, last)
        if isinstance(gated, Asks):
            return await self._ask(call, gated)
        refuse_itself(self._session, call.name, gated.fingerprint)
        return await self._enter(call, gated, last)

    def _refuse_reuse(self, call: CallRequest, last: Effect | None, question: Question | None) -> None:
        """Refuse a call id of the caller's that was used before for another call."""
        effects = self._session.state.facts.effects
        known = effects.replayed.get(call_name(call.ref))
        if question is not None or last is not None:
            earlier = question or last
            assert earlier is not None
            known = earlier.fingerprint
            if earlier.tool != call.name:
                raise BadInput(f"call id {call.ref.id!r} was used before, for a call of {earlier.tool}")
        if known:
            tool = self._find_tool(call)
            ready = None if tool is None else self._gates.fit(tool, call.args)
            if ready is not None and ready.fingerprint != known:
                raise BadInput(f"call id {call.ref.id!r} was used before with other arguments")

    async def _give_again(self, call: CallRequest, row: Effect) -> Result:
        """The recorded outcome of this very call, which was completed before."""
        return completed(call.ref, call.name, await self._ledger.give_again(call.ref, row))

    def _refuse(self, call: CallRequest, gated: Refused, last: Effect | None) -> Result:
        if last is not None and last.status == "in_doubt":
            # The code has changed under a call that was issued: there is no tool left to settle it.
            text = f"{gated.content} It was issued before, and is in doubt: {last.reason}."
            self._ledger.doubt(last, last.why, text, unsure=last.unsure)
            return _result(call, text, "in_doubt")
        self._ledger.refuse(call.ref, call.name, gated.gate, gated.content, gated.fingerprint)
        note_refusal(gated.gate)
        return _result(call, gated.content, "refused")

    async def _ask(self, call: CallRequest, asks: Asks) -> Result:
        self._ledger.ask(call.ref, asks)
        await self._session.flush()
        return _result(call, f"{call.name}: waits for a person's approval. {asks.why}", "waiting")

    async def _enter(self, call: CallRequest, ready: Ready, last: Effect | None) -> Begun:
        if last is None and self._may_be_one_line(call, ready.tool):
            return self._pend(ready, lambda: self._run_harmless(call, ready))
        if last is not None:
            # A call that was tried before stays what it was, also in another run and in a fork.
            scope, operation = last.scope, last.operation
        elif call.operation is not None:
            scope, operation = "global", call.operation
        else:
            try:
                scope, operation = self._ledger.operation_of(ready, call.ref)
            except Exception as error:
                text = f"{call.name}: its scope function raised {describe_error(error)}"
                refused = Refused(gate="scope", content=text, fingerprint=ready.fingerprint)
                return self._refuse(call, refused, None)
        if scope == "global":
            # Taking the claim may take a while: the other calls of the step need not wait for it.
            return self._pend(ready, lambda: self._run_global(call, ready, last, operation))
        if self._root is not None and scope in ROOT_SCOPES and ready.tool.changes_the_world:
            root = self._root
            return self._pend(ready, lambda: self._run_at_root(root, call, ready, scope, operation))
        return await self._decide(call, ready, last, scope, operation, Issue())

    def _may_be_one_line(self, call: CallRequest, tool: AnyTool) -> bool:
        """Whether the call needs no intent if its body ends without ever waiting.

        In a batch, the gates must see the calls before it begin.
        """
        return (
            self._is_alone
            and not tool.changes_the_world
            and tool.scope == "call"
            and tool.timeout_s is None
            and tool.body.is_async
            and not tool.body.takes_context
            and not (call.ref.reply is not None and call.ref.reply < self._session.fence)
        )

    async def _run_harmless(self, call: CallRequest, ready: Ready) -> Result:
        """Run a body that takes one line if it ends without waiting for anything. Else the intent is recorded
        when it first waits: before that, no other code could have seen it."""
        begun = begin(self._session, ready)
        if isinstance(begun, Ran) and begun.done:
            given = await self._ledger.record_ran(ready, call.ref, begun)
            if self._session._writer.waits_for_calls:
                await self._session.flush()
            return completed(call.ref, call.name, given)
        scope, operation = self._ledger.operation_of(ready, call.ref)
        row = self._ledger.issue(ready, call.ref, scope, operation, Issue())
        return await self._run(ready, row, partial(self._look_again, call), begun)

    async def _run_at_root(
        self, root: Dispatch, call: CallRequest, ready: Ready, scope: str, operation: str
    ) -> Result:
        """Run it under the root session's ledger, and record the result here, too."""
        known = CallRequest(name_at_root(self._session, call.ref), call.name, call.args)
        result = await root._run_for_delegate(known, ready, scope, operation)
        if result.status == "completed":
            body: Body = ToolCompleted(
                call=call.ref, replay_of=result.replay_of, fingerprint=ready.fingerprint
            )
        elif result.status == "failed":
            body = ToolFailed(call=call.ref, issued=None, error=result.content)
        elif self._runner.reconciler.tells:
            body = ToolRefused(call=call.ref, tool=call.name, gate="in_doubt", fingerprint=ready.fingerprint)
        else:
            return _result(call, result.content, result.status)
        given = Given(text=_whole(result), value=result.value, parts=result.parts, unkept=result.unkept)
        shown = await self._ledger.record_result(body, given)
        return replace(result, call_id=call.ref.id, content=shown.text)

    async def _run_for_delegate(self, call: CallRequest, ready: Ready, scope: str, operation: str) -> Result:
        """Run a delegate's call. It has passed the gates of its own session, and passes none here, also when
        it has to look again."""
        tried = self._session.state.facts.effects.find_call(call.ref)
        last = tried[-1] if tried else None
        if last is not None and last.status == "completed":
            return await self._give_again(call, last)

        async def again() -> Result:
            return await self._run_for_delegate(call, ready, scope, operation)

        return await self._go_on(await self._decide(call, ready, last, scope, operation, Issue(), again))

    async def _run_global(
        self, call: CallRequest, ready: Ready, last: Effect | None, operation: str
    ) -> Result:
        taken = await self._runner.reconciler.claims.take(operation, call.ref.id, CLAIM_WAIT_S)
        if isinstance(taken, Busy):
            return self._block(call, ready, f"{call.name}: not run. {taken.why}.")
        if isinstance(taken, Theirs):
            return await self._repeat_theirs(call, ready, taken)
        first = Issue(generation=taken.generation)
        return await self._go_on(await self._decide(call, ready, last, "global", operation, first))

    async def _go_on(self, begun: Begun) -> Result:
        if isinstance(begun, Result):
            return begun
        if begun.row is not None and begun.row.changes_the_world:
            await self._runner.commit(begun.row)
        return await begun.go()

    async def _decide(
        self,
        call: CallRequest,
        ready: Ready,
        last: Effect | None,
        scope: str,
        operation: str,
        first: Issue,
        again: Again | None = None,
    ) -> Begun:
        """Do what the ledger decides about the operation.

        `first` is how to issue it if it is new, `again` how to look anew if it is not settled by then.
        """
        look = again if again is not None else partial(self._look_again, call)
        decide = partial(self._ledger.decide, ready.tool, scope, operation, first, call.ref, last)
        decision = decide()
        match decision:
            case Replay(row):
                return await self._replay(call, row)
            case Blocked(row):
                if last is None or last.issued != row.issued:
                    return self._block(call, ready, describe_doubt(row))
                return _result(call, await self._runner.reconciler.tell(row), "in_doubt")
            case Join(row):
                return self._pend(ready, lambda: self._join(call, row, look))
            case Issue(row=Effect() as row) if row.changes_the_world:
                # A fork may want to try it again as well. Finding out takes a while, as for global ones.
                return self._pend(ready, lambda: self._run_again(call, ready, row, decide, look))
            case Issue():
                issued = self._ledger.issue(ready, call.ref, scope, operation, decision)
                return self._pend(ready, lambda: self._run(ready, issued, look), issued)

    async def _run_again(
        self, call: CallRequest, ready: Ready, row: Effect, decide: Callable[[], LedgerDecision], again: Again
    ) -> Result:
        """Run it with the same key, unless another session that shares the row does, or has."""
        settlements = self._runner.reconciler.settlements
        taken = await settlements.take(row, run=True)
        if isinstance(taken, Busy):
            return self._block(call, ready, f"{call.name}: not run. {taken.why}.")
        if isinstance(taken, Known):
            await self._runner.reconciler.record_known(row, taken)
            return await again()
        decision = decide()
        if not isinstance(decision, Issue) or decision.key != row.key:
            if not self._ledger.is_in_progress(row):
                await settlements.release(row)
            return await again()
        issued = self._ledger.issue(ready, call.ref, row.scope, row.operation, decision)
        await self._runner.commit(issued)
        return await self._run(ready, issued, again)

    def _pend(
        self, ready: Ready, finish: Callable[[], Awaitable[Result]], row: Effect | None = None
    ) -> Pending:
        return Pending(ready.tool.name, "write" in ready.tool.side_effects, finish, row)

    def _block(self, call: CallRequest, ready: Ready, text: str) -> Result:
        self._ledger.refuse(call.ref, call.name, "in_doubt", text, ready.fingerprint)
        note_refusal("in_doubt")
        return _result(call, text, "in_doubt")

    async def _repeat_theirs(self, call: CallRequest, ready: Ready, taken: Theirs) -> Result:
        claim = taken.claim
        given = await self._ledger.replay_elsewhere(
            call.ref, ready.fingerprint, claim.given, of=claim.call, session=claim.session
        )
        return completed(call.ref, call.name, given, claim.call)

    # -- from the intent on --------------------------------------------------------------------------

    async def _run(self, ready: Ready, row: Effect, again: Again, begun: Ran | Hook | None = None) -> Result:
        result = await self._runner.run(ready, row, begun)
        return result if result is not None else await again()

    async def _join(self, call: CallRequest, row: Effect, again: Again) -> Result:
        """Wait for the dispatch that does the same, then look again, unless it has an outcome: the same may
        have been asked for once more since, and that call waits for this one."""
        await self._ledger.wait_for(row)
        done = row.status == "completed" and row.undoes is None
        return await self._replay(call, row) if done else await again()

    async def _replay(self, call: CallRequest, row: Effect) -> Result:
        return completed(call.ref, call.name, await self._ledger.replay(call.ref, row), row.call.id)

    async def _look_again(self, call: CallRequest) -> Result:
        return await self._go_on(await self._begin(call))


def _is_spent(question: Question, last: Effect) -> bool:
    """Whether the effect that the answer allowed was undone since: doing it anew needs another answer."""
    return last.status == "undone" and question.asked < last.issued


def _whole(result: Result) -> str:
    """The whole text of a result, also if only its two ends are shown."""
    whole = "" if result.parts or result.value is None else as_text(result.value)
    return whole if len(whole) > len(result.content) else result.content


def _result(call: CallRequest, text: str, status: ResultStatus) -> Result:
    return result_of(call.ref, call.name, text, status)
