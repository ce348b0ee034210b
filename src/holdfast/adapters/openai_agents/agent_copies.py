"""Copies of agents for a durable run: their models, tools and handoffs pass through its recorder.

A copy stands for its agent while the SDK runs it. Hooks, results and events show the agent itself.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, nullcontext
from dataclasses import replace
from inspect import isawaitable
from types import CellType, FunctionType
from typing import Any, Final, TypeAlias, TypeVar, cast

from agents import (
    Agent,
    CodeInterpreterTool,
    FileSearchTool,
    FunctionTool,
    Handoff,
    HostedMCPTool,
    ImageGenerationTool,
    Model,
    ModelBehaviorError,
    ModelProvider,
    ModelResponse,
    ProgrammaticToolCallingTool,
    RunState,
    ShellTool,
    Tool,
    ToolSearchTool,
    WebSearchTool,
    handoff,
)
from agents._public_agent import get_public_agent, set_public_agent
from agents.agent_tool_state import (
    drop_agent_tool_run_result,
    get_agent_tool_state_scope,
    peek_agent_tool_run_result,
)
from agents.exceptions import ToolTimeoutError
from agents.items import ToolApprovalItem, TResponseStreamEvent
from agents.lifecycle import AgentHooksBase, RunHooksBase
from agents.run_context import RunContextWrapper
from agents.run_internal.items import run_items_to_input_items
from agents.run_internal.run_steps import NextStepInterruption
from agents.run_internal.turn_preparation import validate_run_hooks
from agents.sandbox import SandboxAgent
from agents.tool import (
    default_tool_timeout_error_message,
    invoke_function_tool,
    maybe_invoke_function_tool_failure_error_function,
    resolve_function_tool_failure_error_function,
    set_function_tool_failure_error_function,
    with_function_tool_failure_error_handler,
)
from agents.tool_context import ToolContext as TheirContext
from openai.types.responses import (
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputItemDoneEvent,
)

from ...errors import BadInput
from .declarations import DeclaredTools, effects
from .durable_run import RunRecord, find_recorder
from .items import InputItem
from .mcp_retries import find_server, without_retries
from .replayed import ask, find_replay, give_recorded
from .replies import response_of
from .tool_calls import ToolWaits

log = logging.getLogger("holdfast")
A = TypeVar("A", bound=Agent[Any])
_HOSTED: Final = (
    CodeInterpreterTool,
    FileSearchTool,
    HostedMCPTool,
    ImageGenerationTool,
    ProgrammaticToolCallingTool,
    ToolSearchTool,
    WebSearchTool,
)
"""Tools that the model's provider runs. The SDK runs all others on this machine, each in its own way."""
_INVOKER: Final = "_invoke_tool_impl"


# -- models ----------------------------------------------------------------------------------------------


class DurableModel(Model):
    """A model whose replies are recorded by the durable run around the caller, and given again."""

    def __init__(self, inner: Model) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        """What else the SDK looks for in a model."""
        return getattr(self._inner, name)

    @property
    def _name(self) -> str | None:
        name = getattr(self._inner, "model", None)
        return name if isinstance(name, str) else None

    async def get_response(self, *args: Any, **options: Any) -> ModelResponse:
        """The recorded reply, or the model's, which is durable on return."""
        recorder = find_recorder()
        if recorder is None:
            return await self._inner.get_response(*args, **options)
        reply = await recorder.next_reply()
        if reply is not None:
            return reply.as_response()
        turn = find_replay()
        async with recorder.asking(self._name) as asking:
            if turn is None:
                response = await self._inner.get_response(*args, **options)
            else:
                response = await ask(turn, lambda: self._inner.get_response(*args, **options))
            await asking.end(response)
        return response

    async def stream_response(self, *args: Any, **options: Any) -> AsyncIterator[TResponseStreamEvent]:
        """The events of the model. The last one is handed on when the reply is durable; a recorded reply is
        one event."""
        recorder = find_recorder()
        if recorder is None:
            async for event in self._inner.stream_response(*args, **options):
                yield event
            return
        reply = await recorder.next_reply()
        if reply is not None:
            yield reply.as_event()
            return
        output: list[Any] = []
        async with recorder.asking(self._name) as asking:
            stream: Any = self._inner.stream_response(*args, **options)
            async with aclosing(stream) as events:
                async for event in events:
                    if isinstance(event, ResponseCompletedEvent):
                        await asking.end(response_of(event.response, output))
                    elif isinstance(event, ResponseOutputItemDoneEvent):
                        output.append(event.item)
                    yield event

    async def close(self) -> None:
        """Close the model."""
        await self._inner.close()

    def get_retry_advice(self, request: Any) -> Any:
        """What the model advises about a failed request."""
        return self._inner.get_retry_advice(request)

    async def _cleanup_on_run_end(self, owner: object) -> None:
        await self._inner._cleanup_on_run_end(owner)


