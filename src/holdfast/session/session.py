"""An open session: the only one that writes to its journal while it holds the lease."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from ..core.budget import Budget, BudgetState
from ..core.call_pairing import Problem
from ..core.effects import Effect, Undone
from ..core.entries import (
    BudgetChanged,
    CheckpointDropped,
    LeftBehind,
    Parent,
    PlanChanged,
    ScratchpadSet,
    SessionClosed,
    SessionLabelled,
    SessionStatus,
    Span,
    StateSet,
    StateUnset,
    SummaryChanged,
    TranscriptCompacted,
)
from ..core.fold import Checkpoint
from ..core.plan import Plan
from ..core.session_state import SessionState
from ..core.transcript_items import Item, Messages
from ..errors import BadInput, Closed, HoldfastError, NotFound
from ..ids import SessionId, check_labels, check_name
from ..messages import AnyMessage, ForeignMessage, Json, Message, as_message, shape_of
from ..system import files
from ..system.clock import boot_s
from .cadence import Cadence, Pace
from .inbox import message_entry
from .lease import take
from .resource_lease import Hold, hold
from .rewind import Rewound, Undoer, return_to
from .run import Run
from .writer import SessionWriter

if TYPE_CHECKING:
    from ..store.store import Store

log = logging.getLogger("holdfast")
T = TypeVar("T")


class Settler(Protocol):
    """What can settle calls in doubt: a `Registry`."""

    async def settle(self, session: Session, *, deps: object, policy: str | None) -> list[Effect]: ...


class _Unopened:
    """In the place of what only an open session has."""

    def __get__(self, session: Session | None, owner: type) -> _Unopened:
        if session is None:
            return self
        raise Closed(f"session {session.id!r} is not open: use `async with store.session(…) as session`")


class Session:
    """A conversation or piece of work, open for reading and recording.

    Use it as `async with store.session(id) as session`. A method that records changes the state at once; the
    entry becomes durable a moment later. A method that says "durable on return" waits for the disk. If the
    disk fails, `StoreFailed` is raised, nothing is lost, and the next method that waits tries again.
    """

    def __init__(
        self,
        store: Store,
        id: SessionId,
        *,
        wait_s: float,
        cadence: Cadence,
        labels: Mapping[str, str],
        parent: Parent | None,
        create: bool,
    ) -> None:
        self.id = id
        self.store = store
        """The store that the session belongs to."""
        self._engine = store._engine
        self._wait_s, self._labels, self._parent, self._create = wait_s, labels, parent, create
        self._pace = Pace(cadence, boot_s())

    # -- opening and closing ------------------------------------------------------------------------

    _writer: SessionWriter
    """For holdfast's own layers; there is one while the session is open."""
    if not TYPE_CHECKING:
        _writer = _Unopened()

    async def __aenter__(self) -> Session:
        taken = await take(
            self._engine,
            self.id,
            wait_s=self._wait_s,
            labels=check_labels(self._labels),
            parent=self._parent,
            create=self._create,
        )
        self._writer = writer = SessionWriter(self._engine, taken, self._pace)
        try:
            if writer.channel.posted > writer.state.facts.head.taken:
                await writer.take_in()
        except BaseException:
            await writer.release()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._writer.release()
        except HoldfastError as failure:
            if error is None:
                raise
            log.warning("session %s was not closed cleanly: %s", self.id, failure)

    @property
    def is_lost(self) -> bool:
        """True if nothing can be written any more: the lease is lost, the session closed or deleted."""
        return self._writer.is_lost

    @property
    def fence(self) -> int:
        """A number that grows with every holder. Hand it to services that can refuse an older one."""
        return self._writer.channel.fence

    async def flush(self) -> None:
        """Wait until everything recorded so far is durable."""
        await self._writer.flush()

    # -- reading ------------------------------------------------------------------------------------

    @property
    def state(self) -> SessionState:
        """The fold over the journal. Read it; only this session changes it."""
        return self._writer.state

    @property
    def transcript(self) -> Messages:
        """The messages, oldest first."""
        return self._writer.state.transcript

    @property
    def plan(self) -> Plan | None:
        """The plan, if there is one."""
        return self._writer.state.facts.plan

    @property
    def summary(self) -> str:
        """The running summary."""
        return self._writer.state.facts.summary

    @property
    def budget(self) -> BudgetState:
        """Caps, and what was spent."""
        return self._writer.state.budget

    @property
    def in_doubt(self) -> list[Effect]:
        """Calls that were issued and whose outcome nobody knows."""
        return self._writer.state.in_doubt

    @property
    def version(self) -> int:
        """The version that the present state was built on; 0 before the first checkpoint."""
        return self._writer.state.version

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """The versions that can be loaded, forked from and rewound to, oldest first."""
        return self._writer.state.checkpoints

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Why a provider would refuse the transcript; empty if it would not."""
        return self._writer.state.problems

    @property
    def continuable(self) -> bool:
        """Whether the model can be asked to go on from here."""
        return self._writer.state.continuable

    @property
    def status(self) -> SessionStatus:
        """What became of the last run."""
        return self._writer.state.facts.head.status

    @property
    def labels(self) -> Mapping[str, str]:
        """What the session is filed under."""
        return dict(self._writer.state.facts.head.labels)

    @property
    def scratchpad(self) -> Path | None:
        """Where the session keeps its files."""
        root = self._writer.state.facts.scratchpad
        return Path(root) if root else None

    @property
    def cancel_requested(self) -> str | None:
        """Why somebody asked the session to stop, if somebody did."""
        return self._writer.state.facts.cancel

    @property
    def keys(self) -> Sequence[str]:
        """Under which keys there is state."""
        return tuple(self._writer.state.facts.values)

    @property
    def left_at_origin(self) -> tuple[LeftBehind, ...]:
        """Of a fork: what its origin had done in the world after the version that the fork began with."""
        return self._writer.state.facts.left_behind

    def left_behind(self, version: int | None = None) -> list[Effect]:
        """Effects in the world that came after a version, and that going back to it does not take back."""
        seq = self._writer.state.get_checkpoint(version).seq if version is not None else 0
        return self._writer.state.facts.effects.since(seq)

    # -- recording ----------------------------------------------------------------------------------

    @overload
    async def add(self, message: str | Message | ForeignMessage) -> None: ...
    @overload
    async def add(self, message: Json, *, format: str) -> None: ...
    async def add(self, message: Json, *, format: str | None = None) -> None:
        """Add a message; a plain string is the user's. One of another `format` is kept verbatim."""
        self._writer.record_all([await message_entry(self._engine, as_message(message, format))])

    async def set(self, key: str, value: object) -> None:
        """Keep a value under a key. One that cannot be encoded is kept as a marked `Opaque`."""
        body = StateSet(key=check_name("state key", key))
        self._writer.record(body, content=await self._engine.pack_value(value))

    @overload
    def get(self, key: str) -> Any: ...
    @overload
    def get(self, key: str, type: type[T]) -> T: ...
    def get(self, key: str, type: type[T] | None = None) -> Any:
        """The value under a key, converted to `type` if one is given; `NotFound` if there is none."""
        return self._writer.state.get(key) if type is None else self._writer.state.get(key, type)

    async def unset(self, key: str) -> None:
        """Remove the value under a key, if there is one."""
        if key in self._writer.state.facts.values:
            self._writer.record(StateUnset(key=key))

    async def set_plan(self, plan: Plan | None) -> None:
        """Replace the plan."""
        self._writer.record(PlanChanged(plan=plan))

    async def set_summary(self, summary: str) -> None:
        """Replace the running summary."""
        self._writer.record(SummaryChanged(summary=summary))

    async def set_budget(self, budget: Budget) -> None:
        """Replace the caps; what was spent stays spent."""
        self._writer.record(BudgetChanged(budget=budget))

    async def set_scratchpad(self, root: str | Path) -> Path:
        """Make the directory, and record where it is."""
        path = await self._engine.call(_make_directory, root)
        self._writer.record(ScratchpadSet(root=str(path)))
        return path

    async def label(self, **labels: str | None) -> None:
        """File the session under labels; None removes one."""
        check_labels({key: value for key, value in labels.items() if value is not None})
        self._writer.record(SessionLabelled(labels=labels))

    async def compact(self, message: str | Message, *, keep: int) -> None:
        """Replace all but the last `keep` messages by one of the user's; the journal keeps the original.

        A reply and the results of its calls stay together, so one message more may go; more are kept where
        one of those to keep was sent while the model worked.
        """
        found = as_message(message)
        _compaction(self._writer.state, found, keep)  # Refused before anything is stored.
        content = await self._engine.pack_message(found)
        self._writer.record(_compaction(self._writer.state, found, keep), content=content)

    # -- runs ---------------------------------------------------------------------------------------

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
    ) -> Run:
        """One drive of the loop: `async with session.run(agent="planner") as run`.

        Its parent is the run around it, in whatever session, unless another is named. `tools` are digests of
        what the model is told of each, kept beside that of the instructions.
        """
        return Run(
            self,
            agent=agent,
            run_id=run_id,
            parent=parent,
            model=model,
            instructions=instructions,
            tools=tools or {},
            config=config,
        )

    # -- checkpoints --------------------------------------------------------------------------------

    async def checkpoint(self, name: str | None = None) -> int:
        """End the step here; its version. No point is checkpointed twice."""
        version = self._writer.take_checkpoint(name)
        if self._pace.is_due(boot_s()):
            await self.flush()
        return version

    async def drop(self, version: int) -> None:
        """No longer offer this version. Neither the journal nor any other version is harmed."""
        self._writer.state.get_checkpoint(version)
        self._writer.record(CheckpointDropped(version=version))
        await self.flush()

    async def rewind(
        self,
        *,
        steps: int | None = None,
        version: int | None = None,
        undo: bool = False,
        registry: Undoer | None = None,
        deps: object = None,
    ) -> Rewound:
        """Go back by some steps, or to a version. The journal keeps what is left behind.

        `steps=1` leaves the last step behind, `steps=0` only what came after it. A version that an earlier
        rewind left behind can be gone back to as well. What was done in the world stays done, unless `undo`:
        then the tools of the `registry` take back what they can, the last first, and `undone` of the answer
        says what became of each. `left_behind(version)` tells beforehand what there is.
        """
        if (steps is None) == (version is None):
            raise BadInput("rewind() needs either steps=… or version=…")
        if undo and registry is None:
            raise BadInput("rewind(undo=True) needs registry=…: its tools know how to undo")
        target = self._writer.state.get_checkpoint(version) if version is not None else self._back(steps or 0)
        undone: Sequence[Undone] = ()
        if undo and registry is not None:
            undone = await registry.undo(self, self.left_behind(target.version), deps=deps)
        await return_to(self, target)
        return Rewound(target.version, tuple(undone))

    async def settle(
        self, registry: Settler, *, deps: object = None, policy: str | None = None
    ) -> list[Effect]:
        """Find out what became of the calls in doubt; those that stay in doubt.

        Each tool's `verify` is asked first; an idempotent one is run again with the same key; the rest waits
        for a person (`policy="wait"`), or the model is told (`"tell"`).
        """
        return await registry.settle(self, deps=deps, policy=policy)

    def _back(self, steps: int) -> Checkpoint:
        path = self._writer.state.path()
        if not 0 <= steps < len(path):
            raise NotFound(f"session {self.id!r} cannot go back {steps} steps: it has {len(path)} versions")
        return path[-1 - steps]

    async def continue_(self) -> int:
        """Go on from the latest continuable point: from here, if here is one; the version it stands on."""
        if self._writer.state.continuable:
            return self._writer.state.version
        for one in reversed(self._writer.state.path()):
            if one.continuable:
                await return_to(self, one)
                return one.version
        raise NotFound(f"session {self.id!r} has no continuable version to go on from")

    async def close(self, status: SessionStatus = "completed", reason: str = "") -> None:
        """Set the status by hand. The lease stays until the `async with` block ends."""
        if status not in ("active", "waiting", "completed", "failed", "cancelled"):
            raise BadInput(f"no such status: {status!r}")
        self._writer.record(SessionClosed(status=status, reason=reason))
        await self.flush()

    # -- others -------------------------------------------------------------------------------------

    async def take_in(self) -> int:
        """Take in what other processes sent to the inbox; how many items. `flush` does so, too."""
        return await self._writer.take_in()

    def hold(self, name: str, *, wait_s: float = 0) -> AbstractAsyncContextManager[Hold]:
        """Hold a resource that agents share: `async with session.hold("repo/main.py") as held`."""
        return self._hold(check_name("resource", name), wait_s)

    @asynccontextmanager
    async def _hold(self, name: str, wait_s: float) -> AsyncIterator[Hold]:
        self._engine.committer.check(self._writer.channel)
        async with hold(self._engine, self.id, name, wait_s) as held:
            yield held


