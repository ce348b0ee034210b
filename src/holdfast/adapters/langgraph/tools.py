"""`durable_tools`: LangChain's tools behind holdfast's gates, with its ledger between a call and its effect.

A node that is run again after a crash calls its tools again. An effect that was done is then not done again:
the id of each call is made of its task, which has the same id every time, and the ledger has its outcome.

`middleware.py` puts the same tools in the place of an agent's own, call by call.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from functools import wraps
from typing import Any, NamedTuple, TypeAlias, Unpack

from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config
from langchain_core.tools import BaseTool, ToolException
from langgraph.errors import GraphBubbleUp
from pydantic import BaseModel, PrivateAttr, TypeAdapter

from ...core.entries import CallRef
from ...errors import BadInput
from ...ids import check_list
from ...limits import TOOL_GRACE_S
from ...store.opening import AnyStore
from ...tools.context import AnyContext
from ...tools.declaration import AnyTool, EffectOptions, Hook, SideEffects
from ...tools.dispatch import CallRequest
from ...tools.effects_by_name import Declaration, EffectsByName, ToolEffects, declare, make_options
from ...tools.outcome import Declined, NotDone, Result, as_text
from ...tools.policy import Policy
from ...tools.registry import Registry
from ...tools.runner import InDoubtPolicy
from .serde import Allowed, CheckedSerializer
from .tool_results import address_result, open_result, pack_result
from .tool_session import ThreadLedgers

_TASKS_MAX = 1024
_SCRATCHPAD = "__pregel_scratchpad"
_RUNTIME = "__pregel_runtime"


class Declared(NamedTuple):
    """A LangChain tool, and what it does to the world: made by `effects`."""

    tool: BaseTool
    declaration: Mapping[str, Any]


AnyGraphTool: TypeAlias = BaseTool | Declared | AnyTool | Callable[..., Any]


def effects(tool: BaseTool, *, side_effects: SideEffects, **options: Unpack[EffectOptions]) -> Declared:
    """Declare what a LangChain tool does to the world: `effects(pay, side_effects="mutate", verify=…)`.

    The words are those of `holdfast.tool`: `scope`, `verify`, `verify_after_s`, `undo`, `idempotent`,
    `harmless`, `retry`, `timeout_s`, `needs_approval`, `pollable`. `durable_tools(…, effects={…})` declares
    many tools at once, by name.
    """
    return Declared(tool, make_options("effects", side_effects, options))


def durable_tools(
    tools: Iterable[AnyGraphTool],
    *,
    store: AnyStore,
    effects: Mapping[str, ToolEffects | Declared] | None = None,
    policy: Policy | None = None,
    in_doubt: InDoubtPolicy = "wait",
    deps: object = None,
    allow: Iterable[Allowed] = (),
    wait_s: float = 30.0,
    grace_s: float = TOOL_GRACE_S,
) -> list[BaseTool]:
    """The same tools, for `ToolNode` or for nodes of your own, whose effects are not done twice.

    Takes LangChain's tools, plain or declared with `effects`, and holdfast's. `store` is that of the saver
    (`saver.store`), another open one, or the URL or `Path` of one that is opened while tools run.
    `effects={…}` declares tools by name or glob, and wins: `{"search_*": "read", "send": mutate(verify=…)}`.
    A call that needs a person's approval, or is in doubt, interrupts the graph; the answer is the value that
    it is resumed with. `in_doubt="tell"` tells the model instead of the person. `allow` lists types of
    results that are neither text nor JSON; `wait_s` is how long to wait for another process that works on the
    thread; `grace_s` is how long a running side effect may go on when its caller is cancelled.
    """
    registry = Registry(policy=policy, in_doubt=in_doubt, grace_s=grace_s)
    ledger = ThreadLedgers(store, registry, deps=deps, wait_s=wait_s)
    by_name = read_effects(effects)
    serde = CheckedSerializer(allow)
    made = [_wrap(one, ledger, serde, by_name) for one in check_list("tools", tools)]
    by_name.check_names(registry.tools)
    by_name.warn_of_covered()
    return made


def read_effects(given: Mapping[str, ToolEffects | Declared] | None) -> EffectsByName:
    """`effects={…}`, whose values may also be what `effects(tool, …)` gives."""
    if not isinstance(given, Mapping):
        return EffectsByName(given)
    declared = {
        name: Declaration(one.declaration) if isinstance(one, Declared) else one
        for name, one in given.items()
    }
    for name, one in declared.items():
        if isinstance(one, Declaration):
            _check_scope(name, one.options.get("scope"))
    return EffectsByName(declared)


def _wrap(
    given: AnyGraphTool, ledger: ThreadLedgers, serde: CheckedSerializer, by_name: EffectsByName
) -> BaseTool:
    declaration: Mapping[str, Any] = {}
    if isinstance(given, Declared):
        given, declaration = given
    if isinstance(given, DurableTool):
        raise BadInput(f"tool {given.name!r} is a durable one already")
    if isinstance(given, BaseTool):
        declared = by_name.find(given.name, is_declared=bool(declaration))
        if declared is None and not declaration:
            declared = by_name.get_undeclared(given.name, _how_to_declare(given.name))
        options = declaration if declared is None else declared.options
        own = ledger.registry.add(as_own_tool(given, options, serde))
        return DurableTool.around(given, own, ledger, serde)
    own = by_name.apply(given, _how_to_declare(str(getattr(given, "__name__", ""))))
    _check_scope(own.name, own.scope)
    ledger.registry.add(own)
    made = DurableTool(name=own.name, description=own.description, args_schema=own.schema)
    made._own, made._ledger, made._serde = own, ledger, serde
    return made


def _how_to_declare(name: str) -> str:
    return f'durable_tools([…], effects={{{name!r}: "read"}})'


def _check_scope(name: str, scope: object) -> None:
    """A graph's calls are in no run: what is to be done once in a run would be done once in the thread."""
    if scope == "run":
        raise BadInput(
            f"tool {name!r}: scope='run' has no meaning in a graph, whose calls are in no run. Write "
            "scope='call': each call of the model is then done once, also if its node is run again"
        )


