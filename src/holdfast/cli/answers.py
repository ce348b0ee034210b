"""A person's answer for a call, as `approve`, `refuse` and `resolve` give it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from ..store.approvals import Answered
from ..store.store import Store
from .advice import continue_call
from .console import print_json, say
from .exit_codes import Exit, Stop
from .options import Common
from .store_access import get_head, with_store


def answer_call(
    common: Common,
    session: str,
    call: str,
    answer: str,
    give: Callable[[Store, str | int], Awaitable[Answered]],
) -> None:
    """Record the answer with `give`, which is called with the call's id or the number of its entry."""

    async def work(store: Store) -> None:
        await get_head(store, session)
        named = int(call[1:]) if call[:1] == "@" and call[1:].isdecimal() else call
        answered = await give(store, named)
        if common.json:
            print_json({"session": session, "call": call, "answer": answer, "outcome": answered})
        if answered == "late":
            raise Stop(Exit.ERROR, f"too late: {call} was settled meanwhile; your answer is recorded as late")
        if common.json:
            return
        if answered == "posted":
            head = await store.head(session)
            holder = head.lease.name if head.lease else "its next holder"
            say(f"{answer}: in the inbox of {session}; its holder, {holder}, takes it in")
        else:
            head = await store.head(session)
            runs = [run async for run in store.runs(session=session)]
            say(f"{answer}: recorded in {session}; to go on: {continue_call(head, runs, common)}")

    with_store(common, work)


def parse_json(text: str, option: str) -> Any:
    """The value of an option that must be JSON."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise Stop(Exit.USAGE, f"{option} is not JSON: {error}") from error


def parse_result(text: str | None) -> Any:
    """The result of a call: JSON, or else plain text."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
