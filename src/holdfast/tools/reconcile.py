"""Settling what is in doubt: verify, then run again what is idempotent, then wait for a person or tell."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from ..core.effects import Effect, count_crashes
from ..session.session import Session
from .decision import Issue
from .declaration import AnyTool
from .gates import Gates
from .lineage import belongs_to_delegate
from .outcome import Landed, NotLanded, Result
from .runner import Runner, completed, result_of, run_chains
from .tracing import watch


async def settle(
    session: Session,
    tools: Mapping[str, AnyTool],
    gates: Gates,
    runner: Runner,
    *,
    prefix: str = "",
    on_result: Callable[[Result], None] | None = None,
) -> list[Effect]:
    """Settle every call in doubt of the session; those that stay in doubt.

    Side by side, but what one tool writes one after another, in the order of the calls. A delegate settles
    what it did itself: the calls whose ids begin with `prefix`.
    """

    async def settle_one(row: Effect) -> None:
        result = await settle_row(session, tools.get(row.tool), gates, runner, row)
        if result is not None and on_result is not None:
            on_result(result)

    chains: dict[object, list[Callable[[], Awaitable[None]]]] = {}
    attempts = session.state.facts.effects.attempts
    known = [row for row in session.in_doubt if _is_settled_here(session, row, prefix)]
    for row in sorted(known, key=lambda row: attempts(row)[0].issued):
        place = row.tool if "write" in row.side_effects else row.issued
        chains.setdefault(place, []).append(partial(settle_one, row))
    await run_chains(list(chains.values()))
    return session.in_doubt


def _is_settled_here(session: Session, row: Effect, prefix: str) -> bool:
    """A tool of the session's own may have the name of a delegate's, and be another one."""
    return row.call.id.startswith(prefix) if prefix else not belongs_to_delegate(session, row.call)


async def settle_row(
    session: Session, tool: AnyTool | None, gates: Gates, runner: Runner, row: Effect
) -> Result | None:
    """Settle one call in doubt, with the tool it was made of if that is still there; the call's result, if it
    has one now."""
    ready = None if tool is None else gates.fit(tool, row.args)
    if tool is not None and ready is not None and row.undoes is None:
        found = await runner.find_out(tool, row, ready.values)
        answer, known = found.answer, found.known
        if row.status != "in_doubt":
            await runner.settlements.release(row)
            return None  # A person was quicker.
        if known is not None:
            shown = await runner.record_known(row, known)
            return None if shown is None else completed(row, shown)
        if isinstance(answer, Landed):
            return completed(row, await runner.record_landed(row, answer))
        if isinstance(answer, NotLanded):
            await runner.record_not_landed(row, answer)
            await runner.settlements.release(row)
            return None
        tried = session.state.facts.effects.find_call(row.call)
        may = found.held and runner.ledger.may_repeat(tool, row)
        if may and count_crashes(tried) < gates.max_crashes:
            again = runner.ledger.issue_again(ready, row, Issue.again(row))
            await runner.commit(again)
            return await watch(session, row, runner.run(ready, again))
        await runner.settlements.release(row)
    text = await runner.tell(row)
    return result_of(row, text, "in_doubt") if runner.tells else None
