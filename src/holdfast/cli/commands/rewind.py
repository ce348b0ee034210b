"""`holdfast rewind`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..options import DEFAULTS, Common, SessionArg, Wait, Yes

if TYPE_CHECKING:
    from ...store.store import Store


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

    Nothing is removed: the journal keeps the later versions, and you can go to them again. Money that was
    spent stays spent. Side effects stay done, unless --undo names the agent whose tools can undo them.

    Parameters
    ----------
    version
        Go back to this version; `holdfast show` lists them.
    steps
        Or: go back by this many steps.
    undo
        The agent, as in `holdfast run`: its tools undo the side effects after that version. Asks first.
    """
    from ..console import confirm
    from ..exit_codes import Exit, Stop
    from ..store_access import with_store

    if (version is None) == (steps is None):
        raise Stop(Exit.USAGE, "say how far: --version N or --steps N")
    if undo is not None:
        confirm(f"Undo the side effects of {session} since then?", yes=yes)
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
                    {
                        "entry": effect.issued,
                        "tool": effect.tool,
                        "call": effect.call.id,
                        "status": effect.status,
                    }
                    for effect in left
                ],
            }
        )
        return
    say(f"{session} is at version {rewound.version}")
    if left:
        names = ", ".join(f"{effect.tool} ({effect.call.id})" for effect in left)
        say(f"{count(len(left), 'side effect')} stay{'s' if len(left) == 1 else ''} done: {names}")
