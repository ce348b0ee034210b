"""`holdfast cancel`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..options import DEFAULTS, By, Common, SessionArg, user_name

if TYPE_CHECKING:
    from ...store.store import Store


def cancel(
    session: SessionArg,
    /,
    *,
    reason: str = "",
    by: By = None,
    common: Common = DEFAULTS,
) -> None:
    """Ask the holder of a session to stop at the end of its step.

    The request is durable when the command returns. A cancelled run can be resumed.

    Parameters
    ----------
    reason
        Why; it is recorded.
    """
    from ..store_access import with_store

    with_store(common, lambda store: _cancel(store, session, reason, user_name(by), common))


async def _cancel(store: Store, session: str, reason: str, by: str, common: Common) -> None:
    from ..console import print_json, say
    from ..store_access import get_head

    head = await get_head(store, session)
    number = await store.cancel(session, by=by, reason=reason)
    held = await store.is_held(head)
    if common.json:
        print_json({"session": session, "number": number, "held": held})
    elif held and head.lease:
        say(f"the holder of {session}, {head.lease.name}, is asked to stop")
    else:
        say(f"no process holds {session}; its next holder is asked to stop")
