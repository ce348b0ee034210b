"""The loop of an agent: request, record the reply, run the step's tools together, checkpoint.

The loop reads its position from the session, so resuming after a kill runs the same loop again.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Generic, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..content.model_input import read_all, with_urls, without_lost
from ..core.entries import Parent
from ..errors import BadInput, BudgetSpent, ModelError
from ..ids import RunId
from ..messages import AnyMessage, ForeignMessage, Json, Message, as_message
from ..session.inbox import message_entry
from ..session.run import Run
from ..session.session import Session
from ..tools.registry import Registry
from ..tools.waiting import find_waiting
from .delegate import release_abandoned
from .keyed_message import find_keyed
from .model import Prompt, ToolSpec
from .model_request import LAST_CALL, ModelClient, RequestCosts
from .outcome import Event, Outcome, OutputT, conclude
from .output import FinalOutput, MissingOutput, Output, make_nudge

OnEvent: TypeAlias = Callable[[Event[Any]], None]

HANDED_OVER: Final = "handed_over"
"""The reason of a run that its worker left unfinished when its shift ended. Another worker goes on."""


class Compaction(Struct, frozen=True, kw_only=True):
    """Replace all but the last `keep` messages by one user message. The journal keeps the originals."""

    message: str | Message
    keep: int


Compact: TypeAlias = "Callable[[Session], Compaction | Awaitable[Compaction | None] | None]"
"""Called before every request. Returns None if the transcript can stay as it is."""


class LoopConfig(Struct, Generic[OutputT], frozen=True, kw_only=True):
    """What a loop needs of its agent."""

    name: str | None
    client: ModelClient
    registry: Registry
    instructions: str
    output: Output[OutputT]
    max_steps: int
    compact: Compact | None


class AgentView(Struct, frozen=True, kw_only=True):
    """A session as one agent sees it. An agent that is alone sees the transcript as it is.

    `metadata` is added to the agent's replies.
    """

    agent: str | None
    metadata: dict[str, Json] = {}

    def list_messages(self, session: Session) -> Sequence[AnyMessage]:
        """The messages that the model is shown."""
        return session.transcript

    def add_instructions(self, session: Session, instructions: str) -> str:
        """The instructions, with what this view adds to them."""
        return instructions

    def sign(self, message: Message) -> Message:
        """The reply, with the agent's name where it has none."""
        if self.agent is None and not self.metadata:
            return message
        return replace(
            message, agent=message.agent or self.agent, metadata={**message.metadata, **self.metadata}
        )