_effect: ContextVar[AnyContext | None] = ContextVar("holdfast_langgraph_effect", default=None)


def current_effect() -> AnyContext:
    """The effect that the tool around the caller carries out: its `key` to hand on to a service, its `fence`,
    its `attempt`, and `annotate`. `BadInput` outside of a durable tool."""
    found = _effect.get()
    if found is None:
        raise BadInput(
            "current_effect() is for tools of durable_tools(…), and of agents with HoldfastMiddleware, while "
            "they are called"
        )
    return found


_interrupts: ContextVar[list[GraphBubbleUp] | None] = ContextVar("holdfast_interrupts", default=None)
"""The interrupts raised during one dispatch: by the tool of the call, or by one whose call is settled first.

The graph must see the first of them: LangGraph hands out answers in the order of the questions.
"""


class _LangChainBody:
    """A LangChain tool as the body of one of ours: for one call, or for none while a call is settled."""

    def __init__(self, inner: BaseTool, serde: CheckedSerializer, call: _Call | None = None) -> None:
        self._inner, self._serde, self._call = inner, serde, call
        self.error: Exception | None = None
        """What the last attempt at the call raised."""

    @property
    def function(self) -> Callable[..., Any]:
        """A sync tool stays sync, so that it gets a thread of its own."""
        return self._run_async if _is_async(self._inner) else self._run_sync

    async def _run_async(self, ctx: AnyContext, /, **values: Any) -> Any:
        with self._running(ctx):
            given, config = self._prepare(ctx, values)
            inner, returned = _observe(self._inner)
            found = await inner.ainvoke(given, config)
            return pack_result(found, self._serde, _content_of(inner, returned))

    def _run_sync(self, ctx: AnyContext, /, **values: Any) -> Any:
        with self._running(ctx):
            given, config = self._prepare(ctx, values)
            inner, returned = _observe(self._inner)
            found = inner.invoke(given, config)
            return pack_result(found, self._serde, _content_of(inner, returned))

    @contextmanager
    def _running(self, ctx: AnyContext) -> Iterator[None]:
        token = _effect.set(ctx)
        if self._is_for(ctx):
            self.error = None
        try:
            yield
        except GraphBubbleUp as error:
            if (found := _interrupts.get()) is not None:
                found.append(error)
            raise NotDone("it was interrupted, and is called again when the graph is resumed") from error
        except Exception as error:
            if self._is_for(ctx):
                self.error = error
            raise
        finally:
            _effect.reset(token)

    def _is_for(self, ctx: AnyContext) -> bool:
        """Whether it runs for its call, and not for an earlier one that is settled with it."""
        return self._call is not None and self._call.name == ctx.call_id

    def _prepare(self, ctx: AnyContext, values: dict[str, Any]) -> tuple[Any, RunnableConfig]:
        call, name = self._call, self._inner.name
        if call is not None and self._is_for(ctx):
            return _as_input(name, call.tool_call_id, {**values, **call.injected}), call.config
        id = _tool_call_id(ctx.call_id)
        tool_call_id = None if id.startswith(f"{name}#") else id
        if call is not None:
            return _as_input(name, tool_call_id, {**values, **call.injected}), call.config
        # Its node is not there to give it the graph's state.
        if injected_names(self._inner):
            raise Declined(f"{name} needs arguments that only its node can give")
        return _as_input(name, tool_call_id, values), {}


