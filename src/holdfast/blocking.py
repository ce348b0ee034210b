"""The same store and the same sessions, for code without an event loop.

    with blocking.open_store("sqlite:agents.db") as store, store.session("order-42") as session:
        with session.run(agent="planner") as run:
            session.add("Refund order 42")
            with run.request(model="…", reserve_usd=0.05) as request:
                request.reply(ask(session.transcript))
            session.checkpoint()

An event loop in a thread of its own does the work. Every method here hands over to it and waits; what each
one does is said where the async one is.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

from anyio.from_thread import BlockingPortal, start_blocking_portal

from .budget import Budget, BudgetState, Usage
from .diff import Diff
from .effects import Effect
from .entries import Entry, Parent, SessionStatus
from .errors import Closed
from .facts import Checkpoint, RunInfo
from .fold import Overview, SessionState
from .head import Head
from .ids import RunId, SessionId
from .limits import LEASE_TERM_S, LINGER_S
from .messages import ForeignMessage, Json, Message
from .plan import Plan
from .session import hold as async_hold
from .session import run as async_run
from .session import session as async_session
from .session import store as async_store
from .session.cadence import Cadence
from .store.driver import Driver
from .transcript import Messages
from .validity import Problem
from .values import Codec

__all__ = ["Hold", "Request", "Run", "Session", "Store", "open_store"]

T = TypeVar("T")


class _Loop:
    """The event loop in its thread. Whatever it is given runs in a copy of the caller's context."""

    def __init__(self, portal: BlockingPortal) -> None:
        self._portal = portal

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Have it done, and wait for it."""
        try:
            future: Future[T] = self._portal.start_task_soon(_itself, work)
        except RuntimeError as error:
            work.close()
            raise Closed(f"the store was closed, or this is its own event loop: {error}") from error
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C reaches the thread that waits, not the one that works.
            raise

    @contextmanager
    def inside(self, manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """The block of an `async with`."""
        entered = self.wait(manager.__aenter__())
        with self.leaving(manager):
            yield entered

    @contextmanager
    def leaving(self, manager: AbstractAsyncContextManager[Any]) -> Iterator[None]:
        """The block of an `async with` that was entered before."""
        try:
            yield
        except BaseException as error:
            if not self.wait(manager.__aexit__(type(error), error, error.__traceback__)):
                raise
        else:
            self.wait(manager.__aexit__(None, None, None))

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """The items, one by one, as they are asked for."""
        try:
            while found := self.wait(_next(items)):
                yield from found
        except GeneratorExit:
            if isinstance(items, AsyncGenerator):
                with suppress(Closed):
                    self.wait(items.aclose())
            raise


def _itself(work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
    return work


async def _next(items: AsyncIterator[T]) -> list[T]:
    async for item in items:
        return [item]
    return []


@contextmanager
def open_store(
    url: str | Path | Driver | None = None,
    *,
    create: bool = True,
    lease_s: float = LEASE_TERM_S,
    linger_s: float = LINGER_S,
    codecs: Iterable[Codec] = (),
) -> Iterator[Store]:
    """The store that `url` names, as in `holdfast.open_store`: `with blocking.open_store(…) as store`."""
    opening = async_store.open_store(url, create=create, lease_s=lease_s, linger_s=linger_s, codecs=codecs)
    with start_blocking_portal() as portal:
        loop = _Loop(portal)
        with loop.inside(opening) as store:
            yield Store(loop, store)


class Store:
    """`holdfast.Store` without an event loop. Threads may share it."""

    def __init__(self, loop: _Loop, store: async_store.Store) -> None:
        self._loop, self._store = loop, store

    @contextmanager
    def session(
        self,
        id: str,
        *,
        wait_s: float = 0,
        cadence: Cadence = "step",
        labels: Mapping[str, str] | None = None,
        parent: Parent | None = None,
        create: bool = True,
    ) -> Iterator[Session]:
        """Open a session, or make it: `with store.session("order-42") as session`."""
        opening = self._store.session(
            id, wait_s=wait_s, cadence=cadence, labels=labels, parent=parent, create=create
        )
        with self._loop.inside(opening) as session:
            yield Session(self._loop, session)

    def load(self, session: str, version: int | None = None) -> SessionState:
        """The state of a session now, or at a version."""
        return self._loop.wait(self._store.load(session, version))

    def overview(self, session: str) -> Overview:
        """A session at a glance."""
        return self._loop.wait(self._store.overview(session))

    def checkpoints(self, session: str) -> Iterator[Checkpoint]:
        """The versions of a session, oldest first."""
        return self._loop.iterate(self._store.checkpoints(session))

    def drop(self, session: str, version: int, *, wait_s: float = 0) -> None:
        """No longer offer a version."""
        self._loop.wait(self._store.drop(session, version, wait_s=wait_s))

    def diff(self, session: str, a: int, b: int) -> Diff:
        """What changed from version `a` to version `b`."""
        return self._loop.wait(self._store.diff(session, a, b))

    def fork(
        self,
        session: str,
        *,
        version: int | None = None,
        into: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> SessionId:
        """A new session that starts from a version of another; its id."""
        return self._loop.wait(self._store.fork(session, version=version, into=into, labels=labels))

    def submit(
        self,
        session: str,
        message: str | Message | ForeignMessage | Json,
        *,
        format: str | None = None,
        key: str | None = None,
    ) -> int:
        """Send a message to a session, whoever holds it; its number in the inbox."""
        return self._loop.wait(self._store.submit(session, message, format=format, key=key))

    def cancel(self, session: str, *, by: str = "", reason: str = "") -> int:
        """Ask whoever drives the session to stop."""
        return self._loop.wait(self._store.cancel(session, by=by, reason=reason))

    def tail(self, session: str, *, after: int = 0, follow: bool = True) -> Iterator[Entry]:
        """The entries of a session as they become durable."""
        return self._loop.iterate(self._store.tail(session, after=after, follow=follow))

    def sessions(
        self,
        *,
        status: SessionStatus | None = None,
        parent: str | None = None,
        label: Mapping[str, str] | None = None,
        interrupted: bool | None = None,
    ) -> Iterator[Head]:
        """Sessions in the order of their ids."""
        return self._loop.iterate(
            self._store.sessions(status=status, parent=parent, label=label, interrupted=interrupted)
        )

    def runs(self, *, session: str | None = None, parent: str | None = None) -> Iterator[RunInfo]:
        """Runs, oldest first."""
        return self._loop.iterate(self._store.runs(session=session, parent=parent))

    def clean(
        self, session: str, *, transcript: bool = True, checkpoints: bool = True, wait_s: float = 0
    ) -> Literal["deleted", "cleaned"]:
        """Erase what was said, drop all versions, or (both) delete the session."""
        return self._loop.wait(
            self._store.clean(session, transcript=transcript, checkpoints=checkpoints, wait_s=wait_s)
        )

    def delete(self, session: str, *, wait_s: float = 0) -> None:
        """Remove a session."""
        self._loop.wait(self._store.delete(session, wait_s=wait_s))


class Session:
    """`holdfast.Session` without an event loop."""

    def __init__(self, loop: _Loop, session: async_session.Session) -> None:
        self._loop, self._session = loop, session

    # -- what is there ------------------------------------------------------------------------------

    @property
    def id(self) -> SessionId:
        """Its id."""
        return self._session.id

    @property
    def state(self) -> SessionState:
        """The fold over the journal. Read it; only this session changes it."""
        return self._session.state

    @property
    def transcript(self) -> Messages:
        """The messages, oldest first."""
        return self._session.transcript

    @property
    def plan(self) -> Plan | None:
        """The plan, if there is one."""
        return self._session.plan

    @property
    def summary(self) -> str:
        """The running summary."""
        return self._session.summary

    @property
    def budget(self) -> BudgetState:
        """Caps, and what was spent."""
        return self._session.budget

    @property
    def in_doubt(self) -> list[Effect]:
        """Calls that were issued and whose outcome nobody knows."""
        return self._session.in_doubt

    @property
    def version(self) -> int:
        """The version that the present state was built on; 0 before the first checkpoint."""
        return self._session.version

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """The versions that can be loaded, forked from and rewound to, oldest first."""
        return self._session.checkpoints

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Why a provider would refuse the transcript; empty if it would not."""
        return self._session.problems

    @property
    def continuable(self) -> bool:
        """Whether the model can be asked to go on from here."""
        return self._session.continuable

    @property
    def status(self) -> SessionStatus:
        """What became of the last run."""
        return self._session.status

    @property
    def labels(self) -> Mapping[str, str]:
        """What the session is filed under."""
        return self._session.labels

    @property
    def scratchpad(self) -> Path | None:
        """Where the session keeps its files."""
        return self._session.scratchpad

    @property
    def cancel_requested(self) -> str | None:
        """Why somebody asked the session to stop, if somebody did."""
        return self._session.cancel_requested

    @property
    def is_lost(self) -> bool:
        """Whether nothing can be written through this object any more."""
        return self._session.is_lost

    @property
    def fence(self) -> int:
        """Grows with every holder."""
        return self._session.fence

    @property
    def keys(self) -> Sequence[str]:
        """Under which keys there is state."""
        return self._session.keys

    @overload
    def get(self, key: str) -> Any: ...
    @overload
    def get(self, key: str, type: type[T]) -> T: ...
    def get(self, key: str, type: type[T] | None = None) -> Any:
        """The value under a key, converted to `type` if one is given."""
        return self._session.get(key) if type is None else self._session.get(key, type)

    def left_behind(self, version: int | None = None) -> list[Effect]:
        """Effects in the world that came after a version."""
        return self._session.left_behind(version)

    # -- recording ----------------------------------------------------------------------------------

    @overload
    def add(self, message: str | Message | ForeignMessage) -> None: ...
    @overload
    def add(self, message: Json, *, format: str) -> None: ...
    def add(self, message: Json, *, format: str | None = None) -> None:
        """Add a message; a plain string is the user's."""
        self._loop.wait(
            self._session.add(message) if format is None else self._session.add(message, format=format)
        )

    def set(self, key: str, value: object) -> None:
        """Keep a value under a key."""
        self._loop.wait(self._session.set(key, value))

    def unset(self, key: str) -> None:
        """Remove the value under a key, if there is one."""
        self._loop.wait(self._session.unset(key))

    def set_plan(self, plan: Plan | None) -> None:
        """Replace the plan."""
        self._loop.wait(self._session.set_plan(plan))

    def set_summary(self, summary: str) -> None:
        """Replace the running summary."""
        self._loop.wait(self._session.set_summary(summary))

    def set_budget(self, budget: Budget) -> None:
        """Replace the caps; what was spent stays spent."""
        self._loop.wait(self._session.set_budget(budget))

    def set_scratchpad(self, root: str | Path) -> Path:
        """Make the directory, and record where it is."""
        return self._loop.wait(self._session.set_scratchpad(root))

    def label(self, **labels: str | None) -> None:
        """File the session under labels; None removes one."""
        self._loop.wait(self._session.label(**labels))

    def flush(self) -> None:
        """Wait until everything recorded so far is durable."""
        self._loop.wait(self._session.flush())

    def close(self, status: SessionStatus = "completed", reason: str = "") -> None:
        """Set the status by hand. The lease stays until the `with` block ends."""
        self._loop.wait(self._session.close(status, reason))

    # -- checkpoints --------------------------------------------------------------------------------

    def checkpoint(self, name: str | None = None) -> int:
        """End the step here; its version."""
        return self._loop.wait(self._session.checkpoint(name))

    def drop(self, version: int) -> None:
        """No longer offer this version."""
        self._loop.wait(self._session.drop(version))

    def rewind(self, *, steps: int | None = None, version: int | None = None) -> int:
        """Go back by some steps, or to a version; the version."""
        return self._loop.wait(self._session.rewind(steps=steps, version=version))

    def continue_(self) -> int:
        """Go on from the latest continuable point; the version it stands on."""
        return self._loop.wait(self._session.continue_())

    # -- others -------------------------------------------------------------------------------------

    def take_in(self) -> int:
        """Take in what others sent to the inbox; how many items."""
        return self._loop.wait(self._session.take_in())

    @contextmanager
    def hold(self, name: str, *, wait_s: float = 0) -> Iterator[Hold]:
        """Hold a resource that agents share: `with session.hold("repo/main.py") as held`."""
        with self._loop.inside(self._session.hold(name, wait_s=wait_s)) as held:
            yield Hold(self._loop, held)

    @contextmanager
    def run(
        self,
        *,
        agent: str | None = None,
        run_id: str | None = None,
        parent: str | Parent | None = None,
        model: str | None = None,
        instructions: str | None = None,
        config: Json = None,
    ) -> Iterator[Run]:
        """One drive of the loop: `with session.run(agent="planner") as run`."""
        run = self._session.run(
            agent=agent, run_id=run_id, parent=parent, model=model, instructions=instructions, config=config
        )
        self._loop.wait(run.__aenter__())
        # It began in a copy of this thread's context; what follows here happens in the run as well.
        run.enter_context()
        try:
            with self._loop.leaving(run):
                yield Run(self._loop, run)
        finally:
            run.leave_context()


