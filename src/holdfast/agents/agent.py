"""The agent: a model and its tools, driven over a durable session."""

from __future__ import annotations

import copy
import inspect
import logging
import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from typing import Any, Generic, Literal

import anyio
from msgspec.structs import replace
from typing_extensions import TypeVar

from ..core.budget import Budget
from ..core.effects import PROGRESS
from ..core.entries import Parent
from ..errors import BadInput, LeaseHeld, NotFound
from ..ids import RunId, SessionId, check_name, fresh_session_id
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
from ..session.misuse import async_items
from ..session.run import current_run
from ..session.session import Session
from ..store.opening import AnyStore, use_store
from ..store.store import Store
from ..system import aio
from ..tools.context import ToolContext
from ..tools.declaration import AnyTool, Hook, tool
from ..tools.effects_by_name import ToolEffects
from ..tools.lineage import Lineage, derive_id
from ..tools.outcome import Waits, as_json
from ..tools.policy import Policy
from ..tools.registry import Registry
from ..tools.retry import Retry
from ..tools.runner import InDoubtPolicy
from .delegate import (
    DelegateFailed,
    check_depth,
    check_not_delegate,
    is_held,
    measure_progress,
    reserve_budget_for,
)
from .keyed_message import find_same, read_outcome
from .loop import AgentLoop, Compact, Compaction, LoopConfig, OnEvent, drive_lock, ignore_event
from .model import Model
from .model_request import ModelClient
from .outcome import Event, Outcome, OutputT, conclude
from .output import FinalOutput, Output
from .prices import Price

log = logging.getLogger("holdfast")
DepsT = TypeVar("DepsT", default=Any)
MODEL_RETRY = Retry(attempts=5, backoff_s=1.0, backoff_max_s=60.0)