def _observe(inner: BaseTool) -> tuple[BaseTool, list[Any]]:
    """The same tool, and a list for what its function returns: a `ToolMessage` has only a text of it."""
    returned: list[Any] = []

    @wraps(inner._run)
    def run(*args: Any, **kwargs: Any) -> Any:
        returned.append(inner._run(*args, **kwargs))
        return returned[-1]

    @wraps(inner._arun)
    async def arun(*args: Any, **kwargs: Any) -> Any:
        returned.append(await inner._arun(*args, **kwargs))
        return returned[-1]

    observed = copy(inner)
    observed.__dict__.update(_run=run, _arun=arun)
    return observed, returned


def _content_of(inner: BaseTool, returned: list[Any]) -> Any:
    """What the model is shown of what a function returned; an artifact beside it is not text."""
    found = returned[-1] if returned else None
    if inner.response_format == "content_and_artifact" and isinstance(found, tuple):
        return found[:1]
    return found


def _tool_call_id(call: str) -> str:
    """LangChain's id of a call, of the one that it has in the ledger."""
    return call.rpartition("/")[2]


def _as_input(name: str, id: str | None, args: dict[str, Any]) -> dict[str, Any]:
    """What a LangChain tool is invoked with. For a tool call, it gives a `ToolMessage`."""
    return args if id is None else {"type": "tool_call", "name": name, "args": args, "id": id}


def as_own_tool(inner: BaseTool, declaration: Mapping[str, Any], serde: CheckedSerializer) -> AnyTool:
    """The LangChain tool as one of ours. Each call brings a body of its own."""
    made = declare(inner.name, (), declaration, schema=_schema(inner), description=inner.description)
    _check_scope(made.name, made.scope)
    body = _LangChainBody(inner, serde)
    return made.with_body(Hook(body.function, _is_async(inner), True))


def _is_async(inner: BaseTool) -> bool:
    if hasattr(inner, "coroutine"):
        return inner.coroutine is not None
    return type(inner)._arun is not BaseTool._arun


def _schema(inner: BaseTool) -> dict[str, Any]:
    given = inner.tool_call_schema
    return given if isinstance(given, dict) else TypeAdapter(given).json_schema()


def injected_names(inner: BaseTool) -> set[str]:
    """The arguments that the graph gives, and not the model."""
    whole = inner.get_input_schema()
    named = set(getattr(whole, "model_fields", {})) if issubclass(whole, BaseModel) else set()
    return (named | set(inner._injected_args_keys)) - set(_schema(inner).get("properties", {}))


