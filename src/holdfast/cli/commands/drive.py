"""`holdfast run` and `holdfast resume`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ..options import DEFAULTS, Common, MessageArg, TargetArg, Wait, complete_session

if TYPE_CHECKING:
    from ...agents.outcome import Outcome
    from ...store.store import Store

Deps = Annotated[
    str | None,
    Parameter(
        help="What its tools get as ctx.deps: module:attribute or file.py:attribute; called if it can be."
    ),
]


def run(
    agent: TargetArg,
    message: MessageArg,
    /,
    *,
    session: Annotated[str | None, Parameter(completer=complete_session)] = None,
    label: Annotated[tuple[str, ...], Parameter(consume_multiple=False)] = (),
    deps: Deps = None,
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"])] = False,
    wait: Wait = 0,
    common: Common = DEFAULTS,
) -> int:
    """Give an agent of yours a message, and drive its session until there is an outcome.

    The answer goes to stdout, and what happens on the way to stderr. The store is made if there is none. A
    session that is there already goes on: what a killed process left unfinished is finished first. Ctrl-C
    stops it in an orderly way; `holdfast resume` takes it up again, as after a crash.

    Parameters
    ----------
    session
        The session's id; a new one if you leave it out.
    label
        A label for a new session, as name=value.
    quiet
        Say nothing on the way.
    """
    import sys

    from ...ids import fresh_session_id
    from ..agent_display import drive, finish, resume_command, stopping
    from ..labels import parse_labels
    from ..load_agent import load_agents, load_value, pick
    from ..store_access import with_store

    chosen = pick(load_agents(agent), agent)
    given = None if deps is None else load_value(deps)
    text = sys.stdin.read() if message == "-" else message
    labels = parse_labels(label)
    id = session if session is not None else fresh_session_id(chosen.name)
    begun = False

    async def work(store: Store) -> int:
        nonlocal begun
        begun = True
        outcome = await drive(
            chosen.stream(text, session=id, store=store, deps=given, labels=labels, wait_s=wait),
            quiet=quiet or common.json,
            streams=not common.json,
        )
        return finish(outcome, common, agent)

    with stopping(lambda: resume_command(agent, id, common) if begun else None):
        return with_store(common, work, create=True)


def resume(
    agent: TargetArg,
    session: Annotated[str | None, Parameter(completer=complete_session)] = None,
    /,
    *,
    all: bool = False,
    deps: Deps = None,
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"])] = False,
    wait: Wait = 0,
    common: Common = DEFAULTS,
) -> int:
    """Go on where a session stands: after a crash, after Ctrl-C, or when a person has answered.

    A reply that is on record is not asked for again, a completed tool is not run again, and a call in doubt
    is verified first, or waits for you. A session that had come to its end gives its answer again.

    Parameters
    ----------
    session
        The session's id.
    all
        Instead of one: every session of this agent that a crash cut off and that nobody drives.
    quiet
        Say nothing on the way.
    """
    from ..agent_display import drive, finish, finish_all, resume_command, stopping
    from ..exit_codes import Exit, Stop
    from ..load_agent import load_agents, load_value, pick
    from ..store_access import get_head, with_store

    if (session is None) != all:
        raise Stop(Exit.USAGE, "name one session, or say --all")
    agents = load_agents(agent)
    given = None if deps is None else load_value(deps)

    async def work(store: Store) -> int:
        if session is None:
            outcomes: list[Outcome[Any]] = []
            for one in {id(found): found for found in agents.values()}.values():
                outcomes += await one.resume_all(store, deps=given)
            return finish_all(outcomes, common)
        head = await get_head(store, session)
        chosen = pick(agents, agent, head.agent)
        events = chosen.stream(session=session, store=store, deps=given, wait_s=wait)
        outcome = await drive(events, quiet=quiet or common.json, streams=not common.json)
        return finish(outcome, common, agent)

    with stopping(lambda: resume_command(agent, session or "--all", common)):
        return with_store(common, work)
