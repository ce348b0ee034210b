"""`holdfast submit`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..options import DEFAULTS, Common, Labels, MessageArg, SessionArg, parse_labels, read_message

if TYPE_CHECKING:
    from ...store.store import Store


def submit(
    session: SessionArg,
    message: MessageArg,
    /,
    *,
    agent: str | None = None,
    label: Labels = (),
    key: str | None = None,
    common: Common = DEFAULTS,
) -> None:
    """Send a message to a session, also while another process holds it. Durable when the command returns.

    The holder takes it in at the end of its step. If no process holds the session, a worker that has its
    agent takes it, or the next process that opens the session.

    Parameters
    ----------
    agent
        The name of the agent that is to work on it. With it, a session that does not exist is created.
    label
        A label for a new session, as name=value.
    key
        Submissions with equal keys are one: submitting again after an error is safe.
    """
    from ..exit_codes import Exit, Stop
    from ..store_access import get_head, with_store

    text = read_message(message)
    if not text.strip():
        raise Stop(Exit.USAGE, "the message is empty: a model has nothing to answer to")
    labels = parse_labels(label)

    async def work(store: Store) -> None:
        if agent is None:
            await get_head(store, session)
        number = await store.submit(session, text, agent=agent, key=key, labels=labels)
        await _report(store, session, number, common)

    with_store(common, work, create=agent is not None)


async def _report(store: Store, session: str, number: int, common: Common) -> None:
    from ..console import print_json, say

    head = await store.head(session)
    if common.json:
        print_json({"session": session, "number": number})
        return
    taker = "its next holder"
    if head.lease and await store.is_held(head):
        taker = f"its holder, {head.lease.name},"
    elif head.agent:
        taker = f"a worker that has {head.agent}, or its next holder,"
    say(f"in the inbox of {session} as number {number}; {taker} takes it in")