class DurableTool(BaseTool):
    """A tool of `durable_tools`. To LangChain and LangGraph it looks like the one inside."""

    _inner: BaseTool | None = PrivateAttr(default=None)
    _own: AnyTool = PrivateAttr()
    """The same as a tool of ours."""
    _ledger: ThreadLedgers = PrivateAttr()
    _serde: CheckedSerializer = PrivateAttr()
    _raises: bool = PrivateAttr(default=False)
    """Whether the exception of a call that surely did nothing is raised, for other code to handle."""
    _called: list[str] = PrivateAttr(default_factory=list)

    @classmethod
    def around(
        cls, inner: BaseTool, own: AnyTool, ledger: ThreadLedgers, serde: CheckedSerializer
    ) -> DurableTool:
        """One that looks like `inner`."""
        made = cls(
            name=inner.name,
            description=inner.description,
            args_schema=inner.args_schema or inner.get_input_schema(),
            return_direct=inner.return_direct,
            tags=inner.tags,
            metadata=inner.metadata,
            response_format=inner.response_format,
        )
        made._inner, made._own, made._ledger, made._serde = inner, own, ledger, serde
        return made

    def for_one_call(self, called: list[str]) -> DurableTool:
        """The same for one call of an agent: it raises what the tool raised, and notes that it was called."""
        made = self.model_copy()
        made._raises, made._called = True, called
        return made

    @property
    def func(self) -> Callable[..., Any] | None:
        """The function in which `ToolNode` looks for arguments to inject."""
        return getattr(self._inner, "func", None)

    @property
    def coroutine(self) -> Callable[..., Any] | None:
        """The same, of an async tool."""
        return getattr(self._inner, "coroutine", None)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Call it, from code without an event loop."""
        self._called.append(self.name)
        call = _Call.of(self, input, ensure_config(config))
        while True:
            result = self._ledger.wait(self._dispatch(call))
            question = self._ledger.question(call.thread, result)
            if question is None:
                return self._give(call, result)
            self._ledger.wait(question.answered())

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Call it."""
        self._called.append(self.name)
        call = _Call.of(self, input, ensure_config(config))
        while True:
            result = await self._dispatch(call)
            question = self._ledger.question(call.thread, result)
            if question is None:
                return self._give(call, result)
            await question.answered()

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        raise BadInput(f"call {self.name} with invoke or ainvoke, inside a graph: it must know its thread")

    async def _dispatch(self, call: _Call) -> Result:
        own, body = self._own, None
        if self._inner is not None:
            body = _LangChainBody(self._inner, self._serde, call)
            own = own.with_body(Hook(body.function, _is_async(self._inner), True))
        if own.changes_the_world:
            self._ledger.check_durability(call.config)
        request = CallRequest(CallRef(id=call.name), self.name, call.args, own)
        interrupts: list[GraphBubbleUp] = []
        token = _interrupts.set(interrupts)
        try:
            result = await self._ledger.dispatch(call.thread, request)
        finally:
            _interrupts.reset(token)
        if interrupts:
            raise interrupts[0]
        error = None if body is None else body.error
        if self._raises and result.status == "failed" and not isinstance(error, NotDone | None):
            raise error
        return result

    def _give(self, call: _Call, result: Result) -> Any:
        if call.tool_call_id is None:
            if result.is_error:
                raise ToolException(result.content)
            return open_result(result.value, self._serde)
        if result.is_error:
            return ToolMessage(result.content, name=self.name, tool_call_id=call.tool_call_id, status="error")
        found = open_result(result.value, self._serde)
        if found is not result.value:
            return address_result(found, _tool_call_id(result.replay_of or call.name), call.tool_call_id)
        # A node that is run again makes the same call, not another one like it.
        is_another = result.replay_of not in (None, call.name)
        shown = result.content if is_another else as_text(found)
        return ToolMessage(shown, name=self.name, tool_call_id=call.tool_call_id)


class _Call(NamedTuple):
    """A call that a node makes."""

    thread: str
    name: str
    """The id of the call in the ledger: the same whenever the node is run again."""
    tool_call_id: str | None
    args: dict[str, Any]
    injected: dict[str, Any]
    config: RunnableConfig

    @classmethod
    def of(cls, tool: DurableTool, given: Any, config: RunnableConfig) -> _Call:
        where = config.get("configurable", {})
        if "thread_id" not in where:
            raise BadInput(
                f"{tool.name} is a durable tool and must know its thread: call it in a graph with a "
                "checkpointer, or with config={'configurable': {'thread_id': …}}"
            )
        is_call = isinstance(given, dict) and given.get("type") == "tool_call"
        args = given["args"] if is_call else given
        if isinstance(args, str):
            args = {next(iter(tool.args), "input"): args}
        hidden = set() if tool._inner is None else injected_names(tool._inner)
        visible = {key: value for key, value in args.items() if key not in hidden}
        id = given.get("id") if is_call else None
        task = str(where.get("checkpoint_ns") or "")
        name = f"{task}/{id}" if id else f"{task}/{tool.name}#{_occurrence(tool.name, where)}"
        return cls(
            thread=str(where["thread_id"]),
            name=name,
            tool_call_id=id,
            args=visible,
            injected={key: value for key, value in args.items() if key in hidden},
            config=config,
        )


_counted: OrderedDict[tuple[int, int], tuple[Any, Counter[str]]] = OrderedDict()


def _occurrence(name: str, where: Mapping[str, Any]) -> int:
    """The number of calls of this tool in this attempt at the task; every attempt makes the same calls."""
    task = where.get(_SCRATCHPAD)
    # Later versions of LangGraph give every attempt a scratchpad of its own, earlier ones only a number.
    info = getattr(where.get(_RUNTIME), "execution_info", None)
    attempt = id(task), int(getattr(info, "node_attempt", 1))
    known, counter = _counted.setdefault(attempt, (task, Counter()))
    assert known is task
    while len(_counted) > _TASKS_MAX:
        _counted.popitem(last=False)
    counter[name] += 1
    return counter[name]
