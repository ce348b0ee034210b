"""`holdfast run`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..options import (
    DEFAULTS,
    Common,
    Deps,
    Labels,
    MessageArg,
    OptionalSession,
    Quiet,
    TargetArg,
    Wait,
    parse_labels,
    read_message,
)

if TYPE_CHECKING:
    from ...store.store import Store


def run(
    agent: TargetArg,
    message: MessageArg,
    /,
    *,
    session: OptionalSession = None,
    label: Labels = (),
    deps: Deps = None,
    quiet: Quiet = False,
    wait: Wait = 0,
    common: Common = DEFAULTS,
) -> int:
    """Give a message to an agent of yours, and run it until there is an outcome.

    The answer goes to stdout, progress to stderr. The store is created if it does not exist. An existing
    session is continued: what a killed process left unfinished is finished first. Ctrl-C cancels the run
    cleanly; `holdfast resume` continues it, as after a crash.

    Parameters
    ----------
    session
        The session's id; a new one by default.
    label
        A label for a new session, as name=value.
    """
    from ...ids import fresh_session_id
    from ..agent_display import explain_interrupt, report_outcome, resume_command, show_run
    from ..load_agent import load_agents, load_value, pick
    from ..store_access import with_store

    chosen = pick(load_agents(agent), agent)
    dependencies = None if deps is None else load_value(deps)
    text = read_message(message)
    labels = parse_labels(label)
    id = session if session is not None else fresh_session_id(chosen.name)
    begun = False

    async def work(store: Store) -> int:
        nonlocal begun
        begun = True
        outcome = await show_run(
            chosen.stream(text, session=id, store=store, deps=dependencies, labels=labels, wait_s=wait),
            quiet=quiet or common.json,
            print_answer=not common.json,
        )
        return report_outcome(outcome, common, agent)

    with explain_interrupt(lambda: resume_command(agent, id, common) if begun else None):
        return with_store(common, work, create=True)
