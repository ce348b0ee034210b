"""The ledger of a thread: a session beside those of its checkpoints, open while a tool of the thread runs.

The ledger needs the lease, and checkpoints are written without one, so they are two sessions. All tools of a
process that run at once in an event loop share it: those of one `durable_tools`, of several, and of agents.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Literal, NamedTuple, TypeVar

import anyio
from anyio.lowlevel import current_token
from langgraph.types import interrupt

from ...blocking import Store as BlockingStore
from ...errors import BadInput, NotFound
from ...ids import SessionId, escape_id
from ...session.session import Session
from ...store.opening import AnyStore, find_open_store, use_store
from ...store.store import Store
from ...tools.declaration import AnyTool
from ...tools.dispatch import CallRequest
from ...tools.executor import asks_to_exit
from ...tools.outcome import Result
from ...tools.registry import Registry
from ..langgraph_threads import ADAPTER_LABEL, CALLER_LABEL, LEDGERS, THREAD_LABEL
from .sync_loop import SyncLoop
from .thread_ids import fit_labels, thread_prefix

log = logging.getLogger("holdfast")
T = TypeVar("T")
BY = "an interrupt's answer"
Asked = Literal["approval", "outcome"]
_CHECKPOINTER = "__pregel_checkpointer"
_DURABILITY = "__pregel_durability"


def ledger_session(thread: str) -> SessionId:
    """The session that has the ledger of a thread. No namespace can begin like this."""
    return SessionId(thread_prefix(thread) + escape_id("%tools"))


def ledger_labels(thread: str, caller: str = "") -> dict[str, str]:
    """The labels of the ledger's session. `caller`: what the program calls, if that is no graph."""
    return {ADAPTER_LABEL: LEDGERS, **fit_labels({THREAD_LABEL: thread, CALLER_LABEL: caller})}


class _OpenLedger:
    """A session that is open in one event loop, for as many calls as there are at once."""

    def __init__(self, store: AnyStore, id: SessionId, wait_s: float, labels: Mapping[str, str]) -> None:
        self._store, self._id, self._wait_s, self._labels = store, id, wait_s, labels
        self._session: Session | None = None
        self._stack = AsyncExitStack()
        self.users = 0
        self._settled: set[str] = set()
        """The tools whose calls that were cut off have been settled."""
        self._lock = anyio.Lock()
        self._left = anyio.Event()

    def leave(self) -> None:
        """A call has ended."""
        self.users -= 1
        self._left.set()
        self._left = anyio.Event()

    async def wait_for_others(self, limit_s: float) -> None:
        """Wait until no other call uses it, for `limit_s` at most."""
        with anyio.move_on_after(limit_s):
            while self.users > 1:
                await self._left.wait()

    async def enter(self, registry: Registry, tool: AnyTool | None, deps: object) -> None:
        """Open it if it is not open yet, and settle the calls that were cut off, as far as their tools are
        known."""
        async with self._lock:
            if self._session is None:
                async with AsyncExitStack() as stack:
                    store = await stack.enter_async_context(use_store(self._store))
                    opening = store.session(self._id, wait_s=self._wait_s, labels=self._labels)
                    self._session = await stack.enter_async_context(opening)
                    self._stack = stack.pop_all()
                self._settled = {*registry.tools, *(() if tool is None else (tool.name,))}
                await registry.settle(self._session, tool=tool, deps=deps)
            elif tool is not None and tool.name not in self._settled:
                self._settled.add(tool.name)
                for row in [one for one in self._session.in_doubt if one.tool == tool.name]:
                    await registry.settle_call(self._session, row, tool=tool, deps=deps)

    @property
    def session(self) -> Session:
        """The open session."""
        assert self._session is not None, "it was entered"
        return self._session

    async def close(self) -> None:
        """Close the session, and the store if it was opened for it."""
        await self._stack.aclose()


_open: dict[tuple[object, object, SessionId], _OpenLedger] = {}
"""The ledgers that are open in this process, each by its event loop, its store and its session: a call in the
body of another one must not wait for the lease of that."""
_sync = SyncLoop(None)
"""For stores without a loop of their own."""


