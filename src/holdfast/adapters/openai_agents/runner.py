"""`DurableRunner`: the SDK's `Runner`, whose runs go on after a crash."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, ClassVar, Final, TypeVar

import anyio
from agents import (
    Agent,
    RunConfig,
    RunErrorHandlers,
    RunHooks,
    Runner,
    RunResult,
    RunResultStreaming,
    RunState,
    Session,
    TContext,
    TResponseInputItem,
)
from agents.models.interface import ModelProvider
from agents.run import DEFAULT_MAX_TURNS
from agents.run_internal.model_provider_lifecycle import _normalize_run_config_for_runner
from agents.tool_context import ToolContext as TheirContext
from agents.usage import serialize_usage
from msgspec import Struct

from ...agents.delegate import check_depth, reserve_budget_for
from ...core.entries import Parent
from ...errors import BadInput, Fenced
from ...ids import SessionId, fit_session_id, label_of_original
from ...limits import CRASHES_MAX, LEASE_TERM_S, REPEATS_MAX, TOOL_GRACE_S, TOOL_TIMEOUT_S
from ...reprs import describe_value
from ...session.cadence import Cadence
from ...session.run import current_run
from ...session.session import Session as OurSession
from ...store.opening import AnyStore, find_open_store, use_store
from ...store.store import Store
from ...system.aio import run_in_default_loop, run_to_end, start_task
from ...tools.canonical import digest
from ...tools.lineage import Lineage, derive_id
from ...tools.policy import Policy
from ...tools.runner import InDoubtPolicy
from ..run_errors import RunExits
from .agent_copies import (
    AgentTool,
    Copies,
    DurableHooks,
    DurableProvider,
    as_durable,
    bring_answer,
    list_held,
)
from .context import EFFECT, annotate
from .declarations import DeclaredTools, NamedEffects
from .durable_run import Driving, RunRecord, driving, find_around
from .journal import LABELS, labels_of
from .plain_runs import watch
from .recorded_run import Asked, begin, config_of, list_items, load
from .replayed import find_replay
from .replies import list_calls
from .results import show_error, show_events, show_result
from .run_session import RunSession
from .session import HoldfastSession
from .tool_calls import USED, RunTools, ToolWaits

R = TypeVar("R", RunResult, RunResultStreaming)


class Options(Struct, frozen=True, kw_only=True):
    """What `DurableRunner.with_options` sets."""

    store: AnyStore | None = None
    effects: NamedEffects | None = None
    trust: bool = False
    in_doubt: InDoubtPolicy = "wait"
    policy: Policy | None = None
    max_repeats: int = REPEATS_MAX
    max_crashes: int = CRASHES_MAX
    timeout_s: float = TOOL_TIMEOUT_S
    grace_s: float = TOOL_GRACE_S
    wait_s: float = 0.0
    cadence: Cadence = "step"

    def declare(self) -> DeclaredTools:
        """The declarations of tools, for all runs: what a tool does not say is warned of once."""
        return DeclaredTools(self.effects, trust=self.trust, timeout_s=self.timeout_s)

    def tools(self, session: OurSession) -> RunTools:
        """The tools of a run in a session."""
        return RunTools(
            session,
            policy=self.policy,
            in_doubt=self.in_doubt,
            max_repeats=self.max_repeats,
            max_crashes=self.max_crashes,
            grace_s=self.grace_s,
        )

    def check(self) -> None:
        """Refuse what makes no sense."""
        if self.store is not None:
            find_open_store(self.store)
        if not 0 < self.timeout_s < math.inf:
            raise BadInput(
                f"timeout_s is a number of seconds, more than 0 and finite, not {self.timeout_s!r}"
            )
        if not self.wait_s >= 0:
            raise BadInput(f"wait_s is a number of seconds, 0 or more, not {self.wait_s!r}")
        RunTools.check(
            in_doubt=self.in_doubt,
            max_repeats=self.max_repeats,
            max_crashes=self.max_crashes,
            grace_s=self.grace_s,
        )


class DurableRunner:
    """The SDK's `Runner`, whose runs go on after a crash: `from … import DurableRunner as Runner`.

    The same call on the same session goes on where it was: recorded replies are not asked for again,
    completed tools are not run again, and a call that was cut off is settled as its tool declares. The
    session is a `HoldfastSession`; without one, `run_key` names the run, and the store is that of
    `HOLDFAST_STORE`. With `run_key`, the same call after the run had ended gives its outcome again.

    A session is driven by one process at a time; a second one gets `LeaseHeld`. A call of which it is not
    known whether it happened waits for a person: the run raises `RunWaits`.
    """

    _options: ClassVar[Options] = Options()
    _declared: ClassVar[DeclaredTools] = _options.declare()

    @classmethod
    def with_options(
        cls,
        *,
        store: AnyStore | None = None,
        effects: NamedEffects | None = None,
        trust: bool = False,
        in_doubt: InDoubtPolicy = "wait",
        policy: Policy | None = None,
        max_repeats: int = REPEATS_MAX,
        max_crashes: int = CRASHES_MAX,
        timeout_s: float = TOOL_TIMEOUT_S,
        grace_s: float = TOOL_GRACE_S,
        wait_s: float = 0.0,
        cadence: Cadence = "step",
    ) -> type[DurableRunner]:
        """A runner with options: `Runner = DurableRunner.with_options(effects={"search_*": "read"})`.

        `effects` declares tools by name or glob; it wins over what they declare. `trust`: believe the
        `idempotentHint` of MCP servers. `store` is that of runs without a session. `in_doubt`: a call in
        doubt waits for a person (`wait`), or the model is told (`tell`). `wait_s` is how long to wait for
        another process that drives the session, `timeout_s` what a tool with side effects gets if it does not
        say. `policy`, `max_repeats`, `max_crashes` and `grace_s` are those of `holdfast.Registry`.
        """
        options = Options(
            store=store,
            effects=effects,
            trust=trust,
            in_doubt=in_doubt,
            policy=policy,
            max_repeats=max_repeats,
            max_crashes=max_crashes,
            timeout_s=timeout_s,
            grace_s=grace_s,
            wait_s=wait_s,
            cadence=cadence,
        )
        options.check()
        return type(cls.__name__, (cls,), {"_options": options, "_declared": options.declare()})

    @classmethod
    async def run(
        cls,
        starting_agent: Agent[TContext],
        input: str | list[TResponseInputItem] | RunState[TContext],
        *,
        context: TContext | None = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        hooks: RunHooks[TContext] | None = None,
        run_config: RunConfig | dict[str, Any] | None = None,
        error_handlers: RunErrorHandlers[TContext] | None = None,
        previous_response_id: str | None = None,
        auto_previous_response_id: bool = False,
        conversation_id: str | None = None,
        session: Session | None = None,
        run_key: str | None = None,
    ) -> RunResult:
        """Run an agent, as `Runner.run` does, or go on with the run that was cut off.

        `run_key` names the run: the same call after it had ended gives its outcome again.
        """
        _refuse_conversations(conversation_id, previous_response_id, auto_previous_response_id)
        run = RunnerCall(cls._options, cls._declared, starting_agent, input, session, run_key, run_config)

        async def go() -> RunResult:
            return await Runner.run(
                run.agent,
                input,
                context=context,
                max_turns=max_turns,
                hooks=DurableHooks(hooks),
                run_config=run.config,
                error_handlers=error_handlers,
                session=run.session,
            )

        return await run.drive(go)

    @classmethod
    def run_sync(
        cls,
        starting_agent: Agent[TContext],
        input: str | list[TResponseInputItem] | RunState[TContext],
        *,
        context: TContext | None = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        hooks: RunHooks[TContext] | None = None,
        run_config: RunConfig | dict[str, Any] | None = None,
        error_handlers: RunErrorHandlers[TContext] | None = None,
        previous_response_id: str | None = None,
        auto_previous_response_id: bool = False,
        conversation_id: str | None = None,
        session: Session | None = None,
        run_key: str | None = None,
    ) -> RunResult:
        """`run`, for code without an event loop. It uses the loop of the thread, as the SDK does."""
        return run_in_default_loop(
            lambda: cls.run(
                starting_agent,
                input,
                context=context,
                max_turns=max_turns,
                hooks=hooks,
                run_config=run_config,
                error_handlers=error_handlers,
                previous_response_id=previous_response_id,
                auto_previous_response_id=auto_previous_response_id,
                conversation_id=conversation_id,
                session=session,
                run_key=run_key,
            )
        )

    @classmethod
    def run_streamed(
        cls,
        starting_agent: Agent[TContext],
        input: str | list[TResponseInputItem] | RunState[TContext],
        context: TContext | None = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        hooks: RunHooks[TContext] | None = None,
        run_config: RunConfig | dict[str, Any] | None = None,
        previous_response_id: str | None = None,
        auto_previous_response_id: bool = False,
        conversation_id: str | None = None,
        session: Session | None = None,
        *,
        error_handlers: RunErrorHandlers[TContext] | None = None,
        run_key: str | None = None,
    ) -> RunResultStreaming:
        """Run an agent, as `Runner.run_streamed` does, or go on with the run that was cut off.

        A recorded reply is streamed as one event. What the session records is complete when the events end.
        """
        _refuse_conversations(conversation_id, previous_response_id, auto_previous_response_id)
        run = RunnerCall(cls._options, cls._declared, starting_agent, input, session, run_key, run_config)
        return run.stream(
            lambda: Runner.run_streamed(
                run.agent,
                input,
                context=context,
                max_turns=max_turns,
                hooks=DurableHooks(hooks),
                run_config=run.config,
                error_handlers=error_handlers,
                session=run.session,
            )
        )


def _refuse_conversations(
    conversation_id: str | None, previous_response_id: str | None, auto_previous_response_id: bool
) -> None:
    given = {
        "conversation_id": conversation_id,
        "previous_response_id": previous_response_id,
        "auto_previous_response_id": auto_previous_response_id or None,
    }
    for name, value in given.items():
        if value is not None:
            raise BadInput(
                f"{name} keeps the history at OpenAI, and DurableRunner keeps it in the store: pass "
                "session=HoldfastSession(…) in its place"
            )


def _check_arguments(agent: object, given: object, run_key: object) -> None:
    if not isinstance(agent, Agent):
        raise BadInput(f"starting_agent is an Agent, not {describe_value(agent)}")
    if not isinstance(given, str | list | RunState):
        raise BadInput(
            f"input is a text, a list of items or a RunState, not {describe_value(given)}: to go on with a "
            "run that was cut off, pass what it began with"
        )
    if run_key is not None and not (isinstance(run_key, str) and run_key):
        raise BadInput(f"run_key is a text that names the run, and not empty, not {describe_value(run_key)}")


class RunnerCall:
    """One call of the runner."""

    def __init__(
        self,
        options: Options,
        declared: DeclaredTools,
        agent: Agent[Any],
        given: str | list[TResponseInputItem] | RunState[Any, Any],
        session: Session | None,
        run_key: str | None,
        run_config: RunConfig | dict[str, Any] | None,
    ) -> None:
        _check_arguments(agent, given, run_key)
        watch()
        self._options, self._agent, self._given, self._run_key = options, agent, given, run_key
        self._around = find_around()
        self._kept = _check_session(session, None if self._around is None else self._around.session.id)
        self._is_delegate = session is None and run_key is None
        if self._is_delegate and self._around is None:
            raise BadInput(
                "DurableRunner needs a place for its record: pass session=HoldfastSession(…), or run_key=… "
                "and set HOLDFAST_STORE"
            )
        config, is_ours = _normalize_run_config_for_runner(run_config)
        self._owned: ModelProvider | None = config.model_provider if is_ours else None
        if config.sandbox is not None:
            raise BadInput(
                "run_config.sandbox: what an agent does in a sandbox is not in the ledger, so DurableRunner "
                "does not run it. Run it with Runner"
            )
        self._declared = declared
        self._copies = Copies(self._declared, self._run_agent, self._check_inner, self._wait)
        self.config = make_durable(config)
        self.agent = self._copies.of(agent)
        if isinstance(given, RunState):
            self._copies.adopt(given)
        self._driving = Driving()
        self._opened = anyio.Event()
        self._failed: BaseException | None = None
        name = run_key or agent.name if self._kept is None else self._kept.session_id
        self.session = RunSession(name, self._kept, self._wait)

    # -- driving it ----------------------------------------------------------------------------------

    async def drive(self, go: Callable[[], Awaitable[RunResult]]) -> RunResult:
        """Run it, with the session open around it."""
        token = driving.set(self._driving)
        try:
            result = await self._drive(go)
        finally:
            driving.reset(token)
        if self._kept is None and not isinstance(self._given, RunState):
            result.input = self._given
        return result

    def stream(self, begin_streaming: Callable[[], RunResultStreaming]) -> RunResultStreaming:
        """Begin to run it, in tasks of its own."""
        token = driving.set(self._driving)
        try:
            result = begin_streaming()
            inner = result.run_loop_task
            assert inner is not None

            async def go() -> RunResultStreaming:
                await inner
                return result

            result.run_loop_task = start_task(lambda: self._drive_stream(go, inner))
        finally:
            driving.reset(token)
        events = result.stream_events
        shown: Any = result
        shown.stream_events = lambda: show_events(events())
        return result

    async def _drive_stream(self, go: Callable[[], Awaitable[RunResultStreaming]], inner: Any) -> None:
        try:
            await self._drive(go)
        except BaseException as error:
            # The SDK's task may still wait for its session, and raises why there is none.
            self._failed = error
            self._opened.set()
            if not isinstance(error, Exception):
                inner.cancel()
            with suppress(BaseException):
                await inner
            raise

    async def _drive(self, go: Callable[[], Awaitable[R]]) -> R:
        failed: BaseException | None = None
        try:
            async with self._open() as session:
                async with self._recording(session) as recorder:
                    try:
                        try:
                            result = await go()
                        finally:
                            await run_to_end(recorder.tools.stop)
                        if (mode := _find_cancel_mode(result)) is not None:
                            recorder.run.cancel(mode)
                        else:
                            await recorder.end(result.interruptions)
                        show_result(result)
                    except Exception as error:
                        show_error(error)
                        if session.is_lost and (lost := _find_loss(error)) is not None:
                            raise lost from error
                        if not await recorder.fail(error):
                            raise
                        # Raised only once the run has ended in the words that were chosen for it.
                        failed = error
        except RunExits as exits:
            if self._is_delegate:
                raise  # The run around this one has to end first.
            raise exits.error from None
        finally:
            if self._owned is not None:
                await self._owned.aclose()
        if failed is not None:
            raise failed
        return result

    async def _wait(self) -> RunRecord:
        """The recorder, once the run is open. The SDK asks for its session in its own task."""
        await self._opened.wait()
        recorder = self._driving.recorder
        if recorder is None:
            assert self._failed is not None
            raise self._failed
        if current_run(recorder.session.id) != recorder.run.id:
            recorder.run.enter_context()
        return recorder

    # -- its session ---------------------------------------------------------------------------------

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[OurSession]:
        if self._is_delegate:
            assert self._around is not None
            async with open_delegate(self._around, self._agent.name) as session:
                self.session.session_id = session.id
                yield session
            return
        if (turn := find_replay()) is not None:
            yield turn.session
            return
        async with AsyncExitStack() as stack:
            store = await self._get_store(stack)
            id, labels = self._name()
            opening = store.session(
                id, wait_s=self._options.wait_s, cadence=self._options.cadence, labels=labels
            )
            yield await stack.enter_async_context(opening)

    async def _get_store(self, stack: AsyncExitStack) -> Store:
        if self._kept is not None:
            return await self._kept.get_store()
        return await stack.enter_async_context(use_store(self._options.store))

    def _name(self) -> tuple[SessionId, dict[str, str]]:
        """The session of the run, and its labels."""
        if self._kept is not None:
            return fit_session_id(self._kept.session_id), labels_of(self._kept.session_id)
        assert self._run_key is not None
        return fit_session_id(f"run:{self._run_key}"), {**LABELS, "run_key": label_of_original(self._run_key)}

    @asynccontextmanager
    async def _recording(self, session: OurSession) -> AsyncIterator[RunRecord]:
        given = self._given
        items = None if isinstance(given, RunState) else list_items(given)
        once = self._run_key is not None or Lineage.of(session) is not None
        recording = record_run(
            session,
            Asked(items, self._run_key, once),
            self._options,
            self._driving,
            agent=self._agent.name,
            config=self.config,
            has_history=self._kept is not None,
        )
        async with recording as recorder:
            if isinstance(given, RunState):
                self._resume(recorder, given)
            self._opened.set()
            try:
                yield recorder
            finally:
                self._declared.warn_of_unmatched()

    def _resume(self, recorder: RunRecord, state: RunState[Any, Any]) -> None:
        """Go on from a state, with the answers that people gave by way of holdfast."""
        replies = state._model_responses
        recorder.resume_at(list_calls(replies[-1:]), len(replies), list_held(state))
        for one in state.get_interruptions():
            bring_answer(recorder, state, one)

    # -- agents in tools -----------------------------------------------------------------------------

    def _check_inner(self, session: Session | None) -> None:
        """Refuse a session of an agent as a tool that it cannot have."""
        _check_session(session, None if self._kept is None else fit_session_id(self._kept.session_id))

    async def _run_agent(self, inner: AgentTool, ctx: TheirContext[Any], arguments: str) -> Any:
        """Run the agent of `agent.as_tool()`: in the session that it was given, or in one of the call's."""
        around = find_around()
        assert around is not None, "it is called in a durable run"
        kept = _check_session(inner.get("session"), around.session.id)
        nested = Driving()
        failed: Exception | None = None
        token = driving.set(nested)
        try:
            async with self._open_inner(inner, kept, around) as session:
                state = inner.find_state(ctx)
                # The arguments say what the agent is asked.
                items = None if state is not None else list_items(arguments)
                asked = Asked(items, None, kept is None)
                recording = record_run(
                    session,
                    asked,
                    self._options,
                    nested,
                    agent=inner.agent.name,
                    config=self.config,
                    has_history=kept is not None,
                )
                async with recording as recorder:
                    if state is not None:
                        self._resume(recorder, state)
                    failed = None
                    try:
                        try:
                            value = await self._go_inner(inner, ctx, arguments, kept, recorder)
                        finally:
                            await run_to_end(recorder.tools.stop)
                        await recorder.end([])
                        around.tools.used.add(recorder.tools.used)
                        await annotate(**{USED: serialize_usage(recorder.tools.used)})
                    except ToolWaits as error:
                        await recorder.end(inner.list_interruptions(ctx))
                        failed = error
                    except Exception as error:
                        if not await recorder.fail(error):
                            raise
                        failed = error
        finally:
            driving.reset(token)
        if failed is not None:
            raise failed
        return value

    async def _go_inner(
        self,
        inner: AgentTool,
        ctx: TheirContext[Any],
        arguments: str,
        kept: HoldfastSession | None,
        recorder: RunRecord,
    ) -> Any:
        async def get_recorder() -> RunRecord:
            return recorder

        name = recorder.session.id if kept is None else kept.session_id
        config = inner.get("run_config")
        return await inner.run(
            ctx,
            arguments,
            session=RunSession(name, kept, get_recorder),
            hooks=DurableHooks(inner.get("hooks")),
            run_config=None if config is None else make_durable(config),
        )

    @asynccontextmanager
    async def _open_inner(
        self, inner: AgentTool, kept: HoldfastSession | None, around: RunRecord
    ) -> AsyncIterator[OurSession]:
        if kept is None:
            async with open_delegate(around, inner.agent.name) as session:
                yield session
            return
        store = await kept.get_store()
        id = fit_session_id(kept.session_id)
        async with store.session(id, wait_s=_DELEGATE_WAIT_S, labels=labels_of(kept.session_id)) as session:
            yield session


