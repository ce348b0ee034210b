"""The loop: request, reply recorded, the step's tools together, results, checkpoint.

Where it stands, it reads off the session; so going on after a kill is the same loop once more.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, Generic, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..content.linking import read_all, with_urls, without_lost
from ..core.entries import CallRef, Parent
from ..core.session_state import SessionState
from ..errors import BadInput, BudgetSpent, ModelError, NotFound
from ..ids import RunId, SessionId
from ..messages import AnyMessage, ForeignMessage, Json, Message, ToolCall, calls_of
from ..session.run import Run
from ..session.session import Session
from ..store.approvals import Waiting, list_waiting
from ..tools.lineage import derive_id
from ..tools.registry import Registry
from .delegate import release_abandoned
from .model import Prompt, ToolSpec
from .model_request import LAST_CALL, Asker, Spending
from .outcome import Event, Outcome, OutputT, conclude
from .output import Ended, Misses, Output, make_nudge

Tell: TypeAlias = Callable[[Event[Any]], None]


HANDED_OVER: Final = "handed_over"
"""The reason of an outcome that is none: the worker's shift is over, and another one goes on."""


class Compaction(Struct, frozen=True, kw_only=True):
    """Replace all but the last `keep` messages by one of the user's. The journal keeps the original."""

    message: str | Message
    keep: int


Compact: TypeAlias = "Callable[[Session], Compaction | Awaitable[Compaction | None] | None]"
"""Asked before every request whether the transcript has become too long."""


class Makeup(Struct, Generic[OutputT], frozen=True, kw_only=True):
    """What an agent is made of, while it drives a session."""

    name: str | None
    asker: Asker
    registry: Registry
    instructions: str
    output: Output[OutputT]
    max_steps: int
    compact: Compact | None

    def list_tools(self) -> list[ToolSpec]:
        """The tools as the model is told of them. The registry may have got another one since."""
        return [
            ToolSpec(name=tool.name, description=tool.description, schema=tool.schema)
            for tool in self.registry.tools.values()
        ]

    def begin_run(
        self, session: Session, *, run_id: str | None = None, parent: str | Parent | None = None
    ) -> Run:
        """A run that says which model it asks, with which instructions and tools."""
        return session.run(
            agent=self.name,
            run_id=run_id,
            parent=parent,
            model=self.asker.model.name,
            instructions=self.instructions,
            # What tells whether a tool is still the one that the run began with.
            tools={
                spec.name: hashlib.sha256(msgspec.json.encode(spec)).hexdigest() for spec in self.list_tools()
            },
        )


class Part(Struct, frozen=True, kw_only=True):
    """What an agent sees of a session, adds to its instructions, and says of itself on its replies.

    Alone it sees everything; in a thread with others, theirs as somebody else's.
    """

    agent: str | None
    metadata: dict[str, Json] = {}

    def see(self, session: Session) -> Sequence[AnyMessage]:
        """The messages as the model is given them."""
        return session.transcript

    def instruct(self, session: Session, instructions: str) -> str:
        """The instructions, and what there is to add at this point."""
        return instructions

    def sign(self, message: Message) -> Message:
        """The reply, with the agent's name where it has none."""
        if self.agent is None and not self.metadata:
            return message
        return replace(
            message, agent=message.agent or self.agent, metadata={**message.metadata, **self.metadata}
        )


