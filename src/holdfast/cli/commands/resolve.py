"""`holdfast resolve`."""

from __future__ import annotations

from typing import Literal

from ..options import DEFAULTS, By, CallArg, Common, SessionArg, user_name


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
    """Say whether a call in doubt happened.

    A call is in doubt when its process died during it, or when it failed after it may have done something. It
    is not run again until its outcome is known. Works whether or not a process holds the session.

    Parameters
    ----------
    verdict
        landed: it happened, and --result is what it gave. not-landed: it did not happen, and may be run
        again. gave-up: it cannot be found out; it is never run again, and the model is told so.
    result
        The result of a call that landed: JSON, or else plain text.
    note
        How you know.
    """
    from ..answers import answer_call, parse_result

    found = parse_result(result)
    verdicts: dict[str, Literal["landed", "not_landed", "gave_up"]] = {
        "landed": "landed",
        "not-landed": "not_landed",
        "gave-up": "gave_up",
    }
    answer_call(
        common,
        session,
        call,
        verdict,
        lambda store, named: store.resolve(
            session, named, verdicts[verdict], by=user_name(by), note=note, result=found
        ),
    )
