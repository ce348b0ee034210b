"""`holdfast approve`, `refuse` and `resolve`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from ..options import DEFAULTS, By, CallArg, Common, SessionArg, who

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ...store.approvals import Answered
    from ...store.store import Store


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
    found = _parse_result(result)
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


def resolve_operation(
    operation: Annotated[str, Parameter(help="The operation, as whoever asked for it was told.")],
    verdict: Literal["landed", "not-landed"],
    /,
    *,
    result: str | None = None,
    note: str = "",
    by: By = None,
    common: Common = DEFAULTS,
) -> None:
    """Say what became of a global operation whose session was deleted in the middle of it.

    Nobody is left who could look after it, so it is blocked for everybody until somebody has found out.
    Whoever asks for it is told its name and its key. While the session is still there, use `resolve`.

    Parameters
    ----------
    verdict
        landed: it happened, and this is its result. not-landed: it did not happen, and may be done.
    result
        What it gave, if it landed: JSON, or else plain text.
    note
        How you know.
    """
    from ..store_access import with_store

    found = _parse_result(result)
    spelt: Literal["landed", "not_landed"] = "landed" if verdict == "landed" else "not_landed"

    async def settle(store: Store) -> None:
        from ..console import print_json, say
        from ..exit_codes import Exit, Stop

        answered = await store.resolve_operation(operation, spelt, by=who(by), note=note, result=found)
        if common.json:
            print_json({"operation": operation, "answer": verdict, "outcome": answered})
        if answered == "late":
            raise Stop(Exit.ERROR, f"too late: operation {operation} is not in doubt")
        if not common.json:
            say(f"{verdict}: on record for operation {operation}")

    with_store(common, settle)


def _parse_result(text: str | None) -> Any:
    """JSON, or else plain text."""
    import msgspec

    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _parse_json(text: str, option: str) -> Any:
    import msgspec

    from ..exit_codes import Exit, Stop

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
    from ..store_access import with_store

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
    from ..exit_codes import Exit, Stop
    from ..store_access import get_head

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
