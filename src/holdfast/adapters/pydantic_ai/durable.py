"""The capability that makes an agent's runs durable."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from msgspec import UNSET
from pydantic_ai import RunContext
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.exceptions import ModelRetry, ToolFailed, UnexpectedModelBehavior, UserError
from pydantic_ai.messages import ModelResponse, RetryPromptPart, ToolCallPart
from pydantic_ai.models import Model, ModelRequestContext
from pydantic_ai.run import AgentRunResult
from pydantic_ai.tools import (
    DeferredToolRequests,
    DeferredToolResults,
    ToolApproved,
    ToolDefinition,
    ToolDenied,
)
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset
from pydantic_core import SchemaValidator, ValidationError, core_schema

from ...agents.delegate import check_depth, reserve_budget_for
from ...core.entries import ApprovalAsked, CallRef, Parent
from ...errors import BadInput, Closed
from ...ids import RunId, SessionId, fit_session_id, fresh_run_id, label_of_original
from ...limits import CRASHES_MAX, LEASE_TERM_S, REPEATS_MAX, TOOL_GRACE_S, TOOL_TIMEOUT_S
from ...session.cadence import Cadence
from ...session.run import current_run
from ...session.session import Session
from ...store.opening import AnyStore, find_open_store, use_store
from ...store.store import Store
from ...system.aio import run_to_end
from ...tools.canonical import digest, fingerprint
from ...tools.executor import asks_to_exit
from ...tools.lineage import Lineage, derive_id
from ...tools.outcome import as_json
from ...tools.policy import Policy
from ...tools.runner import InDoubtPolicy
from ...tools.schema import keep_schema
from ...tools.waiting import find_waiting
from ..run_errors import RunExits, RunWaits
from .context import EFFECT
from .declarations import Declarations, NamedEffects, effects
from .durable_run import AGAIN, Beginning, RunRecorder, begin
from .media_urls import Links
from .replay import Answer
from .replayed import find_replay, stand_in_model, stand_in_tool
from .tool_calls import Tools, canonical

SessionChoice: TypeAlias = "str | Callable[[RunContext[Any]], str] | None"
_ID = "holdfast"


class RunIds:
    """Distinguishes run ids that were made here from those that a caller chose."""

    def __init__(self) -> None:
        self._made: set[str] = set()

    def make(self, agent: str | None) -> str:
        """A new id: `{agent}-{8 hex}`, or a UUID."""
        fresh = fresh_run_id(agent)
        self._made.add(fresh)
        return fresh

    def choose(self, given: str | None, session: Session, begun: Beginning) -> str | None:
        """The run's id in the journal. A caller's own id is used once; a run that continues it after a crash
        has another."""
        if given is None:
            return None
        if given in self._made:
            self._made.discard(given)
            return given
        fitted = fit_session_id(given)
        runs = session.state.facts.runs
        continued = (
            begun.root_run is not None and fitted in runs and _root_of(session, fitted) == begun.root_run
        )
        return None if continued else fitted


def _root_of(session: Session, run: str) -> str:
    config = session.state.facts.runs[RunId(run)].config
    return (config["pydantic_ai"]["drive"] if isinstance(config, dict) else None) or run


@dataclass
class Durable(AbstractCapability[Any]):
    """Makes the runs of an agent durable: `Agent(…, capabilities=[Durable(store, session="order-42")])`.

    `store` is an open store, or the URL or `Path` of one that is opened for each run. `session` is any text,
    or a function of the run's context; without one, each conversation id is a session. After a crash, the
    same `agent.run(…)` on the same session goes on where it was. A run that was completed is followed by a
    new one, unless `once`: then its result is given again.

    A session is driven by one process at a time; a second one gets `LeaseHeld`, after `wait_s`. `effects`
    declares tools that cannot do so themselves, by name or glob: `{"search_*": "read", "send":
    mutate(verify=…)}`; it wins over their metadata. `trust`: believe the `idempotentHint` of MCP servers.
    `in_doubt`: a call of which it is not known whether it
    happened waits for a person (`wait`: the run raises `RunWaits`), or the model is told (`tell`).
    `policy`, `max_repeats`, `max_crashes` and `grace_s` are those of `holdfast.Registry`, and `timeout_s` is
    what a tool with side effects gets if it does not say.

    With `media_urls`, the model is sent links to files that are in blobs, in the place of their bytes. The
    store must have been opened with a home or with `blob_urls` that give such.
    """

    store: AnyStore
    session: SessionChoice = None
    effects: NamedEffects = field(default_factory=dict)
    once: bool = False
    in_doubt: InDoubtPolicy = "wait"
    policy: Policy | None = None
    max_repeats: int = REPEATS_MAX
    max_crashes: int = CRASHES_MAX
    timeout_s: float = TOOL_TIMEOUT_S
    grace_s: float = field(default=TOOL_GRACE_S, kw_only=True)
    wait_s: float = 0.0
    cadence: Cadence = "step"
    media_urls: bool = False
    trust: bool = field(default=False, kw_only=True)
    id: str | None = field(default=_ID, kw_only=True)
    _agent: AbstractAgent[Any, Any] | None = field(default=None, init=False, repr=False)
    _declared: Declarations = field(init=False, repr=False)
    _run_ids: RunIds = field(default_factory=RunIds, init=False, repr=False)

    def __post_init__(self) -> None:
        find_open_store(self.store)  # A wrong one is an error here.
        self._declared = Declarations(self.effects, self.timeout_s, trust=self.trust)
        # Options that make no sense are refused here, and not in the middle of a run.
        Tools.check(
            in_doubt=self.in_doubt,
            max_repeats=self.max_repeats,
            max_crashes=self.max_crashes,
            grace_s=self.grace_s,
        )
        if self.media_urls:
            self._check_links()

    def _check_links(self) -> None:
        store = find_open_store(self.store)
        if store is None:
            raise BadInput(
                "media_urls=True needs a store whose blobs have URLs: "
                "Durable(open_store(…, blobs=…, blob_urls=…), …)"
            )
        with suppress(Closed):  # A store that is opened later is checked when a run begins.
            store._engine.blobs.check_links()

    def get_ordering(self) -> CapabilityOrdering:
        """Innermost, so that changes by other capabilities are recorded."""
        return CapabilityOrdering(position="innermost")

    def for_agent(self, agent: AbstractAgent[Any, Any]) -> Durable:
        """A copy that knows the agent's name."""
        bound = copy.copy(self)
        bound._agent = agent
        return bound

    def get_default_run_id(self) -> str:
        """The journal's own name for the run."""
        return self._run_ids.make(None if self._agent is None else self._agent.name)

    def get_default_conversation_id(self, run_id: str) -> str | None:
        """The session is the conversation, in each of its runs."""
        return self.session if isinstance(self.session, str) else None

    async def for_run(self, ctx: RunContext[Any]) -> AbstractCapability[Any]:
        """The capability of one run."""
        return DurableRun(durable=self)


