"""The internal side of an open session, from the lease to its release: state, channel, and recording."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
from msgspec.structs import replace

from ..content.encode import Given
from ..core.codec import check
from ..core.entries import Body, CheckpointTaken, LeaseReleased
from ..core.session_state import SessionState
from ..drivers.contract import InboxRow
from ..engine.engine import Engine
from ..engine.journal import Journal
from ..errors import Closed
from ..ids import SessionId
from ..limits import KEYFRAME_ENTRIES_MIN, KEYFRAME_GROWTH, KEYFRAME_GROWTH_LEFT, PAGE_ROWS
from ..system.clock import boot_s
from ..telemetry import end_step
from .cadence import Pace
from .effect_claims import share_verdict
from .inbox import find_verdict, open_item, open_late_verdict
from .lease import Taken
from .run import RunControl, current_run


class SessionWriter:
    """What holdfast's own layers use of an open session, as `session._writer`.

    It folds and hands over entries, waits until they are durable, and takes in the inbox. Applications use
    `Session`, which has a method for everything that they may record.
    """

    def __init__(
        self, engine: Engine, taken: Taken, pace: Pace, *, before: SessionWriter | None = None
    ) -> None:
        self.engine = engine
        self.state: SessionState = taken.state
        self.state.decoder = engine.values
        self.channel = taken.channel
        self.id: SessionId = taken.channel.session
        self.pace = pace
        self.taken_s = boot_s()
        """When the lease was taken."""
        # A session object that is entered again, by a tool for example, is still driven by the same loop.
        self.extensions: dict[type, object] = {} if before is None else before.extensions
        """Objects that the layers above keep with the session object, by their class."""
        self.run_control: RunControl | None = None if before is None else before.run_control
        """Set by the worker that drives the session."""

    @property
    def is_lost(self) -> bool:
        """True if this writer can write no more: the lease is lost, or the session was closed or deleted."""
        return self.channel.lost is not None or self.channel.closed is not None

    @property
    def waits_for_calls(self) -> bool:
        """True if the cadence asks for a flush after every tool call."""
        return self.pace.cadence == "call"

    # -- recording ----------------------------------------------------------------------------------

    def record(self, *bodies: Body, content: bytes | None = None) -> None:
        """Record entries in one commit. `content` belongs to the last of them."""
        *before, last = bodies
        self.record_all([*[(one, None) for one in before], (last, content)])

    def record_all(
        self, entries: Sequence[tuple[Body, bytes | None]], *, growth: float = KEYFRAME_GROWTH
    ) -> None:
        """Fold entries with their contents, and hand them to the committer as one commit.

        A keyframe goes along when the tail has grown by the share `growth`, so that keyframes cost a constant
        per entry.
        """
        engine, state, channel = self.engine, self.state, self.channel
        if channel.lost is not None or channel.closed is not None:
            engine.committer.check(channel)
        if len(entries) > 1:
            # All or none: a folded entry cannot be taken back.
            for body, content in entries:
                check(body, content)
        run, new = current_run(self.id), []
        for body, content in entries:
            new.append(state.append(body, engine.now(), run, content))
        keyframe = state.take_due_keyframe(KEYFRAME_ENTRIES_MIN, growth)
        engine.committer.offer(channel, new, replace(state.facts.head), keyframe=keyframe)

    def take_checkpoint(self, name: str | None = None) -> int:
        """Record a checkpoint without a flush, unless the position has one; its version."""
        facts = self.state.facts
        if facts.changed or facts.base == 0:
            why = tuple(str(problem) for problem in self.state.problems)
            self.record(CheckpointTaken(version=facts.head.version + 1, why=why, name=name))
        version = self.state.version
        end_step(self.id, version)
        return version

    async def flush(self) -> None:
        """Wait until everything recorded so far is durable, then take in the inbox."""
        if self.channel.closed is not None:
            raise self.channel.closed
        await self.engine.committer.barrier(self.channel)
        if self.channel.posted > self.state.facts.head.taken:
            await self.take_in()

    # -- the inbox ----------------------------------------------------------------------------------

    async def take_in(self) -> int:
        """Record the new items of the inbox and wait until they are durable; how many there were."""
        taken = 0
        while True:
            after = self.state.facts.head.taken
            rows = await self.engine.call(self.engine.driver.read_inbox, self.id, after, PAGE_ROWS)
            for row in rows:
                shared = await self._share_verdict(row)
                if row.number > self.state.facts.head.taken:
                    bodies, content = shared or open_item(row, self.state)
                    self.record(*bodies, content=content)
            taken += len(rows)
            if len(rows) < PAGE_ROWS:
                break
        if taken:
            await self.engine.committer.barrier(self.channel)
        return taken

    async def _share_verdict(self, row: InboxRow) -> tuple[Sequence[Body], bytes] | None:
        """Share a verdict on an effect in doubt with every session that has the effect.

        If another session knew that it happened: the entries that say so in place of the verdict, and their
        content. Else None.
        """
        found = find_verdict(row, self.state)
        if found is None:
            return None
        effect, item = found
        landed = None
        if item.verdict == "landed":
            landed = Given(text=item.content or "", value=item.value, unkept=item.unkept)
        facts, fence = self.state.facts, self.channel.fence
        known = await self.engine.call(share_verdict, self.engine, facts, fence, effect, landed)
        if known is None:
            return None
        packed = await self.engine.pack_result(known.given)
        return open_late_verdict(row.number, effect, item, str(known.session)), packed.content

    # -- the end ------------------------------------------------------------------------------------

    async def release(self) -> None:
        """Release the lease, if this writer still has it, and wait until the last entries are durable."""
        channel = self.channel
        interrupt: BaseException | None = None
        try:
            if channel.lost is None and channel.closed is None:
                self.record_all([(LeaseReleased(), None)], growth=KEYFRAME_GROWTH_LEFT)
                channel.closed = Closed(f"session {self.id!r} was closed")
                # A cancelled caller waits all the same: they must be there before the next one opens it.
                while channel.durable_seq < self.state.seq:
                    try:
                        with anyio.CancelScope(shield=True):
                            await self.engine.committer.barrier(channel)
                    except anyio.get_cancelled_exc_class() as error:
                        interrupt = error
        finally:
            if self.engine.channels.get(self.id) is channel:
                del self.engine.channels[self.id]
            if channel.lost is None and channel.durable_seq < self.state.seq:
                self.engine.left[self.id] = channel
        if interrupt is not None:
            raise interrupt

    async def read_contents(self) -> None:
        """Read the messages that are not in memory, in a thread, so that looking at them does not block."""
        contents = self.state.transcript_fold.contents
        if contents.are_missing:
            await self.engine.call(contents.fetch)

    async def reload(self) -> None:
        """Fold the journal anew, after an erasure changed its bytes."""
        self.state = await self.engine.call(self._fold)
        self.state.decoder = self.engine.values

    def _fold(self) -> SessionState:
        return Journal(self.engine.driver, self.id, self.engine.blobs).fold()

    def mark_deleted(self) -> None:
        """Refuse every later write: the session was deleted."""
        self.channel.lost = Closed(f"session {self.id!r} was deleted")