class DurableProvider(ModelProvider):
    """The models of another provider, each durable."""

    def __init__(self, inner: ModelProvider) -> None:
        self._inner = inner

    def get_model(self, model_name: str | None) -> Model:
        """The model of this name."""
        return as_durable(self._inner.get_model(model_name))

    async def aclose(self) -> None:
        """Close the provider."""
        await self._inner.aclose()


def as_durable(model: Model) -> Model:
    """The model, unless it is durable already."""
    return model if isinstance(model, DurableModel) else DurableModel(model)


# -- hooks -----------------------------------------------------------------------------------------------


def _show(value: Any) -> Any:
    """An agent or a tool as the caller knows it; anything else as it is."""
    if isinstance(value, Agent):
        return get_public_agent(value)
    if isinstance(value, FunctionTool):
        return getattr(value, _ORIGINAL, value)
    return value


def _forward(name: str) -> Callable[..., Any]:
    async def call(self: Any, *args: Any, **named: Any) -> None:
        shown = {key: _show(value) for key, value in named.items()}
        await getattr(self._inner, name)(*map(_show, args), **shown)

    call.__name__ = name
    return call


class _ShownAgentHooks(AgentHooksBase[Any, Any]):
    """Hooks of an agent that are shown the agents and tools of the caller."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner


class DurableHooks(RunHooksBase[Any, Any]):
    """Hooks of a run that are shown the agents and tools of the caller, and bring the answers of people."""

    def __init__(self, inner: Any) -> None:
        self._inner = validate_run_hooks(inner)

    async def on_llm_start(
        self, context: RunContextWrapper[Any], agent: Any, *args: Any, **named: Any
    ) -> None:
        """Note whose reply comes next. Attempts of one request are told of once."""
        recorder = find_recorder()
        if recorder is not None:
            recorder.begin_request(agent.name)
        await self._inner.on_llm_start(context, _show(agent), *args, **named)

    async def on_llm_end(self, context: RunContextWrapper[Any], agent: Any, response: ModelResponse) -> None:
        """Bring what people answered about the calls of a reply, from whatever process."""
        recorder = find_recorder()
        if recorder is not None:
            for call in response.output:
                if isinstance(call, ResponseFunctionToolCall):
                    bring_answer(recorder, context, ToolApprovalItem(agent=agent, raw_item=call))
        await self._inner.on_llm_end(context, _show(agent), response)


for _kind in (_ShownAgentHooks, DurableHooks):
    for _name in [one for one in dir(_kind) if one.startswith("on_") and one not in vars(_kind)]:
        setattr(_kind, _name, _forward(_name))


def bring_answer(recorder: RunRecord, target: Any, item: ToolApprovalItem) -> None:
    """Approve or reject a call, in a `RunState` or a run, if a person has done so by way of holdfast."""
    if item.call_id is None:
        return
    asked = recorder.tools.find_question(recorder.refer_to(item.call_id))
    if asked is None or asked.approved is None:
        return
    approve, reject = (
        (target.approve, target.reject)
        if isinstance(target, RunState)
        else (target.approve_tool, target.reject_tool)
    )
    if asked.approved:
        approve(item)
    else:
        reject(item, rejection_message=asked.answer)


def list_held(state: RunState[Any, Any]) -> list[InputItem]:
    """The items of a `RunState`, as the SDK saves them."""
    found: Any = run_items_to_input_items(state._session_items)
    return list(found)


# -- agents ----------------------------------------------------------------------------------------------

_ORIGINAL: Final = "_holdfast_original"
RunAgent: TypeAlias = "Callable[[AgentTool, TheirContext[Any], str], Awaitable[Any]]"


class Copies:
    """The copies of the agents of one run: one for each, however often it is met."""

    def __init__(
        self,
        declared: DeclaredTools,
        run_agent: RunAgent,
        check_session: Callable[[Any], object],
        wait: Callable[[], Awaitable[object]],
    ) -> None:
        """`run_agent` runs an agent that is a tool, in the session that `check_session` lets it have. `wait`
        waits until the run is open."""
        self._declared, self._run_agent = declared, run_agent
        self._check_session, self.wait = check_session, wait
        self._agents: dict[int, tuple[Agent[Any], Agent[Any]]] = {}
        self._tools: dict[int, tuple[FunctionTool, FunctionTool]] = {}

    def of(self, agent: A) -> A:
        """The copy of an agent."""
        agent = get_public_agent(agent)
        known = self._agents.get(id(agent))
        if known is None:
            if isinstance(agent, SandboxAgent):
                raise BadInput(
                    f"agent {agent.name!r} works in a sandbox: what it does there is not in the ledger, so "
                    "DurableRunner does not run it. Run it with Runner"
                )
            made = agent.clone()
            # Kept before its handoffs are looked at: they may lead back to it.
            known = self._agents[id(agent)] = (agent, made)
            self._equip(agent, made)
        return cast(A, known[1])

    def _equip(self, agent: Agent[Any], made: Agent[Any]) -> None:
        made.__class__ = _durable_class(type(made))
        set_public_agent(made, agent)
        object.__setattr__(made, _COPIES, self)
        if isinstance(agent.model, Model):
            made.model = as_durable(agent.model)
        if agent.hooks is not None:
            made.hooks = _ShownAgentHooks(agent.hooks)
        made.handoffs = [self._hand_off(one) for one in agent.handoffs]
        object.__setattr__(made, "tools", self.wrap_all(agent.tools))

    def _hand_off(self, given: Agent[Any] | Handoff[Any, Any]) -> Handoff[Any, Any]:
        known = handoff(given) if isinstance(given, Agent) else given
        inner = known.on_invoke_handoff

        async def invoke(ctx: RunContextWrapper[Any], args: str) -> Any:
            return self.of(await inner(ctx, args))

        made = replace(known, on_invoke_handoff=invoke)
        target = None if known._agent_ref is None else known._agent_ref()
        if isinstance(target, Agent):
            # The SDK finds the agents of a `RunState` by way of it.
            made._agent_ref = _Reference(self, target)  # type: ignore[assignment]
        return made

    def adopt(self, state: RunState[Any, Any]) -> None:
        """Have a `RunState` go on with copies: its calls are made before its agents are looked at again."""
        if state._current_agent is not None:
            state._current_agent = self.of(state._current_agent)
        if state._starting_agent is not None:
            state._starting_agent = self.of(state._starting_agent)
        # The SDK compares the agents of what waits with the one that goes on.
        step = state._current_step
        waiting = step.interruptions if isinstance(step, NextStepInterruption) else []
        for item in (*state._generated_items, *state._session_items, *waiting):
            item.agent = self.of(item.agent)
        pending = state._last_processed_response
        if pending is None:
            return
        for item in (*pending.new_items, *pending.interruptions):
            item.agent = self.of(item.agent)
        for action in (
            *pending.computer_actions,
            *pending.local_shell_calls,
            *pending.shell_calls,
            *pending.apply_patch_calls,
        ):
            raise BadInput(
                f"this RunState waits for a {type(action).__name__}, which DurableRunner does not run"
            )
        for one in pending.functions:
            one.function_tool = self._wrap(getattr(one.function_tool, _ORIGINAL, one.function_tool))
            inside = peek_agent_tool_run_result(one.tool_call, scope_id=state._agent_tool_state_scope_id)
            if inside is not None and inside.interruptions:
                for item in inside.interruptions:  # Some of these are copies.
                    item.agent = self.of(item.agent)
                self.adopt(inside.to_state())
        for led in pending.handoffs:
            led.handoff = self._hand_off(led.handoff)

    # -- tools ---------------------------------------------------------------------------------------

    def wrap_all(self, tools: Sequence[Tool], *, keep: bool = True) -> list[Tool]:
        """The tools, each through the ledger. `keep`: they are the same objects in each turn."""
        return [self._take(tool, keep) for tool in tools]

    def _take(self, tool: Tool, keep: bool) -> Tool:
        """The tool through the ledger. One that the model's provider runs stays as it is."""
        if not isinstance(tool, FunctionTool):
            environment = tool.environment if isinstance(tool, ShellTool) else None
            elsewhere = isinstance(environment, Mapping) and environment.get("type") != "local"
            if elsewhere or isinstance(tool, _HOSTED):
                return tool
            raise BadInput(
                f"tool {tool.name!r} ({type(tool).__name__}) acts on this machine without a record, so "
                "DurableRunner does not run it: declare a @function_tool that does the same"
            )
        if hasattr(tool, _ORIGINAL):
            return tool
        if not keep:
            return self._wrap(tool)
        known = self._tools.get(id(tool))
        if known is None:
            # Kept beside it, so that its id stays its own.
            known = self._tools[id(tool)] = (tool, self._wrap(tool))
        return known[1]

    def remember(self, offered: set[str]) -> list[Tool]:
        """Tools that the calls of the next recorded reply need, and the agent no longer has."""
        recorder = find_recorder()
        gone = set() if recorder is None else recorder.list_tools_on_record() - offered
        return self.wrap_all([_make_gone(name) for name in sorted(gone)], keep=False)

    def _wrap(self, tool: FunctionTool) -> FunctionTool:
        declared = self._declared.find(tool)
        raises = not _handles_failures(tool)
        raw = set_function_tool_failure_error_function(copy.copy(tool), None)
        # Within the body, so that the ledger sees a call that was cut off.
        raw.timeout_behavior = "raise_exception"
        agent_tool = self._take_agent(tool)
        server = find_server(tool, declared, getattr(tool.on_invoke_tool, _INVOKER, None))
        turn, prepare = find_replay(), getattr(tool.on_invoke_tool, "prepare_arguments", None)

        async def run(ctx: TheirContext[Any], arguments: str) -> Any:
            if turn is not None:
                if prepare is not None:
                    # What checks the arguments is a part of the body.
                    prepare(arguments, tool.name).owner(arguments, tool.name)
                return give_recorded(turn, tool.name, ctx.tool_call_id)
            if agent_tool is not None:
                return await self._run_agent(agent_tool, ctx, arguments)
            if arguments != ctx.tool_arguments:
                ctx._function_tool_arguments = None  # Those that the SDK has checked are others.
            with nullcontext() if server is None else without_retries(server):
                return await invoke_function_tool(function_tool=raw, context=ctx, arguments=arguments)

        async def invoke(ctx: TheirContext[Any], arguments: str) -> Any:
            recorder = find_recorder()
            if recorder is None:
                return await tool.on_invoke_tool(ctx, arguments)
            ref, recorded = recorder.refer_to(ctx.tool_call_id), recorder.find_output(ctx.tool_call_id)
            if agent_tool is not None and (recorded is not None or recorder.tools.is_completed(ref)):
                agent_tool.forget_state(ctx)
            try:
                return await recorder.tools.execute(
                    ctx,
                    ref,
                    declared,
                    tool.params_json_schema,
                    arguments,
                    run,
                    recorded,
                    raises=raises,
                )
            except ToolTimeoutError as error:
                if tool.timeout_behavior == "raise_exception":
                    raise
                return await _tell_timeout(tool, ctx, error)

        if prepare is not None:
            invoke.__agents_prepare_arguments__ = prepare  # type: ignore[attr-defined]
        made = copy.copy(tool)
        made.timeout_seconds = None
        made.on_invoke_tool = invoke if raises else with_function_tool_failure_error_handler(invoke, _report)
        if tool.timeout_seconds is not None and tool.timeout_behavior == "raise_exception":
            set_function_tool_failure_error_function(made, _fail_on_timeout(tool))
        if agent_tool is not None:
            made._agent_instance = agent_tool.agent
        made = copy.copy(made)  # Its failure handler is tied to it.
        setattr(made, _ORIGINAL, tool)
        return made

    def _take_agent(self, tool: FunctionTool) -> AgentTool | None:
        """The agent in a tool of `agent.as_tool()`; None if it is another tool."""
        if not tool._is_agent_tool or not isinstance(tool._agent_instance, Agent):
            return None
        found = AgentTool(self, tool, self.of(tool._agent_instance))
        # Refused here: an error of the tool would be told to the model.
        self._check_session(found.get("session"))
        return found


