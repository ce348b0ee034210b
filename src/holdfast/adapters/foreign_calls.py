"""Tool calls of a framework that runs its own tools, through the gates and the ledger of a session.

The framework hands over each call with a body of its own, and adds the results to its messages itself. A call
is named by the reply that asked for it; made again after a crash, it gives the recorded outcome, or is
settled first.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import anyio
from msgspec import UNSET

from ..core.effects import Effect, Question
from ..core.entries import ApprovalGiven, CallRef
from ..messages import Json
from ..session.session import Session
from ..tools.canonical import fingerprint
from ..tools.declaration import AnyTool
from ..tools.lineage import Lineage, belongs_to_delegate, name_at_root
from ..tools.policy import Policy
from ..tools.registry import Registry
from ..tools.runner import InDoubtPolicy

_RECORDING_S: Final = 10.0
"""How long the session of a run that was cancelled waits for its calls to be recorded, after their grace."""
CALLER: Final = "the caller of the run"
"""The name under which answers are recorded that a run was given by way of its framework."""


def name_call(reply: int, calls: tuple[str, ...], call: str) -> CallRef:
    """What names a call in its session: its place in the reply, for providers use ids again."""
    if call in calls:
        index = calls.index(call)
        return CallRef(id=f"m{reply}.{index}", of=reply, index=index)
    return CallRef(id=f"m{reply}/{call}")  # Not the model's own: made by another tool, say.


class ForeignCalls:
    """The calls of one run, as the ledger of its session sees them."""

    def __init__(
        self,
        session: Session,
        *,
        policy: Policy | None,
        in_doubt: InDoubtPolicy,
        max_repeats: int,
        max_crashes: int,
        grace_s: float,
    ) -> None:
        self.session, self.tells = session, in_doubt == "tell"
        # Each call brings its tool: the framework may offer other ones in every step.
        self.registry = Registry(
            policy=policy,
            in_doubt=in_doubt,
            max_repeats=max_repeats,
            max_crashes=max_crashes,
            grace_s=grace_s,
        )
        self._turns: dict[str, anyio.Lock] = {}
        self._grace_s = grace_s
        self._under_way: set[anyio.CancelScope] = set()
        """The calls that are being executed."""
        self._ended = anyio.Event()
        """Set, and made anew, when one of them has ended."""

    @staticmethod
    def check(*, in_doubt: InDoubtPolicy, max_repeats: int, max_crashes: int, grace_s: float) -> None:
        """Refuse options that no registry takes."""
        Registry(in_doubt=in_doubt, max_repeats=max_repeats, max_crashes=max_crashes, grace_s=grace_s)

    def is_on_record(self, ref: CallRef) -> bool:
        """Whether the call was begun before: then its outcome counts, whatever became of the tool since."""
        if self.session.state.facts.effects.find_call(ref):
            return True
        lineage = Lineage.of(self.session)
        if lineage is None:
            return False
        return bool(lineage.root.state.facts.effects.find_call(name_at_root(self.session, ref)))

    def find_question(self, ref: CallRef) -> Question | None:
        """The question to a person about this call, answered or not."""
        return self.session.state.facts.effects.find_question(ref)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Around a call that is being executed: `stop` cancels it, and then the block ends early."""
        scope = anyio.CancelScope()
        self._under_way.add(scope)
        try:
            with scope:
                yield
        finally:
            self._under_way.discard(scope)
            self._ended.set()
            self._ended = anyio.Event()

    async def stop(self) -> None:
        """Cancel the calls that are under way when the run ends, and wait until they have had their grace.

        A framework cancels them only once the run has ended; but how they end is recorded in its session.
        """
        for scope in self._under_way:
            scope.cancel()
        with anyio.move_on_after(2 * self._grace_s + _RECORDING_S):
            while self._under_way:
                await self._ended.wait()

    @asynccontextmanager
    async def in_turn(self, tool: AnyTool) -> AsyncIterator[None]:
        """What one tool sets is set in the order of the calls."""
        if "write" not in tool.side_effects:
            yield
            return
        async with self._turns.setdefault(tool.name, anyio.Lock()):
            yield

    def note_approval(self, ref: CallRef, tool: AnyTool, args: Json | None) -> None:
        """Record an approval that came by way of the framework, if there is no answer yet. `args` are
        canonical; None if they have no such form."""
        asked = self.find_question(ref)
        if args is None or asked is None or asked.approved is not None:
            return
        corrected = UNSET if fingerprint(tool.name, args) == asked.fingerprint else args
        self.session._writer.record(
            ApprovalGiven(call=asked.call, asked=asked.asked, by=CALLER, args=corrected)
        )

    async def settle(self, ref: CallRef, tool: AnyTool, args: Json | None, deps: Any) -> Effect | None:
        """Settle this call and equal ones, if they are in doubt; its last attempt. `args` as above."""
        session, lineage = self.session, Lineage.of(self.session)
        effects = session.state.facts.effects
        if lineage is not None:
            above = name_at_root(session, ref).id
            for row in [row for row in lineage.root.in_doubt if row.call.id == above]:
                await self._settle_row(lineage.root, row, tool, deps)
        for row in effects.in_doubt if effects.open else ():
            mine = row.call.id == ref.id
            same = args is not None and row.fingerprint == fingerprint(tool.name, args)
            if mine or (same and not belongs_to_delegate(session, row.call)):
                await self._settle_row(session, row, tool, deps)
        tried = effects.find_call(ref)
        return tried[-1] if tried else None

    async def _settle_row(self, session: Session, row: Effect, tool: AnyTool, deps: Any) -> None:
        found = tool if row.tool == tool.name else None
        await self.registry.settle_call(session, row, tool=found, deps=deps)


def original_args(args: Json, last: Effect | None, asked: Question | None) -> Json:
    """The arguments that the call was made with: a person or changed code may have altered them since."""
    if asked is not None and asked.new_args is not UNSET:
        return asked.args
    if last is not None and last.args is not None:
        return last.args
    return args