def _make_directory(root: str | Path) -> Path:
    """Create the directory if it is missing; its absolute path."""
    path = Path(root).expanduser().absolute()
    try:
        files.make_tree(path)
    except OSError as error:
        raise BadInput(f"the scratchpad {path} cannot be made: {error.strerror}") from error
    except ValueError as error:  # A NUL, or half a surrogate pair.
        raise BadInput(f"the scratchpad {str(path)!r} is no path: {error}") from error
    return path


def _compaction(state: SessionState, message: AnyMessage, keep: int) -> TranscriptCompacted:
    """The entry that replaces all but the last `keep` messages by this one."""
    items = state.transcript_fold.items
    cut = max(0, len(items) - keep)
    # A message that waited for the end of a step stands after a reply of a later entry, and would go with it.
    while _is_torn(items[:cut], items[cut:]):
        cut -= 1
    gone = [item.seq for item in items[:cut]]
    if keep < 0 or not gone:
        raise BadInput(f"compact(keep={keep}): the transcript has {len(items)} messages")
    if not isinstance(message, Message) or message.role != "user" or shape_of(message).parts:
        raise BadInput("compact() needs a message of the user's, without calls and results")
    if not state.continuable:
        raise BadInput(f"compact() waits for the end of the step: {state.problems[0]}")
    return TranscriptCompacted(span=Span(first=min(gone), last=max(gone)))


def _is_torn(gone: Sequence[Item], kept: Sequence[Item]) -> bool:
    """True if the entries of the removed messages span an entry of a kept one.

    Results have the entry of their reply, and go with it.
    """
    last = max((item.seq for item in gone), default=0)
    return any(item.seq <= last for item in kept if item.results is None)