class AgentLoop(Generic[OutputT]):
    """One drive of an agent over a session."""

    def __init__(
        self,
        config: LoopConfig[OutputT],
        session: Session,
        *,
        deps: object,
        on_event: OnEvent,
        view: AgentView | None = None,
    ) -> None:
        self._config, self._session = config, session
        self._view = view or AgentView(agent=config.name)
        self._deps, self._on_event = deps, on_event
        # Read now: a tool may have been added to the registry since the last drive.
        self._tools = [
            ToolSpec(name=tool.name, description=tool.description, schema=tool.schema)
            for tool in config.registry.tools.values()
        ]
        self._run: Run
        self._steps = 0
        self._costs = RequestCosts()

    async def go(
        self,
        message: str | Message | ForeignMessage | None,
        *,
        key: str | None = None,
        run_id: str | None = None,
        parent: str | Parent | None = None,
    ) -> Outcome[OutputT]:
        """Finish what was begun, add the message, and go on until there is an output or a reason to stop."""
        async with self._begin_run(run_id, parent, resumes=message is None) as self._run:
            try:
                await self._config.registry.settle(self._session, deps=self._deps, on_result=self._on_event)
                await self._session._writer.read_contents()
                whole = await self._finish_step()
                if message is not None and whole:
                    await add_message(self._session, message, key)
                elif message is not None:
                    await queue_message(self._session, message, key)
                if not whole:
                    return await self._pause()
                self._steps = _count_steps(self._session, self._run.id)
                return await self._go_on()
            except BudgetSpent as spent:
                return self._fail("budget_spent", str(spent))
            except ModelError as error:
                return self._fail("model_error", str(error))

    def _begin_run(self, run_id: str | None, parent: str | Parent | None, *, resumes: bool) -> Run:
        """A run that records which model is asked, with which instructions and tools."""
        return Run(
            self._session,
            agent=self._config.name,
            run_id=run_id,
            parent=parent,
            model=self._config.client.model.name,
            instructions=self._config.instructions,
            # The digest shows whether a tool is still the one that the run began with.
            tools={spec.name: hashlib.sha256(msgspec.json.encode(spec)).hexdigest() for spec in self._tools},
            config=None,
            resumes=resumes,
            loop="agent",
        )

    async def _go_on(self) -> Outcome[OutputT]:
        session = self._session
        while True:
            found = self._config.output.find(self._view.list_messages(session))
            if isinstance(found, FinalOutput):
                self._run.complete()
                return conclude(session, self._run.id, "completed", output=found.output)
            if isinstance(found, MissingOutput) and found.final:
                return self._fail("no_output", found.why)
            if session.cancel_requested is not None:
                self._run.cancel(session.cancel_requested)
                return conclude(session, self._run.id, "cancelled", reason=session.cancel_requested)
            if session._writer.run_control is not None and session._writer.run_control.is_stopping:
                self._run.cancel(HANDED_OVER)
                return conclude(session, self._run.id, "cancelled", reason=HANDED_OVER)
            if not len(session.transcript):
                return self._fail("no_message", f"session {session.id!r} has no message to go on from")
            if self._steps >= self._config.max_steps:
                return self._fail("step_limit", f"not done after {self._steps} steps")
            if found is not None:
                # Not before the checks above: a new message withdraws a request to cancel.
                await session.add(make_nudge())
            await self._compact()
            await self._ask()
            self._steps += 1
            if not await self._finish_step():
                return await self._pause()

    # -- a step ----------------------------------------------------------------------------------------

    async def _ask(self) -> None:
        instructions = self._view.add_instructions(self._session, self._config.instructions)
        if self._is_last_step():
            instructions = f"{instructions}\n\n{LAST_CALL}".strip()
        seen = self._view.list_messages(self._session)
        if self._config.client.links:
            seen = await with_urls(seen)
        await read_all(seen)
        prompt = Prompt(
            messages=[without_lost(message) for message in seen],
            instructions=instructions,
            tools=self._tools,
            stream=self._on_event is not ignore_event,
        )
        await self._config.client.ask(
            self._session,
            self._run,
            prompt,
            costs=self._costs,
            sign=self._view.sign,
            on_event=self._on_event,
        )

    def _is_last_step(self) -> bool:
        budget = self._session.budget
        left = self._config.max_steps - self._steps
        if budget.caps.steps is not None:
            left = min(left, budget.caps.steps - budget.steps)
        return left == 1

    async def _finish_step(self) -> bool:
        """Run the open calls of the last reply and end the step; False if one waits for a person."""
        session = self._session
        missing = session.state.transcript_fold.list_unanswered()
        if missing:
            for _, call in missing:
                self._on_event(call)
            await self._config.registry.dispatch_step(session, deps=self._deps, on_result=self._on_event)
            if session.state.transcript_fold.list_unanswered():
                return False
        await release_abandoned(session)
        if self._has_replied():
            version = await session.checkpoint()
            self._on_event(session.state.get_checkpoint(version))
        return True

    def _has_replied(self) -> bool:
        """Whether the step has a reply. A request that was interrupted has none."""
        facts = self._session.state.facts
        ended = facts.checkpoints.get(facts.base)
        items = reversed(self._session.state.transcript_fold.items)
        reply = next((item for item in items if item.role == "assistant"), None)
        return reply is not None and (ended is None or reply.seq > ended.seq)

    async def _compact(self) -> None:
        if self._config.compact is None:
            return
        given = self._config.compact(self._session)
        chosen = await given if inspect.isawaitable(given) else given
        if chosen is not None:
            await self._session.compact(chosen.message, keep=chosen.keep)

    # -- the end ---------------------------------------------------------------------------------------

    async def _pause(self) -> Outcome[OutputT]:
        waiting = await find_waiting(self._session)
        reason = ", ".join(sorted({one.kind for one in waiting})) or "a delegate waits"
        self._run.pause(reason)
        return conclude(self._session, self._run.id, "waiting", reason=reason, waiting=waiting)

    def _fail(self, reason: str, error: str) -> Outcome[OutputT]:
        self._run.fail(reason, error)
        return conclude(self._session, self._run.id, "failed", reason=reason, error=error)


@contextmanager
def drive_lock(session: Session) -> Iterator[None]:
    """Refuse a second drive of an open session: it would take the calls under way for interrupted ones."""
    if AgentLoop in session._writer.extensions:
        raise BadInput(
            f"session {session.id!r} is driven already: send it a message with store.submit(…), or give the "
            "tool or task that wants to drive it a session of its own"
        )
    session._writer.extensions[AgentLoop] = True
    try:
        yield
    finally:
        del session._writer.extensions[AgentLoop]


async def add_message(
    session: Session, message: str | Message | ForeignMessage, key: str | None = None
) -> None:
    """Add a message, unless one with its key has come through the inbox meanwhile."""
    entry = await message_entry(session._writer.engine, as_message(message), key=key)
    if find_keyed(session, key) is None:
        session._writer.record_all([entry])


async def queue_message(
    session: Session, message: str | Message | ForeignMessage, key: str | None = None
) -> None:
    """Post a message to the inbox, where it waits until the unfinished step has ended."""
    # The inbox would drop a message whose key it has seen, also if a rewind has left that one behind.
    fresh = key if key not in session.state.facts.keys else None
    await session.store.submit(session.id, message, key=fresh)
    await session.take_in()


def ignore_event(event: Event[Any]) -> None:
    """Drop the event: the caller did not ask for a stream."""


def _count_steps(session: Session, run: RunId) -> int:
    """Count the replies of this run and of the interrupted runs that it continues.

    Replies, not checkpoints: a step that waited for a person had its reply before the pause, and a tool may
    take checkpoints of its own.
    """
    facts = session.state.facts
    drive: set[str] = set()
    before: str | None = run
    while before is not None and before in facts.runs and before not in drive:
        drive.add(before)
        before = facts.runs[before].continues
    return sum(facts.replies.get(one, 0) for one in drive) if len(drive) > 1 else 0
