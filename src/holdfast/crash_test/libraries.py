"""In the process that is killed: HTTP clients say which line asks, and frameworks where they stand.

Frameworks are watched by their own hooks: capabilities of pydantic-ai, callbacks of LangChain and LangGraph,
the checkpointers of LangGraph, the hooks of a run of the OpenAI Agents SDK. A library that is not imported
yet is watched once it is.
"""

from __future__ import annotations

import functools
import http.client
import importlib.util
import json
import sys
import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

from .boundaries import announce_framework, note_request

MODEL_REQUEST: Final = "model request"
PUT: Final = "put"


def watch_libraries() -> None:
    """Watch what is imported already, and the rest when it is imported."""
    put_as_before = http.client.HTTPConnection.putrequest

    def putrequest(self: Any, method: str, url: str, *args: Any, **options: Any) -> None:
        note_request(method, url)
        put_as_before(self, method, url, *args, **options)

    http.client.HTTPConnection.putrequest = putrequest  # type: ignore[method-assign]
    for name, watch in _WATCHES.items():
        module = sys.modules.get(name)
        if module is not None:
            watch(module)
    sys.meta_path.insert(0, _ImportWatcher())


class _ImportWatcher:
    """Finds no module by itself; has some of them watched when they were imported."""

    def __init__(self) -> None:
        self._finding = threading.local()

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """What the others find, with a loader that has the module watched."""
        if name not in _WATCHES or getattr(self._finding, "now", False):
            return None
        self._finding.now = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._finding.now = False
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            loader.exec_module = functools.partial(_load, loader.exec_module, _WATCHES[name])
        return spec


def _load(
    load: Callable[[ModuleType], None], watch: Callable[[ModuleType], None], module: ModuleType
) -> None:
    load(module)
    watch(module)


# -- clients -------------------------------------------------------------------------------------------


def _watch_httpx(module: Any) -> None:
    send_as_before, async_send_as_before = module.Client.send, module.AsyncClient.send

    def send(self: Any, request: Any, **options: Any) -> Any:
        note_request(request.method, request.url.raw_path.decode())
        return send_as_before(self, request, **options)

    async def async_send(self: Any, request: Any, **options: Any) -> Any:
        note_request(request.method, request.url.raw_path.decode())
        return await async_send_as_before(self, request, **options)

    module.Client.send, module.AsyncClient.send = send, async_send


# -- pydantic-ai ---------------------------------------------------------------------------------------


def _watch_pydantic_ai(module: Any) -> None:
    """Give each run a capability that says where it is."""
    iter_as_before = module.Agent.iter

    async def wrap_model_request(self: Any, ctx: Any, *, request_context: Any, handler: Any) -> Any:
        announce_framework("before", MODEL_REQUEST)
        reply = await handler(request_context)
        announce_framework("after", MODEL_REQUEST)
        return reply

    async def wrap_tool_execute(
        self: Any, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any
    ) -> Any:
        detail = _as_detail(args)
        announce_framework("before", f"tool {call.tool_name}", detail)
        result = await handler(args)
        announce_framework("after", f"tool {call.tool_name}", detail)
        return result

    @functools.wraps(iter_as_before)
    def iter(self: Any, *args: Any, capabilities: Any = None, **options: Any) -> Any:
        from pydantic_ai.capabilities import AbstractCapability

        hooks = {"wrap_model_request": wrap_model_request, "wrap_tool_execute": wrap_tool_execute}
        watch = type("CrashTestHooks", (AbstractCapability,), hooks)()
        return iter_as_before(self, *args, capabilities=[*(capabilities or ()), watch], **options)

    module.Agent.iter = iter


def _as_detail(args: Any) -> str:
    return json.dumps(args, default=repr, sort_keys=True)


# -- LangChain and LangGraph ---------------------------------------------------------------------------


def _watch_langchain(module: Any) -> None:
    """Register a handler of callbacks for all runs."""
    from langchain_core.callbacks.base import BaseCallbackHandler

    begun: dict[Any, tuple[str, str]] = {}

    def begin(run_id: Any, operation: str, detail: str = "") -> None:
        begun[run_id] = operation, detail
        announce_framework("before", operation, detail)

    def end(run_id: Any) -> None:
        if run_id in begun:
            announce_framework("after", *begun.pop(run_id))

    class Handler(BaseCallbackHandler):
        run_inline = True

        def on_chain_start(self, serialized: Any, inputs: Any, *, run_id: Any, **told: Any) -> None:
            node = (told.get("metadata") or {}).get("langgraph_node")
            if node and any(tag.startswith("graph:step:") for tag in told.get("tags") or ()):
                begin(run_id, f"node {node}")

        def on_chat_model_start(self, serialized: Any, messages: Any, *, run_id: Any, **told: Any) -> None:
            begin(run_id, MODEL_REQUEST)

        def on_llm_start(self, serialized: Any, prompts: Any, *, run_id: Any, **told: Any) -> None:
            begin(run_id, MODEL_REQUEST)

        def on_tool_start(self, serialized: Any, input_str: str, *, run_id: Any, **told: Any) -> None:
            name = (serialized or {}).get("name") or told.get("name")
            begin(run_id, f"tool {name}", _as_detail(told.get("inputs") or input_str))

        def on_chain_end(self, outputs: Any, *, run_id: Any, **told: Any) -> None:
            end(run_id)

        def on_llm_end(self, response: Any, *, run_id: Any, **told: Any) -> None:
            end(run_id)

        def on_tool_end(self, output: Any, *, run_id: Any, **told: Any) -> None:
            end(run_id)

    # By default, so that it is there in every context, also in threads of the user's own.
    handler: ContextVar[Any] = ContextVar("holdfast_crash_test", default=Handler())  # noqa: B039
    module.register_configure_hook(handler, inheritable=True)


