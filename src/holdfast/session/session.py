"""An open session: the only one that writes to its journal while it holds the lease."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

import anyio
from msgspec.structs import replace

from ..content.encode import Given
from ..core.budget import Budget
from ..core.codec import check
from ..core.effects import Effect, Undone
from ..core.entries import (
    Body,
    BudgetChanged,
    CheckpointDropped,
    CheckpointTaken,
    LeaseReleased,
    Parent,
    PlanChanged,
    ScratchpadSet,
    SessionClosed,
    SessionLabelled,
    SessionStatus,
    StateSet,
    StateUnset,
    SummaryChanged,
)
from ..core.fold import Checkpoint
from ..core.plan import Plan
from ..core.session_state import SessionState
from ..drivers.contract import InboxRow
from ..engine.committer import Channel
from ..engine.engine import Engine
from ..engine.journal import Journal
from ..errors import BadInput, Closed, HoldfastError, NotFound
from ..ids import SessionId, check_labels, check_name
from ..limits import KEYFRAME_GROWTH, KEYFRAME_GROWTH_LEFT, KEYFRAME_LINES_MIN, PAGE_ROWS
from ..messages import ForeignMessage, Json, Message, as_message
from ..system.clock import boot_s
from ..telemetry import end_step
from .cadence import Cadence, Pace
from .compact import compaction
from .effect_claims import share_verdict
from .inbox import find_verdict, message_entry, open_item, open_late_verdict
from .lease import append_to, take
from .resource_lease import Hold, hold
from .rewind import Rewound, Undoer, return_to
from .run import Run, Shift, current_run
from .scratchpad import make_directory
from .view import SessionView

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


class Session(SessionView):
    """Use it as `async with store.session(id) as session`.

    Everything that is recorded changes the state at once and is durable a moment later; what says so waits
    for the disk. If the disk fails, `StoreFailed` is raised, nothing is lost, and the next call that waits
    tries again.
    """

    def __init__(
        self,
        engine: Engine,
        id: SessionId,
        *,
        wait_s: float,
        cadence: Cadence,
        labels: Mapping[str, str],
        parent: Parent | None,
        create: bool,
    ) -> None:
        self.id = id
        self._engine = engine
        self._wait_s, self._labels, self._parent, self._create = wait_s, labels, parent, create
        self._pace = Pace(cadence, boot_s())
        self.extensions: dict[type, object] = {}
        """What the layers above keep for as long as the session is open."""
        self.shift: Shift | None = None
        """The worker's who drives it, if one does."""

    @classmethod
    def existing(cls, engine: Engine, id: SessionId, *, wait_s: float = 0) -> Session:
        """A session that must be there already."""
        return cls(engine, id, wait_s=wait_s, cadence="step", labels={}, parent=None, create=False)

    # -- opening and closing ------------------------------------------------------------------------

    _state: SessionState
    _channel: Channel
    if not TYPE_CHECKING:
        _state = _channel = _Unopened()

    async def __aenter__(self) -> Session:
        taken = await take(
            self._engine,
            self.id,
            wait_s=self._wait_s,
            labels=check_labels(self._labels),
            parent=self._parent,
            create=self._create,
        )
        self._state, self._channel = taken.state, taken.channel
        self._state.decoder = self._engine.values
        self.taken_s = boot_s()
        try:
            if self._channel.posted > self._state.facts.head.taken:
                await self.take_in()
        except BaseException:
            await self._leave()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._leave()
        except HoldfastError as failure:
            if error is None:
                raise
            log.warning("session %s was not closed cleanly: %s", self.id, failure)

    async def _leave(self) -> None:
        """Give the lease back. A holder that is out has nothing to give."""
        channel = self._channel
        interrupt: BaseException | None = None
        try:
            if channel.lost is None and channel.closed is None:
                self.record_all([(LeaseReleased(), None)], growth=KEYFRAME_GROWTH_LEFT)
                channel.closed = Closed(f"session {self.id!r} was closed")
                # A cancelled caller waits all the same: the lines must be there before the next one opens it.
                while channel.durable_seq < self._state.seq:
                    try:
                        with anyio.CancelScope(shield=True):
                            await self._engine.committer.barrier(channel)
                    except anyio.get_cancelled_exc_class() as error:
                        interrupt = error
        finally:
            if self._engine.channels.get(self.id) is channel:
                del self._engine.channels[self.id]
            if channel.lost is None and channel.durable_seq < self._state.seq:
                self._engine.left[self.id] = channel
        if interrupt is not None:
            raise interrupt

    # -- writing ------------------------------------------------------------------------------------

    def record(self, *bodies: Body, content: bytes | None = None) -> None:
        """Seal, fold and hand over entries; `content` belongs to the last. Those of one call share a commit.

        For the layers above; applications have a method for everything they may record.
        """
        self.record_all([*((one, None) for one in bodies[:-1]), (bodies[-1], content)])

    def record_all(
        self, entries: Sequence[tuple[Body, bytes | None]], *, growth: float = KEYFRAME_GROWTH
    ) -> None:
        """Seal, fold and hand over entries, each with its content, for one commit; with a keyframe, when the
        tail has grown by this share: together they cost a constant per line."""
        engine, state, channel = self._engine, self._state, self._channel
        if channel.lost is not None or channel.closed is not None:
            engine.committer.check(channel)
        if len(entries) > 1:
            # All or none: what was folded cannot be taken back.
            for body, content in entries:
                check(body, content)
        run = current_run(self.id)
        sealed = [append_to(state, body, engine, run, content) for body, content in entries]
        head, before, keyframe = state.facts.head, state.keyframe_seq, None
        tail = head.seq - before
        if tail >= KEYFRAME_LINES_MIN and tail >= growth * before:
            state.keyframe_seq, keyframe = head.seq, state.keyframe()
        engine.committer.offer(channel, sealed, replace(head), keyframe=keyframe)

    async def flush(self) -> None:
        """Wait until everything recorded so far is durable."""
        if self._channel.closed is not None:
            raise self._channel.closed
        await self._engine.committer.barrier(self._channel)
        if self._channel.posted > self._state.facts.head.taken:
            await self.take_in()

    @property
    def state(self) -> SessionState:
        """The fold over the journal. Read it; only this session changes it."""
        return self._state

    # -- for the layers above ------------------------------------------------------------------------

    @property
    def waits_for_calls(self) -> bool:
        """Whether the cadence asks to wait for the disk after every tool call."""
        return self._pace.cadence == "call"

    @property
    def engine(self) -> Engine:
        """For the layers above."""
        return self._engine

    @property
    def is_lost(self) -> bool:
        """Whether nothing can be written through this object any more."""
        return self._channel.lost is not None or self._channel.closed is not None

    @property
    def fence(self) -> int:
        """Grows with every holder. Hand it to services that can refuse an older one."""
        return self._channel.fence

    # -- recording ----------------------------------------------------------------------------------

    @overload
    async def add(self, message: str | Message | ForeignMessage) -> None: ...
    @overload
    async def add(self, message: Json, *, format: str) -> None: ...
    async def add(self, message: Json, *, format: str | None = None) -> None:
        """Add a message; a plain string is the user's. One of another `format` is kept verbatim."""
        self.record_all([await message_entry(self._engine, as_message(message, format))])

    async def set(self, key: str, value: object) -> None:
        """Keep a value under a key. One that cannot be encoded is kept as a marked `Opaque`."""
        body = StateSet(key=check_name("state key", key))
        self.record(body, content=await self._engine.pack_value(value))

    @overload
    def get(self, key: str) -> Any: ...
    @overload
    def get(self, key: str, type: type[T]) -> T: ...
    def get(self, key: str, type: type[T] | None = None) -> Any:
        """The value under a key, converted to `type` if one is given; `NotFound` if there is none."""
        return self._state.get(key) if type is None else self._state.get(key, type)

    async def unset(self, key: str) -> None:
        """Remove the value under a key, if there is one."""
        if key in self._state.facts.values:
            self.record(StateUnset(key=key))

    async def set_plan(self, plan: Plan | None) -> None:
        """Replace the plan."""
        self.record(PlanChanged(plan=plan))

    async def set_summary(self, summary: str) -> None:
        """Replace the running summary."""
        self.record(SummaryChanged(summary=summary))

    async def set_budget(self, budget: Budget) -> None:
        """Replace the caps; what was spent stays spent."""
        self.record(BudgetChanged(budget=budget))

    async def set_scratchpad(self, root: str | Path) -> Path:
        """Make the directory, and record where it is."""
        path = await self._engine.call(make_directory, root)
        self.record(ScratchpadSet(root=str(path)))
        return path

    async def label(self, **labels: str | None) -> None:
        """File the session under labels; None removes one."""
        check_labels({key: value for key, value in labels.items() if value is not None})
        self.record(SessionLabelled(labels=labels))

    async def compact(self, message: str | Message, *, keep: int) -> None:
        """Replace all but the last `keep` messages by one of the user's; the journal keeps the original.

        A reply and the results of its calls stay together, so one message more may go; more are kept where
        one of those to keep was sent while the model worked.
        """
        found = as_message(message)
        compaction(self._state, found, keep)  # Refused before anything is stored.
        content = await self._engine.pack_message(found)
        self.record(compaction(self._state, found, keep), content=content)

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
            self._engine,
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
        version = self.take_checkpoint(name)
        if self._pace.is_due(boot_s()):
            await self.flush()
        return version

    def take_checkpoint(self, name: str | None = None) -> int:
        """As `checkpoint`, without waiting: for the layers above, where something is waited for anyway."""
        facts = self._state.facts
        if facts.changed or facts.base == 0:
            why = tuple(str(problem) for problem in self._state.problems)
            self.record(CheckpointTaken(version=facts.head.version + 1, why=why, name=name))
        version = self._state.version
        end_step(self.id, version)
        return version

    async def drop(self, version: int) -> None:
        """No longer offer this version. Neither the journal nor any other version is harmed."""
        self._state.get_checkpoint(version)
        self.record(CheckpointDropped(version=version))
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
        target = self._state.get_checkpoint(version) if version is not None else self._back(steps or 0)
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
        path = self._state.path()
        if not 0 <= steps < len(path):
            raise NotFound(f"session {self.id!r} cannot go back {steps} steps: it has {len(path)} versions")
        return path[-1 - steps]

    async def continue_(self) -> int:
        """Go on from the latest continuable point: from here, if here is one; the version it stands on."""
        if self._state.continuable:
            return self._state.version
        for one in reversed(self._state.path()):
            if one.continuable:
                await return_to(self, one)
                return one.version
        raise NotFound(f"session {self.id!r} has no continuable version to go on from")

    async def reload(self) -> None:
        """Fold the journal anew, after its bytes were changed underneath."""
        self._state = await self._engine.call(_fold, self._engine, self.id, None)
        self._state.decoder = self._engine.values

    def mark_deleted(self) -> None:
        """There is nothing left to write to."""
        self._channel.lost = Closed(f"session {self.id!r} was deleted")

    async def close(self, status: SessionStatus = "completed", reason: str = "") -> None:
        """Set the status by hand. The lease stays until the `async with` block ends."""
        if status not in ("active", "waiting", "completed", "failed", "cancelled"):
            raise BadInput(f"no such status: {status!r}")
        self.record(SessionClosed(status=status, reason=reason))
        await self.flush()

    # -- others -------------------------------------------------------------------------------------

    async def take_in(self) -> int:
        """Take in what others sent to the inbox; how many items. Checkpoints and `flush` do it, too."""
        taken = 0
        while True:
            after = self._state.facts.head.taken
            rows = await self._engine.call(self._engine.driver.read_inbox, self.id, after, PAGE_ROWS)
            for row in rows:
                shared = await self._share_verdict(row)
                if row.number > self._state.facts.head.taken:
                    bodies, content = shared or open_item(row, self._state)
                    self.record(*bodies, content=content)
            taken += len(rows)
            if len(rows) < PAGE_ROWS:
                break
        if taken:
            await self._engine.committer.barrier(self._channel)
        return taken

    async def _share_verdict(self, row: InboxRow) -> tuple[Sequence[Body], bytes] | None:
        """What somebody says about an effect in doubt is for every session that shares it. If one of them
        knew that it happened: the entries that say so instead, and their content."""
        found = find_verdict(row, self._state)
        if found is None:
            return None
        effect, item = found
        landed = Given(text=item.content or "", value=item.value) if item.verdict == "landed" else None
        facts, fence = self._state.facts, self.fence
        known = await self._engine.call(share_verdict, self._engine, facts, fence, effect, landed)
        if known is None:
            return None
        packed = await self._engine.pack_result(known.given)
        return open_late_verdict(row.number, effect, item, str(known.session)), packed.content

    def hold(self, name: str, *, wait_s: float = 0) -> AbstractAsyncContextManager[Hold]:
        """Hold a resource that agents share: `async with session.hold("repo/main.py") as held`."""
        return self._hold(check_name("resource", name), wait_s)

    @asynccontextmanager
    async def _hold(self, name: str, wait_s: float) -> AsyncIterator[Hold]:
        self._engine.committer.check(self._channel)
        async with hold(self._engine, self.id, name, wait_s) as held:
            yield held


def _fold(engine: Engine, session: SessionId, until: int | None) -> SessionState:
    return Journal(engine.driver, session, engine.blobs).fold(until)