class Agent(Generic[DepsT, OutputT]):
    """A model that may call tools, driven over a session.

    `model`: a name (`anthropic:…`, extra `models`) or any `Model`. `budget`: caps on the session's spending;
    a cap in USD needs a `price` where none is published. `max_steps`: of one run. `output_type`: the type of
    `Outcome.output`; the model then ends by calling a tool. `retry`: of requests to the model. `compact`:
    called before each request, to shorten the transcript. The other options are those of `Registry`.
    """

    def __init__(
        self,
        model: Model | str,
        *,
        tools: Iterable[AnyTool | Callable[..., Any]] = (),
        effects: Mapping[str, ToolEffects] | None = None,
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
            raise BadInput(f"max_steps={max_steps} and max_tokens={max_tokens} must be at least 1")
        if not isinstance(model, str) and not hasattr(model, "ask"):
            raise BadInput(
                f"{model!r} is not a model: give a name such as 'anthropic:claude-sonnet-5', the result of "
                "holdfast.agents.open_model, or an object with `name` and `ask`"
            )
        self.name = name
        self._given, self._budget = model, budget
        self._price, self._max_tokens, self._retry = price, max_tokens, retry
        self._instructions, self._max_steps, self._compact = instructions, max_steps, compact
        self.output_type = output_type
        self._output: Output[OutputT] = Output(output_type)
        self.registry = Registry(
            tools,
            effects=effects,
            policy=policy,
            in_doubt=in_doubt,
            max_repeats=max_repeats,
            max_crashes=max_crashes,
            grace_s=grace_s,
        )
        if self._output.tool is not None:
            self.registry.add(self._output.tool)

    @cached_property
    def loop_config(self) -> LoopConfig[OutputT]:
        """What the loop needs of the agent. Made on first use: a model by name imports a large library."""
        model = self._given
        if isinstance(model, str):
            from .providers import open_model

            model = open_model(model)
        return LoopConfig(
            name=self.name,
            client=ModelClient(
                model=model, price=self._price, max_tokens=self._max_tokens, retry=self._retry
            ),
            registry=self.registry,
            instructions=self._instructions,
            output=self._output,
            max_steps=self._max_steps,
            compact=self._compact,
        )

    def in_replay(
        self,
        model: Model | None,
        body: Callable[[AnyTool], Hook],
        before_request: Callable[[Session], Awaitable[None]],
    ) -> Agent[DepsT, OutputT]:
        """The same agent with another model (None: its own) and other bodies of its tools, for a replay.

        The tool with which the model gives a typed output keeps its own: it only checks the type. There is no
        cap on seconds: a replay takes none.
        """
        made, compact = copy.copy(self), self._compact
        vars(made).pop("loop_config", None)
        made._given = self._given if model is None else model
        made._budget = None if self._budget is None else replace(self._budget, seconds=None)
        made.registry = self.registry.in_replay(lambda one: None if one is self._output.tool else body(one))

        async def prepare(session: Session) -> Compaction | None:
            await before_request(session)
            chosen = None if compact is None else compact(session)
            return await chosen if inspect.isawaitable(chosen) else chosen

        made._compact = prepare
        return made

    @property
    def model_name(self) -> str:
        """The name of its model, which need not be opened for that."""
        return self._given if isinstance(self._given, str) else self._given.name

    @property
    def budget(self) -> Budget | None:
        """The caps that it sets on its sessions; None if it leaves those that they have."""
        return self._budget

    # -- driving a session -----------------------------------------------------------------------------

    async def run(
        self,
        message: str | Message | ForeignMessage,
        *,
        session: str | Session | None = None,
        store: AnyStore | None = None,
        deps: DepsT | None = None,
        run_id: str | None = None,
        parent: str | Parent | None = None,
        labels: Mapping[str, str] | None = None,
        cadence: Cadence = "step",
        wait_s: float = 0,
        key: str | None = None,
    ) -> Outcome[OutputT]:
        """Give the agent a message, and drive the session until there is an outcome.

        `session` is an id or an open session; without it, a new session is made. In a session that exists,
        what a dead process left unfinished is finished first. `store` is an open store, or the URL or `Path`
        of one that is opened for the call; without it, the environment variable `HOLDFAST_STORE` names it.

        With a `key`, the message is added once: given again, in any process, it has the outcome that is on
        record, or is answered if it was not yet. Another message with the same key raises `KeyReused`.
        """
        check_message(message, key, session)
        async with self.open_session(session, store, labels=labels, cadence=cadence, wait_s=wait_s) as opened:
            return await self._run(opened, message, key, deps=deps, run_id=run_id, parent=parent)

    async def resume(
        self,
        session: str | Session,
        *,
        store: AnyStore | None = None,
        deps: DepsT | None = None,
        cadence: Cadence = "step",
        wait_s: float = 0,
    ) -> Outcome[OutputT]:
        """Continue a session after a crash, a cancellation, or a person's answer.

        If its last run completed, return the recorded outcome and run nothing.
        """
        async with self.open_session(session, store, create=False, cadence=cadence, wait_s=wait_s) as opened:
            return await self._resume(opened, deps, ignore_event)

    @async_items
    async def stream(
        self,
        message: str | Message | ForeignMessage | None = None,
        *,
        session: str | Session | None = None,
        store: AnyStore | None = None,
        deps: DepsT | None = None,
        run_id: str | None = None,
        parent: str | Parent | None = None,
        labels: Mapping[str, str] | None = None,
        cadence: Cadence = "step",
        wait_s: float = 0,
        key: str | None = None,
    ) -> AsyncGenerator[Event[OutputT], None]:
        """Do the same as `run`, or without a message as `resume`, and yield events; the outcome comes last.

        Closing the stream cancels the run; it can be resumed. Text deltas are not stored, replies are. Of a
        message that was answered before (`key`), there is only the outcome.
        """
        if message is None and session is None:
            raise BadInput("stream() needs a message, or a session to resume")
        check_message(message, key, session)

        async def work(on_event: OnEvent) -> None:
            create = message is not None
            async with self.open_session(
                session, store, create=create, labels=labels, cadence=cadence, wait_s=wait_s
            ) as opened:
                if message is None:
                    outcome = await self._resume(opened, deps, on_event)
                else:
                    outcome = await self._run(
                        opened, message, key, deps=deps, run_id=run_id, parent=parent, on_event=on_event
                    )
            on_event(outcome)

        events: AsyncGenerator[Event[OutputT], None] = _stream(work)
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()

    async def resume_all(
        self,
        store: AnyStore | None = None,
        *,
        concurrency: int = RESUME_CONCURRENCY,
        deps: DepsT | None = None,
    ) -> list[Outcome[OutputT]]:
        """Resume every session whose last run was this agent's, has not ended, and has no live holder.

        Delegates are skipped: the sessions that they work for resume them. A session that fails does not stop
        the others.
        """
        if concurrency < 1:
            raise BadInput(f"concurrency={concurrency} must be at least 1")
        async with use_store(store) as found:
            return await self._resume_all(found, concurrency, deps)

    async def _resume_all(self, store: Store, concurrency: int, deps: DepsT | None) -> list[Outcome[OutputT]]:
        found = [
            head.session
            async for head in store.sessions(interrupted=True)
            if head.agent == self.name and head.parent is None
        ]
        outcomes: dict[SessionId, Outcome[OutputT]] = {}
        limiter = anyio.CapacityLimiter(concurrency)

        async def resume_one(id: SessionId) -> None:
            async with limiter:
                try:
                    outcomes[id] = await self.resume(id, store=store, deps=deps)
                except (LeaseHeld, NotFound) as gone:
                    log.info("session %s is not resumed here: %s", id, gone)
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
                tasks.start_soon(resume_one, id)
        return [outcomes[id] for id in found if id in outcomes]

    # -- inside a session ------------------------------------------------------------------------------

    @asynccontextmanager
    async def open_session(
        self,
        given: str | Session | None,
        store: AnyStore | None,
        *,
        create: bool = True,
        labels: Mapping[str, str] | None = None,
        cadence: Cadence = "step",
        wait_s: float = 0,
    ) -> AsyncIterator[Session]:
        """Open the session to drive, or use the open one."""
        _ = self.loop_config  # A model that cannot be opened is an error before anything is written.
        if isinstance(given, Session):
            yield given
            return
        chosen = given if given is not None else fresh_session_id(self.name)
        async with use_store(store) as found:
            opening = found.session(chosen, create=create, labels=labels, cadence=cadence, wait_s=wait_s)
            async with opening as session:
                yield session

    async def _resume(self, session: Session, deps: DepsT | None, on_event: OnEvent) -> Outcome[OutputT]:
        return self._find_recorded(session, "completed") or await self._drive(
            session, None, deps=deps, on_event=on_event
        )

    async def _run(
        self,
        session: Session,
        message: str | Message | ForeignMessage,
        key: str | None,
        *,
        deps: DepsT | None,
        run_id: str | None = None,
        parent: str | Parent | None = None,
        on_event: OnEvent = ignore_event,
    ) -> Outcome[OutputT]:
        given: str | Message | ForeignMessage | None = message
        known = None if key is None else await find_same(session, key, message)
        if known is not None and known.answer is not None:
            return await read_outcome(session, known.answer, self._output)
        if known is not None:
            given = key = None  # It is there, and waits for its answer.
        return await self._drive(
            session, given, key=key, deps=deps, run_id=run_id, parent=parent, on_event=on_event
        )

    async def _drive(
        self,
        session: Session,
        message: str | Message | ForeignMessage | None,
        *,
        deps: DepsT | None,
        key: str | None = None,
        run_id: str | None = None,
        parent: str | Parent | None = None,
        on_event: OnEvent = ignore_event,
    ) -> Outcome[OutputT]:
        loop_config = self.loop_config
        with drive_lock(session):
            await check_not_delegate(session)
            own = self._budget if Lineage.of(session) is None else None
            loop_config.client.check(session.budget.caps if own is None else own)
            if own is not None and session.budget.caps != own:
                await session.set_budget(own)
            loop = AgentLoop(loop_config, session, deps=deps, on_event=on_event)
            return await loop.go(message, key=key, run_id=run_id, parent=parent)

    def _find_recorded(
        self, session: Session, *ends: Literal["completed", "failed"]
    ) -> Outcome[OutputT] | None:
        """The outcome of the last run, if it ended in one of these ways and nothing has happened since."""
        facts = session.state.facts
        head = facts.head
        over = head.status == "completed" and session.continuable
        found = self._output.find(session.transcript) if over else None
        status = next((end for end in ends if end == head.status), None)
        if status is None or (status == "completed" and not isinstance(found, FinalOutput)):
            return None
        run = RunId(next(reversed(facts.runs), ""))
        output = found.output if isinstance(found, FinalOutput) else None
        return conclude(session, run, status, output=output, reason=head.reason)

    # -- as another agent's tool -----------------------------------------------------------------------

    def as_tool(self, *, name: str | None = None, description: str | None = None) -> AnyTool:
        """Make this agent a tool of another agent: a delegate.

        Its session is derived from the call, and is resumed when the parent is. What it may spend is reserved
        in the parent's budget: its own `budget`, or half of what is left. Operations of its tools that are
        done once per session are done once per root session.
        """
        chosen = name or self.name
        if chosen is None:
            raise BadInput("a delegate needs a name: Agent(name=…) or as_tool(name=…)")

        async def delegate(ctx: ToolContext[Any], task: str) -> Json:
            """Hand a task to another agent.

            Args:
                task: What to do, with everything that is needed for it.
            """
            return await self._run_delegate(ctx, chosen, task)

        declare = tool(
            name=chosen, description=description or f"Hand a task to {chosen}.", side_effects={"read"}
        )
        return declare(delegate)

    async def _run_delegate(self, ctx: ToolContext[Any], name: str, task: str) -> Json:
        parent = ctx.session
        lineage = check_depth(parent)
        link = Parent(session=parent.id, run=current_run(parent.id), call=ctx.call_id)
        id = derive_id(parent.id, name, ctx.key)
        opening = parent.store.session(
            id,
            wait_s=2 * LEASE_TERM_S,
            parent=link,
            # A new session in its place would do again what it has done.
            create=id not in parent.state.facts.delegates,
        )
        try:
            async with opening as session:
                session._writer.extensions[Lineage] = lineage
                progress = measure_progress(session)
                if progress:
                    # The count of crashes starts again: the delegate is not stuck.
                    await ctx.annotate(**{PROGRESS: progress})
                outcome = await self._delegate(parent, session, task, ctx.deps, link)
        except LeaseHeld as held:
            raise Waits(f"{name}: {held}") from held
        except NotFound as gone:
            raise DelegateFailed(f"its session is gone: {gone}") from gone
        if outcome.status == "waiting":
            raise Waits(f"{name} waits in session {outcome.session}: {outcome.reason}")
        if outcome.status != "completed":
            raise DelegateFailed(f"{outcome.status} ({outcome.reason}) {outcome.error}".strip())
        return as_json(outcome.output)

    async def _delegate(
        self, parent: Session, session: Session, task: str, deps: DepsT, link: Parent
    ) -> Outcome[OutputT]:
        # A delegate that was cancelled together with its parent is resumed with it.
        recorded = self._find_recorded(session, "completed", "failed")
        if recorded is not None and not is_held(parent, session):
            return recorded
        async with reserve_budget_for(parent, session, self._budget):
            message = None if len(session.transcript) else task
            return recorded or await self._drive(session, message, deps=deps, parent=link)


def check_message(message: object, key: str | None = None, session: object = "") -> None:
    """Refuse an empty message: providers refuse it, and would do so again at every later attempt.

    Refuse a `key` without a message to name, or without a session to look it up in.
    """
    if isinstance(message, str) and not message.strip():
        raise BadInput("the message is empty; to go on without one, use resume")
    if key is not None:
        check_name("key", key)
        if message is None or session is None:
            raise BadInput("a key names a message of a session: give key=… with a message and session=…")


async def _stream(work: Callable[[OnEvent], Awaitable[object]]) -> AsyncGenerator[Event[OutputT], None]:
    """Yield the events of the work until it ends. Closing the generator cancels the work.

    The work runs in a task of its own, not in a task group: a generator that its caller leaves half-way may
    be closed by another task than the one that entered the group.
    """
    send, receive = anyio.create_memory_object_stream[Event[OutputT]](math.inf)
    scope, ended = anyio.CancelScope(), anyio.Event()
    failures: list[BaseException] = []

    def on_event(event: Event[OutputT]) -> None:
        with suppress(anyio.BrokenResourceError):  # The stream was closed: the work is being cancelled.
            send.send_nowait(event)

    async def work_on() -> None:
        try:
            with scope:
                await work(on_event)
        except BaseException as error:
            failures.append(error)
        finally:
            send.close()
            ended.set()

    aio.spawn(work_on)
    try:
        with receive:
            async for event in receive:
                yield event
    finally:
        scope.cancel()
        with anyio.CancelScope(shield=True):
            await ended.wait()
    if failures:
        raise failures[0]
