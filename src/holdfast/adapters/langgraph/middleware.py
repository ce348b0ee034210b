"""`HoldfastMiddleware`: every tool call of an agent of LangChain behind holdfast's gates, with its ledger.

The agent's tools stay its own. For each call, the middleware puts a durable tool (`tools.py`) in the place of
the agent's: whatever other middleware does around it, the ledger is right around the tool. A call without a
tool, which other middleware answers, has that middleware as its body.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from ..compat import check_versions

check_versions("holdfast.adapters.langgraph.HoldfastMiddleware", "langchain", {"langchain": ((1, 4), 2)})

from langchain.agents.middleware import AgentMiddleware  # noqa: E402
from langchain.agents.middleware.types import ToolCallRequest  # noqa: E402
from langchain_core.messages import ToolMessage  # noqa: E402
from langchain_core.runnables import RunnableConfig  # noqa: E402
from langchain_core.tools import BaseTool  # noqa: E402
from langgraph.types import Command  # noqa: E402
from pydantic import PrivateAttr  # noqa: E402

from ...limits import TOOL_GRACE_S  # noqa: E402
from ...store.opening import AnyStore  # noqa: E402
from ...system import threads  # noqa: E402
from ...tools.effects_by_name import ToolEffects, list_parameters  # noqa: E402
from ...tools.policy import Policy  # noqa: E402
from ...tools.registry import Registry  # noqa: E402
from ...tools.runner import InDoubtPolicy  # noqa: E402
from .serde import Allowed, CheckedSerializer  # noqa: E402
from .tool_session import ThreadLedgers  # noqa: E402
from .tools import Declared, DurableTool, as_own_tool, read_effects  # noqa: E402

log = logging.getLogger("holdfast")
Answer: TypeAlias = ToolMessage | Command[Any]
_TOOLS_MAX = 1024
_TOOL_NODE = "langgraph.prebuilt.tool_node"


class HoldfastMiddleware(AgentMiddleware[Any, Any, Any]):
    """Takes every tool call of an agent through the gates and the ledger of its thread.

    For `create_agent(…, middleware=[…, HoldfastMiddleware(store, effects={"search_*": "read"})])`: the last
    one. `effects` declares tools by name or glob: the agent's own, those of other middleware, and those that
    are added while it runs. The other options are those of `durable_tools`, and approvals and calls in doubt
    interrupt the agent as they do there. An exception of a call that surely did nothing goes on to other
    middleware, and is raised if none handles it.
    """

    def __init__(
        self,
        store: AnyStore,
        *,
        effects: Mapping[str, ToolEffects | Declared] | None = None,
        policy: Policy | None = None,
        in_doubt: InDoubtPolicy = "wait",
        deps: object = None,
        allow: Iterable[Allowed] = (),
        wait_s: float = 30.0,
        grace_s: float = TOOL_GRACE_S,
    ) -> None:
        super().__init__()
        self.tools = ()
        registry = Registry(policy=policy, in_doubt=in_doubt, grace_s=grace_s)
        self._ledger = ThreadLedgers(store, registry, deps=deps, wait_s=wait_s, caller="agent")
        self._by_name = read_effects(effects)
        self._serde = CheckedSerializer(allow)
        self._lock = threads.Lock()
        """Tools that run at once are called from several threads."""
        self._options: dict[str, Mapping[str, Any]] = {}
        """What each tool does, by its name."""
        self._made: OrderedDict[int, tuple[BaseTool, DurableTool]] = OrderedDict()
        """The durable tool for each of the agent's, which is kept beside it so that its id stays its own."""
        self._warned: set[str] = set()

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Answer]
    ) -> Answer:
        """Carry out a call, from code without an event loop."""
        if _is_ours(request.tool) or (request.tool is None and _is_tool_node(handler)):
            return handler(request)
        if request.tool is None:
            made = self._find_handled(request, _Handled.sync(request, handler))
            answer: Answer = made.invoke(_as_tool_call(request), request.runtime.config)
            return answer
        called: list[str] = []
        answer = handler(self._replace(request, request.tool, called, is_last=_is_tool_node(handler)))
        self._check_called(request.tool.name, called)
        return answer

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Answer]]
    ) -> Answer:
        """Carry out a call."""
        if _is_ours(request.tool) or (request.tool is None and _is_tool_node(handler)):
            return await handler(request)
        if request.tool is None:
            made = self._find_handled(request, _Handled.of(request, handler))
            answer: Answer = await made.ainvoke(_as_tool_call(request), request.runtime.config)
            return answer
        called: list[str] = []
        answer = await handler(self._replace(request, request.tool, called, is_last=_is_tool_node(handler)))
        self._check_called(request.tool.name, called)
        return answer

    # -- the durable tool of a call --------------------------------------------------------------------

    def _replace(
        self, request: ToolCallRequest, tool: BaseTool, called: list[str], *, is_last: bool
    ) -> ToolCallRequest:
        """The request with durable tools: for the call, and those that other middleware may take instead."""
        offered = [] if is_last else request.runtime.tools
        with self._lock:
            self._look_at(request, tool)
            made, *others = (self._find(one, called) for one in (tool, *offered))
            while len(self._made) > _TOOLS_MAX:
                self._made.popitem(last=False)
        if is_last:
            return request.override(tool=made)
        return replace(request, tool=made, runtime=replace(request.runtime, tools=others))

    def _look_at(self, request: ToolCallRequest, tool: BaseTool) -> None:
        """Make the durable tools for all that the agent has: calls of them that were cut off are settled when
        the ledger is opened, and all warnings come at once."""
        names = {one.name for one in request.runtime.tools}
        for one in (*request.runtime.tools, tool):
            if id(one) not in self._made and not _is_ours(one):
                self._made[id(one)] = one, self._make(one, names)
        self._by_name.warn_of_covered()

    def _find(self, tool: BaseTool, called: list[str]) -> BaseTool:
        if _is_ours(tool):
            return tool
        self._made.move_to_end(id(tool))
        return self._made[id(tool)][1].for_one_call(called)

    def _make(self, tool: BaseTool, offered: Collection[str]) -> DurableTool:
        own = as_own_tool(tool, self._find_options(tool.name, offered), self._serde)
        if tool.name not in self._ledger.registry.tools:
            self._ledger.registry.add(own)
        return DurableTool.around(tool, own, self._ledger, self._serde)

    def _find_handled(self, request: ToolCallRequest, handled: _Handled) -> DurableTool:
        """The durable tool for a call that other middleware answers. Its parameters are those of the call and
        of the hooks that are declared for it."""
        with self._lock:
            options = self._find_options(handled.name, {one.name for one in request.runtime.tools})
            self._by_name.warn_of_covered()
        names = {*request.tool_call["args"], *list_parameters(options)}
        handled.args_schema = {"type": "object", "properties": {one: {} for one in sorted(names)}}
        own = as_own_tool(handled, options, self._serde)
        return DurableTool.around(handled, own, self._ledger, self._serde).for_one_call([])

    def _find_options(self, name: str, offered: Collection[str]) -> Mapping[str, Any]:
        if name not in self._options:
            found = self._by_name.find(name, is_declared=False)
            if found is None:
                how = f'HoldfastMiddleware(store, effects={{{name!r}: "read"}})'
                found = self._by_name.get_undeclared(name, how, offered)
            self._options[name] = found.options
        return self._options[name]

    def _check_called(self, name: str, called: list[str]) -> None:
        """Warn of a call that other middleware has answered without a durable tool."""
        if not called and name not in self._warned:
            self._warned.add(name)
            log.warning(
                "tool %r was answered by middleware that comes after HoldfastMiddleware: what that did is "
                "not in the ledger, and may be done twice. Put HoldfastMiddleware last",
                name,
            )


