"""`holdfast resume`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..options import DEFAULTS, Common, Deps, OptionalSession, Quiet, TargetArg, Wait

if TYPE_CHECKING:
    from ...agents.outcome import Outcome
    from ...store.store import Store


def resume(
    agent: TargetArg,
    session: OptionalSession = None,
    /,
    *,
    all: bool = False,
    deps: Deps = None,
    quiet: Quiet = False,
    wait: Wait = 0,
    common: Common = DEFAULTS,
) -> int:
    """Continue a session: after a crash, after Ctrl-C, or when a person has answered.

    A recorded reply is not requested again, a completed tool is not run again, and a call in doubt is
    verified first, or waits for you. A session that has completed gives its answer again.

    Parameters
    ----------
    session
        The session's id.
    all
        Instead of one: every session of this agent that was interrupted and that no process holds.
    """
    from ..agent_display import (
        explain_interrupt,
        report_outcome,
        report_outcomes,
        resume_command,
        show_run,
    )
    from ..exit_codes import Exit, Stop
    from ..load_agent import load_agents, load_value, pick
    from ..store_access import get_head, with_store

    if (session is None) != all:
        raise Stop(Exit.USAGE, "name one session, or say --all")
    agents = load_agents(agent)
    dependencies = None if deps is None else load_value(deps)

    async def work(store: Store) -> int:
        if session is None:
            outcomes: list[Outcome[Any]] = []
            for each in {id(found): found for found in agents.values()}.values():
                outcomes += await each.resume_all(store, deps=dependencies)
            return report_outcomes(outcomes, common)
        head = await get_head(store, session)
        chosen = pick(agents, agent, head.agent)
        events = chosen.stream(session=session, store=store, deps=dependencies, wait_s=wait)
        outcome = await show_run(events, quiet=quiet or common.json, print_answer=not common.json)
        return report_outcome(outcome, common, agent)

    with explain_interrupt(lambda: resume_command(agent, session or "--all", common)):
        return with_store(common, work)