_COPIES: Final = "_holdfast_copies"
_classes: dict[type[Agent[Any]], type[Agent[Any]]] = {}


def _durable_class(base: type[Agent[Any]]) -> type[Agent[Any]]:
    """The class of copies of agents of a class: its tools from MCP servers, and those that hooks add, pass
    through the ledger as well."""
    if base not in _classes:

        async def get_mcp_tools(self: Any, run_context: RunContextWrapper[Any]) -> list[Tool]:
            found = await base.get_mcp_tools(self, run_context)
            tools: list[Tool] = vars(self)[_COPIES].wrap_all(found, keep=False)
            return tools

        async def get_all_tools(self: Any, run_context: RunContextWrapper[Any]) -> list[Tool]:
            copies, agent = vars(self)[_COPIES], get_public_agent(self)
            # What a `RunState` has left to do is done before the SDK asks for the session.
            await copies.wait()
            object.__setattr__(self, "tools", copies.wrap_all(agent.tools))
            tools: list[Tool] = await base.get_all_tools(self, run_context)
            return [*tools, *copies.remember({tool.name for tool in tools})]

        members = {"get_mcp_tools": get_mcp_tools, "get_all_tools": get_all_tools}
        _classes[base] = type(base.__name__, (base,), members)
    return _classes[base]