@dataclass
class DurableRun(AbstractCapability[Any]):
    """The hooks of one run."""

    durable: Durable
    id: str | None = field(default=_ID, kw_only=True)
    _recorder: RunRecorder | None = field(default=None, init=False, repr=False)
    _offered: set[str] = field(default_factory=set, init=False, repr=False)
    _schemas: dict[str, dict[str, Any]] = field(default_factory=dict, init=False, repr=False)
    """The names of the tools that the model was shown in one of the steps."""

    def get_ordering(self) -> CapabilityOrdering:
        """The same as that of `Durable`."""
        return self.durable.get_ordering()

    @property
    def recorder(self) -> RunRecorder:
        """The run in its session."""
        assert self._recorder is not None, "hooks are called inside wrap_run"
        return self._recorder

    # -- the run -------------------------------------------------------------------------------------

    async def wrap_run(
        self, ctx: RunContext[Any], *, handler: Callable[[], Awaitable[AgentRunResult[Any]]]
    ) -> AgentRunResult[Any]:
        """Hold the session's lease for the run, and record how it ended."""
        failed: Exception | None = None
        try:
            async with self._driving(ctx):
                try:
                    result = await handler()
                except (RunWaits, UnexpectedModelBehavior) as error:
                    # Raised only once the run has ended in the words that were chosen for it.
                    self.recorder.fail(failed := error)
                except RunExits as exits:
                    raise exits.error from None
        except BaseException as error:
            if asks_to_exit(error) and EFFECT.find() is not None:
                raise RunExits(error) from error  # The run around this one has to end first.
            raise
        if failed is not None:
            raise failed
        return result

    @asynccontextmanager
    async def _driving(self, ctx: RunContext[Any]) -> AsyncIterator[None]:
        durable, agent = self.durable, None if ctx.agent is None else ctx.agent.name
        async with AsyncExitStack() as stack:
            if (replay := find_replay()) is not None:
                session, links = replay.session, None
            else:
                store = await stack.enter_async_context(use_store(durable.store))
                links = Links(store._engine) if durable.media_urls else None
                session = await stack.enter_async_context(
                    opening_for(store, durable.session, ctx, wait_s=durable.wait_s, cadence=durable.cadence)
                )
            # What a delegate was asked to do is done once: the call that asked may be made again.
            once = durable.once or Lineage.of(session) is not None
            begun = await begin(session, ctx.prompt, list(ctx.messages), once=once)
            run_id, config = durable._run_ids.choose(ctx.run_id, session, begun), begun.config
            if run_id is not None and run_id != ctx.run_id:
                config["pydantic_ai"]["original_run_id"] = as_json(ctx.run_id)
            run = session.run(agent=agent, run_id=run_id, model=ctx.model.model_name, config=config)
            async with run:
                tools = Tools(
                    session,
                    policy=durable.policy,
                    in_doubt=durable.in_doubt,
                    max_repeats=durable.max_repeats,
                    max_crashes=durable.max_crashes,
                    grace_s=durable.grace_s,
                )
                self._recorder = await RunRecorder.begin(session, run, tools, begun, links)
                try:
                    yield
                finally:
                    await run_to_end(tools.stop)
                    if self._offered:  # A run that ended before its first step says nothing about them.
                        durable._declared.warn_of_unmatched(self._offered)

    async def after_run(self, ctx: RunContext[Any], *, result: AgentRunResult[Any]) -> AgentRunResult[Any]:
        """Record the end."""
        await self.recorder.stop_if_waiting()
        await self.recorder.end(result)
        return result

    async def on_run_error(self, ctx: RunContext[Any], *, error: BaseException) -> AgentRunResult[Any]:
        """An agent that cannot hand on deferred calls waits for a person instead of failing."""
        if isinstance(error, UserError) and "DeferredToolRequests" in str(error):
            session = self.recorder.session
            waiting = await find_waiting(session)
            if waiting:
                raise RunWaits(session.id, waiting, again=AGAIN) from error
        raise error

    # -- the model -----------------------------------------------------------------------------------

    async def wrap_model_request(
        self,
        ctx: RunContext[Any],
        *,
        request_context: ModelRequestContext,
        handler: Callable[[ModelRequestContext], Awaitable[ModelResponse]],
    ) -> ModelResponse:
        """The recorded reply, or the model's."""
        if (replay := find_replay()) is not None:
            handler = stand_in_model(replay, handler)
        return await self.recorder.ask(ctx, request_context, handler)

    def get_wrapper_model(self, model: Model) -> Model:
        """Have the recorder know when a request is sent."""
        return self.recorder.wrap(model)

    # -- tools ---------------------------------------------------------------------------------------

    def look_at(self, definitions: Iterable[ToolDefinition]) -> None:
        """Note which tools there are in a step."""
        listed = list(definitions)
        self._offered.update(one.name for one in listed)
        self._schemas.update({one.name: one.parameters_json_schema for one in listed})
        self.durable._declared.look_at(listed)

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        """Add tools that recorded calls need and the agent no longer has."""
        return _Remembering(toolset, self)

    async def wrap_tool_validate(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: str | dict[str, Any],
        handler: Callable[[str | dict[str, Any]], Awaitable[dict[str, Any]]],
    ) -> dict[str, Any]:
        """The arguments, checked. A call that was begun before has an outcome, or is in doubt, also if its
        arguments are no longer valid: the model would take an error for a call that did nothing."""
        try:
            return await handler(args)
        except (ValidationError, ModelRetry) as error:
            ref = self.recorder.refer_to(call)
            if self.recorder.find_answer(call) is None and not self.recorder.tools.is_on_record(ref):
                raise
            self.recorder.tools.note_invalid(ref, str(error))
            return call.args_as_dict()

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: Callable[[dict[str, Any]], Awaitable[Any]],
    ) -> Any:
        """The recorded result, or what the ledger says about the call."""
        recorder = self.recorder
        answer = recorder.find_answer(call)
        if answer is not None:
            return _repeat(answer, ctx)
        declared = self.durable._declared.find(tool_def, self._offered)
        if (replay := find_replay()) is not None:
            handler = stand_in_tool(replay, call)
        try:
            return await recorder.tools.execute(
                ctx, recorder.refer_to(call), declared, tool_def, args, handler
            )
        except BaseException as error:
            if asks_to_exit(error):
                raise RunExits(error) from error
            raise

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """What a person answered, from whatever process; calls without an answer wait in the session."""
        session, results = self.recorder.session, DeferredToolResults()
        await session.flush()
        for call in requests.approvals:
            answer = self.recorder.find_answer(call)
            if answer is not None:
                denied = not isinstance(answer, RetryPromptPart) and answer.outcome == "denied"
                said = ToolDenied(str(answer.content)) if denied else ToolApproved()
                results.approvals[call.tool_call_id] = said
                continue
            ref = self.recorder.refer_to(call)
            asked = session.state.facts.effects.find_question(ref)
            if asked is None:
                self._ask(ref, call, requests)
            elif asked.approved:
                corrected = None if asked.new_args is UNSET else asked.new_args
                results.approvals[call.tool_call_id] = ToolApproved(override_args=corrected)
            elif asked.approved is False:
                results.approvals[call.tool_call_id] = ToolDenied(asked.answer)
        for call in requests.calls:
            answer = self.recorder.find_answer(call)
            replay = find_replay()
            known = None if replay is None else replay.find_external(call.tool_call_id)
            if answer is not None:
                results.calls[call.tool_call_id] = answer.content
            elif known is not None and known.result is not None:
                results.calls[call.tool_call_id] = known.result.text
        await session.flush()
        return results if results.approvals or results.calls else None

    def _ask(self, ref: CallRef, call: ToolCallPart, requests: DeferredToolRequests) -> None:
        args = canonical(call.args_as_dict())
        why = requests.metadata.get(call.tool_call_id) or {}
        self.recorder.session._writer.record(
            ApprovalAsked(
                call=ref,
                tool=call.tool_name,
                args=args,
                fingerprint=fingerprint(call.tool_name, args),
                why=str(why.get("reason") or f"{call.tool_name} needs approval"),
                schema=keep_schema(self._schemas.get(call.tool_name, {})) or None,
            )
        )


