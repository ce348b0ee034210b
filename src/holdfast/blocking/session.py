"""An open session, and what is done in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar, overload

from ..core.budget import Budget, BudgetState, Usage
from ..core.call_pairing import Problem
from ..core.effects import Effect
from ..core.entries import LeftBehind, Parent, SessionStatus
from ..core.fold import Checkpoint
from ..core.plan import Plan
from ..core.session_state import SessionState
from ..core.transcript_items import Messages
from ..ids import RunId, SessionId
from ..messages import ForeignMessage, Json, Message
from ..session import resource_lease as async_hold
from ..session import run as async_run
from ..session import session as async_session
from ..session.rewind import Rewound
from ..tools.registry import Registry as AsyncRegistry
from .loop import Loop

T = TypeVar("T")


class HasRegistry(Protocol):
    """A `blocking.Registry`."""

    @property
    def with_loop(self) -> AsyncRegistry: ...


AnyRegistry: TypeAlias = HasRegistry | AsyncRegistry


def _unwrap(registry: AnyRegistry) -> AsyncRegistry:
    return registry if isinstance(registry, AsyncRegistry) else registry.with_loop


class Session:
    """`holdfast.Session` without an event loop."""

    def __init__(self, loop: Loop, session: async_session.Session) -> None:
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
    def is_lost(self) -> bool:
        """Whether nothing can be written through this object any more."""
        return self._session.is_lost

    @property
    def fence(self) -> int:
        """Grows with every holder."""
        return self._session.fence

    @property
    def transcript(self) -> Messages:
        """The messages, oldest first."""
        return self.state.transcript

    @property
    def plan(self) -> Plan | None:
        """The plan, if there is one."""
        return self.state.facts.plan

    @property
    def summary(self) -> str:
        """The running summary."""
        return self.state.facts.summary

    @property
    def budget(self) -> BudgetState:
        """Caps, and what was spent."""
        return self.state.budget

    @property
    def in_doubt(self) -> list[Effect]:
        """Calls that were issued and whose outcome nobody knows."""
        return self.state.in_doubt

    @property
    def version(self) -> int:
        """The version that the present state was built on; 0 before the first checkpoint."""
        return self.state.version

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """The versions that can be loaded, forked from and rewound to, oldest first."""
        return self.state.checkpoints

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Why a provider would refuse the transcript; empty if it would not."""
        return self.state.problems

    @property
    def continuable(self) -> bool:
        """Whether the model can be asked to go on from here."""
        return self.state.continuable

    @property
    def status(self) -> SessionStatus:
        """What became of the last run."""
        return self.state.facts.head.status

    @property
    def labels(self) -> Mapping[str, str]:
        """What the session is filed under."""
        return dict(self.state.facts.head.labels)

    @property
    def scratchpad(self) -> Path | None:
        """Where the session keeps its files."""
        root = self.state.facts.scratchpad
        return Path(root) if root else None

    @property
    def cancel_requested(self) -> str | None:
        """Why somebody asked the session to stop, if somebody did."""
        return self.state.facts.cancel

    @property
    def keys(self) -> Sequence[str]:
        """Under which keys there is state."""
        return tuple(self.state.facts.values)

    @property
    def left_at_origin(self) -> tuple[LeftBehind, ...]:
        """Of a fork: what its origin had done in the world after the version that the fork began with."""
        return self.state.facts.left_behind

    def left_behind(self, version: int | None = None) -> list[Effect]:
        """Effects in the world that came after a version, and that going back to it does not take back."""
        seq = self.state.get_checkpoint(version).seq if version is not None else 0
        return self.state.facts.effects.since(seq)

    @overload
    def get(self, key: str) -> Any: ...
    @overload
    def get(self, key: str, type: type[T]) -> T: ...
    def get(self, key: str, type: type[T] | None = None) -> Any:
        """The value under a key, converted to `type` if one is given."""
        return self._session.get(key) if type is None else self._session.get(key, type)

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

    def compact(self, message: str | Message, *, keep: int) -> None:
        """Replace all but the last `keep` messages by one of the user's; the journal keeps the original."""
        self._loop.wait(self._session.compact(message, keep=keep))

    # -- checkpoints --------------------------------------------------------------------------------

    def checkpoint(self, name: str | None = None) -> int:
        """End the step here; its version."""
        return self._loop.wait(self._session.checkpoint(name))

    def drop(self, version: int) -> None:
        """No longer offer this version."""
        self._loop.wait(self._session.drop(version))

    def rewind(
        self,
        *,
        steps: int | None = None,
        version: int | None = None,
        undo: bool = False,
        registry: AnyRegistry | None = None,
        deps: object = None,
    ) -> Rewound:
        """Go back by some steps, or to a version; `undone` of the answer says what became of the effects."""
        tools = None if registry is None else _unwrap(registry)
        return self._loop.wait(
            self._session.rewind(steps=steps, version=version, undo=undo, registry=tools, deps=deps)
        )

    def continue_(self) -> int:
        """Go on from the latest continuable point; the version it stands on."""
        return self._loop.wait(self._session.continue_())

    def settle(
        self, registry: AnyRegistry, *, deps: object = None, policy: str | None = None
    ) -> list[Effect]:
        """Find out what became of the calls in doubt; those that stay in doubt."""
        return self._loop.wait(self._session.settle(_unwrap(registry), deps=deps, policy=policy))

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
        tools: Mapping[str, str] | None = None,
        config: Json = None,
    ) -> Iterator[Run]:
        """One drive of the loop: `with session.run(agent="planner") as run`."""
        run = self._session.run(
            agent=agent,
            run_id=run_id,
            parent=parent,
            model=model,
            instructions=instructions,
            tools=tools,
            config=config,
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
    """`holdfast.records.Run` without an event loop."""

    def __init__(self, loop: Loop, run: async_run.Run) -> None:
        self._loop, self._run = loop, run

    @property
    def id(self) -> RunId:
        """Fresh for every run: explicit, `{agent}-{8 hex}`, or a UUID."""
        return self._run.id

    def complete(self, output: Json = None) -> None:
        """What the run gave; recorded when the block ends without an error."""
        self._run.complete(output)

    def fail(self, reason: str, error: str = "") -> None:
        """The run failed without an exception: a spent budget, a step limit."""
        self._run.fail(reason, error)

    def cancel(self, reason: str = "") -> None:
        """The run was stopped on request."""
        self._run.cancel(reason)

    def pause(self, reason: str) -> None:
        """The run waits for a person; the session's status becomes `waiting`."""
        self._run.pause(reason)

    @contextmanager
    def request(
        self, *, model: str | None = None, reserve_usd: float = 0.0, reserve_tokens: int = 0
    ) -> Iterator[Request]:
        """A request to a model: `with run.request(reserve_usd=0.05) as request`."""
        making = self._run.request(model=model, reserve_usd=reserve_usd, reserve_tokens=reserve_tokens)
        with self._loop.inside(making) as request:
            making.enter_context()
            try:
                yield Request(self._loop, request)
            finally:
                making.leave_context()


class Request:
    """`holdfast.records.Request` without an event loop."""

    def __init__(self, loop: Loop, request: async_run.Request) -> None:
        self._loop, self._request = loop, request

    def reply(
        self,
        message: Message | ForeignMessage | str | Json,
        *,
        format: str | None = None,
        usage: Usage | None = None,
        cost_usd: float = 0.0,
        latency_ms: float | None = None,
        model: str | None = None,
    ) -> None:
        """Record the model's reply. Durable on return. `model` is the one that answered, for telemetry."""
        self._loop.wait(
            self._request.reply(
                message, format=format, usage=usage, cost_usd=cost_usd, latency_ms=latency_ms, model=model
            )
        )


class Hold:
    """`holdfast.records.Hold` without an event loop."""

    def __init__(self, loop: Loop, hold: async_hold.Hold) -> None:
        self._loop, self._hold = loop, hold
        self.name, self.fence = hold.name, hold.fence

    def check(self) -> None:
        """Raise `Fenced` if somebody else has taken it over meanwhile."""
        self._loop.wait(self._hold.check())