class Drive(Generic[OutputT]):
    """One drive of the loop, in a run of the session."""

    def __init__(
        self,
        makeup: Makeup[OutputT],
        session: Session,
        run: Run,
        *,
        deps: object,
        tell: Tell,
        part: Part | None = None,
    ) -> None:
        self._makeup, self._session, self._run = makeup, session, run
        self._part = part or Part(agent=makeup.name)
        self._deps, self._tell, self._specs = deps, tell, makeup.list_tools()
        self._steps = 0
        self._spending = Spending()

    async def go(self, message: str | Message | ForeignMessage | None) -> Outcome[OutputT]:
        """Finish what was begun, take in the message, and go on until there is an output or a reason."""
        try:
            if not await self._catch_up(message):
                return await self._pause()
            self._steps = _count_steps(self._session, self._run.id)
            return await self._go_on()
        except BudgetSpent as spent:
            return self._fail("budget_spent", str(spent))
        except ModelError as error:
            return self._fail("model_error", str(error))

    async def _catch_up(self, message: str | Message | ForeignMessage | None) -> bool:
        session, registry = self._session, self._makeup.registry
        await registry.settle(session, deps=self._deps, on_result=self._tell)
        whole = await self._finish_step()
        if message is not None and whole:
            await session.add(message)
        elif message is not None:
            await queue(session, message)
        return whole

    async def _go_on(self) -> Outcome[OutputT]:
        session = self._session
        while True:
            found = self._makeup.output.find(self._part.see(session))
            if isinstance(found, Ended):
                self._run.complete()
                return conclude(session, self._run.id, "completed", output=found.output)
            if isinstance(found, Misses) and found.final:
                return self._fail("no_output", found.why)
            if session.cancel_requested is not None:
                self._run.cancel(session.cancel_requested)
                return conclude(session, self._run.id, "cancelled", reason=session.cancel_requested)
            if session._writer.run_control is not None and session._writer.run_control.is_stopping:
                self._run.cancel(HANDED_OVER)
                return conclude(session, self._run.id, "cancelled", reason=HANDED_OVER)
            if not len(session.transcript):
                return self._fail("no_message", f"session {session.id!r} has no message to go on from")
            if self._steps >= self._makeup.max_steps:
                return self._fail("step_limit", f"not done after {self._steps} steps")
            if found is not None:
                # Not earlier: a message to go on with takes back what was said about stopping.
                await session.add(make_nudge())
            await self._compact()
            await self._ask()
            self._steps += 1
            if not await self._finish_step():
                return await self._pause()

    # -- a step --------------------------------------------------------------------------------------

    async def _ask(self) -> None:
        instructions = self._part.instruct(self._session, self._makeup.instructions)
        if self._is_last_step():
            instructions = f"{instructions}\n\n{LAST_CALL}".strip()
        seen = self._part.see(self._session)
        if self._makeup.asker.links:
            seen = await with_urls(seen)
        await read_all(seen)
        prompt = Prompt(
            messages=[without_lost(message) for message in seen],
            instructions=instructions,
            tools=self._specs,
            stream=self._tell is not tell_nobody,
        )
        await self._makeup.asker.ask(
            self._run,
            lambda: self._session.budget,
            prompt,
            spending=self._spending,
            sign=self._part.sign,
            tell=self._tell,
        )

    def _is_last_step(self) -> bool:
        budget = self._session.budget
        left = self._makeup.max_steps - self._steps
        if budget.caps.steps is not None:
            left = min(left, budget.caps.steps - budget.steps)
        return left == 1

    async def _finish_step(self) -> bool:
        """Carry out the calls of the last reply and end the step; False if it waits for a person."""
        session = self._session
        missing = find_missing(session.state)
        if missing:
            for _, call in missing:
                self._tell(call)
            await self._makeup.registry.dispatch_step(session, deps=self._deps, on_result=self._tell)
            if find_missing(session.state):
                return False
        await release_abandoned(session)
        if self._has_replied():
            version = await session.checkpoint()
            self._tell(session.state.get_checkpoint(version))
        return True

    def _has_replied(self) -> bool:
        """Whether the step has a reply; a request that was cut off gave none."""
        facts = self._session.state.facts
        ended = facts.checkpoints.get(facts.base)
        items = reversed(self._session.state.transcript_fold.items)
        reply = next((item for item in items if item.role == "assistant"), None)
        return reply is not None and (ended is None or reply.seq > ended.seq)

    async def _compact(self) -> None:
        if self._makeup.compact is None:
            return
        given = self._makeup.compact(self._session)
        chosen = await given if inspect.isawaitable(given) else given
        if chosen is not None:
            await self._session.compact(chosen.message, keep=chosen.keep)

    # -- the end -------------------------------------------------------------------------------------

    async def _pause(self) -> Outcome[OutputT]:
        waiting = await find_waiting(self._session)
        reason = ", ".join(sorted({one.kind for one in waiting})) or "a delegate waits"
        self._run.pause(reason)
        return conclude(self._session, self._run.id, "waiting", reason=reason, waiting=waiting)

    def _fail(self, reason: str, error: str) -> Outcome[OutputT]:
        self._run.fail(reason, error)
        return conclude(self._session, self._run.id, "failed", reason=reason, error=error)


@contextmanager
def driving(session: Session) -> Iterator[None]:
    """One at a time: a second drive would take the calls of the first for ones that were left unfinished."""
    if Drive in session._writer.extensions:
        raise BadInput(
            f"session {session.id!r} is driven already: send it a message with store.submit(…), or give the "
            "tool or task that wants to drive it a session of its own"
        )
    session._writer.extensions[Drive] = True
    try:
        yield
    finally:
        del session._writer.extensions[Drive]


async def queue(session: Session, message: str | Message | ForeignMessage) -> None:
    """Through the inbox, a message waits for the end of a step that cannot end yet."""
    await session.store.submit(session.id, message)
    await session.take_in()


def tell_nobody(event: Event[Any]) -> None:
    """Nobody follows along."""


async def find_waiting(session: Session) -> tuple[Waiting, ...]:
    """What a session waits for, and what the delegates below it wait for."""
    store = session.store
    found: list[Waiting] = []
    states = [session.state]
    while states:
        state = states.pop()
        found += list_waiting(state)
        # By the calls that lack a result: a rewind may have left others behind, which wait for ever.
        for id in _list_delegates(state):
            with suppress(NotFound):
                below = await store.load(id)
                if below.status == "waiting":
                    states.append(below)
    return tuple(found)


def _list_delegates(state: SessionState) -> list[SessionId]:
    """The sessions of the delegates that the last reply called and that have not ended, if it has some."""
    rows = [
        row
        for ref, _ in find_missing(state)
        for row in state.facts.effects.find_call(ref)[-1:]
        if not row.changes_the_world
    ]
    return [derive_id(state.facts.head.session, row.tool, row.key) for row in rows]


def find_missing(state: SessionState) -> list[tuple[CallRef, ToolCall]]:
    """The calls of the last reply that have no result."""
    found = state.transcript_fold.find_last_reply()
    if found is None:
        return []
    reply, results = found
    calls = enumerate(calls_of(reply.read()))
    return [
        (CallRef(id=call.id, reply=reply.seq, index=index), call)
        for index, call in calls
        if index not in results
    ]


def _count_steps(session: Session, run: RunId) -> int:
    """Replies of this drive of the loop, those of the runs that a crash cut off and this one continues, too.

    A step that waited for a person had its reply before the pause; a tool may take checkpoints of its own.
    """
    facts = session.state.facts
    drive: set[str] = set()
    before: str | None = run
    while before is not None and before in facts.runs and before not in drive:
        drive.add(before)
        before = facts.runs[before].continues
    return sum(facts.replies.get(one, 0) for one in drive) if len(drive) > 1 else 0