_DELEGATE_WAIT_S: Final = 2 * LEASE_TERM_S


def make_durable(config: RunConfig) -> RunConfig:
    """The configuration of a run, whose models are durable."""
    model = (
        config.model if config.model is None or isinstance(config.model, str) else as_durable(config.model)
    )
    return replace(config, model=model, model_provider=DurableProvider(config.model_provider))


def _find_loss(error: BaseException | None) -> Fenced | None:
    """Why the session was lost, which the SDK has wrapped in an error of its own if a tool noticed it."""
    while error is not None and not isinstance(error, Fenced):
        error = error.__cause__ or error.__context__
    return error


def _find_cancel_mode(result: RunResult | RunResultStreaming) -> str | None:
    """How the caller stopped it, so that the same call goes on; None if it has ended."""
    mode = result._cancel_mode if isinstance(result, RunResultStreaming) else "none"
    return None if mode == "none" else mode


def _check_session(session: Session | None, around: SessionId | None) -> HoldfastSession | None:
    """The session, if it is one of ours, and not that of the run around."""
    if session is None:
        return None
    if not isinstance(session, HoldfastSession):
        raise BadInput(
            f"DurableRunner keeps the history and its record in one place: pass HoldfastSession("
            f"{session.session_id!r}, store), not {type(session).__name__}. Its copy_from(…) brings the "
            "history over"
        )
    if fit_session_id(session.session_id) == around:
        raise BadInput(
            f"session {session.session_id!r} is driven by the run around this one: leave session=… out, and "
            "the inner run gets one of its own, or pass another one"
        )
    return session


