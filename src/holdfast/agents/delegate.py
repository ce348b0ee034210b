"""Delegates: an agent as another agent's tool, with a session of its own.

The session id is derived from the call, so a resumed parent finds the delegate's work again. What the
delegate may spend is reserved in the parent's budget before it starts.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeVar

import anyio
from msgspec.structs import replace

from ..core.budget import Budget, BudgetState, Reservation, Usage
from ..core.effects import progress_of
from ..core.entries import DelegateEnded, DelegateStarted
from ..errors import BadInput, BudgetSpent, HoldfastError, LeaseHeld, NotFound
from ..ids import SessionId
from ..limits import DELEGATE_DEPTH_MAX
from ..session.session import Session
from ..tools.lineage import Lineage

log = logging.getLogger("holdfast")
_SHARE: Final = 0.5
"""The part of what is left for a delegate without a budget of its own. Several at once all get something, and
delegates that delegate to each other come to an end."""


class DelegateFailed(HoldfastError):
    """A delegate did not complete its task."""


def check_depth(parent: Session) -> Lineage:
    """The lineage of a new delegate. Refuse one that is nested too deeply."""
    lineage = Lineage.under(parent)
    if lineage.depth > DELEGATE_DEPTH_MAX:
        raise DelegateFailed(f"this would be the {lineage.depth}th delegate below {lineage.root.id!r}")
    return lineage


async def check_not_delegate(session: Session) -> None:
    """Refuse to drive a delegate's session directly: that would bypass the budget and the ledger of its
    root."""
    parent = session.state.facts.head.parent
    if parent is None or Lineage.of(session) is not None:
        return
    with suppress(NotFound):
        above = await session.store.load(parent)
        if session.id in above.facts.delegates:
            raise BadInput(
                f"session {session.id!r} works for {parent!r}: resume that session, and this one goes on, too"
            )


def is_held(parent: Session, delegate: Session) -> bool:
    """Whether the parent holds a reservation: the delegate works, or was interrupted."""
    known = parent.state.facts.delegates.get(delegate.id)
    return known is not None and known.held is not None


def measure_progress(delegate: Session) -> int:
    """Count the delegate's replies and results, and the progress of its own delegates when last resumed."""
    effects = delegate.state.facts.effects
    items = delegate.state.transcript_fold.items
    said = sum((item.role == "assistant") + len(item.results or ()) for item in items)
    return said + sum(progress_of(effects.rows[issued[-1]]) for issued in effects.by_call.values())


@asynccontextmanager
async def reserve_budget_for(parent: Session, delegate: Session, own: Budget | None) -> AsyncIterator[None]:
    """Reserve a share of the parent's budget while the delegate works; then record what it spent."""
    if not is_held(parent, delegate):
        # One at a time: what is left is known only after the previous delegate has its share.
        async with _share_lock(parent):
            await _start(parent, delegate, own or Budget())
    try:
        yield
    finally:
        if not parent.is_lost:
            _settle(parent, delegate)


def _share_lock(parent: Session) -> anyio.Lock:
    found = parent._writer.extensions.setdefault(DelegateStarted, anyio.Lock())
    assert isinstance(found, anyio.Lock)
    return found


async def release_abandoned(parent: Session) -> None:
    """End interrupted delegates that no call waits for any more, and record what they spent.

    Their calls were refused when they were repeated: after too many crashes, or because the tool is gone.
    """
    for id, known in list(parent.state.facts.delegates.items()):
        if known.held is None:
            continue
        try:
            async with parent.store.session(id, create=False) as delegate:
                await release_abandoned(delegate)
                if delegate.state.facts.head.open_run is not None:
                    async with delegate.run() as run:
                        run.fail("abandoned", f"session {parent.id!r} went on without it")
                _settle(parent, delegate)
        except (LeaseHeld, NotFound) as error:
            log.warning("session %s: what delegate %s spent is not known: %s", parent.id, id, error)


async def _start(parent: Session, delegate: Session, own: Budget) -> None:
    budget = parent.budget
    if parent.state.transcript_fold.in_step:
        # The parent's own step counts only once it has ended: do not share it out.
        budget = replace(budget, steps=budget.steps + 1)
    share = _share_of(parent.id, budget, own)
    # The caps of a session include what it spent before it waited for a person.
    spent = delegate.budget
    await delegate.set_budget(
        Budget(
            usd=_plus(share.usd, spent.usd + spent.reserved.usd),
            tokens=_plus(share.tokens, spent.tokens + spent.reserved.tokens),
            steps=_plus(share.steps, spent.steps),
            seconds=_plus(share.seconds, spent.seconds),
        )
    )
    # The delegate's caps first: without them, the reservation would be no limit.
    await delegate.flush()
    caps = budget.caps
    parent._writer.record(
        DelegateStarted(
            session=delegate.id,
            reserved=Reservation(
                (share.usd or 0.0) if caps.usd is not None else 0.0,
                (share.tokens or 0) if caps.tokens is not None else 0,
            ),
            steps=(share.steps or 0) if caps.steps is not None else 0,
        )
    )
    await parent.flush()


def _settle(parent: Session, delegate: Session) -> None:
    """Record what a delegate spent. Interrupted requests count with their reservations."""
    spent = delegate.budget
    parent._writer.record(
        DelegateEnded(
            session=delegate.id,
            usage=delegate.state.facts.head.usage + Usage(output_tokens=spent.reserved.tokens),
            cost_usd=spent.usd + spent.reserved.usd,
            steps=spent.steps,
        )
    )


def _share_of(parent: SessionId, budget: BudgetState, own: Budget) -> Budget:
    """What a delegate may spend: its own budget, or a share of what is left; at most what is left."""
    breach = budget.find_breach(Reservation())
    if breach is not None:
        cap, limit, spent, wanted = breach
        raise BudgetSpent(parent, cap, limit=limit, spent=spent, wanted=wanted)
    caps, held = budget.caps, budget.reserved
    usd = _share(own.usd, caps.usd, budget.usd + held.usd, _SHARE)
    tokens = _share(own.tokens, caps.tokens, budget.tokens + held.tokens, _SHARE)
    steps = _share(own.steps, caps.steps, budget.steps, _SHARE)
    return Budget(
        usd=usd,
        tokens=None if tokens is None else int(tokens),
        steps=None if steps is None else max(1, int(steps)),
        seconds=_share(own.seconds, caps.seconds, budget.seconds, 1.0),
    )


def _share(own: float | None, cap: float | None, spent: float, share: float) -> float | None:
    if cap is None:
        return own
    left = cap - spent
    return left * share if own is None else min(own, left)


N = TypeVar("N", int, float)


def _plus(share: N | None, spent: N) -> N | None:
    return None if share is None else share + spent
