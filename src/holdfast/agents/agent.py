"""The agent: a model, its tools, and a loop that survives everything."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Any, Generic, Literal

import anyio
from typing_extensions import TypeVar

from ..core.budget import Budget
from ..core.effects import PROGRESS
from ..core.entries import Parent
from ..errors import BadInput, LeaseHeld, NotFound
from ..ids import RunId, SessionId, fresh_session_id
from ..limits import (
    CRASHES_MAX,
    LEASE_TERM_S,
    REPEATS_MAX,
    REPLY_TOKENS_MAX,
    RESUME_CONCURRENCY,
    STEPS_MAX,
    TOOL_GRACE_S,
)
from ..messages import ForeignMessage, Json, Message
from ..reprs import describe_error
from ..session.cadence import Cadence
from ..session.run import current_run
from ..session.session import Session
from ..store.store import Store, open_store
from ..tools.context import ToolContext
from ..tools.declaration import AnyTool, Retry, tool
from ..tools.lineage import Lineage, derive_id
from ..tools.outcome import Waits, as_json
from ..tools.policy import Policy
from ..tools.registry import Registry
from ..tools.runner import InDoubtPolicy
from .delegate import (
    DelegateFailed,
    check_depth,
    is_held,
    measure_progress,
    refuse_delegate,
    working_for,
)
from .loop import Compact, Drive, Makeup, Tell, driving, tell_nobody
from .model import Model
from .model_request import Asker
from .outcome import Event, Outcome, OutputT, conclude
from .output import Ended, Output
from .prices import Price
from .streaming import stream

log = logging.getLogger("holdfast")
DepsT = TypeVar("DepsT", default=Any)
MODEL_RETRY = Retry(attempts=5, backoff_s=1.0, backoff_max_s=60.0)


class Agent(Generic[DepsT, OutputT]):
    """A model that may call tools, driven over a session.

    `model`: by name (`anthropic:…`, extra `models`) or any `Model`. `budget`: caps on the session's spending;
    one in USD needs a `price` where none is published. `max_steps`: of one drive of the loop. `output_type`:
    what `Outcome.output` is; the model then ends by calling a tool. `retry`: of requests to the model.
    `compact`: asked before each request whether to shorten the transcript. The rest is the `Registry`'s.
    """

    def __init__(
        self,
        model: Model | str,
        *,
        tools: Iterable[AnyTool | Callable[..., Any]] = (),
        instructions: str = "",
        budget: Budget | None = None,
        policy: Policy | None = None,
        name: str | None = None,
        max_steps: int = STEPS_MAX,
        output_type: type[OutputT] | None = None,
        price: Price | None = None,
        max_tokens: int = REPLY_TOKENS_MAX,
        retry: Retry = MODEL_RETRY,
        compact: Compact | None = None,
        in_doubt: InDoubtPolicy = "wait",
        max_repeats: int = REPEATS_MAX,
        max_crashes: int = CRASHES_MAX,
        grace_s: float = TOOL_GRACE_S,
    ) -> None:
        if max_steps < 1 or max_tokens < 1:
            raise BadInput(f"max_steps={max_steps} and max_tokens={max_tokens} are at least 1")
        if not isinstance(model, str) and not hasattr(model, "ask"):
            raise BadInput(
                f"{model!r} is no model: give a name such as 'anthropic:claude-sonnet-5', what "
                "holdfast.agents.open_model gives, or an object with `name` and `ask`"
            )
        self.name = name
        self._given, self._budget = model, budget
        self._price, self._max_tokens, self._retry = price, max_tokens, retry
        self._instructions, self._max_steps, self._compact = instructions, max_steps, compact
        self.output_type = output_type
        self._output: Output[OutputT] = Output(output_type)
        self.registry = Registry(
            tools,
            policy=policy,
            in_doubt=in_doubt,
            max_repeats=max_repeats,
            max_crashes=max_crashes,
            grace_s=grace_s,
        )
        if self._output.tool is not None:
            self.registry.add(self._output.tool)

    @cached_property
    def makeup(self) -> Makeup[OutputT]:
        """What it drives a session with; made when it is first needed, because the library behind a model's
        name is a heavy one."""
        model = self._given
        if isinstance(model, str):
            from .providers import open_model

            model = open_model(model)
        return Makeup(
            name=self.name,
            asker=Asker(model=model, price=self._price, max_tokens=self._max_tokens, retry=self._retry),
            registry=self.registry,
            instructions=self._instructions,
            output=self._output,
            max_steps=self._max_steps,
            compact=self._compact,
        )

    # -- driving a session ---------------------------------------------------------------------------

    async def run(
        self,
        message: str | Message | ForeignMessage,
        *,
        session: str | Session | None = None,
        store: Store | None = None,
        deps: DepsT | None = None,
        run_id: str | None = None,
        parent: str | Parent | None = None,
        labels: Mapping[str, str] | None = None,
        cadence: Cadence = "step",
        wait_s: float = 0,
    ) -> Outcome[OutputT]:
        """Give the agent a message, and drive the session until there is an outcome.

        A session that is there already goes on: what a dead process left unfinished is finished first. It is
        named by its id, or given as it was opened. Without a `session` there is a new one; without a `store`,
        `HOLDFAST_STORE` names it.
        """
        refuse_silence(message)
        async with self.open_session(session, store, labels=labels, cadence=cadence, wait_s=wait_s) as opened:
            return await self._drive(opened, message, deps=deps, run_id=run_id, parent=parent)

    async def resume(
        self,
        session: str | Session,
        *,
        store: Store | None = None,
        deps: DepsT | None = None,
        cadence: Cadence = "step",
        wait_s: float = 0,
    ) -> Outcome[OutputT]:
        """Go on where the session stands: after a crash, a cancellation, or when a person has answered.

        If it had come to its end, that outcome is given again, and nothing is run.
        """
        async with self.open_session(session, store, create=False, cadence=cadence, wait_s=wait_s) as opened:
            return await self._resume(opened, deps, tell_nobody)

    async def stream(
        self,
        message: str | Message | ForeignMessage | None = None,
        *,
        session: str | Session | None = None,
        store: Store | None = None,
        deps: DepsT | None = None,
        run_id: str | None = None,
        parent: str | Parent | None = None,
        labels: Mapping[str, str] | None = None,
        cadence: Cadence = "step",
        wait_s: float = 0,
    ) -> AsyncGenerator[Event[OutputT], None]:
        """The same as `run`, or without a message as `resume`, told as it happens; the outcome comes last.

        Who stops listening cancels the run. Deltas are not kept: whoever comes later reads whole replies.
        """
        if message is None and session is None:
            raise BadInput("stream() needs a message, or the session to go on with")
        refuse_silence(message)

        async def work(tell: Tell) -> None:
            create = message is not None
            async with self.open_session(
                session, store, create=create, labels=labels, cadence=cadence, wait_s=wait_s
            ) as opened:
                if message is None:
                    outcome = await self._resume(opened, deps, tell)
                else:
                    outcome = await self._drive(
                        opened, message, deps=deps, run_id=run_id, parent=parent, tell=tell
                    )
            tell(outcome)

        events: AsyncGenerator[Event[OutputT], None] = stream(work)
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()

    async def resume_all(
        self, store: Store, *, concurrency: int = RESUME_CONCURRENCY, deps: DepsT | None = None
    ) -> list[Outcome[OutputT]]:
        """Take up every session whose last run was this agent's, has no end, and is driven by nobody.

        Delegates are left to those they work for. A session that fails stops none of the others.
        """
        if concurrency < 1:
            raise BadInput(f"concurrency={concurrency} must be at least 1")
        found = [
            head.session
            async for head in store.sessions(interrupted=True)
            if head.agent == self.name and head.parent is None
        ]
        outcomes: dict[SessionId, Outcome[OutputT]] = {}
        places = anyio.CapacityLimiter(concurrency)

        async def take_up(id: SessionId) -> None:
            async with places:
                try:
                    outcomes[id] = await self.resume(id, store=store, deps=deps)
                except (LeaseHeld, NotFound) as gone:
                    log.info("session %s is left to whoever has it: %s", id, gone)
                except Exception as error:
                    log.warning("session %s could not be resumed: %s", id, describe_error(error))
                    outcomes[id] = Outcome(
                        status="failed",
                        session=id,
                        run=RunId(""),
                        reason="error",
                        error=describe_error(error),
                    )

        async with anyio.create_task_group() as tasks:
            for id in found:
                tasks.start_soon(take_up, id)
        return [outcomes[id] for id in found if id in outcomes]

    # -- inside a session ----------------------------------------------------------------------------

    @asynccontextmanager
    async def open_session(
        self,
        given: str | Session | None,
        store: Store | None,
        *,
        create: bool = True,
        labels: Mapping[str, str] | None = None,
        cadence: Cadence = "step",
        wait_s: float = 0,
    ) -> AsyncIterator[Session]:
        """The session to drive: opened, or as it was given."""
        _ = self.makeup  # A model that cannot be had is an error before anything is written.
        if isinstance(given, Session):
            yield given
            return
        if store is not None and not isinstance(store, Store):
            raise BadInput(
                f"store={store!r} is not an open store: `async with open_store(…) as store` gives one"
            )
        chosen = given if given is not None else fresh_session_id(self.name)
        if store is None:
            async with open_store() as own:
                async with self.open_session(
                    chosen, own, create=create, labels=labels, cadence=cadence, wait_s=wait_s
                ) as session:
                    yield session
            return
        async with store.session(
            chosen, create=create, labels=labels, cadence=cadence, wait_s=wait_s
        ) as session:
            yield session

    async def _resume(self, session: Session, deps: DepsT | None, tell: Tell) -> Outcome[OutputT]:
        return self._find_recorded(session, "completed") or await self._drive(
            session, None, deps=deps, tell=tell
        )

    async def _drive(
        self,
        session: Session,
        message: str | Message | ForeignMessage | None,
        *,
        deps: DepsT | None,
        run_id: str | None = None,
        parent: str | Parent | None = None,
        tell: Tell = tell_nobody,
    ) -> Outcome[OutputT]:
        makeup = self.makeup
        with driving(session):
            await refuse_delegate(session)
            own = self._budget if Lineage.of(session) is None else None
            makeup.asker.check(session.budget.caps if own is None else own)
            if own is not None and session.budget.caps != own:
                await session.set_budget(own)
            async with makeup.begin_run(session, run_id=run_id, parent=parent) as run:
                return await Drive(makeup, session, run, deps=deps, tell=tell).go(message)

    def _find_recorded(
        self, session: Session, *ends: Literal["completed", "failed"]
    ) -> Outcome[OutputT] | None:
        """The outcome of the last run, if it came to one of these ends and nothing has happened since."""
        facts = session.state.facts
        head = facts.head
        over = head.status == "completed" and session.continuable
        found = self._output.find(session.transcript) if over else None
        status = next((end for end in ends if end == head.status), None)
        if status is None or (status == "completed" and not isinstance(found, Ended)):
            return None
        run = RunId(next(reversed(facts.runs), ""))
        output = found.output if isinstance(found, Ended) else None
        return conclude(session, run, status, output=output, reason=head.reason)

    # -- as another agent's tool ---------------------------------------------------------------------

    def as_tool(self, *, name: str | None = None, description: str | None = None) -> AnyTool:
        """This agent as a tool of another: a delegate.

        It works in a session of its own, derived from the call, and is taken up again when the parent is.
        What it may spend is held in the parent's budget: its own `budget`, or half of what is left. What it
        does once per session, it does once per root session.
        """
        chosen = name or self.name
        if chosen is None:
            raise BadInput("a delegate needs a name: Agent(name=…) or as_tool(name=…)")

        async def delegate(ctx: ToolContext[Any], task: str) -> Json:
            """Hand a task to somebody else.

            Args:
                task: What to do, with everything that is needed for it.
            """
            return await self._work_for(ctx, chosen, task)

        declare = tool(
            name=chosen, description=description or f"Hand a task to {chosen}.", side_effects={"read"}
        )
        return declare(delegate)

    async def _work_for(self, ctx: ToolContext[Any], name: str, task: str) -> Json:
        parent = ctx.session
        lineage = check_depth(parent)
        link = Parent(session=parent.id, run=current_run(parent.id), call=ctx.call_id)
        id = derive_id(parent.id, name, ctx.key)
        opening = parent.store.session(
            id,
            wait_s=2 * LEASE_TERM_S,
            parent=link,
            # Begun anew, it would do again what it has done.
            create=id not in parent.state.facts.delegates,
        )
        try:
            async with opening as session:
                session._writer.extensions[Lineage] = lineage
                progress = measure_progress(session)
                if progress:
                    # Crashes are counted from here on: it is not stuck.
                    await ctx.annotate(**{PROGRESS: progress})
                outcome = await self._delegate(parent, session, task, ctx.deps, link)
        except LeaseHeld as held:
            raise Waits(f"{name}: {held}") from held
        except NotFound as gone:
            raise DelegateFailed(f"what it did and said is gone: {gone}") from gone
        if outcome.status == "waiting":
            raise Waits(f"{name} waits in session {outcome.session}: {outcome.reason}")
        if outcome.status != "completed":
            raise DelegateFailed(f"{outcome.status} ({outcome.reason}) {outcome.error}".strip())
        return as_json(outcome.output)

    async def _delegate(
        self, parent: Session, session: Session, task: str, deps: DepsT, link: Parent
    ) -> Outcome[OutputT]:
        # One that was cancelled along with its parent goes on with it.
        recorded = self._find_recorded(session, "completed", "failed")
        if recorded is not None and not is_held(parent, session):
            return recorded
        async with working_for(parent, session, self._budget):
            message = None if len(session.transcript) else task
            return recorded or await self._drive(session, message, deps=deps, parent=link)


def refuse_silence(message: object) -> None:
    """Providers refuse a message without a word, and would do so again at every later attempt."""
    if isinstance(message, str) and not message.strip():
        raise BadInput("the message is empty; to go on without one, use resume")
