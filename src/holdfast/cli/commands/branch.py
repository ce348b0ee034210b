"""`holdfast fork` and `holdfast rewind`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ..options import DEFAULTS, Common, SessionArg, Wait, Yes

if TYPE_CHECKING:
    from ...store.store import Store


def fork(
    session: SessionArg,
    /,
    *,
    version: int | None = None,
    into: str | None = None,
    label: Annotated[tuple[str, ...], Parameter(consume_multiple=False)] = (),
    common: Common = DEFAULTS,
) -> None:
    """Start a new session from a version of another one; prints its id.

    History is shared, not copied, and the origin is not touched: it may be held by anybody, and may be
    deleted later. What the origin did in the world after that version stays done; the fork is told of it.

    Parameters
    ----------
    version
        Which; the latest if you leave it out.
    into
        The new session's id.
    label
        A label for it, as name=value.
    """
    from ..store_access import with_store

    with_store(common, lambda store: _fork(store, session, version, into, label, common))


async def _fork(
    store: Store, session: str, version: int | None, into: str | None, label: tuple[str, ...], common: Common
) -> None:
    from ..console import print_json, print_text, say
    from ..labels import parse_labels
    from ..store_access import get_head

    await get_head(store, session)
    made = await store.fork(session, version=version, into=into, labels=parse_labels(label))
    state = await store.load(made)
    left = state.facts.left_behind
    if common.json:
        print_json({"session": made, "origin": session, "version": state.version, "left_behind": left})
        return
    print_text(made)
    for one in left:
        became = one.status.replace("_", " ")
        say(f"session {session} did {one.tool} ({one.call}, {became}) after version {state.version}")


def rewind(
    session: SessionArg,
    /,
    *,
    version: int | None = None,
    steps: int | None = None,
    undo: str | None = None,
    wait: Wait = 0,
    yes: Yes = False,
    common: Common = DEFAULTS,
) -> None:
    """Go back to an earlier version of a session.

    Nothing is removed: the journal keeps what is left behind, and you can go there again. What was spent
    stays spent, and what tools did in the world stays done, unless --undo names the agent whose tools can
    take it back.

    Parameters
    ----------
    version
        Go back to this version; `holdfast show` lists them.
    steps
        Or: go back by this many steps.
    undo
        The agent, as in `holdfast run`: its tools undo what came after. You are asked first.
    """
    from ..console import confirm
    from ..exit_codes import Exit, Stop
    from ..store_access import with_store

    if (version is None) == (steps is None):
        raise Stop(Exit.USAGE, "say how far: --version N or --steps N")
    if undo is not None:
        confirm(f"Take back what the tools of {session} did in the world since then?", yes=yes)
    with_store(common, lambda store: _rewind(store, session, version, steps, undo, wait, common))


async def _rewind(
    store: Store,
    session: str,
    version: int | None,
    steps: int | None,
    undo: str | None,
    wait: float,
    common: Common,
) -> None:
    from ..console import print_json, say
    from ..formatting import count
    from ..load_agent import load_agents, pick
    from ..store_access import get_head

    head = await get_head(store, session)
    registry = None if undo is None else pick(load_agents(undo), undo, head.agent).registry
    async with store.session(session, wait_s=wait, create=False) as opened:
        rewound = await opened.rewind(
            version=version, steps=steps, undo=registry is not None, registry=registry
        )
        left = opened.left_behind(rewound.version)
    if common.json:
        print_json(
            {
                "session": session,
                "version": rewound.version,
                "undone": rewound.undone,
                "left_behind": [
                    {"entry": one.issued, "tool": one.tool, "call": one.call.id, "status": one.status}
                    for one in left
                ],
            }
        )
        return
    say(f"{session} stands at version {rewound.version}")
    if left:
        names = ", ".join(f"{one.tool} ({one.call.id})" for one in left)
        say(f"{count(len(left), 'effect')} in the world stay{'s' if len(left) == 1 else ''} done: {names}")
