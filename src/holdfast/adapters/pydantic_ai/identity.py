"""Which session and which run: ids of pydantic-ai in the journal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from pydantic_ai import RunContext

from ...agents.delegate import check_depth, reserve_budget_for
from ...core.entries import Parent
from ...errors import BadInput
from ...ids import RunId, SessionId, fit_session_id, fresh_run_id, label_of_original
from ...limits import LEASE_TERM_S
from ...session.cadence import Cadence
from ...session.run import current_run
from ...session.session import Session
from ...store.store import Store
from ...tools.canonical import digest
from ...tools.lineage import Lineage, derive_id
from .context import count_delegate, find_effect
from .durable_run import Beginning

if TYPE_CHECKING:
    from .durable import SessionChoice


class RunIds:
    """Tells ids that were made here from those that a caller chose."""

    def __init__(self) -> None:
        self._made: set[str] = set()

    def make(self, agent: str | None) -> str:
        """A fresh one: `{agent}-{8 hex}`, or a UUID."""
        fresh = fresh_run_id(agent)
        self._made.add(fresh)
        return fresh

    def choose(self, given: str | None, session: Session, begun: Beginning) -> str | None:
        """The run's id in the journal. A caller's own is used once; what goes on with it after a crash has
        another."""
        if given is None:
            return None
        if given in self._made:
            self._made.discard(given)
            return given
        fitted = fit_session_id(given)
        runs = session.state.facts.runs
        continued = begun.drive is not None and fitted in runs and _root_of(session, fitted) == begun.drive
        return None if continued else fitted


def _root_of(session: Session, run: str) -> str:
    config = session.state.facts.runs[RunId(run)].config
    return (config["pydantic_ai"]["drive"] if isinstance(config, dict) else None) or run


def opening_for(
    store: Store, choice: SessionChoice, ctx: RunContext[Any], *, wait_s: float, cadence: Cadence
) -> Any:
    """The session of a run, to be entered. Inside a tool of another durable run it is derived from that call,
    unless it has a name of its own."""
    named = choice(ctx) if callable(choice) else choice
    effect = find_effect()
    around = None if effect is None else effect.session
    if around is not None and (named is None or fit_session_id(named) == around.id):
        return _delegate(around, ctx)
    named = named or ctx.conversation_id
    if not named:
        raise BadInput("Durable(…) without session=… needs a run with a conversation id")
    id = fit_session_id(named)
    labels = {"agent_framework": "pydantic-ai"}
    if id != named:
        labels["session"] = label_of_original(named)
    spoken = ctx.conversation_id
    if spoken and spoken not in (named, id):
        labels["conversation"] = label_of_original(spoken)
    return store.session(id, wait_s=wait_s, cadence=cadence, labels=labels)


@asynccontextmanager
async def _delegate(parent: Session, ctx: RunContext[Any]) -> AsyncIterator[Session]:
    """A session below that of the tool around us: the same one when that call is made again."""
    effect = find_effect()
    assert effect is not None
    lineage = check_depth(parent)
    name = (ctx.agent.name if ctx.agent is not None else None) or "agent"
    number = count_delegate(name)
    # By the call, and not by its key: that is another one once the tool around us has failed.
    key = digest(parent.state.facts.head.uid, effect.call_id)
    id = derive_id(parent.id, fit_session_id(name), key)
    if number > 1:
        id = SessionId(f"{id}-{number}")
    link = Parent(session=parent.id, run=current_run(parent.id), call=effect.call_id)
    async with parent.store.session(id, wait_s=2 * LEASE_TERM_S, parent=link) as session:
        session._writer.extensions[Lineage] = lineage
        async with reserve_budget_for(parent, session, None):
            yield session
