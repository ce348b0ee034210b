"""`holdfast approve`, `refuse` and `resolve`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from ..options import DEFAULTS, By, CallArg, Common, SessionArg, who

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ...session.answers import Answered
    from ...session.store import Store


def approve(
    session: SessionArg,
    call: CallArg,
    /,
    *,
    args: str | None = None,
    note: str = "",
    by: By = None,
    common: Common = DEFAULTS,
) -> None:
    """Agree to a call that waits for approval, perhaps with other arguments.

    Works whether or not somebody holds the session: its holder takes the answer in, or it is taken in at
    once. Then the agent goes on by itself, or with `holdfast resume`.

    Parameters
    ----------
    args
        The arguments to call it with instead, as a JSON object. Both are on record.
    note
        Why.
    """
    parsed = None if args is None else _parse_json(args, "--args")
    _answer(
        common,
        session,
        call,
        "approved",
        lambda store, named: store.approve(session, named, by=who(by), args=parsed, note=note),
    )


def refuse(
    session: SessionArg,
    call: CallArg,
    /,
    *,
    reason: str = "",
    by: By = None,
    common: Common = DEFAULTS,
) -> None:
    """Do not agree to a call that waits for approval; the model is told why.

    Works whether or not somebody holds the session.

    Parameters
    ----------
    reason
        What the model is told.
    """
    _answer(
        common,
        session,
        call,
        "refused",
        lambda store, named: store.refuse(session, named, by=who(by), reason=reason),
    )


def resolve(
    session: SessionArg,
    call: CallArg,
    verdict: Literal["landed", "not-landed", "gave-up"],
    /,
    *,
    result: str | None = None,
    note: str = "",
    by: By = None,
    common: Common = DEFAULTS,
) -> None:
    """Say what became of a call in doubt.

    A call is in doubt when its process died in it, or when it raised after it may have done something. It is
    not run again before somebody knows. Works whether or not somebody holds the session.

    Parameters
    ----------
    verdict
        landed: it happened, and this is its result. not-landed: it did not happen, and may be done again.
        gave-up: nobody can tell; it is never done again, and the model is told so.
    result
        What a call that landed gave: JSON, or else plain text.
    note
        How you know.
    """
    import msgspec

    found: Any = result
    if result is not None:
        try:
            found = msgspec.json.decode(result)
        except msgspec.DecodeError:
            found = result
    spelt: dict[str, Literal["landed", "not_landed", "gave_up"]] = {
        "landed": "landed",
        "not-landed": "not_landed",
        "gave-up": "gave_up",
    }
    _answer(
        common,
        session,
        call,
        verdict,
        lambda store, named: store.resolve(
            session, named, spelt[verdict], by=who(by), note=note, result=found
        ),
    )


def _parse_json(text: str, option: str) -> Any:
    import msgspec

    from ..exits import Exit, Stop

    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise Stop(Exit.USAGE, f"{option} is not JSON: {error}") from error


def _answer(
    common: Common,
    session: str,
    call: str,
    word: str,
    give: Callable[[Store, str | int], Awaitable[Answered]],
) -> None:
    from ..opening import with_store

    with_store(common, lambda store: _give(store, common, session, call, word, give))


async def _give(
    store: Store,
    common: Common,
    session: str,
    call: str,
    word: str,
    give: Callable[[Store, str | int], Awaitable[Answered]],
) -> None:
    from ..console import print_json, say
    from ..exits import Exit, Stop
    from ..opening import get_head

    await get_head(store, session)
    named = int(call[1:]) if call[:1] == "@" and call[1:].isdecimal() else call
    answered = await give(store, named)
    if common.json:
        print_json({"session": session, "call": call, "answer": word, "outcome": answered})
    if answered == "late":
        raise Stop(Exit.ERROR, f"too late: {call} was settled meanwhile; your answer is on record as such")
    if common.json:
        return
    if answered == "posted":
        head = await store.head(session)
        holder = head.lease.name if head.lease else "its next holder"
        say(f"{word}: {holder}, who holds {session}, takes it in")
    else:
        say(f"{word}: on record in {session}; `holdfast resume` goes on with it")