class Run:
    """`holdfast.Run` without an event loop."""

    def __init__(self, loop: _Loop, run: async_run.Run) -> None:
        self._loop, self._run = loop, run
        self.complete, self.fail, self.cancel, self.pause = run.complete, run.fail, run.cancel, run.pause

    @property
    def id(self) -> RunId:
        """Fresh for every run: explicit, `{agent}-{8 hex}`, or a UUID."""
        return self._run.id

    @contextmanager
    def request(
        self, *, model: str | None = None, reserve_usd: float = 0.0, reserve_tokens: int = 0
    ) -> Iterator[Request]:
        """A request to a model: `with run.request(reserve_usd=0.05) as request`."""
        making = self._run.request(model=model, reserve_usd=reserve_usd, reserve_tokens=reserve_tokens)
        with self._loop.inside(making) as request:
            yield Request(self._loop, request)


class Request:
    """`holdfast.Request` without an event loop."""

    def __init__(self, loop: _Loop, request: async_run.Request) -> None:
        self._loop, self._request = loop, request

    def reply(
        self,
        message: Message | ForeignMessage | str | Json,
        *,
        format: str | None = None,
        usage: Usage | None = None,
        cost_usd: float = 0.0,
        latency_ms: float | None = None,
    ) -> None:
        """Record the model's reply. Durable on return."""
        self._loop.wait(
            self._request.reply(message, format=format, usage=usage, cost_usd=cost_usd, latency_ms=latency_ms)
        )


class Hold:
    """`holdfast.Hold` without an event loop."""

    def __init__(self, loop: _Loop, hold: async_hold.Hold) -> None:
        self._loop, self._hold = loop, hold
        self.name, self.fence = hold.name, hold.fence

    def check(self) -> None:
        """Raise `Fenced` if somebody else has taken it over meanwhile."""
        self._loop.wait(self._hold.check())