_IN_PUT: ContextVar[bool] = ContextVar("holdfast_crash_test_put", default=False)


def _watch_checkpointers(module: Any) -> None:
    """Wrap `put` and `put_writes` of every checkpointer, now and when its class is made."""
    base = module.BaseCheckpointSaver

    def init_subclass(cls: Any, /, **options: Any) -> None:
        super(base, cls).__init_subclass__(**options)
        _watch_checkpointer(cls)

    base.__init_subclass__ = classmethod(init_subclass)
    known = list(base.__subclasses__())
    for one in known:
        known.extend(one.__subclasses__())
        _watch_checkpointer(one)


def _watch_checkpointer(cls: Any) -> None:
    for name, operation in (("put", PUT), ("put_writes", "put writes")):
        if name in vars(cls):
            setattr(cls, name, _watched_put(vars(cls)[name], operation))
        if f"a{name}" in vars(cls):
            setattr(cls, f"a{name}", _watched_aput(vars(cls)[f"a{name}"], operation))


def _watched_put(put: Any, operation: str) -> Any:
    @functools.wraps(put)
    def watched(*args: Any, **options: Any) -> Any:
        if _IN_PUT.get():
            return put(*args, **options)
        token = _IN_PUT.set(True)
        try:
            announce_framework("before", operation)
            result = put(*args, **options)
            announce_framework("after", operation)
            return result
        finally:
            _IN_PUT.reset(token)

    return watched


def _watched_aput(put: Any, operation: str) -> Any:
    @functools.wraps(put)
    async def watched(*args: Any, **options: Any) -> Any:
        if _IN_PUT.get():
            return await put(*args, **options)
        token = _IN_PUT.set(True)
        try:
            announce_framework("before", operation)
            result = await put(*args, **options)
            announce_framework("after", operation)
            return result
        finally:
            _IN_PUT.reset(token)

    return watched


# -- the OpenAI Agents SDK -----------------------------------------------------------------------------


def _watch_openai_agents(module: Any) -> None:
    """Give each run hooks, which call those that it was given."""
    if not hasattr(module, "AgentRunner"):
        return  # A package of the user's own.
    from agents.lifecycle import RunHooksBase

    def tool_of(context: Any, agent: Any, tool: Any, *rest: Any) -> tuple[str, str]:
        return f"tool {tool.name}", getattr(context, "tool_arguments", "")

    def model_of(*args: Any) -> tuple[str, str]:
        return MODEL_REQUEST, ""

    told: dict[str, tuple[str, Any]] = {
        "on_llm_start": ("before", model_of),
        "on_llm_end": ("after", model_of),
        "on_tool_start": ("before", tool_of),
        "on_tool_end": ("after", tool_of),
    }

    def make(name: str) -> Any:
        async def hook(self: Any, *args: Any, **options: Any) -> None:
            if self.users is not None:
                await getattr(self.users, name)(*args, **options)
            if name in told:
                phase, find = told[name]
                announce_framework(phase, *find(*args, *options.values()))

        return hook

    names = [name for name in dir(RunHooksBase) if name.startswith("on_")]
    watching: Any = type("CrashTestHooks", (RunHooksBase,), {name: make(name) for name in names})

    def with_hooks(options: dict[str, Any]) -> dict[str, Any]:
        users = options.get("hooks")
        if isinstance(users, watching) or not (users is None or isinstance(users, RunHooksBase)):
            return options
        hooks = watching()
        hooks.users = users
        return {**options, "hooks": hooks}

    for name in ("run", "run_streamed"):
        vars_as_before = vars(module.AgentRunner)[name]
        setattr(module.AgentRunner, name, _with_options(vars_as_before, with_hooks))


def _with_options(function: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    @functools.wraps(function)
    def changed(*args: Any, **options: Any) -> Any:
        return function(*args, **change(options))

    return changed


_WATCHES: Final[dict[str, Callable[[ModuleType], None]]] = {
    "httpx": _watch_httpx,
    "httpx2": _watch_httpx,
    "pydantic_ai.agent": _watch_pydantic_ai,
    "langchain_core.tracers.context": _watch_langchain,
    "langgraph.checkpoint.base": _watch_checkpointers,
    "agents.run": _watch_openai_agents,
}
"""What to do with a module that was imported."""