class ThreadLedgers:
    """Dispatches calls of graphs, each in the session of its thread."""

    def __init__(
        self, store: AnyStore, registry: Registry, *, deps: object, wait_s: float, caller: str = ""
    ) -> None:
        if find_open_store(store) is None and store == "memory:":
            raise BadInput(
                "store='memory:' is empty each time that it is opened, so effects would be repeated: pass an "
                "open store, such as that of the saver (store=saver.store)"
            )
        self._store = store
        self._place: object = find_open_store(store) or str(store)
        self._caller = caller
        self._sync = SyncLoop.of(store) if isinstance(store, BlockingStore) else _sync
        self.registry, self._deps, self._wait_s = registry, deps, wait_s
        self._warned = False

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine for code without an event loop."""
        return self._sync.loop.wait(work)

    def check_durability(self, config: Mapping[str, Any]) -> None:
        """Warn once of a graph that does not wait for its checkpoints: a killed one may ask for a call anew,
        under another id."""
        where = config.get("configurable", {})
        if self._warned or where.get(_CHECKPOINTER) is None or where.get(_DURABILITY) == "sync":
            return
        self._warned = True
        log.warning(
            "a tool with side effects runs in a graph with durability=%r: if the process is killed, the "
            "checkpoint with its call may be lost, and the model is asked again. Run the graph with "
            "durability='sync'",
            where.get(_DURABILITY, "async"),
        )

    async def dispatch(self, thread: str, call: CallRequest) -> Result:
        """Take a call through the gates and the ledger of its thread."""
        async with self._session(thread, call.tool) as found:
            try:
                return await self.registry.dispatch_call(call, session=found.session, deps=self._deps)
            except BaseException as error:
                if asks_to_exit(error):
                    # It stops asyncio's loop at once: other calls of the thread get their grace before.
                    await found.wait_for_others(self.registry.grace_s)
                raise

    @asynccontextmanager
    async def _session(self, thread: str, tool: AnyTool | None) -> AsyncIterator[_OpenLedger]:
        """The thread's session: opened by the first of the calls that run at once, closed by the last."""
        id = ledger_session(thread)
        key = current_token().native_token, self._place, id
        found = _open.get(key)
        if found is None:
            labels = ledger_labels(thread, self._caller)
            found = _open[key] = _OpenLedger(self._store, id, self._wait_s, labels)
        found.users += 1
        try:
            await found.enter(self.registry, tool, self._deps)
            yield found
        finally:
            found.leave()
            if not found.users:
                del _open[key]
                await found.close()

    # -- people --------------------------------------------------------------------------------------

    def question(self, thread: str, result: Result) -> InterruptAnswer | None:
        """What a person must say before the call can go on. The graph is interrupted until then."""
        asked: Asked
        if result.status == "waiting":
            asked = "approval"
        elif result.status == "in_doubt" and self.registry.waits_for_people:
            asked = "outcome"
        else:
            return None
        said: dict[str, Any] = {
            "holdfast": asked,
            "call": result.call_id,
            "tool": result.name,
            "session": ledger_session(thread),
            "why": result.content,
            "answer_with": _FORMS[asked],
        }
        answer = interrupt(said)
        return InterruptAnswer(self._store, ledger_session(thread), asked, result.call_id, answer)


_FORMS: Mapping[Asked, str] = {
    "approval": "{'call': …, 'approve': True}, with 'args': {…} to correct them, "
    "or {'call': …, 'approve': False, 'reason': …}",
    "outcome": "{'call': …, 'outcome': 'landed', 'result': …}, or 'not_landed', or 'gave_up'",
}


class InterruptAnswer(NamedTuple):
    """What was asked about a call, and what the graph was resumed with."""

    store: AnyStore
    session: SessionId
    asked: Asked
    call: str
    answer: Any

    async def answered(self) -> None:
        """Put the answer on record. It may be about another call that waits: the next look will tell."""
        async with use_store(self.store) as store:
            await self._record(store)

    async def _record(self, store: Store) -> None:
        said = self.answer if isinstance(self.answer, dict) else {"approve": self.answer}
        waiting, answered = await self._others(store)
        call = said.get("call")
        if call is None:
            # LangGraph hands out answers in the order of asking, anew each time the task is run. Calls of a
            # task have no order, and one that has its answer asks no more: it may be another's.
            beside = {one for one in waiting if _task_of(one) == _task_of(self.call)}
            if len(beside) > 1 or answered or "outcome" in said:
                log.warning("%r does not say which call it answers; %s is asked about again", said, self.call)
                return
            call = self.call
        if call in waiting:
            with suppress(NotFound):  # Calls that run at once are handed the same answer: one was quicker.
                await self._answer(store, call, said)

    async def _answer(self, store: Store, call: str, said: Mapping[str, Any]) -> None:
        by = str(said.get("by") or BY)
        if "outcome" in said:
            await store.resolve(
                self.session, call, said["outcome"], by=by, note=str(said.get("note", "")),
                result=said.get("result"),
            )  # fmt: skip
        elif said.get("approve") is True:
            await store.approve(self.session, call, by=by, args=said.get("args"))
        elif said.get("approve") is False:
            await store.refuse(self.session, call, by=by, reason=str(said.get("reason", "")))
        else:
            raise BadInput(f"{self.answer!r} answers nothing; resume with {_FORMS[self.asked]}")

    async def _others(self, store: Store) -> tuple[set[str], bool]:
        """The calls that wait, and whether others of the same task have had an answer."""
        state = await store.load(self.session)
        ledger = state.facts.effects
        answered = {one.call.id for one in ledger.answers.values()}
        waiting = {one.call.id for one in ledger.questions.values()} | {one.call.id for one in state.in_doubt}
        task = _task_of(self.call)
        return waiting, any(_task_of(one) == task and one != self.call for one in answered)


def _task_of(call: str) -> str:
    """LangGraph's task that makes a call."""
    return call.rpartition("/")[0]