@dataclass
class _Remembering(WrapperToolset[Any]):
    """The tools of an agent, and while a recorded reply is replayed those that it called."""

    run: DurableRun

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        tools = await self.wrapped.get_tools(ctx)
        self.run.look_at(tool.tool_def for tool in tools.values())
        recorder = self.run._recorder
        gone = set() if recorder is None else recorder.list_tools_on_record() - tools.keys()
        return {**tools, **{name: self._make(name) for name in gone}}

    def _make(self, name: str) -> ToolsetTool[Any]:
        metadata = effects(side_effects={"mutate"})
        definition = ToolDefinition(name=name, parameters_json_schema={"type": "object"}, metadata=metadata)
        return ToolsetTool(toolset=self, tool_def=definition, max_retries=1, args_validator=_ANYTHING)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        if tool.toolset is self:
            raise ModelRetry(f"there is no tool {name!r} any more")
        return await self.wrapped.call_tool(name, tool_args, ctx, tool)


_ANYTHING = SchemaValidator(schema=core_schema.any_schema())


def _repeat(answer: Answer, ctx: RunContext[Any]) -> Any:
    """The recorded result of a tool."""
    if isinstance(answer, RetryPromptPart) or answer.outcome == "retried":
        raise ModelRetry(str(answer.content))
    if answer.outcome != "success":
        raise ToolFailed(str(answer.content))
    ctx.usage.tool_calls += 1
    return answer.content


