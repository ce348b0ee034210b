"""`holdfast clean`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ..options import DEFAULTS, Common, SessionArg, Wait, Yes

if TYPE_CHECKING:
    from ...core.head import Head
    from ...store.store import Store


def clean(
    session: SessionArg,
    /,
    *more: SessionArg,
    only: Literal["transcript", "checkpoints"] | None = None,
    wait: Wait = 0,
    yes: Yes = False,
    common: Common = DEFAULTS,
) -> None:
    """Delete sessions, or erase their contents. Asks first.

    A deleted session is gone, and its id is free. Entries that a fork shares stay for the fork. A session
    that another process holds is not touched.

    Parameters
    ----------
    only
        transcript: erase the contents of messages and results; digests, costs and outcomes stay.
        checkpoints: drop all versions; contents stay.
    """
    from ..console import confirm
    from ..formatting import count
    from ..store_access import with_store

    # Asked outside the event loop, which would swallow a Ctrl-C.
    heads = with_store(common, lambda store: _find(store, (session, *more)))
    what = {
        None: "Delete",
        "transcript": "Erase the contents of",
        "checkpoints": "Drop all versions of",
    }[only]
    which = ", ".join(head.session for head in heads)
    messages = sum(head.messages for head in heads)
    confirm(f"{what} {which} ({count(messages, 'message')})? This cannot be undone.", yes=yes)
    with_store(common, lambda store: _clean(store, heads, only, wait, common))


async def _find(store: Store, sessions: tuple[str, ...]) -> list[Head]:
    from ..store_access import get_head

    return [await get_head(store, session) for session in dict.fromkeys(sessions)]


async def _clean(
    store: Store,
    heads: list[Head],
    only: Literal["transcript", "checkpoints"] | None,
    wait: float,
    common: Common,
) -> None:
    from ..console import print_json, say

    done: dict[str, str] = {}
    for head in heads:
        done[head.session] = await store.clean(
            head.session, transcript=only != "checkpoints", checkpoints=only != "transcript", wait_s=wait
        )
        if not common.json:
            say(f"{head.session}: {done[head.session]}")
    if common.json:
        print_json({"sessions": done})