class _Reference:
    """The copy of an agent that a handoff leads to, made when it is needed."""

    def __init__(self, copies: Copies, agent: Agent[Any]) -> None:
        self._copies, self._agent = copies, agent

    def __call__(self) -> Agent[Any]:
        return self._copies.of(self._agent)


def _make_gone(name: str) -> FunctionTool:
    """Stands for a tool that is gone: a call of it that was begun has an outcome, or is in doubt."""

    async def refuse(ctx: TheirContext[Any], arguments: str) -> Any:
        raise ModelBehaviorError(f"there is no tool {name!r} any more")

    made = FunctionTool(
        name=name,
        description="",
        params_json_schema={"type": "object", "properties": {}},
        on_invoke_tool=refuse,
        strict_json_schema=False,
    )
    return effects(side_effects="mutate")(made)


def _handles_failures(tool: FunctionTool) -> bool:
    """Whether an exception of the tool is told to the model, in place of ending the run."""
    is_bound = hasattr(tool.on_invoke_tool, "__agents_bind_function_tool__")
    return is_bound and resolve_function_tool_failure_error_function(tool) is not None


async def _tell_timeout(tool: FunctionTool, ctx: TheirContext[Any], error: ToolTimeoutError) -> Any:
    """What the model is told of a tool that exceeded its `timeout_seconds`."""
    if tool.timeout_error_function is None:
        return default_tool_timeout_error_message(tool_name=tool.name, timeout_seconds=error.timeout_seconds)
    told = tool.timeout_error_function(ctx, error)
    return await told if isawaitable(told) else told