class _Handled(BaseTool):
    """A tool that other middleware carries out, for one call: its handler is the body."""

    description: str = ""
    _request: ToolCallRequest = PrivateAttr()
    _handler: Callable[[ToolCallRequest], Answer] | None = PrivateAttr(default=None)
    _async_handler: Callable[[ToolCallRequest], Awaitable[Answer]] | None = PrivateAttr(default=None)

    @classmethod
    def sync(cls, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Answer]) -> _Handled:
        """One for `invoke`."""
        made = cls(name=request.tool_call["name"])
        made._request, made._handler = request, handler
        return made

    @classmethod
    def of(
        cls, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Answer]]
    ) -> _Handled:
        """One for `ainvoke`."""
        made = cls(name=request.tool_call["name"])
        made._request, made._async_handler = request, handler
        return made

    @property
    def coroutine(self) -> object:
        """Not None if it is for `ainvoke`, as LangChain's own tools have it."""
        return self._async_handler

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Have it carried out."""
        assert self._handler is not None, "it was made with `sync`"
        return self._handler(self._for(input))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Have it carried out."""
        assert self._async_handler is not None, "it was made with `of`"
        return await self._async_handler(self._for(input))

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("`invoke` and `ainvoke` are its own")

    def _for(self, call: Mapping[str, Any]) -> ToolCallRequest:
        """The request, with the arguments that a person may have corrected."""
        return self._request.override(
            tool_call={**self._request.tool_call, "args": call["args"], "id": call["id"]}
        )


def _as_tool_call(request: ToolCallRequest) -> dict[str, Any]:
    return {**request.tool_call, "type": "tool_call"}


def _is_ours(tool: BaseTool | None) -> bool:
    """Whether it is a tool of `durable_tools`, which has the ledger around it already."""
    return isinstance(tool, DurableTool)


def _is_tool_node(handler: Callable[..., object]) -> bool:
    """Whether no other middleware is between: LangGraph then refuses a call that has no tool."""
    return getattr(handler, "__module__", "") == _TOOL_NODE
