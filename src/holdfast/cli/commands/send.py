"""`holdfast submit` and `holdfast cancel`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ..options import DEFAULTS, By, Common, MessageArg, SessionArg, who

if TYPE_CHECKING:
    from ...store.store import Store


def submit(
    session: SessionArg,
    message: MessageArg,
    /,
    *,
    agent: str | None = None,
    label: Annotated[tuple[str, ...], Parameter(consume_multiple=False)] = (),
    key: str | None = None,
    common: Common = DEFAULTS,
) -> None:
    """Send a message to a session, whoever holds it. Durable when the command returns.

    The holder takes it in at the end of its step. If nobody holds the session, a worker that knows its agent
    takes it up, or whoever opens it next.

    Parameters
    ----------
    agent
        The name of the agent that is to work on it. Only then is a session made that does not exist.
    label
        A label for a new session, as name=value.
    key
        Equal keys are one submission: submitting again after an error is safe.
    """
    import sys

    from ..exit_codes import Exit, Stop
    from ..labels import parse_labels
    from ..store_access import get_head, with_store

    text = sys.stdin.read() if message == "-" else message
    if not text.strip():
        raise Stop(Exit.USAGE, "the message is empty: a model has nothing to answer to")
    labels = parse_labels(label)

    async def work(store: Store) -> None:
        if agent is None:
            await get_head(store, session)
        number = await store.submit(session, text, agent=agent, key=key, labels=labels)
        await _tell(store, session, number, common)

    with_store(common, work, create=agent is not None)


async def _tell(store: Store, session: str, number: int, common: Common) -> None:
    from ..console import print_json, say

    head = await store.head(session)
    if common.json:
        print_json({"session": session, "number": number})
        return
    held = await store.is_held(head)
    taker = f"a worker that knows {head.agent}, or who opens it next," if head.agent else "who opens it next"
    taker = head.lease.name if held and head.lease else taker
    say(f"in the inbox of {session} as number {number}; {taker} takes it in")


def cancel(
    session: SessionArg,
    /,
    *,
    reason: str = "",
    by: By = None,
    common: Common = DEFAULTS,
) -> None:
    """Ask whoever drives a session to stop at the end of its step.

    It is a request, durable when the command returns. A run that was cancelled can be resumed.

    Parameters
    ----------
    reason
        Why; it is on record.
    """
    from ..store_access import with_store

    with_store(common, lambda store: _cancel(store, session, reason, who(by), common))


async def _cancel(store: Store, session: str, reason: str, by: str, common: Common) -> None:
    from ..console import print_json, say
    from ..store_access import get_head

    head = await get_head(store, session)
    number = await store.cancel(session, by=by, reason=reason)
    held = await store.is_held(head)
    if common.json:
        print_json({"session": session, "number": number, "held": held})
    elif held and head.lease:
        say(f"{head.lease.name}, who holds {session}, is asked to stop")
    else:
        say(f"nobody holds {session} now; whoever opens it next is asked to stop")