def _fail_on_timeout(tool: FunctionTool) -> Any:
    """The failure handler of a tool whose timeout ends the run."""

    async def handle(ctx: RunContextWrapper[Any], error: Exception) -> str | None:
        if isinstance(error, ToolTimeoutError):
            raise error
        return await maybe_invoke_function_tool_failure_error_function(
            function_tool=tool, context=ctx, error=error
        )

    return handle


def _report(tool: FunctionTool, error: Exception, arguments: str) -> None:
    log.debug("tool %s failed: %s", tool.name, error)


# -- agents as tools -------------------------------------------------------------------------------------


class AgentTool:
    """An agent as a tool: `agent.as_tool()`, whose run is a durable one inside the call."""

    def __init__(self, copies: Copies, tool: FunctionTool, agent: Agent[Any]) -> None:
        self._copies, self.tool, self.agent = copies, tool, agent
        self._body = cast(Any, getattr(tool.on_invoke_tool, _INVOKER, None))
        freed = getattr(getattr(self._body, "__code__", None), "co_freevars", ())
        if "self" not in freed:
            raise BadInput(
                f"tool {tool.name!r}: this version of the openai-agents SDK makes tools of agents in a way "
                "that holdfast does not know. Run the agent in a @function_tool, with DurableRunner.run"
            )
        self._cells = dict(zip(freed, self._body.__closure__, strict=True))
        for name in ("conversation_id", "previous_response_id"):
            if self.get(name) is not None:
                raise BadInput(
                    f"tool {tool.name!r}: {name} keeps the history at OpenAI, and DurableRunner keeps it in "
                    "the store. Leave it out of as_tool(…)"
                )

    def get(self, name: str) -> Any:
        """What `as_tool` was given under this name."""
        cell = self._cells.get(name)
        return None if cell is None else cell.cell_contents

    def find_state(self, ctx: TheirContext[Any]) -> RunState[Any, Any] | None:
        """The state of the run that goes on after an approval; None if it begins."""
        pending = self._find_pending(ctx)
        return pending.to_state() if pending is not None and pending.interruptions else None

    def list_interruptions(self, ctx: TheirContext[Any]) -> list[Any]:
        """What the run waits for now."""
        pending = self._find_pending(ctx)
        return [] if pending is None else list(pending.interruptions)

    def forget_state(self, ctx: TheirContext[Any]) -> None:
        """Drop the state that a `RunState` holds of a run that has ended since: the SDK would ask again."""
        if ctx.tool_call is not None:
            drop_agent_tool_run_result(ctx.tool_call, scope_id=get_agent_tool_state_scope(ctx))

    def _find_pending(self, ctx: TheirContext[Any]) -> Any:
        if ctx.tool_call is None:
            return None
        return peek_agent_tool_run_result(ctx.tool_call, scope_id=get_agent_tool_state_scope(ctx))

    async def run(self, ctx: TheirContext[Any], arguments: str, **cells: Any) -> Any:
        """Run the copy of the agent in the place of the agent; `cells` replace what `as_tool` was given."""
        changed = {"self": self.agent, **cells}
        closure = tuple(
            CellType(changed[name]) if name in changed else cell for name, cell in self._cells.items()
        )
        body = self._body
        made = FunctionType(body.__code__, body.__globals__, body.__name__, body.__defaults__, closure)
        made.__kwdefaults__ = body.__kwdefaults__
        value = await made(ctx, arguments)
        if self.list_interruptions(ctx):
            raise ToolWaits(value)
        return value