def opening_for(
    store: Store, choice: SessionChoice, ctx: RunContext[Any], *, wait_s: float, cadence: Cadence
) -> Any:
    """The session of a run, to be entered. Inside a tool of another durable run it is derived from that call,
    unless it has a name of its own."""
    named = choice(ctx) if callable(choice) else choice
    effect = EFFECT.find()
    around = None if effect is None else effect.session
    if around is not None and (named is None or fit_session_id(named) == around.id):
        return _delegate(around, ctx)
    named = named or ctx.conversation_id
    if not named:
        raise BadInput("Durable(…) without session=… needs a run with a conversation id")
    id = fit_session_id(named)
    labels = {"agent_framework": "pydantic-ai"}
    if id != named:
        labels["session"] = label_of_original(named)
    spoken = ctx.conversation_id
    if spoken and spoken not in (named, id):
        labels["conversation"] = label_of_original(spoken)
    return store.session(id, wait_s=wait_s, cadence=cadence, labels=labels)


@asynccontextmanager
async def _delegate(parent: Session, ctx: RunContext[Any]) -> AsyncIterator[Session]:
    """A session for an agent that a tool runs: the same one when that call is made again."""
    effect = EFFECT.find()
    assert effect is not None
    lineage = check_depth(parent)
    name = (ctx.agent.name if ctx.agent is not None else None) or "agent"
    number = EFFECT.count_delegate(name)
    # By the call, not by its key: the key changes once the outer tool has failed.
    key = digest(parent.state.facts.head.uid, effect.call_id)
    id = derive_id(parent.id, fit_session_id(name), key)
    if number > 1:
        id = SessionId(f"{id}-{number}")
    link = Parent(session=parent.id, run=current_run(parent.id), call=effect.call_id)
    async with parent.store.session(id, wait_s=2 * LEASE_TERM_S, parent=link) as session:
        session._writer.extensions[Lineage] = lineage
        async with reserve_budget_for(parent, session, None):
            yield session