@asynccontextmanager
async def record_run(
    session: OurSession,
    asked: Asked,
    options: Options,
    into: Driving,
    *,
    agent: str,
    config: RunConfig,
    has_history: bool,
) -> AsyncIterator[RunRecord]:
    """Begin a run in its session, or continue one: the recorder is there inside the block."""
    begun, history = await begin(session, asked, has_history=has_history)
    recorded = await load(session, begun)
    model = config.model if isinstance(config.model, str) else None
    run = session.run(
        agent=agent, model=model, config=config_of(begun, config.group_id, config.workflow_name)
    )
    async with run:
        into.recorder = RunRecord(session, run, options.tools(session), begun, recorded, history)
        yield into.recorder


@asynccontextmanager
async def open_delegate(around: RunRecord, agent: str) -> AsyncIterator[OurSession]:
    """A session for an agent that runs inside another run: the same one when that is made again."""
    parent, effect = around.session, EFFECT.find()
    lineage = check_depth(parent)
    if effect is not None and effect.session is parent:
        # By the call, not by its key: the key changes once the outer tool has failed.
        place, call, number = effect.call_id, effect.call_id, EFFECT.count_delegate(agent)
    else:
        place, call, number = around.root_run, None, around.count_delegate(agent)
    key = digest(parent.state.facts.head.uid, place)
    id = derive_id(parent.id, fit_session_id(agent), key)
    if number > 1:
        id = SessionId(f"{id}-{number}")
    link = Parent(session=parent.id, run=current_run(parent.id), call=call)
    async with parent.store.session(id, wait_s=_DELEGATE_WAIT_S, labels=LABELS, parent=link) as session:
        session._writer.extensions[Lineage] = lineage
        async with reserve_budget_for(parent, session, None):
            yield session
