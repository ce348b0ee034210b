"""`holdfast replay`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ..options import DEFAULTS, Common, Number, SessionArg, TargetArg

if TYPE_CHECKING:
    from datetime import timedelta

    from ...core.head import Head
    from ...replay import SessionReplay
    from ...store.store import Store


def replay(
    session: SessionArg,
    agent: TargetArg | None = None,
    /,
    *,
    from_: Annotated[Number | None, Parameter(name="--from")] = None,
    all: bool = False,
    since: str | None = None,
    live_model: bool = False,
    common: Common = DEFAULTS,
) -> int:
    """Drive a recorded session with today's code, and show what it would do differently.

    Recorded replies and results stand in for the model and for the world: no tool is run, no request is made,
    and nothing is written to the store. Shown are calls that would be new, gone, refused or made with other
    arguments, and runs that would end in another way.

    Parameters
    ----------
    session
        The session's id. With --all, leave it out: the agent comes first.
    from_
        Begin after this version of the session, and not at its beginning.
    all
        Replay every session of this agent, and print a table.
    since
        With --all: only sessions that changed in this time, such as 7d, 12h or 30min.
    live_model
        Ask the agent's own model, which may cost money; the world stays recorded.
    """
    from ..exit_codes import Exit, Stop
    from ..load_agent import load_replayable, pick
    from ..store_access import get_head, with_store

    if all:
        if agent is not None or from_ is not None:
            raise Stop(Exit.USAGE, "with --all, name only the agent: holdfast replay --all agent.py")
        age = None if since is None else _parse_age(since)
        agents = load_replayable(session)
        return with_store(
            common, lambda store: _replay_all(store, list(agents.values()), age, live_model, common)
        )
    if agent is None:
        raise Stop(Exit.USAGE, f"name the agent, too: holdfast replay {session} agent.py")
    if since is not None:
        raise Stop(Exit.USAGE, "--since is for --all")
    target, loaded = agent, load_replayable(agent)

    async def work(store: Store) -> int:
        from ...replay import replay_session

        head = await get_head(store, session)
        chosen = pick(loaded, target, head.agent)
        found = await replay_session(store, session, chosen, version=from_, live_model=live_model)
        return _report(found, common)

    return with_store(common, work)


_UNITS = {"d": "days", "h": "hours", "min": "minutes", "m": "minutes", "s": "seconds"}


def _parse_age(given: str) -> timedelta:
    from datetime import timedelta

    from ..exit_codes import Exit, Stop

    found = re.fullmatch(r"(\d{1,6})(d|h|min|m|s)", given)
    if found is None:
        raise Stop(Exit.USAGE, f"--since {given!r} is no time: write 7d, 12h or 30min")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def _report(found: SessionReplay, common: Common) -> int:
    from ..console import print_json, print_text
    from ..exit_codes import Exit

    if common.json:
        print_json(_shape(found))
    else:
        print_text(str(found), lines=True)
    return Exit.DIFFERENT if found.differs else Exit.DONE


def _shape(found: SessionReplay) -> dict[str, Any]:
    import msgspec

    shape: dict[str, Any] = msgspec.to_builtins(found)
    return {**shape, "differs": found.differs}


async def _replay_all(
    store: Store, agents: list[Any], age: timedelta | None, live: bool, common: Common
) -> int:
    from ...errors import HoldfastError
    from ...replay import replay_all
    from ...system.clock import utc_now
    from ..console import make_table, print_json, say, stdout
    from ..exit_codes import Exit, Stop

    begin = None if age is None else utc_now() - age

    def choose(head: Head) -> bool:
        return begin is None or head.updated_at >= begin

    found: list[SessionReplay] = []
    left: dict[str, str] = {}
    for agent in {id(each): each for each in agents}.values():
        if getattr(agent, "name", None) is None:
            raise Stop(Exit.USAGE, "an agent whose sessions are to be found needs a name: Agent(name=…)")
        async for session, result in replay_all(store, agent, choose=choose, live_model=live):
            if isinstance(result, HoldfastError):
                left[session] = str(result)
            else:
                found.append(result)
    differ = sum(one.differs for one in found)
    if common.json:
        print_json({"replays": [_shape(one) for one in found], "left_out": left, "differ": differ})
    else:
        table = make_table("session", "replies>", "differences>", "the first…")
        for one in found:
            first = "" if one.first is None else str(one.first).partition("\n")[0]
            table.add_row(one.session, f"{one.given}/{one.replies}", str(len(one.differences) or ""), first)
        console = stdout()
        console.print(table)
        console.print(f"{differ} of {len(found)} sessions would take another course")
        for name, why in left.items():
            say(f"{name} is left out: {why}")
    return Exit.DIFFERENT if differ else Exit.DONE
